/* http: requests as bytes on a socket: framing, limits, many on one connection, methods, targets,
 * and a server that stops. */
#include "daemon/http.h"

#include "tests/lib/http_world.h"

/* Sends bytes, waits until the server closes, takes the first answer. */
static void raw(struct http_world *h, const char *bytes)
{
    struct http_client client;
    client_open(h, &client);
    client_send(h, &client, bytes, strlen(bytes));
    ask_end(h, &client);
}

static void test_refused_and_closed(void **state)
{
    struct http_world *h = *state;
    static const struct {
        const char *request, *code;
        int status;
    } bad[] = {
        {"GET /healthz HTTP/1.1\r\nHost: evil.example\r\n\r\n", "forbidden", 403},
        {"GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n", "bad_request", 400},
        {"POST /v1/files HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n"
         "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
         "bad_request", 400},
        {"GET http://localhost/healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", "bad_request", 400},
        {"POST /v1/files HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip\r\n\r\n",
         "bad_request", 400},
        {"GET /v1/fi\x80les HTTP/1.1\r\nHost: localhost\r\n\r\n", "bad_request", 400},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        raw(h, bad[i].request);
        expect(h, bad[i].status, "error.code", bad[i].code);
        assert_non_null(strstr(h->head, "Connection: close\r\n"));
    }
}

/* A refusal does not cut off who is still sending: the body is heard out, and the connection goes
 * on behind it. Whoever awaits a word before sending it gets the refusal at once. */
static void test_refused_after_the_body(void **state)
{
    struct http_world *h = *state;
    enum { BYTES = 700000 };
    static char body[BYTES];
    static const char again[] =
        "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    static const struct {
        const char *line, *token, *status;
    } refused[] = {
        {"POST /v1/files", "wrong", "HTTP/1.1 401 "}, {"PUT /v1/files", NULL, "HTTP/1.1 405 "},
        {"POST /v1/nothing", NULL, "HTTP/1.1 404 "},  {"POST /v1/files?a=1", NULL, "HTTP/1.1 400 "},
        {"GET /v1/files", "wrong", "HTTP/1.1 401 "},
    };
    for (int i = 0; i < BYTES; i++)
        body[i] = again[i % (int)(sizeof again - 1)]; /* were it no body, it would be answered */
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        struct http_client client;
        char head[400];
        int length = snprintf(
            head, sizeof head,
            "%s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n"
            "Content-Type: multipart/form-data; boundary=xyz\r\nContent-Length: %d\r\n",
            refused[i].line, refused[i].token != NULL ? refused[i].token : h->token, BYTES);
        client_open(h, &client);
        client_send(h, &client, head, (size_t)length);
        client_send(h, &client, "\r\n", 2);
        client_turn(h, &client);
        assert_int_equal(client.in.length, 0);
        client_send(h, &client, body, BYTES);
        client_send(h, &client, again, sizeof again - 1);
        client_await(h, &client, NULL);
        const char *answer_one = buf_str(&client.in),
                   *answer_two = strstr(answer_one + 1, "HTTP/1.1 ");
        assert_memory_equal(answer_one, refused[i].status, strlen(refused[i].status));
        assert_non_null(answer_two);
        assert_memory_equal(answer_two, "HTTP/1.1 200 ", strlen("HTTP/1.1 200 "));
        assert_null(strstr(answer_two + 1, "HTTP/1.1 "));
        client_close(&client);
        client_open(h, &client);
        client_send(h, &client, head, (size_t)length);
        client_send(h, &client, "Expect: 100-continue\r\n\r\n",
                    strlen("Expect: 100-continue\r\n\r\n"));
        client_await(h, &client, refused[i].status);
        client_close(&client);
    }
}

static void test_headers_of_every_answer(void **state)
{
    struct http_world *h = *state;
    char first[64];
    raw(h, "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    expect(h, 200, "status", "ok");
    assert_non_null(strstr(h->head, "Content-Type: application/json\r\n"));
    assert_non_null(strstr(h->head, "Cache-Control: no-store\r\n"));
    assert_non_null(strstr(h->head, "X-Content-Type-Options: nosniff\r\n"));
    assert_null(strstr(h->head, "Access-Control-Allow-Origin"));
    const char *id = strstr(h->head, "X-Request-Id: req_");
    assert_non_null(id);
    (void)snprintf(first, sizeof first, "%.*s", (int)strcspn(id, "\r"), id);
    ask(h, "GET", "/v1/nothing", NULL);
    expect(h, 404, "error.code", "not_found");
    id = strstr(h->head, "X-Request-Id: req_");
    assert_non_null(id);
    assert_int_not_equal(strncmp(id, first, strlen(first)), 0); /* each its own */
    assert_int_equal(h->body[h->length - 1], h->status == 404 ? '}' : '\n');
}

static void test_methods(void **state)
{
    struct http_world *h = *state;
    ask(h, "PUT", "/v1/files", NULL);
    expect(h, 405, "error.code", "method_not_allowed");
    assert_non_null(strstr(h->head, "Allow: "));
    assert_non_null(strstr(h->head, "POST"));
    ask(h, "HEAD", "/healthz", NULL);
    assert_int_equal(h->status, 200);
    assert_int_equal(h->length, 0);
    assert_null(strstr(h->head, "Content-Length: 0\r\n"));
}

static void test_targets(void **state)
{
    struct http_world *h = *state;
    static const char *const none[] = {"/v1/files/..%2fadmin.token/content",
                                       "/v1/files/a%00b",
                                       "/v1/files/%2e%2e",
                                       "/%2fv1/files",
                                       "/v1/files/a/b",
                                       "/v1/files/../admin.token",
                                       "//v1/files",
                                       "/v1/files/",
                                       "/V1/files",
                                       "/v1/models/..",
                                       "/v1/files/a;b"};
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) {
        ask(h, "GET", none[i], NULL);
        if (h->status != 404)
            fail_msg("%s: %d %s", none[i], h->status, h->body);
    }
    CLEANUP(buf_done) struct buf target;
    buf_init(&target, 1 << 20);
    buf_text(&target, "/v1/files?purpose=");
    while (target.length <= 8192)
        buf_char(&target, 'p');
    ask(h, "GET", buf_str(&target), NULL);
    expect(h, 400, "error.code", "bad_request");
    assert_non_null(strstr(json_string_value(answer(h, "error.message")), "8192"));
}

/* Two requests in one write, and a third later, on one connection. */
static void test_one_connection(void **state)
{
    struct http_world *h = *state;
    struct http_client client;
    static const char two[] = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
                              "GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:1\r\n\r\n";
    static const char last[] = "GET /v1/none HTTP/1.1\r\nHost: [::1]\r\nConnection: close\r\n\r\n";
    client_open(h, &client);
    client_send(h, &client, two, 20); /* in pieces */
    client_turn(h, &client);
    client_send(h, &client, two + 20, sizeof two - 1 - 20);
    client_await(h, &client, "\"ok\"");
    buf_clear(&client.in);
    client_await(h, &client, "\"ok\"");
    assert_false(client.ended);
    client_send(h, &client, last, sizeof last - 1);
    client_await(h, &client, "not_found");
    client_await(h, &client, NULL);
    client_close(&client);
}

static void test_bodies(void **state)
{
    struct http_world *h = *state;
    CLEANUP(buf_done) struct buf body;
    buf_init(&body, 4 << 20);
    ask_with(h, "POST", JOBS, "", "", 0);
    expect(h, 400, "error.code", "invalid_json");
    assert_non_null(strstr(json_string_value(answer(h, "error.message")), "empty"));
    while (body.length < LIMIT_JSON_BODY_BYTES)
        buf_char(&body, ' ');
    ask_with(h, "POST", JOBS, "", body.data, body.length);
    expect(h, 400, "error.code", "invalid_json"); /* just within */
    buf_char(&body, ' ');
    ask_with(h, "POST", JOBS, "", body.data, body.length);
    expect(h, 413, "error.code", "too_large");
    static const char chunked[] = "Transfer-Encoding: chunked\r\n";
    CLEANUP(buf_done) struct buf chunks; /* too long, and its length is not announced */
    struct http_client client;
    buf_init(&chunks, 8 << 20);
    buf_printf(&chunks,
               "POST /v1/fine_tuning/jobs HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
               "Authorization: Bearer %s\r\n%s\r\n%zx\r\n",
               h->token, chunked, body.length);
    buf_append(&chunks, body.data, body.length);
    buf_text(&chunks, "\r\n0\r\n\r\n");
    client_open(h, &client);
    client_send(h, &client, chunks.data, chunks.length);
    client_await(h, &client, NULL);
    client_take(h, &client);
    expect(h, 413, "error.code", "too_large");
    client_close(&client);
}

static void test_older_version(void **state)
{
    struct http_world *h = *state;
    raw(h, "GET /healthz HTTP/1.0\r\n\r\n"); /* it knows no Host */
    expect(h, 200, "status", "ok");
    raw(h, "GET /healthz HTTP/1.1\r\nConnection: close\r\n\r\n");
    assert_int_equal(h->status, 400); /* the library's own words */
}

static void test_address_in_use(void **state)
{
    struct http_world *h = *state;
    struct http_app app;
    struct http *second = NULL;
    struct settings taken = h->settings;
    struct err *err = &h->w->err;
    int64_t live = mem_live();
    api_app(&h->api, &app);
    taken.port = http_port(h->http);
    assert_int_equal(http_new(h->w->loop, &taken, &app, &second, err), -ERR_IN_USE);
    assert_non_null(strstr(err->text, "--port"));
    char name[] = "localhost";
    taken.listen = name;
    assert_int_equal(http_new(h->w->loop, &taken, &app, &second, err), -ERR_SETTING);
    assert_string_equal(err->field, "listen");
    char far[] = "192.0.2.1"; /* of no machine */
    taken.listen = far;
    assert_int_not_equal(http_new(h->w->loop, &taken, &app, &second, err), 0);
    assert_non_null(strstr(err->text, far));
    assert_int_equal(mem_live(), live);
    assert_null(second);
    http_free(NULL);
}

static void test_ipv6(void **state)
{
    struct http_world *h = *state;
    struct http_app app;
    struct http *second = NULL;
    struct settings v6 = h->settings;
    char name[] = "::1";
    api_app(&h->api, &app);
    v6.listen = name;
    if (http_new(h->w->loop, &v6, &app, &second, &h->w->err) != 0)
        skip(); /* a machine without IPv6 */
    struct sockaddr_in6 address = {.sin6_family = AF_INET6,
                                   .sin6_port = htons((uint16_t)http_port(second)),
                                   .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    static const char request[] =
        "GET /healthz HTTP/1.1\r\nHost: [::1]:1\r\nConnection: close\r\n\r\n";
    struct http_client client = {.fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    buf_init(&client.in, 1 << 20);
    assert_int_equal(connect(client.fd, (struct sockaddr *)&address, sizeof address), 0);
    client_send(h, &client, request, sizeof request - 1);
    client_await(h, &client, NULL);
    client_take(h, &client);
    expect(h, 200, "status", "ok");
    client_close(&client);
    http_stop(h->http); /* idle: the loop need not turn once one of them is freed */
    http_free(second);
}

static void test_stop(void **state)
{
    struct http_world *h = *state;
    struct http_client client;
    static const char part[] = "POST /v1/fine_tuning/jobs HTTP/1.1\r\nHost: localhost\r\n"
                               "Authorization: Bearer ";
    char rest[128];
    (void)snprintf(rest, sizeof rest, "%s\r\nConnection: close\r\nContent-Length: 2\r\n\r\n",
                   h->token);
    client_open(h, &client);
    client_send(h, &client, part, sizeof part - 1);
    client_send(h, &client, rest, strlen(rest));
    for (int i = 0; i < 20; i++)
        client_turn(h, &client);
    assert_false(http_is_idle(h->http)); /* its body is under way */
    http_stop(h->http);
    http_stop(h->http); /* again is fine */
    client_send(h, &client, "{}", 2);
    client_await(h, &client, NULL);
    client_take(h, &client);
    expect(h, 503, "error.code", "unavailable");
    assert_non_null(strstr(h->head, "Retry-After: 1\r\n"));
    assert_true(http_is_idle(h->http));
    client_close(&client);
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)http_port(h->http)),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_not_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    (void)close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        HTTP_TEST(test_refused_and_closed),
        HTTP_TEST(test_refused_after_the_body),
        HTTP_TEST(test_headers_of_every_answer),
        HTTP_TEST(test_methods),
        HTTP_TEST(test_targets),
        HTTP_TEST(test_one_connection),
        HTTP_TEST(test_bodies),
        HTTP_TEST(test_older_version),
        HTTP_TEST(test_address_in_use),
        HTTP_TEST(test_ipv6),
        HTTP_TEST(test_stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

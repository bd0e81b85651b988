/* http_connection: wherever a client leaves, its connection is closed at once and nothing of it is
 * kept; a head that does not end is cut, however steadily it comes. */
#include "tests/lib/http_world.h"

#include <dirent.h>

static int count_descriptors(void)
{
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    assert_non_null(folder);
    while (readdir(folder) != NULL)
        count++;
    (void)closedir(folder);
    return count;
}

/* Turns the loop until there are no more descriptors than these; says how many there are. */
static int settle(struct http_world *h, int wanted)
{
    int count = wanted + 1;
    for (int i = 0; i < 400 && count > wanted; i++) {
        OK(h->w, loop_turn(h->w->loop, 1, &h->w->err));
        count = count_descriptors();
    }
    return count;
}

/* Sends bytes, which the server reads before the client leaves, or not; politely or by a reset. */
static void leave(struct http_world *h, const char *bytes, bool read, bool reset)
{
    struct http_client client;
    const struct linger at_once = {.l_onoff = reset, .l_linger = 0};
    int before = count_descriptors();
    client_open(h, &client);
    assert_int_equal(send(client.fd, bytes, strlen(bytes), MSG_NOSIGNAL), strlen(bytes));
    for (int i = 0; read && i < 5; i++)
        OK(h->w, loop_turn(h->w->loop, 1, &h->w->err));
    assert_int_equal(setsockopt(client.fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once), 0);
    client_close(&client);
    int after = settle(h, before);
    if (after > before)
        fail_msg("%d descriptors are left of \"%.60s\"", after - before, bytes);
}

static void test_clients_that_leave(void **state)
{
    struct http_world *h = *state;
    char texts[8][512];
    int count = 0;
    const char *token = h->token;
#define TEXT(...) (void)snprintf(texts[count++], sizeof texts[0], __VA_ARGS__)
    TEXT("%s", "");
    TEXT("GET /v1/fi");
    TEXT("GET /healthz HTTP/1.1\r\nHost: loc");
    TEXT("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
    TEXT("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nGET /hea");
    TEXT("GET /v1/stream HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n\r\n", token);
    TEXT("POST /v1/fine_tuning/jobs HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n"
         "Content-Length: 100\r\n\r\n{\"model\"",
         token);
    TEXT("POST /v1/files HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n"
         "Content-Type: multipart/form-data; boundary=xyz\r\nContent-Length: 900\r\n\r\n--xyz\r\n"
         "Content-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\nbytes",
         token);
#undef TEXT
    for (int i = 0; i < count; i++)
        for (int how = 0; how < 4; how++)
            leave(h, texts[i], (how & 1) != 0, (how & 2) != 0);
    assert_true(http_is_idle(h->http));
    ask(h, "GET", "/v1/files", NULL);
    assert_int_equal(json_array_size(answer(h, "data")), 0); /* half a file is none */
}

/* However steadily it comes: a head, or a body that is refused already. */
static void trickle(struct http_world *h, const char *beginning)
{
    struct http_client client;
    int64_t begun_ms = clock_monotonic_ms(); /* before its first byte */
    client_open(h, &client);
    client_send(h, &client, beginning, strlen(beginning));
    while (!client.ended && clock_monotonic_ms() - begun_ms < HTTP_WORLD_PATIENCE_MS) {
        (void)send(client.fd, "x", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
        client_turn(h, &client);
    }
    assert_true(client.ended);
    assert_true(clock_monotonic_ms() - begun_ms >= 1000);
    client_close(&client);
}

static void test_what_does_not_end(void **state)
{
    struct http_world *h = *state;
    h->settings.idle_limit_s = 1;
    trickle(h, "GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: ");
    trickle(h, "POST /v1/files HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000000\r\n\r\n");
    ask(h, "GET", "/healthz", NULL);
    expect(h, 200, "status", "ok");
}

/* Whoever opens connections and says nothing keeps nobody out; what is under way stays. */
static void test_idle_connections_make_room(void **state)
{
    struct http_world *h = *state;
    enum { MANY = 60, MOST = 16 };
    struct http_client stream, upload, idle[MANY];
    char text[300];
    client_open(h, &stream);
    (void)snprintf(text, sizeof text,
                   "GET /v1/stream HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n\r\n",
                   h->token);
    client_send(h, &stream, text, strlen(text));
    client_await(h, &stream, "retry:");
    client_open(h, &upload);
    (void)snprintf(text, sizeof text,
                   "POST /v1/fine_tuning/estimate HTTP/1.1\r\nHost: localhost\r\n"
                   "Connection: close\r\nAuthorization: Bearer %s\r\nContent-Length: 2\r\n\r\n{",
                   h->token);
    client_send(h, &upload, text, strlen(text));
    int before = count_descriptors();
    h->settings.connections_max = MOST;
    static const char *const begun[] = {
        "", "GET /healthz HT", /* or are refused, and do not come to an end */
        "POST /v1/files HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9000000\r\n\r\nx"};
    for (int i = 0; i < MANY; i++) {
        client_open(h, &idle[i]);
        client_send(h, &idle[i], begun[i % 3], strlen(begun[i % 3]));
    }
    int taken =
        settle(h, before + MANY + MOST) - before - MANY; /* the clients' ends are ours too */
    assert_true(taken > 0 && taken <= MOST);
    ask(h, "GET", "/healthz", NULL);
    expect(h, 200, "status", "ok");
    client_send(h, &upload, "}", 1);
    ask_end(h, &upload);
    expect(h, 400, "error.param", "model"); /* it was heard to its end */
    assert_false(stream.ended);
    client_turn(h, &stream);
    assert_false(stream.ended);
    client_close(&stream);
    for (int i = 0; i < MANY; i++)
        client_close(&idle[i]);
}

/* Field case R60: the limit is on silence, not on how long an upload takes. */
static void test_an_upload_that_trickles(void **state)
{
    struct http_world *h = *state;
    struct http_client client;
    static const char head[] = "--xyz\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\n"
                               "fine-tune\r\n--xyz\r\nContent-Disposition: form-data; "
                               "name=\"file\"; filename=\"a\"\r\n\r\n";
    enum { LINES = 35 };
    char request[400];
    h->settings.idle_limit_s = 1;
    (void)snprintf(request, sizeof request,
                   "POST /v1/files HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                   "Authorization: Bearer %s\r\nContent-Type: multipart/form-data; boundary=xyz\r\n"
                   "Content-Length: %zu\r\n\r\n",
                   h->token, sizeof head - 1 + LINES + strlen("\r\n--xyz--\r\n"));
    client_open(h, &client);
    client_send(h, &client, request, strlen(request));
    client_send(h, &client, head, sizeof head - 1);
    for (int i = 0; i < LINES; i++) { /* three and a half times the limit */
        client_send(h, &client, "x", 1);
        int64_t next_ms = clock_monotonic_ms() + 100;
        while (clock_monotonic_ms() < next_ms)
            client_turn(h, &client);
    }
    client_send(h, &client, "\r\n--xyz--\r\n", strlen("\r\n--xyz--\r\n"));
    ask_end(h, &client);
    expect(h, 200, "object", "file");
    assert_int_equal(answer_int(h, "bytes"), LINES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        HTTP_TEST(test_clients_that_leave), HTTP_TEST(test_what_does_not_end),
        HTTP_TEST(test_idle_connections_make_room), HTTP_TEST(test_an_upload_that_trickles)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

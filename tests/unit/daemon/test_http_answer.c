/* http_answer: each kind of answer at once and later, errors of any bytes, files, streams that
 * sleep and wake, and clients that leave, on a server whose app is played here. */
#include "tests/lib/http_world.h"

#include <fcntl.h>

struct played {
    struct http_world *h; /* its http is the one under test */
    struct http *other;   /* the API's, put back at the end */
    const char *does;     /* what the handler does */
    struct http_request *request;
    int gone, ended;  /* calls */
    int answered;     /* calls, too */
    int told;         /* status of the last answer it was told of */
    const char *next; /* what the stream's next fill appends; NULL: nothing */
    bool last;        /* and then ends */
    int fills;
};

static void played_gone(void *context)
{
    struct played *played = context;
    struct err err;
    played->gone++;
    (void)err_set(&err, ERR_UNAVAILABLE, "gone");
    http_answer_error(played->request, &err);
}

static void played_ended(void *context)
{
    struct played *played = context;
    played->ended++;
    played->request = NULL;
}

static bool played_fill(void *context, struct buf *out)
{
    struct played *played = context;
    played->fills++;
    if (played->next != NULL)
        buf_text(out, played->next);
    played->next = NULL;
    return !played->last;
}

static void played_file(struct played *played, const char *bytes, int64_t length)
{
    CLEANUP(mem_free_ptr) char *path = io_join(played->h->w->dir, "a-file");
    http_world_put(played->h, played->h->w->dir, "a-file", bytes);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    http_answer_file(played->request, fd, length);
}

static int played_begin(void *context, struct http_request *request, struct err *err)
{
    struct played *played = context;
    played->request = request;
    http_request_on_end(request, played_ended, played);
    http_request_set_who(request, &(struct auth_who){.user = "me"});
    return 0;
}

static void played_answered(void *context, struct http_request *request, int status,
                            const char *body)
{
    struct played *played = context;
    assert_ptr_equal(request, played->request);
    assert_memory_equal(body, "{", 1);
    played->told = status;
    played->answered++;
}

static int played_handle(void *context, struct http_request *request, struct err *err)
{
    struct played *played = context;
    assert_string_equal(http_request_owner(request), "me");
    assert_ptr_equal(http_request_ended_context(request), played);
    if (strcmp(played->does, "null") == 0)
        http_answer_json(request, 200, NULL);
    else if (strcmp(played->does, "twice") == 0) {
        http_answer_json(request, 201, json_pack("{s:i}", "n", 1));
        http_answer_json(request, 200, json_pack("{s:i}", "n", 2));
    } else if (strcmp(played->does, "file") == 0)
        played_file(played, "0123456789", 4);
    else if (strcmp(played->does, "empty") == 0)
        played_file(played, "", 0);
    else if (strcmp(played->does, "stream") == 0)
        http_answer_stream(request, played_fill, played);
    else if (strcmp(played->does, "defer") == 0)
        http_defer(request, played_gone, played);
    else if (strcmp(played->does, "bytes") == 0)
        return err_set_field(err, ERR_TOO_MANY, "f\xff", "a \"quote\", \xff and \x01");
    else
        return err_set(err, (enum err_code)err_code_parse(played->does), "as asked");
    return 0;
}

static int setup(void **state)
{
    struct played *played = mem_new(1, sizeof *played);
    assert_int_equal(http_world_setup((void **)&played->h), 0);
    struct http_world *h = played->h;
    const struct http_app app = {.begin = played_begin,
                                 .handle = played_handle,
                                 .answered = played_answered,
                                 .context = played};
    played->other = h->http;
    OK(h->w, http_new(h->w->loop, &h->settings, &app, &h->http, &h->w->err));
    *state = played;
    return 0;
}

static int teardown(void **state)
{
    struct played *played = *state;
    struct http_world *h = played->h;
    void *world = h;
    struct http *tested = h->http;
    http_stop(tested);
    for (int i = 0; i < 100 && !http_is_idle(tested); i++)
        OK(h->w, loop_turn(h->w->loop, 1, &h->w->err));
    assert_true(http_is_idle(tested));
    http_stop(played->other); /* idle: the loop need not turn once one of them is freed */
    http_free(tested);
    h->http = played->other;
    mem_free(played);
    return http_world_teardown(&world);
}

/* Asks what makes the handler do something. */
static void play(struct played *played, const char *does)
{
    played->does = does;
    played->ended = 0;
    ask(played->h, "GET", "/healthz", NULL);
    assert_int_equal(played->ended, 1);
}

static void test_at_once(void **state)
{
    struct played *played = *state;
    struct http_world *h = played->h;
    play(played, "twice"); /* the first counts */
    assert_int_equal(played->answered, 1);
    assert_int_equal(played->told, 201);
    assert_int_equal(h->status, 201);
    assert_int_equal(answer_int(h, "n"), 1);
    play(played, "null"); /* what json_pack gives without memory */
    expect(h, 500, "error.code", "out_of_memory");
    play(played, "file");
    assert_int_equal(h->status, 200);
    assert_string_equal(h->body, "0123");
    assert_non_null(strstr(h->head, "Content-Length: 4\r\n"));
    assert_non_null(strstr(h->head, "application/octet-stream"));
    play(played, "empty");
    assert_int_equal(h->status, 200);
    assert_int_equal(h->length, 0);
}

static void test_errors(void **state)
{
    struct played *played = *state;
    struct http_world *h = played->h;
    for (int code = 1; code < ERR_COUNT; code++) {
        const char *name = err_code_name((enum err_code)code);
        play(played, name);
        expect(h, err_code_http((enum err_code)code), "error.code", name);
        expect(h, h->status, "error.type", err_code_type((enum err_code)code));
        expect(h, h->status, "error.message", "as asked");
        assert_true(json_is_null(answer(h, "error.param")));
        assert_int_equal(strstr(h->head, "WWW-Authenticate: Bearer\r\n") != NULL, code == ERR_AUTH);
        assert_int_equal(strstr(h->head, "Retry-After: 1\r\n") != NULL,
                         h->status == 429 || h->status == 503);
    }
    play(played, "bytes"); /* still JSON, still UTF-8 */
    expect(h, 429, "error.param", "f?");
    expect(h, 429, "error.message", "a \"quote\", ? and \x01");
}

static void begin(struct played *played, struct http_client *client, const char *does)
{
    static const char request[] =
        "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    played->does = does;
    client_open(played->h, client);
    client_send(played->h, client, request, sizeof request - 1);
    for (int i = 0; i < 20; i++)
        client_turn(played->h, client);
}

static void test_later(void **state)
{
    struct played *played = *state;
    struct http_client client;
    begin(played, &client, "defer");
    assert_int_equal(client.in.length, 0);
    assert_int_equal(played->ended, 0);
    http_answer_json(played->request, 200, json_pack("{s:s}", "came", "later"));
    client_await(played->h, &client, NULL);
    client_take(played->h, &client);
    expect(played->h, 200, "came", "later");
    assert_int_equal(played->gone, 0);
    assert_int_equal(played->ended, 1);
    client_close(&client);
}

static void pump_until(struct played *played, const int *counter)
{
    int64_t end_ms = clock_monotonic_ms() + HTTP_WORLD_PATIENCE_MS;
    while (*counter == 0 && clock_monotonic_ms() < end_ms)
        OK(played->h->w, loop_turn(played->h->w->loop, 1, &played->h->w->err));
    assert_int_equal(*counter, 1);
}

static void test_client_leaves(void **state)
{
    struct played *played = *state;
    struct http_client client;
    begin(played, &client, "defer");
    client_close(&client);
    pump_until(played, &played->gone);
    pump_until(played, &played->ended);
    played->ended = 0;
    begin(played, &client, "stream"); /* a dry one */
    assert_int_equal(played->fills, 1);
    client_close(&client);
    pump_until(played, &played->ended);
    assert_int_equal(played->gone, 1); /* that is the deferred one's */
}

static void test_stream(void **state)
{
    struct played *played = *state;
    struct http_client client;
    begin(played, &client, "stream");
    client_await(played->h, &client, "text/event-stream");
    assert_non_null(strstr(buf_str(&client.in), "X-Accel-Buffering: no\r\n"));
    assert_int_equal(played->fills, 1);
    http_stream_wake(played->request); /* nothing new: it sleeps again */
    for (int i = 0; i < 20; i++)
        client_turn(played->h, &client);
    assert_int_equal(played->fills, 2);
    played->next = "data: one\n\n";
    http_stream_wake(played->request);
    http_stream_wake(played->request); /* twice is fine */
    client_await(played->h, &client, "data: one\n\n");
    CLEANUP(mem_free_ptr) char *large = mem_new(1, 900001); /* far more than a piece */
    memset(large, 'x', 900000);
    played->next = large;
    played->last = true;
    http_stream_wake(played->request);
    client_await(played->h, &client, NULL);
    size_t letters = 0;
    for (size_t i = 0; i < client.in.length; i++)
        letters += client.in.data[i] == 'x';
    assert_true(letters >= 900000);
    assert_int_equal(played->ended, 1);
    client_close(&client);
}

/* More than HTTP_STREAM_BYTES at once ends the stream; the client comes again. */
static void test_stream_overflows(void **state)
{
    struct played *played = *state;
    struct http_client client;
    CLEANUP(mem_free_ptr) char *large = mem_new(1, HTTP_STREAM_BYTES + 2);
    memset(large, 'x', HTTP_STREAM_BYTES + 1);
    played->next = large;
    begin(played, &client, "stream");
    client_await(played->h, &client, NULL);
    assert_null(strstr(buf_str(&client.in), "xxx"));
    assert_int_equal(played->ended, 1);
    client_close(&client);
}

static void test_stop(void **state)
{
    struct played *played = *state;
    struct http_client client;
    begin(played, &client, "defer");
    http_stop(played->h->http);
    client_await(played->h, &client, NULL);
    client_take(played->h, &client);
    expect(played->h, 503, "error.code", "unavailable");
    assert_int_equal(played->ended, 1);
    client_close(&client);
}

#define PLAYED(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        PLAYED(test_at_once),       PLAYED(test_errors), PLAYED(test_later),
        PLAYED(test_client_leaves), PLAYED(test_stream), PLAYED(test_stream_overflows),
        PLAYED(test_stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

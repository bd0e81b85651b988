/* http_late: of requests that write, each for a while, a turn of the loop handles one; what reads
 * is served between them, files wait longest, and none is forgotten, whatever comes. */
#include "daemon/http_private.h"

#include "tests/lib/http_world.h"

enum { FILES = 3, CANCELS = 4, WRITES = FILES + CANCELS };

static char order[64]; /* of what was handled: F a file, C a cancel, G a look */

static bool is_slow; /* each takes longer than a turn begins to write */

static int slow_handle(void *context, struct http_request *request, struct err *err)
{
    const enum route_id route = http_request_route(request)->route;
    const char *kind = route == ROUTE_FILES_CREATE ? "F" : route_changes(route) ? "C" : "G";
    strncat(order, kind, sizeof order - strlen(order) - 1);
    if (route_changes(route) && is_slow)
        clock_sleep_ms(HTTP_TURN_MS + 1);
    return api_handle(context, request, err);
}

/* All of a request but its last byte. */
static void open_file(struct http_world *h, struct http_client *client)
{
    static const char body[] =
        "--xyz\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nfine-tune\r\n--xyz\r\n"
        "Content-Disposition: form-data; name=\"file\"; filename=\"a.jsonl\"\r\n\r\n{}\r\n--xyz--"
        "\r";
    char headers[128];
    (void)snprintf(headers, sizeof headers,
                   "Content-Type: multipart/form-data; boundary=xyz\r\nContent-Length: %zu\r\n",
                   sizeof body);
    ask_open(h, client, "POST", "/v1/files", headers, NULL, 0);
    client_send(h, client, body, sizeof body - 1);
}

static void open_cancel(struct http_world *h, struct http_client *client)
{
    ask_open(h, client, "POST", "/v1/fine_tuning/jobs/ftjob-none/cancel", "Content-Length: 1\r\n",
             NULL, 0);
}

static size_t writes(void)
{
    size_t count = 0;
    for (const char *at = order; *at != '\0'; at++)
        count += *at != 'G';
    return count;
}

/* Requests that lack their last byte. */
static void open_nearly(struct http_world *h, struct http_client clients[WRITES])
{
    order[0] = '\0';
    is_slow = true;
    h->http->app.handle = slow_handle;
    for (int i = 0; i < WRITES; i++)
        (i < FILES ? open_file : open_cancel)(h, &clients[i]);
    for (int i = 0; i < 10 * WRITES; i++)
        OK(h->w, loop_turn(h->w->loop, 0, &h->w->err));
    assert_int_equal(writes(), 0);
}

/* Requests that are whole at once. */
static void open_all(struct http_world *h, struct http_client clients[WRITES])
{
    open_nearly(h, clients);
    for (int i = 0; i < WRITES; i++)
        assert_int_equal(send(clients[i].fd, "\n", 1, MSG_NOSIGNAL), 1);
    OK(h->w, loop_turn(h->w->loop, 1, &h->w->err));
    OK(h->w, loop_turn(h->w->loop, 1, &h->w->err));
    assert_non_null(h->http->late);
}

static void test_one_a_turn(void **state)
{
    struct http_world *h = *state;
    struct http_client clients[WRITES], reader, last;
    open_all(h, clients);
    const char *line = order + writes();
    assert_in_range(line - order, 1, 2);
    is_slow = false; /* who comes later goes behind all the same */
    ask_open(h, &reader, "GET", "/healthz", "", NULL, 0);
    open_cancel(h, &last);
    assert_int_equal(send(last.fd, "\n", 1, MSG_NOSIGNAL), 1);
    for (int turn = 0; turn < 100 && writes() < WRITES + 1; turn++) {
        const size_t before = writes();
        OK(h->w, loop_turn(h->w->loop, 1, &h->w->err));
        assert_in_range(writes() - before, 0, 1);
    }
    assert_int_equal(writes(), WRITES + 1);
    assert_in_range(strchr(line, 'G') - line, 0, 3);       /* it waits for nobody */
    assert_true(strchr(order, 'C') < strrchr(order, 'F')); /* though these came before, */
    assert_true(strrchr(line, 'C') > strchr(line, 'F'));   /* and wait, but not for all others */
    ask_end(h, &reader);
    expect(h, 200, "status", "ok");
    for (int i = 0; i < WRITES; i++) {
        ask_end(h, &clients[i]);
        assert_int_equal(h->status, i < FILES ? 200 : 404);
    }
    ask_end(h, &last);
    assert_int_equal(h->status, 404);
}

/* Clients that end what they send with their request are answered, and wait for no turn: when it
 * comes the library would see that end first. */
static void test_clients_that_say_no_more(void **state)
{
    struct http_world *h = *state;
    struct http_client clients[WRITES];
    open_nearly(h, clients);
    for (int i = 0; i < WRITES; i++) {
        assert_int_equal(send(clients[i].fd, "\n", 1, MSG_NOSIGNAL), 1);
        assert_int_equal(shutdown(clients[i].fd, SHUT_WR), 0);
    }
    for (int i = 0; i < WRITES; i++) {
        ask_end(h, &clients[i]);
        assert_int_equal(h->status, i < FILES ? 200 : 404);
    }
}

/* Who stands in the line when the daemon stops hears so, and who has left it holds up nobody. */
static void test_the_line_at_the_end(void **state)
{
    struct http_world *h = *state;
    struct http_client clients[WRITES];
    open_all(h, clients);
    const size_t handled = writes();
    client_close(&clients[WRITES - 1]);
    http_stop(h->http);
    assert_null(h->http->late);
    int refused = 0;
    for (int i = 0; i < WRITES - 1; i++) {
        ask_end(h, &clients[i]);
        refused += h->status == 503;
    }
    assert_int_equal(writes(), handled);
    assert_in_range(refused, WRITES - 1 - (int)handled, WRITES - 1);
    assert_true(http_is_idle(h->http));
}

enum { STREAMS = 2 * HTTP_WAKE_TURN + 20 };

/* How many streams have got more than they had. */
static int told(struct http_client streams[STREAMS])
{
    char bytes[4096];
    int count = 0;
    for (int i = 0; i < STREAMS; i++)
        count += recv(streams[i].fd, bytes, sizeof bytes, MSG_DONTWAIT) > 0;
    return count;
}

/* What all streams are to be told takes several turns, so that others are served between them. */
static void test_streams_take_turns(void **state)
{
    struct http_world *h = *state;
    static struct http_client streams[STREAMS];
    struct http_client leaver;
    h->settings.streams_max = STREAMS + 1;
    for (int i = 0; i < STREAMS; i++) {
        ask_open(h, &streams[i], "GET", "/v1/stream", "", NULL, 0);
        client_await(h, &streams[i], "retry:");
    }
    ask_open(h, &leaver, "GET", "/v1/stream", "", NULL, 0);
    client_await(h, &leaver, "retry:");
    (void)world_submit(h->w, 1, "");
    client_close(&leaver); /* woken, and gone before its turn */
    OK(h->w, loop_turn(h->w->loop, 1, &h->w->err));
    int all = told(streams), most = all;
    for (int turn = 0; turn < 1000 && all < STREAMS; turn++) {
        const int64_t sleep_ms = http_doors_run(h->http);
        assert_true(h->http->woken == NULL || sleep_ms == 0);
        const int count = told(streams);
        most = count > most ? count : most;
        all += count;
    }
    assert_int_equal(all, STREAMS);
    assert_in_range(most, 1, HTTP_WAKE_TURN);
    for (int i = 0; i < STREAMS; i++)
        client_close(&streams[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        HTTP_TEST(test_one_a_turn),
        HTTP_TEST(test_clients_that_say_no_more),
        HTTP_TEST(test_the_line_at_the_end),
        HTTP_TEST(test_streams_take_turns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

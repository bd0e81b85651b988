/* sse: what a stream says of a job, in order and once; where it goes on after a Last-Event-ID; how
 * many there may be; its end. */
#include "daemon/sse.h"

#include "tests/lib/http_world.h"

/* Opens a stream and waits for its greeting. HTTP/1.0: nothing stands between its messages. */
static void stream_open(struct http_world *h, struct http_client *client, const char *target,
                        const char *last_id)
{
    char request[512];
    (void)snprintf(request, sizeof request,
                   "GET %s HTTP/1.0\r\nHost: localhost\r\n"
                   "Authorization: Bearer %s\r\n%s%s%s\r\n",
                   target, h->token, last_id != NULL ? "Last-Event-ID: " : "",
                   last_id != NULL ? last_id : "", last_id != NULL ? "\r\n" : "");
    client_open(h, client);
    client_send(h, client, request, strlen(request));
    client_await(h, client, "\r\n\r\n");
}

static int occurrences(const struct http_client *client, const char *text)
{
    int count = 0;
    for (const char *at = buf_str(&client->in); (at = strstr(at, text)) != NULL; at++)
        count++;
    return count;
}

/* The last "id: <cursor>" that has come. */
static void last_cursor(const struct http_client *client, char cursor[64])
{
    const char *last = NULL;
    for (const char *at = buf_str(&client->in); (at = strstr(at, "\nid: ")) != NULL; at++)
        last = at + 5;
    assert_non_null(last);
    (void)snprintf(cursor, 64, "%.*s", (int)strcspn(last, "\n"), last);
}

static void send_metrics(struct http_world *h, struct world_attempt *a, uint64_t step)
{
    struct wire_frame frame = {.type = WIRE_METRICS,
                               .metrics = {.step = step, .wall_s = 77.5, .count = 2}};
    frame.metrics.points[0] = (struct wire_point){.metric = METRIC_LOSS, .value = 1.5};
    frame.metrics.points[1] =
        (struct wire_point){.metric = METRIC_TOKENS_PER_S, .value = (double)INFINITY};
    world_send(a, 0, frame);
    world_run(h->w);
}

static void test_a_job(void **state)
{
    struct http_world *h = *state;
    struct world_attempt a;
    struct http_client client;
    char wanted[256];
    struct world_job job = world_running(h->w, &a, "");
    const struct http_target target = http_target(JOBS "/%s/stream", job.id);
    stream_open(h, &client, target.text, NULL);
    assert_non_null(strstr(buf_str(&client.in), "Content-Type: text/event-stream"));
    client_await(h, &client, "\"state\":\"running\"");
    assert_non_null(strstr(buf_str(&client.in), "retry: 2000\n"));
    (void)snprintf(wanted, sizeof wanted, "{\"job_id\":\"%s\",\"state\":\"queued\"", job.id);
    assert_int_equal(occurrences(&client, wanted), 1);
    send_metrics(h, &a, 3);
    (void)snprintf(wanted, sizeof wanted,
                   "{\"job_id\":\"%s\",\"attempt\":1,\"step\":3,\"rank\":0,\"at\":77.5,"
                   "\"metrics\":{\"loss\":1.5,\"tokens_per_s\":null}}\n\n",
                   job.id); /* one message a step; JSON has no infinity */
    client_await(h, &client, wanted);
    assert_false(client.ended);
    world_end_done(&a);
    client_await(h, &client, "event: end\n");
    client_await(h, &client, "\"status\":\"succeeded\"");
    client_await(h, &client, NULL);
    assert_int_equal(occurrences(&client, "event: end\n"), 1);
    assert_int_equal(occurrences(&client, "event: metrics\n"), 1);
    client_close(&client);
    world_attempt_close(&a);
}

/* A client that comes back gets what it missed and nothing twice. */
static void test_resume(void **state)
{
    struct http_world *h = *state;
    struct world_attempt a;
    struct http_client client;
    char cursor[64];
    struct world_job job = world_running(h->w, &a, "");
    const struct http_target target = http_target(JOBS "/%s/stream", job.id);
    send_metrics(h, &a, 1);
    stream_open(h, &client, target.text, NULL);
    client_await(h, &client, "\"step\":1,");
    last_cursor(&client, cursor);
    client_close(&client);
    send_metrics(h, &a, 2);
    stream_open(h, &client, target.text, cursor);
    client_await(h, &client, "\"step\":2,");
    assert_int_equal(occurrences(&client, "\"step\":1,"), 0);
    assert_int_equal(occurrences(&client, "event: state\n"), 0);
    client_close(&client);
    world_end_done(&a);
    stream_open(h, &client, target.text, cursor); /* the job has ended meanwhile */
    client_await(h, &client, "event: end\n");
    client_await(h, &client, NULL);
    assert_int_equal(occurrences(&client, "\"step\":2,"), 1);
    client_close(&client);
    world_attempt_close(&a);
}

static void test_bad_cursors(void **state)
{
    struct http_world *h = *state;
    static const char *const cursors[] = {"1",
                                          "1-",
                                          "-1-2",
                                          "1--2",
                                          "a-b",
                                          "1-2x",
                                          "1-2-3",
                                          "1- 2",
                                          "+1-2",
                                          "1 - 2",
                                          "99999999999999999999-1",
                                          "0x1-2",
                                          ""};
    char header[128];
    for (size_t i = 0; cursors[i][0] != '\0'; i++) {
        (void)snprintf(header, sizeof header, "Last-Event-ID: %s\r\n", cursors[i]);
        ask_with(h, "GET", "/v1/stream", header, NULL, 0);
        if (h->status != 400)
            fail_msg("%s: %d", cursors[i], h->status);
        expect(h, 400, "error.code", "bad_request");
    }
    ask(h, "GET", JOBS "/ftjob-none/stream", NULL);
    expect(h, 404, "error.code", "not_found");
}

static void test_all_jobs(void **state)
{
    struct http_world *h = *state;
    struct http_client client;
    struct world_job before = world_submit(h->w, 1, "");
    stream_open(h, &client, "/v1/stream", NULL);
    client_await(h, &client, "retry: ");
    struct world_job job = world_submit(h->w, 1, "");
    client_await(h, &client, job.id);
    assert_int_equal(occurrences(&client, before.id), 0); /* from now on */
    OK(h->w, coordinator_cancel(h->w->coordinator, before.id, &h->w->err));
    world_run(h->w);
    client_await(h, &client, "\"state\":\"cancelled\"");
    assert_int_equal(occurrences(&client, "event: end\n"), 0);
    assert_false(client.ended);
    client_close(&client);
}

/* Streams that stand at one place are told the same, once each; one that comes late, or hears of
 * one job only, gets its own. */
static void test_streams_side_by_side(void **state)
{
    struct http_world *h = *state;
    struct world_attempt a;
    struct http_client all[2], one;
    char cursor[64];
    struct world_job job = world_running(h->w, &a, "");
    const struct http_target target = http_target(JOBS "/%s/stream", job.id);
    stream_open(h, &all[0], "/v1/stream", NULL);
    stream_open(h, &one, target.text, NULL);
    client_await(h, &one, "\"state\":\"running\"");
    send_metrics(h, &a, 1);
    client_await(h, &all[0], "\"step\":1,");
    last_cursor(&all[0], cursor);
    stream_open(h, &all[1], "/v1/stream", cursor);
    for (uint64_t step = 2; step <= 4; step++) {
        char wanted[32];
        send_metrics(h, &a, step);
        (void)snprintf(wanted, sizeof wanted, "\"step\":%d,", (int)step);
        client_await(h, &all[0], wanted);
        client_await(h, &all[1], wanted);
        client_await(h, &one, wanted);
    }
    assert_int_equal(occurrences(&all[0], "event: metrics"), 4);
    assert_int_equal(occurrences(&all[1], "event: metrics"), 3);
    assert_int_equal(occurrences(&one, "event: metrics"), 4);
    assert_int_equal(occurrences(&all[0], "event: state"), 0); /* it came after them */
    const char *third = strstr(buf_str(&all[0].in), "\"step\":3,");
    assert_string_equal(third, strstr(buf_str(&all[1].in), "\"step\":3,"));
    for (int i = 0; i < 2; i++)
        client_close(&all[i]);
    client_close(&one);
    world_attempt_close(&a);
}

static void test_limit(void **state)
{
    struct http_world *h = *state;
    struct http_client clients[3];
    for (int i = 0; i < 3; i++) /* streams_max of the world */
        stream_open(h, &clients[i], "/v1/stream", NULL);
    ask(h, "GET", "/v1/stream", NULL);
    expect(h, 429, "error.code", "too_many_requests");
    assert_non_null(strstr(h->head, "Retry-After: "));
    client_close(&clients[1]);
    int64_t end_ms = clock_monotonic_ms() + HTTP_WORLD_PATIENCE_MS;
    struct http_client again = {.fd = -1};
    do { /* the place is free once the server has seen that the client left */
        client_close(&again);
        stream_open(h, &again, "/v1/stream", NULL);
    } while (strstr(buf_str(&again.in), " 200 ") == NULL && clock_monotonic_ms() < end_ms);
    client_await(h, &again, "retry: ");
    client_close(&again);
    client_close(&clients[0]);
    client_close(&clients[2]);
}

/* More than a message buffer holds, at its longest: control characters take six bytes in JSON. */
static void test_much_at_once(void **state)
{
    struct http_world *h = *state;
    enum { EVENTS = 200, POINTS = 5000 };
    struct world_job job = world_submit(h->w, 1, "");
    struct http_client client;
    char text[ERR_TEXT_MAX];
    memset(text, 1, sizeof text - 1);
    text[sizeof text - 1] = '\0';
    CLEANUP(mem_free_ptr) struct store_point *points = mem_new(POINTS, sizeof *points);
    for (int i = 0; i < POINTS; i++)
        points[i] = (struct store_point){
            .job_id = job.id, .attempt = 1, .step = i + 1, .metric = METRIC_LOSS, .value = 0.1};
    int64_t row = 0;
    OK(h->w, store_points_insert(h->w->store, points, POINTS, &row, &h->w->err));
    for (int i = 0; i < EVENTS; i++) {
        char id[64];
        (void)snprintf(id, sizeof id, "ftevent-much-%d", i);
        const struct store_event event = {.id = id,
                                          .job_id = job.id,
                                          .created_ms = 1,
                                          .level = "info",
                                          .type = "message",
                                          .message = text,
                                          .data_json = ""};
        OK(h->w, store_event_insert(h->w->store, &event, &row, &h->w->err));
    }
    const struct http_target target = http_target(JOBS "/%s/stream", job.id);
    stream_open(h, &client, target.text, NULL);
    client_await(h, &client, "\"step\":5000,");
    client_await(h, &client, "ftevent-much-199");
    assert_int_equal(occurrences(&client, "ftevent-much-"), EVENTS);
    assert_int_equal(occurrences(&client, "event: metrics"), POINTS);
    assert_false(client.ended);
    client_close(&client);
}

/* The daemon stops: a dry stream ends, and its client knows where it was. */
static void test_stop(void **state)
{
    struct http_world *h = *state;
    struct http_client client;
    stream_open(h, &client, "/v1/stream", NULL);
    client_await(h, &client, "retry: ");
    http_stop(h->http);
    client_await(h, &client, NULL);
    assert_true(http_is_idle(h->http));
    client_close(&client);
}

static void test_no_memory(void **state)
{
    struct http_world *h = *state;
    struct sse *sse = NULL;
    for (int n = 1; n <= 2; n++) {
        int64_t live = mem_live();
        mem_fault_after(n);
        assert_int_equal(sse_new(&h->api, &sse, &h->w->err), -ERR_NOMEM);
        mem_fault_after(0);
        assert_int_equal(mem_live(), live);
    }
    sse_free(NULL);
}

/* A user's stream goes over what is not the user's, however much, and over what was deleted; it
 * ends with its token. */
static void test_a_users_stream(void **state)
{
    struct http_world *h = *state;
    struct world_attempt a;
    struct http_client client;
    int64_t row = 0;
    struct world_job job = world_running(h->w, &a, "");
    send_metrics(h, &a, 1);
    struct store_point points[64];
    for (int batch = 0; batch < 100; batch++) { /* three fills */
        for (int i = 0; i < 64; i++)
            points[i] = (struct store_point){
                .job_id = batch < 50 ? job.id : "ftjob-deleted",
                .attempt = 1,
                .step = 2 + batch * 64 + i,
                .metric = METRIC_LOSS,
            };
        OK(h->w, store_points_insert(h->w->store, points, 64, &row, &h->w->err));
    }
    http_world_user(h, "ann");
    const struct http_target target =
        http_target("/v1/tokens/%s", json_string_value(answer(h, "id")));
    stream_open(h, &client, "/v1/stream", "0-0");
    char cursor[64];
    (void)snprintf(cursor, sizeof cursor, "-%lld\n\n", (long long)row);
    client_await(h, &client, cursor); /* past all of it */
    assert_int_equal(occurrences(&client, "event: "), 0);
    assert_null(strstr(buf_str(&client.in), job.id));
    http_world_token(h);
    assert_false(client.ended);
    ask(h, "DELETE", target.text, NULL);
    assert_int_equal(h->status, 200);
    client_await(h, &client, NULL);
    client_close(&client);
    world_end_done(&a);
    world_attempt_close(&a);
}

/* Of jobs of two users, one after the other, each hears its own. */
static void test_users_side_by_side(void **state)
{
    static const char *const users[] = {"ann", "bob"};
    struct http_world *h = *state;
    struct world_job jobs[4];
    struct http_client clients[2];
    for (int i = 0; i < 4; i++)
        jobs[i] = world_submit_as(h->w, users[i % 2], 1, "");
    for (int i = 0; i < 2; i++) {
        http_world_token(h);
        http_world_user(h, users[i]);
        stream_open(h, &clients[i], "/v1/stream", "0-0");
        client_await(h, &clients[i], jobs[2 + i].id);
    }
    for (int i = 0; i < 4; i++) {
        assert_int_equal(occurrences(&clients[i % 2], jobs[i].id) > 0, 1);
        assert_int_equal(occurrences(&clients[1 - i % 2], jobs[i].id), 0);
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(occurrences(&clients[i], "event: event\n"), 2);
        client_close(&clients[i]);
    }
}

/* A stream ends with the token that opened it, not with its request: at the next look. */
static void test_a_token_that_expires(void **state)
{
    struct http_world *h = *state;
    struct http_client client;
    ask(h, "POST", "/v1/tokens", "{\"user\":\"ann\",\"expires_in_s\":60}");
    assert_int_equal(h->status, 200);
    (void)snprintf(h->token, sizeof h->token, "%s", json_string_value(answer(h, "token")));
    stream_open(h, &client, "/v1/stream", NULL);
    h->w->fake.now_ms += 59000;
    sse_end_revoked(h->api.sse);
    http_world_turn(h);
    client_turn(h, &client);
    assert_false(client.ended);
    h->w->fake.now_ms += 2000;
    sse_end_revoked(h->api.sse);
    client_await(h, &client, NULL);
    client_close(&client);
    ask(h, "GET", "/v1/files", NULL);
    expect(h, 401, "error.message", "the token has expired");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        HTTP_TEST(test_a_job),
        HTTP_TEST(test_resume),
        HTTP_TEST(test_bad_cursors),
        HTTP_TEST(test_streams_side_by_side),
        HTTP_TEST(test_all_jobs),
        HTTP_TEST(test_limit),
        HTTP_TEST(test_much_at_once),
        HTTP_TEST(test_stop),
        HTTP_TEST(test_no_memory),
        HTTP_TEST(test_a_users_stream),
        HTTP_TEST(test_users_side_by_side),
        HTTP_TEST(test_a_token_that_expires),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

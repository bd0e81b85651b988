/* api_control: cancel, pause and resume by HTTP: answered when the state has passed, whoever ends
 * it and however long it takes. */
#include "daemon/checkpoints.h"
#include "tests/lib/http_world.h"

/* Posts and leaves the answer to come. */
static void post_open(struct http_world *h, struct http_client *client, struct http_target target)
{
    ask_open(h, client, "POST", target.text, "", "", 0);
    for (int i = 0; i < 20; i++)
        client_turn(h, client);
    assert_int_equal(client->in.length, 0);
}

static void test_cancel_waits_for_processes(void **state)
{
    struct http_world *h = *state;
    struct world_attempt a;
    struct http_client client;
    struct world_job job = world_running(h->w, &a, "");
    const struct http_target cancel = http_target(JOBS "/%s/cancel", job.id);
    post_open(h, &client, cancel);
    world_expect(h->w, &job, JOB_STATE_CANCELLING);
    const struct exit_report report = world_clean_exit(&a);
    world_end(&a, &report, 0);
    ask_end(h, &client);
    expect(h, 200, "status", "cancelled");
    expect(h, 200, "ithaca.state", "cancelled");
    ask(h, "POST", cancel.text, ""); /* again is fine */
    expect(h, 200, "status", "cancelled");
    world_attempt_close(&a);
    struct world_job waiting = world_submit(h->w, 1, "");
    const struct exposition_histogram *writes = store_write_times(h->w->store, 0);
    int64_t before = writes->count;
    /* no process: one wait for the disk, and for nothing else */
    ask(h, "POST", http_target(JOBS "/%s/cancel", waiting.id).text, "");
    expect(h, 200, "status", "cancelled");
    assert_int_equal(writes->count, before + 1);
    ask(h, "GET", http_target(JOBS "/%s/events", waiting.id).text, NULL);
    expect(h, 200, "data.0.data.state", "cancelled");
    expect(h, 200, "data.0.data.user", "admin");
    assert_true(json_is_string(answer(h, "data.0.data.request_id")));
    ask(h, "GET", http_target(JOBS "/%s/events", job.id).text, NULL);
    expect(h, 200, "data.0.data.state", "cancelled"); /* what followed is the daemon's doing */
    assert_null(answer(h, "data.0.data.user"));
    expect(h, 200, "data.1.data.state", "cancelling");
    expect(h, 200, "data.1.data.user", "admin");
    assert_true(json_is_string(answer(h, "data.1.data.request_id")));
}

/* Processes that do not end hold nobody up who cancels. */
static void test_cancel_is_answered_soon(void **state)
{
    struct http_world *h = *state;
    struct world_attempt a;
    struct world_job job = world_running(h->w, &a, "");
    const int64_t begun_ms = clock_monotonic_ms();
    ask(h, "POST", http_target(JOBS "/%s/cancel", job.id).text, "");
    const int64_t took_ms = clock_monotonic_ms() - begun_ms;
    assert_true(took_ms >= 2000 && took_ms < 20000);
    expect(h, 200, "status", "running");
    expect(h, 200, "ithaca.state", "cancelling");
    const struct exit_report report = world_clean_exit(&a);
    world_exit_report(&a, &report);
    fake_host_end(a.keeper, 0, 0);
    world_attempt_close(&a);
    world_run(h->w);
    world_expect(h->w, &job, JOB_STATE_CANCELLED);
}

static void test_pause_and_resume(void **state)
{
    struct http_world *h = *state;
    struct world_attempt a;
    struct http_client client;
    char body[128];
    struct world_job job = world_running(h->w, &a, "");
    const struct http_target resume = http_target(JOBS "/%s/resume", job.id);
    post_open(h, &client, http_target(JOBS "/%s/pause", job.id));
    world_end_paused(&a, 3);
    ask_end(h, &client);
    expect(h, 200, "status", "paused");
    world_attempt_close(&a);
    static const struct {
        const char *body, *code;
        int status;
    } bad[] = {
        {"[]", "invalid_json", 400},
        {"{\"step\":3}", "unknown_parameter", 400},
        {"{\"checkpoint\":3}", "invalid_value", 400},
        {"{\"checkpoint\":\"ftckpt_other_3\"}", "not_found", 404},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        ask(h, "POST", resume.text, bad[i].body);
        expect(h, bad[i].status, "error.code", bad[i].code);
        world_expect(h->w, &job, JOB_STATE_PAUSED);
    }
    char id[LIMIT_ID_BYTES + 1];
    checkpoints_id(job.id, 3, id);
    (void)snprintf(body, sizeof body, "{\"checkpoint\":\"%s\"}", id);
    ask(h, "POST", resume.text, body);
    expect(h, 200, "status", "queued");
    OK(h->w, coordinator_pause(h->w->coordinator, job.id, &h->w->err));
    ask(h, "POST", resume.text, "{\"checkpoint\":null}"); /* as none */
    expect(h, 200, "status", "queued");
}

static void test_wrong_states(void **state)
{
    struct http_world *h = *state;
    struct world_job job = http_world_succeeded(h);
    static const char *const verbs[] = {"cancel", "pause", "resume"};
    for (size_t i = 0; i < 3; i++) {
        ask(h, "POST", http_target(JOBS "/%s/%s", job.id, verbs[i]).text, "");
        expect(h, 400, "error.code", "invalid_state");
        ask(h, "POST", http_target(JOBS "/ftjob-none/%s", verbs[i]).text, "");
        expect(h, 404, "error.code", "not_found");
    }
}

/* The client leaves, or the daemon stops, while the answer waits. */
static void test_nobody_waits_any_more(void **state)
{
    struct http_world *h = *state;
    struct world_attempt a;
    struct http_client client, other;
    struct world_job job = world_running(h->w, &a, "");
    const struct http_target pause = http_target(JOBS "/%s/pause", job.id);
    post_open(h, &client, pause);
    post_open(h, &other, pause);
    client_close(&client);
    for (int i = 0; i < 50; i++)
        OK(h->w, loop_turn(h->w->loop, 1, &h->w->err));
    http_stop(h->http);
    ask_end(h, &other);
    expect(h, 503, "error.code", "unavailable");
    world_end_paused(&a, 2); /* nobody is told, and nothing breaks */
    world_expect(h->w, &job, JOB_STATE_PAUSED);
    world_attempt_close(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        HTTP_TEST(test_cancel_waits_for_processes), HTTP_TEST(test_cancel_is_answered_soon),
        HTTP_TEST(test_pause_and_resume),           HTTP_TEST(test_wrong_states),
        HTTP_TEST(test_nobody_waits_any_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* api_queue, and changes of jobs by HTTP: what is shown of jobs with slots and of those that wait,
 * page by page, and what is refused. */
#include "tests/lib/http_world.h"

static void test_what_runs_and_what_waits(void **state)
{
    struct http_world *h = *state;
    struct world_attempt a;
    struct world_job running = world_running(h->w, &a, ",\"time_limit_s\":1000");
    struct world_job first = world_queued_as(h->w, "bob", ",\"priority\":3,\"preemptible\":true");
    struct world_job second = world_queued_as(h->w, "ann", "");
    ask(h, "GET", "/v1/queue", NULL);
    expect(h, 200, "running.0.id", running.id);
    assert_int_equal(answer_int(h, "slots"), 2);
    assert_int_equal(answer_int(h, "free_slots"), 0);
    assert_int_equal(answer_int(h, "running.0.slots"), 2);
    assert_int_equal(answer_int(h, "waiting_count"), 2);
    expect(h, 200, "waiting.0.id", first.id);
    expect(h, 200, "waiting.0.owner", "bob");
    expect(h, 200, "waiting.0.pending_reason", "needs 2 of 2 slots, 0 free");
    assert_true(json_is_true(answer(h, "waiting.0.preemptible")));
    assert_int_equal(answer_int(h, "waiting.0.priority"), 3);
    assert_int_equal(answer_int(h, "waiting.0.estimated_start"),
                     answer_int(h, "running.0.estimated_end"));
    assert_true(json_is_null(answer(h, "waiting.1.estimated_start"))); /* behind one of no end */
    assert_true(json_is_null(answer(h, "running.0.queue_position")));
    ask(h, "GET", "/v1/queue?after=1&limit=1", NULL);
    expect(h, 200, "waiting.0.id", second.id);
    assert_int_equal(answer_int(h, "waiting.0.queue_position"), 2);
    assert_int_equal(answer_int(h, "waiting_count"), 2);
    assert_null(answer(h, "waiting.1"));
    ask(h, "GET", "/v1/queue?limit=1001", NULL);
    expect(h, 400, "error.param", "limit");
    ask(h, "GET", "/v1/queue?after=-1", NULL);
    expect(h, 400, "error.param", "after");
    world_attempt_close(&a);
}

static void test_change(void **state)
{
    struct http_world *h = *state;
    struct world_job job = world_queued(h->w, ",\"hold\":true");
    const struct http_target target = http_target(JOBS "/%s", job.id);
    ask(h, "PATCH", target.text, "{\"ithaca\":{\"priority\":4,\"tags\":[\"x\"]}}");
    expect(h, 200, "id", job.id);
    assert_int_equal(answer_int(h, "ithaca.spec.priority"), 4);
    expect(h, 200, "ithaca.spec.tags.0", "x");
    expect(h, 200, "ithaca.pending_reason", "held until it is released (hold: false)");
    ask(h, "PATCH", target.text, "{\"ithaca\":{\"gpus\":1}}");
    expect(h, 400, "error.param", "ithaca.gpus");
    ask(h, "PATCH", target.text, "{\"priority\":4}");
    expect(h, 400, "error.message",
           "priority belongs into the object ithaca: {\"ithaca\": {\"priority\": ...}}");
    ask(h, "PATCH", target.text, "[]");
    expect(h, 400, "error.code", "invalid_json");
    ask(h, "PATCH", JOBS "/ftjob-none", "{\"ithaca\":{\"priority\":1}}");
    expect(h, 404, "error.code", "not_found");
    ask(h, "PATCH", "/v1/queue", "{}");
    expect(h, 405, "error.code", "method_not_allowed");
}

static void test_drain(void **state)
{
    struct http_world *h = *state;
    ask(h, "POST", "/v1/admin/drain", "");
    assert_true(json_is_true(answer(h, "drained")));
    struct world_job job = world_queued(h->w, "");
    world_expect(h->w, &job, JOB_STATE_QUEUED);
    ask(h, "GET", "/v1/queue", NULL);
    assert_true(json_is_true(answer(h, "drained")));
    ask(h, "POST", "/v1/admin/undrain", "");
    assert_true(json_is_false(answer(h, "drained")));
    world_run(h->w);
    world_expect(h->w, &job, JOB_STATE_STARTING);
}

int main(void)
{
    const struct CMUnitTest tests[] = {HTTP_TEST(test_what_runs_and_what_waits),
                                       HTTP_TEST(test_change), HTTP_TEST(test_drain)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

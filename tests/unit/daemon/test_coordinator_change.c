/* coordinator_change: holds, values that change, and dependencies, on a machine of two slots. */
#include "tests/lib/queue_scene.h"

/* ---- holds and changes --------------------------------------------------------------------- */

static void test_hold_and_release(void **state)
{
    struct world *w = *state;
    struct world_job held = world_queued(w, ",\"hold\":true");
    struct world_job next = world_queued(w, "");
    world_expect(w, &held, JOB_STATE_QUEUED);
    world_expect(w, &next, JOB_STATE_STARTING);
    expect_reason(w, &held, 1, "held until it is released (hold: false)");
    finish(w, &next);
    restart(w);
    world_expect(w, &held, JOB_STATE_QUEUED);
    change(w, &held, "\"hold\":false");
    world_expect(w, &held, JOB_STATE_STARTING);
    change(w, &held, "\"hold\":true"); /* of one that runs: for when it is queued again */
    finish(w, &held);
    change_as(w, &held, "\"hold\":false", -ERR_BAD_STATE);
    assert_non_null(strstr(w->err.text, "cannot be changed: it is succeeded"));
}

static void test_priority_is_changed(void **state)
{
    struct world *w = *state;
    struct world_attempt a;
    struct world_job running = world_running(w, &a, "");
    struct world_job first = world_queued(w, "");
    struct world_job second = world_queued(w, "");
    expect_reason(w, &first, 1, "needs 2 of 2 slots, 0 free");
    expect_reason(w, &second, 2, "waits behind 1 other job");
    change_as(w, &second, "\"priority\":7,\"tags\":[\"x\"]", 0);
    expect_reason(w, &second, 1, "needs 2 of 2 slots, 0 free"); /* before a tick has come */
    OK(w, coordinator_queue_drain(w->coordinator, true, &w->err));
    world_end_done(&a);
    world_attempt_close(&a);
    restart(w);
    world_expect(w, &running, JOB_STATE_SUCCEEDED);
    expect_reason(w, &second, 1, "nothing starts: the queue is drained");
    expect_reason(w, &first, 2, "nothing starts: the queue is drained");
    OK(w, coordinator_queue_drain(w->coordinator, false, &w->err));
    world_run(w);
    world_expect(w, &first, JOB_STATE_QUEUED);
    finish(w, &second);
}

static void test_what_cannot_be_changed(void **state)
{
    struct world *w = *state;
    struct world_job job = world_queued(w, ",\"hold\":true");
    change_as(w, &job, "\"seq_len\":128", -ERR_INVALID_VALUE);
    assert_string_equal(w->err.field, "ithaca.seq_len");
    assert_non_null(strstr(w->err.text, "these can: priority, time_limit_s"));
    change_as(w, &job, "\"priority\":1001", -ERR_INVALID_VALUE);
    change_as(w, &job, "\"nonsense\":1", -ERR_INVALID_VALUE);
    change_as(w, &job, "", -ERR_MISSING_FIELD);
    CLEANUP(json_unref) json_t *body = json_literal("{'model':'x','ithaca':{'priority':1}}");
    assert_int_equal(coordinator_change(w->coordinator, job.id, body, "ann", false, &w->err),
                     -ERR_INVALID_VALUE);
    assert_string_equal(w->err.field, "model");
    struct world_job none = {.id = "ftjob-none"};
    change_as(w, &none, "\"priority\":1", -ERR_NOT_FOUND);
}

/* By its limit it may have passed others. */
static void test_time_limit_of_a_running_job(void **state)
{
    struct world *w = *state;
    struct world_attempt a;
    struct world_job job = world_running(w, &a, ",\"time_limit_s\":1000");
    change_as(w, &job, "\"time_limit_s\":1001", -ERR_FORBIDDEN);
    change_as(w, &job, "\"time_limit_s\":null", -ERR_FORBIDDEN);
    change_as(w, &job, "\"time_limit_s\":1000", 0); /* the same */
    change_as(w, &job, "\"time_limit_s\":900", 0);
    change_as(w, &job, "\"time_limit_s\":1000", -ERR_FORBIDDEN);
    CLEANUP(json_unref) json_t *body = json_literal("{'ithaca':{'time_limit_s':5000}}");
    OK(w, coordinator_change(w->coordinator, job.id, body, "ann", true, &w->err));
    struct world_job waiting = world_queued(w, ",\"time_limit_s\":10");
    change_as(w, &waiting, "\"time_limit_s\":null", 0);
    world_attempt_close(&a);
}

static int copy_message(void *context, const struct store_event *event, struct err *err)
{
    (void)snprintf(context, 256, "%s", event->message);
    return 0;
}

/* One that runs, without a limit of its time, can be changed as well; who listens is told. */
static void test_what_a_change_tells(void **state)
{
    struct world *w = *state;
    struct world_attempt a;
    struct world_job job = world_running(w, &a, "");
    char message[256];
    const int64_t before = w->event_note;
    change_as(w, &job, "\"priority\":3", 0);
    assert_int_equal(w->event_note, before + 1);
    OK(w, store_events_after(w->store, job.id, before, 1, copy_message, message, &w->err));
    assert_string_equal(message, "Job is changed by ann: {\"priority\":3}.");
    change_as(w, &job, "\"time_limit_s\":1000", 0);
    world_attempt_close(&a);
}

/* One pass shows all jobs after a change: a list of them is no pass a job. */
static void test_a_change_is_looked_at_once(void **state)
{
    struct world *w = *state;
    struct world_job first = world_queued(w, ",\"hold\":true");
    struct world_job second = world_queued(w, ",\"hold\":true");
    change_as(w, &second, "\"priority\":7", 0);
    expect_reason(w, &second, 1, "held until it is released (hold: false)");
    mem_fault_after(1); /* a pass allocates */
    expect_reason(w, &first, 2, "held until it is released (hold: false)");
    CLEANUP(mem_free_ptr) char *missed = mem_strdup("");
    mem_fault_after(0);
    assert_null(missed);
    change(w, &second, "\"hold\":false"); /* a pass that only showed has decided nothing */
    world_expect(w, &second, JOB_STATE_STARTING);
}

/* Every allocation fails once: the job is as it was, in memory and in the store. */
static void test_changes_without_memory(void **state)
{
    struct world *w = *state;
    struct world_job first = world_queued(w, ",\"hold\":true");
    struct world_job second = world_queued(w, ",\"hold\":true");
    CLEANUP(mem_free_ptr)
    char *text = mem_printf("{\"ithaca\":{\"priority\":3,\"depends_on\":[\"%s\"]}}", first.id);
    CLEANUP(json_unref) json_t *body = NULL;
    OK(w, json_parse(text, strlen(text), "test", &body, &w->err));
    int failures = 0, rc = 0;
    do {
        mem_fault_after(failures + 1);
        rc = coordinator_change(w->coordinator, second.id, body, "ann", false, &w->err);
        assert_int_equal(mem_fault_after(0), rc != 0);
        expect_reason(w, &second, rc != 0 ? 2 : 1, "held until it is released (hold: false)");
        failures += rc != 0;
    } while (rc != 0);
    assert_true(failures >= 5);
    change(w, &second, "\"hold\":false");
    assert_non_null(strstr(text, first.id));
    struct coordinator_view view;
    coordinator_view(w->coordinator, second.id, &view);
    assert_non_null(strstr(view.pending_reason, "to succeed, which is queued"));
}

/* ---- dependencies -------------------------------------------------------------------------- */

static void test_depends_on_one_that_succeeds(void **state)
{
    struct world *w = *state;
    char options[128], reason[160];
    struct world_job first = world_queued(w, ",\"hold\":true");
    (void)snprintf(options, sizeof options, ",\"depends_on\":[\"%s\"]", first.id);
    struct world_job second = world_queued(w, options);
    (void)snprintf(reason, sizeof reason, "waits for %s to succeed, which is queued", first.id);
    world_expect(w, &second, JOB_STATE_QUEUED);
    expect_reason(w, &second, 2, reason);
    restart(w);
    expect_reason(w, &second, 2, reason);
    change(w, &first, "\"hold\":false");
    finish(w, &first);
    world_run(w);
    world_expect(w, &second, JOB_STATE_STARTING);
    finish(w, &second);
    struct world_job third = world_queued(w, options); /* one that has succeeded long since */
    finish(w, &third);
}

static void test_depends_on_one_that_fails(void **state)
{
    struct world *w = *state;
    char options[128];
    struct world_job first = world_queued(w, ",\"hold\":true");
    (void)snprintf(options, sizeof options, ",\"depends_on\":[\"%s\"]", first.id);
    struct world_job second = world_queued(w, options);
    (void)snprintf(options, sizeof options, ",\"depends_on\":[\"%s\"]", second.id);
    struct world_job third = world_queued(w, options);
    struct world_job checking = world_submit(w, 2, options);
    OK(w, coordinator_cancel(w->coordinator, first.id, &w->err));
    world_run(w);
    world_run(w);
    world_expect(w, &second, JOB_STATE_FAILED);
    world_expect(w, &third, JOB_STATE_FAILED); /* one after the other */
    struct world_row row = world_row(w, &second);
    assert_string_equal(row.reason, "dependency_failed");
    assert_non_null(strstr(row.text, first.id));
    assert_non_null(strstr(row.text, "is cancelled: The job was cancelled."));
    world_prepare(w, WORLD_GOOD_REPORT);
    world_run(w);
    world_expect(w, &checking, JOB_STATE_FAILED);
}

static void test_dependencies_that_cannot_be(void **state)
{
    struct world *w = *state;
    char fields[160];
    struct world_job first = world_queued(w, ",\"hold\":true");
    struct world_job second = world_queued(w, ",\"hold\":true");
    struct world_job others = world_queued_as(w, "bob", ",\"hold\":true");
    change_as(w, &first, "\"depends_on\":[\"ftjob-none\"]", -ERR_INVALID_VALUE);
    assert_string_equal(w->err.field, "ithaca.depends_on");
    (void)snprintf(fields, sizeof fields, "\"depends_on\":[\"%s\"]", others.id);
    change_as(w, &first, fields, -ERR_INVALID_VALUE);
    assert_non_null(strstr(w->err.text, "admin has no fine-tuning job"));
    (void)snprintf(fields, sizeof fields, "\"depends_on\":[\"%s\"]", first.id);
    change_as(w, &first, fields, -ERR_INVALID_VALUE); /* on itself */
    change(w, &second, fields);
    (void)snprintf(fields, sizeof fields, "\"depends_on\":[\"%s\"]", second.id);
    for (int again = 0; again < 2; again++) {
        change_as(w, &first, fields, -ERR_INVALID_VALUE);
        assert_non_null(strstr(w->err.text, "none would start"));
    }
    change(w, &second, "\"depends_on\":[]");
    change(w, &first, fields); /* the other way round it may */
}

/* A job is forgotten at its end, when none waits for it. */
static void test_what_may_be_forgotten(void **state)
{
    struct world *w = *state;
    char options[160];
    struct world_job done = world_queued(w, ""), free_one = done;
    finish(w, &done);
    free_one = world_queued(w, "");
    finish(w, &free_one);
    struct world_job held = world_queued(w, ",\"hold\":true");
    (void)snprintf(options, sizeof options, ",\"depends_on\":[\"%s\",\"%s\"]", held.id, done.id);
    struct world_job waits = world_queued(w, options);
    OK(w, coordinator_check_forgotten(w->coordinator, free_one.id, &w->err));
    assert_int_equal(coordinator_check_forgotten(w->coordinator, held.id, &w->err), -ERR_BAD_STATE);
    assert_non_null(strstr(w->err.text, "is not at its end"));
    assert_int_equal(coordinator_check_forgotten(w->coordinator, done.id, &w->err), -ERR_BAD_STATE);
    assert_non_null(strstr(w->err.text, waits.id));
    assert_non_null(strstr(w->err.text, "depends on it"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD_TEST(test_hold_and_release),          WORLD_TEST(test_priority_is_changed),
        WORLD_TEST(test_what_cannot_be_changed),    WORLD_TEST(test_time_limit_of_a_running_job),
        WORLD_TEST(test_what_a_change_tells),       WORLD_TEST(test_a_change_is_looked_at_once),
        WORLD_TEST(test_changes_without_memory),    WORLD_TEST(test_depends_on_one_that_succeeds),
        WORLD_TEST(test_depends_on_one_that_fails), WORLD_TEST(test_dependencies_that_cannot_be),
        WORLD_TEST(test_what_may_be_forgotten),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

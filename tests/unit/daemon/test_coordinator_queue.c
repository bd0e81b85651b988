/* coordinator: the queue on a machine of two slots: holds, dependencies, changes, room made by
 * preemption, drain, shares. */
#include "tests/lib/coordinator_world.h"

static void change_as(struct world *w, const struct world_job *job, const char *fields,
                      int wanted_rc)
{
    CLEANUP(mem_free_ptr) char *text = mem_printf("{\"ithaca\":{%s}}", fields);
    CLEANUP(json_unref) json_t *body = NULL;
    OK(w, json_parse(text, strlen(text), "test", &body, &w->err));
    int rc = coordinator_change(w->coordinator, job->id, body, "ann", false, &w->err);
    if (rc != wanted_rc)
        fail_msg("%s: %d %s", fields, rc, rc != 0 ? w->err.text : "");
}

static void change(struct world *w, const struct world_job *job, const char *fields)
{
    change_as(w, job, fields, 0);
    world_run(w);
}

static void expect_reason(struct world *w, const struct world_job *job, int64_t position,
                          const char *reason)
{
    struct coordinator_view view;
    coordinator_view(w->coordinator, job->id, &view);
    assert_int_equal(view.queue_position, position);
    assert_string_equal(view.pending_reason, reason);
}

static void finish(struct world *w, const struct world_job *job)
{
    struct world_attempt a;
    world_attempt_open(w, &a);
    assert_string_equal(a.plan.job_id, job->id);
    world_ready(&a);
    world_end_done(&a);
    world_expect(w, job, JOB_STATE_SUCCEEDED);
    world_attempt_close(&a);
}

static void restart(struct world *w)
{
    world_reopen(w);
    world_run(w);
}

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
    change_as(w, &job, "\"time_limit_s\":900", 0);
    change_as(w, &job, "\"time_limit_s\":1000", -ERR_FORBIDDEN);
    CLEANUP(json_unref) json_t *body = json_literal("{'ithaca':{'time_limit_s':5000}}");
    OK(w, coordinator_change(w->coordinator, job.id, body, "ann", true, &w->err));
    struct world_job waiting = world_queued(w, ",\"time_limit_s\":10");
    change_as(w, &waiting, "\"time_limit_s\":null", 0);
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
        mem_fault_after(0);
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
    assert_non_null(strstr(row.text, "is cancelled"));
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
    change_as(w, &first, fields, -ERR_INVALID_VALUE);
    assert_non_null(strstr(w->err.text, "none would start"));
    change(w, &second, "\"depends_on\":[]");
    change(w, &first, fields); /* the other way round it may */
}

/* ---- preemption ---------------------------------------------------------------------------- */

/* A preemptible job runs, and one of higher priority waits for its slots; it was told to end. */
static struct world_job preempted(struct world *w, struct world_attempt *a,
                                  struct world_job *ret_head)
{
    uint32_t number = 0;
    w->config.policy.preempt_after_ms = 5000;
    restart(w);
    struct world_job low = world_running(w, a, ",\"preemptible\":true");
    *ret_head = world_queued(w, ",\"priority\":1");
    world_pass(w, 4000);
    world_expect(w, &low, JOB_STATE_RUNNING);
    assert_false(world_receive(a, 0, WIRE_PAUSE, &number));
    world_pass(w, 1000);
    world_run(w);
    world_expect(w, &low, JOB_STATE_PREEMPTING);
    assert_true(world_receive(a, 1, WIRE_PAUSE, &number));
    expect_reason(w, ret_head, 1, "needs 2 of 2 slots, 0 free; preempted jobs are making room");
    return low;
}

static void test_preempted_and_resumed(void **state)
{
    struct world *w = *state;
    struct world_attempt a;
    struct world_job head;
    struct world_job low = preempted(w, &a, &head);
    struct world_job higher =
        world_queued(w, ",\"priority\":9"); /* the slots are given away already */
    world_end_paused(&a, 3);
    world_attempt_close(&a);
    world_expect(w, &low, JOB_STATE_QUEUED);
    world_expect(w, &head, JOB_STATE_STARTING);
    expect_reason(w, &low, 2, "waits behind 1 other job");
    finish(w, &head);
    world_run(w);
    finish(w, &higher);
    world_run(w);
    world_attempt_open(w, &a);
    assert_int_equal(a.plan.steps_done, 3);
    assert_int_equal(a.plan.attempt, 2);
    assert_int_equal(world_row(w, &low).restarts, 0);
    world_ready(&a);
    world_end_done(&a);
    world_expect(w, &low, JOB_STATE_SUCCEEDED);
    world_attempt_close(&a);
}

static void test_other_ends_of_a_preempted_job(void **state)
{
    struct world *w = *state;
    struct world_attempt a;
    struct world_job head;
    struct world_job low = preempted(w, &a, &head);
    world_end_done(&a); /* it was done before it could end */
    world_expect(w, &low, JOB_STATE_SUCCEEDED);
    world_attempt_close(&a);
    finish(w, &head);

    low = preempted(w, &a, &head);
    OK(w, coordinator_pause(w->coordinator, low.id, &w->err));
    world_end_paused(&a, 2);
    world_expect(w, &low, JOB_STATE_PAUSED);
    world_attempt_close(&a);
    finish(w, &head);

    low = preempted(w, &a, &head); /* a rank dies on the way, of a job that may not restart */
    world_end_killed(&a, 1);
    world_expect(w, &low, JOB_STATE_QUEUED);
    assert_int_equal(world_row(w, &low).restarts, 0);
    world_attempt_close(&a);
    OK(w, coordinator_cancel(w->coordinator, low.id, &w->err));
    finish(w, &head);

    low = preempted(w, &a, &head);
    OK(w, coordinator_cancel(w->coordinator, low.id, &w->err));
    fake_host_end(a.keeper, 0, 0);
    world_hang_up(&a);
    world_run(w);
    world_expect(w, &low, JOB_STATE_CANCELLED);
    world_attempt_close(&a);
    finish(w, &head);
}

/* ---- drain, shares, limits ----------------------------------------------------------------- */

static void test_drain(void **state)
{
    struct world *w = *state;
    OK(w, coordinator_queue_drain(w->coordinator, true, &w->err));
    struct world_job job = world_queued(w, "");
    world_expect(w, &job, JOB_STATE_QUEUED);
    expect_reason(w, &job, 1, "nothing starts: the queue is drained");
    restart(w);
    assert_true(coordinator_queue_is_drained(w->coordinator));
    world_expect(w, &job, JOB_STATE_QUEUED);
    OK(w, coordinator_queue_drain(w->coordinator, false, &w->err));
    world_run(w);
    world_expect(w, &job, JOB_STATE_STARTING);
}

struct shown {
    char text[1024];
    double used_s, total_s; /* of bob */
};

static int show_entry(void *context, const struct coordinator_entry *entry, struct err *err)
{
    struct shown *shown = context;
    size_t length = strlen(shown->text);
    (void)snprintf(shown->text + length, sizeof shown->text - length, "%s %s %lld %s\n",
                   entry->owner, job_state_name(entry->state), (long long)entry->spec->priority,
                   entry->view.pending_reason);
    return 0;
}

static int show_user(void *context, const struct coordinator_user *user, struct err *err)
{
    struct shown *shown = context;
    if (strcmp(user->name, "bob") == 0) {
        shown->used_s = user->used_s;
        shown->total_s = user->total_s;
    }
    return 0;
}

/* Before a tick has come. */
static void test_one_that_starts_hides_no_other(void **state)
{
    struct world *w = *state;
    struct shown shown = {.text = ""};
    int64_t waiting = 0;
    OK(w, coordinator_queue_drain(w->coordinator, true, &w->err));
    (void)world_queued_as(w, "bob", "");
    (void)world_queued_as(w, "ann", "");
    OK(w, coordinator_queue_drain(w->coordinator, false, &w->err));
    OK(w, coordinator_queue_list(w->coordinator, 0, 1, show_entry, &shown, &waiting, &w->err));
    assert_string_equal(shown.text, "bob queued 0 starts next\n"
                                    "ann queued 0 needs 2 of 2 slots, 2 free\n");
    assert_int_equal(waiting, 2);
    shown.text[0] = '\0';
    OK(w, coordinator_queue_list(w->coordinator, 1, 9, show_entry, &shown, &waiting, &w->err));
    assert_string_equal(shown.text, "");
}

/* Who has used less goes first, also under the next daemon. */
static void test_shares(void **state)
{
    struct world *w = *state;
    struct world_attempt a;
    struct shown shown = {.text = ""};
    struct world_job first = world_queued_as(w, "bob", "");
    world_attempt_open(w, &a);
    world_ready(&a);
    struct world_job bobs = world_queued_as(w, "bob", "");
    struct world_job anns = world_queued_as(w, "ann", "");
    world_pass(w, 10000);
    OK(w, coordinator_users_list(w->coordinator, show_user, &shown, &w->err));
    assert_true(shown.total_s >= 19.9 && shown.total_s < 20.1); /* two slots */
    assert_true(shown.used_s > shown.total_s + 119 && shown.used_s < shown.total_s + 120.01);
    int64_t waiting = 0;
    OK(w, coordinator_queue_list(w->coordinator, 0, 9, show_entry, &shown, &waiting, &w->err));
    assert_string_equal(shown.text, "bob running 0 \n"
                                    "ann queued 0 needs 2 of 2 slots, 0 free\n"
                                    "bob queued 0 waits behind 1 other job\n");
    shown.text[0] = '\0';
    OK(w, coordinator_queue_list(w->coordinator, 1, 1, show_entry, &shown, &waiting, &w->err));
    assert_string_equal(shown.text, "bob running 0 \nbob queued 0 waits behind 1 other job\n");
    assert_int_equal(waiting, 2);
    world_end_done(&a);
    world_attempt_close(&a);
    world_expect(w, &first, JOB_STATE_SUCCEEDED);
    world_expect(w, &anns, JOB_STATE_STARTING);
    restart(w);
    shown.total_s = 0;
    OK(w, coordinator_users_list(w->coordinator, show_user, &shown, &w->err));
    assert_true(shown.total_s >= 19.9 && shown.total_s < 20.1);
    world_expect(w, &bobs, JOB_STATE_STARTING); /* ann's has died with its keeper */
}

static int take_end(void *context, const struct coordinator_entry *entry, struct err *err)
{
    *(int64_t *)context = entry->estimated_end_ms;
    return 0;
}

/* By the pace of its steps, with a quarter more and a minute; by its limit where that is less. */
static void test_when_a_job_ends(void **state)
{
    struct world *w = *state;
    struct world_attempt a;
    struct world_job job = world_running(w, &a, "");
    const int64_t begun_ms = w->fake.host.ops->wall_ms(&w->fake.host);
    int64_t end_ms = 1, waiting = 0;
    OK(w, coordinator_queue_list(w->coordinator, 0, 9, take_end, &end_ms, &waiting, &w->err));
    assert_int_equal(end_ms, 0); /* no step is done, none was predicted */
    world_send(&a, 0, (struct wire_frame){.type = WIRE_METRICS, .metrics = {.step = 2}});
    world_pass(w, 8000);
    OK(w, coordinator_queue_list(w->coordinator, 0, 9, take_end, &end_ms, &waiting, &w->err));
    assert_int_equal(end_ms, begun_ms + 8000 + 3 * 4000 * 5 / 4 + 60000); /* of 5 steps */
    change(w, &job, "\"time_limit_s\":10");
    OK(w, coordinator_queue_list(w->coordinator, 0, 9, take_end, &end_ms, &waiting, &w->err));
    assert_int_equal(end_ms, begun_ms + 8000 + 2000 + 60000);
    world_attempt_close(&a);
}

static void test_caps(void **state)
{
    struct world *w = *state;
    w->config.policy.user_slots_max = 1;
    restart(w);
    struct world_job one = world_submit(w, 1, "");
    struct world_job two = world_submit(w, 1, "");
    world_run(w);
    world_prepare(w, WORLD_GOOD_REPORT);
    world_prepare(w, WORLD_GOOD_REPORT);
    world_run(w);
    bool first_runs = world_row(w, &one).state == JOB_STATE_STARTING;
    expect_reason(w, first_runs ? &two : &one, 1,
                  "needs 1 slot; all jobs of admin may have 1 at once");
    struct job_spec spec = {.gpus = 2, .model = "m", .training_file = "f"};
    char id[LIMIT_ID_BYTES + 1];
    assert_int_equal(coordinator_submit(w->coordinator, &spec, 0, "/m", "admin", id, &w->err),
                     -ERR_DOES_NOT_FIT);
    assert_string_equal(w->err.field, "ithaca.gpus");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD_TEST(test_hold_and_release),
        WORLD_TEST(test_priority_is_changed),
        WORLD_TEST(test_what_cannot_be_changed),
        WORLD_TEST(test_time_limit_of_a_running_job),
        WORLD_TEST(test_a_change_is_looked_at_once),
        WORLD_TEST(test_changes_without_memory),
        WORLD_TEST(test_depends_on_one_that_succeeds),
        WORLD_TEST(test_depends_on_one_that_fails),
        WORLD_TEST(test_dependencies_that_cannot_be),
        WORLD_TEST(test_preempted_and_resumed),
        WORLD_TEST(test_other_ends_of_a_preempted_job),
        WORLD_TEST(test_drain),
        WORLD_TEST(test_one_that_starts_hides_no_other),
        WORLD_TEST(test_shares),
        WORLD_TEST(test_when_a_job_ends),
        WORLD_TEST(test_caps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

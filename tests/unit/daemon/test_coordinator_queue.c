/* coordinator: the queue on a machine of two slots: room made by preemption, drain, shares. Holds,
 * changes and dependencies are in test_coordinator_change. */
#include "tests/lib/queue_scene.h"

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
    world_end(&a, NULL, 0);
    world_expect(w, &low, JOB_STATE_CANCELLED);
    world_attempt_close(&a);
    finish(w, &head);
}

static int join_event(void *context, const struct store_event *event, struct err *err)
{
    char *text = context;
    size_t length = strlen(text);
    (void)snprintf(text + length, 4096 - length, "%s\n", event->message);
    return 0;
}

/* One that does not say so keeps its slots; one that does is told for whom it ends. */
static void test_who_makes_room(void **state)
{
    struct world *w = *state;
    struct world_attempt a;
    char events[4096] = "", told[160];
    w->config.policy.preempt_after_ms = 5000;
    restart(w);
    struct world_job low = world_running(w, &a, "");
    struct world_job head = world_queued(w, ",\"priority\":1");
    (void)world_queued(w, ",\"preemptible\":true");
    world_pass(w, 6000);
    world_expect(w, &low, JOB_STATE_RUNNING);
    expect_reason(w, &head, 1, "needs 2 of 2 slots, 0 free");
    change(w, &low, "\"preemptible\":true");
    world_pass(w, 1000);
    world_expect(w, &low, JOB_STATE_PREEMPTING);
    OK(w, store_events_after(w->store, low.id, 0, 100, join_event, events, &w->err));
    (void)snprintf(told, sizeof told, "Job makes room for %s, which has priority 1:", head.id);
    assert_non_null(strstr(events, told));
    OK(w, coordinator_pause(w->coordinator, low.id, &w->err)); /* its user wants its slots free */
    expect_reason(w, &head, 1, "needs 2 of 2 slots, 0 free; preempted jobs are making room");
    world_end_paused(&a, 2);
    world_attempt_close(&a);
    world_expect(w, &head, JOB_STATE_STARTING);
}

/* One that its user pauses is no preempted one. */
static void test_a_pause_makes_room_too(void **state)
{
    struct world *w = *state;
    struct world_attempt a;
    struct world_job job = world_running(w, &a, "");
    struct world_job head = world_queued(w, ",\"priority\":1");
    OK(w, coordinator_pause(w->coordinator, job.id, &w->err));
    expect_reason(w, &head, 1, "needs 2 of 2 slots, 0 free");
    world_end_paused(&a, 1);
    world_attempt_close(&a);
    world_expect(w, &head, JOB_STATE_STARTING);
}

/* What is said to pass the others passes them, and not a second more. */
static void test_a_limit_that_passes(void **state)
{
    static const char hint[] = "waits behind 1 other job; with a time_limit_s of %d or less it "
                               "could start now";
    struct world *w = *state;
    struct world_attempt a;
    char text[256];
    struct world_job small = world_submit(w, 1, ",\"time_limit_s\":1000");
    world_run(w);
    world_prepare(w, WORLD_GOOD_REPORT);
    world_attempt_open(w, &a);
    world_ready(&a);
    struct world_job head = world_queued(w, "");
    struct world_job next = world_submit(w, 1, "");
    world_run(w);
    world_prepare(w, WORLD_GOOD_REPORT);
    struct world_job wide = world_queued(w, "");
    world_pass(w, 5000);
    world_expect(w, &head, JOB_STATE_QUEUED);
    (void)snprintf(text, sizeof text, hint, 995);
    expect_reason(w, &next, 2, text);
    expect_reason(w, &wide, 3, "waits behind 2 other jobs");
    change(w, &small, "\"time_limit_s\":65");
    (void)snprintf(text, sizeof text, hint, 60);
    expect_reason(w, &next, 2, text);
    change(w, &small, "\"time_limit_s\":64"); /* less is not worth the name */
    expect_reason(w, &next, 2, "waits behind 1 other job");
    change(w, &next, "\"time_limit_s\":60");
    world_expect(w, &next, JOB_STATE_QUEUED);
    change(w, &next, "\"time_limit_s\":59");
    world_expect(w, &next, JOB_STATE_STARTING);
    world_attempt_close(&a);
}

/* One that cannot be started is tried again after a while, not at each turn. */
static void test_a_start_that_fails(void **state)
{
    struct world *w = *state;
    struct world_job other = world_queued(w, ",\"hold\":true");
    struct world_job job = world_queued(w, ",\"hold\":true");
    CLEANUP(mem_free_ptr) char *path = mem_printf("%s/jobs/%s/checkpoints", w->dir, job.id);
    OK(w, io_write_file(path, "x", 1, 0600, &w->err)); /* where a folder should be */
    change(w, &job, "\"hold\":false");
    world_expect(w, &job, JOB_STATE_QUEUED);
    expect_reason(w, &job, 1, "starts next");
    assert_int_equal(unlink(path), 0);
    change(w, &other, "\"priority\":1"); /* the queue is looked at anew, the job is not */
    world_expect(w, &job, JOB_STATE_QUEUED);
    world_pass(w, 999);
    world_expect(w, &job, JOB_STATE_QUEUED);
    world_pass(w, 1);
    world_expect(w, &job, JOB_STATE_STARTING);
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
    int64_t slots;
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
        shown->slots = user->slots;
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
    assert_int_equal(shown.slots, 2);
    w->fake.now_ms += 1000; /* up to now, whether a turn came or not */
    OK(w, coordinator_users_list(w->coordinator, show_user, &shown, &w->err));
    assert_true(shown.total_s >= 21.9 && shown.total_s < 22.1);
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
    assert_true(shown.total_s >= 21.9 && shown.total_s < 22.1);
    world_expect(w, &bobs, JOB_STATE_STARTING); /* ann's has died with its keeper */
}

static void expect_use(struct world *w, double used_s, double total_s)
{
    struct shown shown = {.text = ""};
    OK(w, coordinator_users_list(w->coordinator, show_user, &shown, &w->err));
    if (fabs(shown.used_s - used_s) > 0.1 || fabs(shown.total_s - total_s) > 0.001)
        fail_msg("%.3f and %.3f s, not %.3f and %.3f", shown.used_s, shown.total_s, used_s,
                 total_s);
}

/* Use fades while the daemon runs, and while there is none; each half minute it is written. */
static void test_use_fades(void **state)
{
    struct world *w = *state;
    struct world_attempt a;
    const int64_t half_life_ms = 3600000;
    w->config.fair_share_half_life_ms = half_life_ms;
    w->config.policy.entry_penalty_s = 0;
    restart(w);
    (void)world_queued_as(w, "bob", "");
    world_attempt_open(w, &a);
    world_ready(&a);
    world_pass(w, 31000);
    world_pass(w, 5000);
    expect_use(w, 72, 72);
    world_reopen(w); /* killed: what it had not written is gone */
    expect_use(w, 62, 62);
    world_attempt_close(&a);
    world_run(w); /* its keeper is gone, too */
    world_pass(w, half_life_ms);
    expect_use(w, 31, 62);
    world_close(w);
    w->fake.now_ms += half_life_ms;
    world_open(w);
    expect_use(w, 15.5, 62);
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
    world_end_done(&a);
    world_attempt_close(&a);

    struct job_spec spec; /* before it has a pace, by what was predicted */
    char id[LIMIT_ID_BYTES + 1];
    CLEANUP(json_unref)
    json_t *body = json_literal("{'model':'tiny-llama','training_file':'file-a',"
                                "'ithaca':{'gpus':2,'seq_len':64}}");
    OK(w, job_spec_parse(body, &spec, &w->err));
    OK(w, coordinator_submit(w->coordinator, &spec, 2.5, w->model_dir, "ann", id, &w->err));
    job_spec_done(&spec);
    world_run(w);
    world_prepare(w, WORLD_GOOD_REPORT);
    world_attempt_open(w, &a);
    world_ready(&a);
    world_attempt_close(&a);
    OK(w, coordinator_queue_list(w->coordinator, 0, 9, take_end, &end_ms, &waiting, &w->err));
    assert_int_equal(end_ms, w->fake.host.ops->wall_ms(&w->fake.host) + 5 * 3125 + 60000);
}

/* Two jobs of one slot each, of which one may run; the other says why not. */
static void expect_cap(struct world *w, const char *reason)
{
    restart(w);
    struct world_job one = world_submit(w, 1, "");
    struct world_job two = world_submit(w, 1, "");
    world_run(w);
    world_prepare(w, WORLD_GOOD_REPORT);
    world_prepare(w, WORLD_GOOD_REPORT);
    world_run(w);
    bool first_runs = world_row(w, &one).state == JOB_STATE_STARTING;
    expect_reason(w, first_runs ? &two : &one, 1, reason);
}

static void test_cap_of_slots(void **state)
{
    struct world *w = *state;
    w->config.policy.user_slots_max = 1;
    expect_cap(w, "needs 1 slot; all jobs of admin may have 1 at once");
    struct job_spec spec = {.gpus = 2, .model = "m", .training_file = "f"};
    char id[LIMIT_ID_BYTES + 1];
    assert_int_equal(coordinator_submit(w->coordinator, &spec, 0, "/m", "admin", id, &w->err),
                     -ERR_DOES_NOT_FIT);
    assert_string_equal(w->err.field, "ithaca.gpus");
}

static void test_cap_of_jobs(void **state)
{
    struct world *w = *state;
    w->config.policy.user_jobs_max = 1;
    expect_cap(w, "admin runs as many jobs as one user may: 1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD_TEST(test_preempted_and_resumed),
        WORLD_TEST(test_other_ends_of_a_preempted_job),
        WORLD_TEST(test_who_makes_room),
        WORLD_TEST(test_a_pause_makes_room_too),
        WORLD_TEST(test_a_limit_that_passes),
        WORLD_TEST(test_a_start_that_fails),
        WORLD_TEST(test_use_fades),
        WORLD_TEST(test_drain),
        WORLD_TEST(test_one_that_starts_hides_no_other),
        WORLD_TEST(test_shares),
        WORLD_TEST(test_when_a_job_ends),
        WORLD_TEST(test_cap_of_slots),
        WORLD_TEST(test_cap_of_jobs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

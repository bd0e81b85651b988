/* supervisor: every way in which an attempt ends badly, seen through the job it belongs to. The
 * stop ladder is test_supervisor_end.c's. */
#include "tests/lib/supervisor_scene.h"

static void say_failed(struct world_attempt *a, uint32_t rank, enum err_code code, const char *text)
{
    struct wire_frame frame = {.type = WIRE_FAILED,
                               .failed = {.code = code, .step = 12, .phase = WIRE_PHASE_FORWARD}};
    (void)snprintf(frame.failed.text, sizeof frame.failed.text, "%s", text);
    world_send(a, rank, frame);
    world_run(a->w);
}

static void test_rank_says_why(void **state)
{
    struct world *w = *state;
    struct world_attempt a;
    struct world_job job = world_running(w, &a, "");
    say_failed(&a, 0, ERR_COLL_ABORTED, "the communicator was aborted");
    say_failed(&a, 1, ERR_NONFINITE, "the loss is nan");
    struct exit_report report = world_clean_exit(&a);
    report.first_failed = 0;
    report.ranks[0].exit_status = report.ranks[1].exit_status = 70;
    (void)snprintf(report.collective, sizeof report.collective, "collective 40: of no interest");
    world_end(&a, &report, 0);
    expect_failed(w, &job, "nonfinite", "rank 1 in step 12, forward: the loss is nan");
    assert_null(strstr(world_row(w, &job).text, "of no interest"));
    world_attempt_close(&a);
}

static void test_rank_is_killed(void **state)
{
    struct world *w = *state;
    struct world_attempt a;
    struct world_job job = world_running(w, &a, "");
    beat(&a, 1, 7, 40);
    world_run(w);
    say_failed(&a, 0, ERR_COLL_TIMEOUT, "rank 1 did not come");
    struct exit_report report = world_clean_exit(&a);
    report.first_failed = 1;
    report.ranks[0].exit_status = 70;
    report.ranks[1].exit_status = -1;
    report.ranks[1].signal = SIGKILL;
    (void)snprintf(report.collective, sizeof report.collective,
                   "collective 40: rank 1 had not come");
    world_end(&a, &report, 0);
    expect_failed(
        w, &job, "rank_died",
        "rank 1 was ended by signal 9 (SIGKILL) in step 7, backward; collective 40: rank 1 "
        "had not come");
    world_attempt_close(&a);
}

static void test_last_words(void **state)
{
    struct world *w = *state;
    struct world_attempt a;
    struct world_job job = world_running(w, &a, "");
    struct exit_report report = world_clean_exit(&a);
    report.first_failed = 0;
    report.ranks[0].exit_status = -1;
    report.ranks[0].signal = SIGABRT;
    (void)snprintf(report.ranks[0].last_words, sizeof report.ranks[0].last_words,
                   "worker/model.c:12: x > 0");
    world_end(&a, &report, 0);
    expect_failed(w, &job, "rank_died",
                  "rank 0 was ended by signal 6 (SIGABRT) before the first step, start: "
                  "worker/model.c:12: x > 0");
    world_attempt_close(&a);
}

static void test_only_consequences(void **state)
{
    struct world *w = *state;
    struct world_attempt a;
    struct world_job job = world_running(w, &a, "");
    say_failed(&a, 1, ERR_COLL_TIMEOUT, "rank 0 did not come");
    struct exit_report report = world_clean_exit(&a);
    report.first_failed = 1;
    report.ranks[1].exit_status = 70;
    world_end(&a, &report, 0);
    expect_failed(w, &job, "collective_timeout", "rank 1 in step 12, forward: rank 0 did not come");
    world_attempt_close(&a);
}

static void test_keeper_is_killed(void **state)
{
    struct world *w = *state;
    struct world_attempt a;
    struct world_job job = world_running(w, &a, "");
    w->fake.session_left = 2; /* its ranks are about to die */
    fake_host_end(a.keeper, 0, SIGKILL);
    world_pass(w, 100);
    world_expect(w, &job, JOB_STATE_RUNNING);
    w->fake.session_left = 0;
    world_pass(w, 100);
    world_expect(w, &job, JOB_STATE_RUNNING); /* connections are still open: frames may be there */
    world_hang_up(&a);
    world_run(w);
    expect_failed(w, &job, "rank_died", "the keeper was ended by signal 9");
    world_attempt_close(&a);
}

static void test_ranks_end_without_being_done(void **state)
{
    struct world *w = *state;
    struct world_attempt a;
    struct world_job job = world_running(w, &a, "");
    const struct exit_report report = world_clean_exit(&a);
    world_end(&a, &report, 0);
    expect_failed(w, &job, "rank_died", "ended without having finished");
    world_attempt_close(&a);
}

static void test_no_model_left(void **state)
{
    struct world *w = *state;
    struct world_attempt a;
    struct world_job job = world_running(w, &a, "");
    world_all(&a, (struct wire_frame){.type = WIRE_DONE});
    const struct exit_report report = world_clean_exit(&a);
    world_end(&a, &report, 0);
    expect_failed(w, &job, "internal", "left no model");
    world_attempt_close(&a);
}

static void test_rank_does_not_connect(void **state)
{
    struct world *w = *state;
    struct world_job job = world_queued(w, "");
    world_expect(w, &job, JOB_STATE_STARTING);
    struct host_process *keeper = fake_host_find(&w->fake, "--keep");
    world_pass(w, w->config.connect_limit_ms);
    assert_int_equal(keeper->last_signal, 0);
    world_pass(w, 1);
    assert_int_equal(keeper->last_signal, SIGTERM);
    world_pass(w, w->config.stop_grace_ms);
    assert_int_equal(keeper->last_signal, SIGKILL);
    fake_host_end(keeper, 0, SIGKILL);
    world_run(w);
    expect_failed(w, &job, "rank_start_failed", "rank 0 did not connect within 60 s");
}

static void test_rank_is_silent(void **state)
{
    struct world *w = *state;
    struct world_attempt a;
    struct world_job job = world_running(w, &a, "");
    beat(&a, 1, 9, 33);
    for (int i = 0; i < 17; i++) { /* the first second passes before it is heard */
        beat(&a, 0, (uint64_t)(10 + i), 50);
        world_pass(w, 1000);
    }
    assert_int_equal(a.keeper->last_signal, SIGTERM);
    uint32_t number = 0;
    assert_false(world_receive(&a, 0, WIRE_CANCEL, &number)); /* a hung rank would not hear it */
    world_end(&a, NULL, SIGTERM);
    expect_failed(w, &job, "rank_hung", "rank 1 gave no sign of life for 1");
    expect_failed(w, &job, "rank_hung", "step 9, backward");
    world_attempt_close(&a);
}

/* A minute without a tick: what the ranks have said is read after the first one. */
static void test_daemon_stood_still(void **state)
{
    struct world *w = *state;
    struct world_attempt a;
    (void)world_running(w, &a, "");
    beat(&a, 0, 9, 33);
    beat(&a, 1, 9, 33);
    world_run(w);
    w->fake.now_ms += 60000;
    beat(&a, 0, 40, 120);
    beat(&a, 1, 40, 120);
    coordinator_tick(w->coordinator);
    world_run(w);
    assert_int_equal(a.keeper->last_signal, 0);
    w->fake.now_ms += 60000;
    beat(&a, 0, 80, 240); /* the other one is silent */
    coordinator_tick(w->coordinator);
    assert_int_equal(a.keeper->last_signal, 0);
    world_run(w);
    assert_int_equal(a.keeper->last_signal, SIGTERM);
    world_end(&a, NULL, SIGTERM);
    world_attempt_close(&a);
}

static void test_ranks_do_not_move(void **state)
{
    struct world *w = *state;
    struct world_attempt a;
    struct world_job job = world_running(w, &a, "");
    beat(&a, 0, 5, 101);
    beat(&a, 1, 5, 100);
    world_run(w);
    for (int64_t ms = 0; ms <= w->config.stall_limit_ms; ms += 10000) {
        assert_int_equal(a.keeper->last_signal, 0);
        beat(&a, 0, 5, 101);
        beat(&a, 1, 5, 100);
        world_pass(w, 10000);
    }
    assert_int_equal(a.keeper->last_signal, SIGTERM);
    world_end(&a, NULL, SIGTERM);
    expect_failed(w, &job, "rank_hung",
                  "rank 1 is behind: step 5, backward, collective 100 (the others: up to 101)");
    world_attempt_close(&a);
}

static void test_dead_rank_found_silent_first(void **state)
{
    struct world *w = *state;
    struct world_attempt a;
    struct world_job job = world_running(w, &a, "");
    world_pass(w, w->config.heartbeat_limit_ms + 1);
    assert_int_equal(a.keeper->last_signal, SIGTERM);
    struct exit_report report = world_clean_exit(&a);
    report.first_failed = 1;
    report.ranks[1].signal = SIGSEGV;
    world_end(&a, &report, 0);
    expect_failed(w, &job, "rank_died", "rank 1 was ended by signal 11");
    world_attempt_close(&a);
}

static void test_time_limit(void **state)
{
    struct world *w = *state;
    struct world_attempt a;
    struct world_job job = world_running(w, &a, ",\"time_limit_s\":5");
    uint32_t number = 0;
    world_pass(w, 4499);
    assert_false(world_receive(&a, 0, WIRE_PAUSE, &number));
    world_pass(w, 1); /* nine tenths: asked to write a checkpoint and end */
    assert_true(world_receive(&a, 0, WIRE_PAUSE, &number));
    for (int i = 0; i < 11; i++) {
        assert_int_equal(a.keeper->last_signal, 0);
        beat(&a, 0, 5, (uint64_t)i);
        beat(&a, 1, 5, (uint64_t)i);
        world_pass(w, 1000);
    }
    assert_int_equal(a.keeper->last_signal, SIGTERM); /* told */
    world_end(&a, NULL, SIGTERM);
    expect_failed(w, &job, "time_limit", "time_limit_s of 5");
    world_attempt_close(&a);
}

static void test_keeper_outlasts_its_ranks(void **state)
{
    struct world *w = *state;
    struct world_attempt a;
    struct world_job job = world_running(w, &a, "");
    world_all(&a, (struct wire_frame){.type = WIRE_DONE});
    world_pass(w, w->config.heartbeat_limit_ms);
    assert_int_equal(a.keeper->last_signal, 0);
    world_pass(w, 1);
    assert_int_equal(a.keeper->last_signal, SIGTERM);
    CLEANUP(mem_free_ptr) char *model = io_join(a.plan.job_dir, "model");
    OK(w, io_make_dirs(model, 0700, &w->err));
    const struct exit_report report = world_clean_exit(&a);
    world_end(&a, &report, 0);
    world_expect(w, &job, JOB_STATE_SUCCEEDED); /* the work was done */
    world_attempt_close(&a);
}

/* ---- HELLO --------------------------------------------------------------------------------- */

static void test_hello_must_prove_itself(void **state)
{
    struct world *w = *state;
    struct world_attempt a;
    struct world_job job = world_running(w, &a, "");
    struct world_attempt liar = {.w = w, .plan = a.plan};
    uint32_t number = 0;
    for (int lie = 0; lie < 4; lie++) {
        liar.plan = a.plan;
        if (lie == 0)
            liar.plan.secret[31] ^= 1;
        else if (lie == 1)
            liar.plan.attempt = 2;
        else if (lie == 2)
            liar.plan.job_id[7] ^= 1;
        buf_init(&liar.in[0], 1 << 20);
        buf_init(&liar.in[2], 1 << 20);
        world_connect(&liar, lie == 3 ? 2 : 0); /* there is no rank 2 */
        world_run(w);
        uint32_t rank = lie == 3 ? 2 : 0;
        assert_false(world_receive(&liar, rank, WIRE_PLAN, &number));
        char byte;
        assert_int_equal(recv(liar.fds[rank], &byte, 1, MSG_DONTWAIT), 0); /* it was closed */
        (void)close(liar.fds[rank]);
        buf_done(&liar.in[0]);
        buf_done(&liar.in[2]);
    }
    world_expect(w, &job, JOB_STATE_RUNNING);
    world_attempt_close(&a);
}

static void test_reconnect_sends_again(void **state)
{
    struct world *w = *state;
    struct world_attempt a;
    struct world_job job = world_running(w, &a, "");
    struct wire_frame metrics = {.type = WIRE_METRICS, .metrics = {.step = 1, .count = 1}};
    world_send(&a, 1, metrics);
    world_run(w);
    (void)close(a.fds[1]);
    world_connect(&a, 1);
    a.next_seq[1] = 0; /* all of it again: READY, METRICS, and a new one */
    world_send(&a, 1, (struct wire_frame){.type = WIRE_READY});
    world_send(&a, 1, metrics);
    metrics.metrics.step = 2;
    world_send(&a, 1, metrics);
    world_run(w);
    uint32_t seen = 0;
    assert_true(world_receive(&a, 1, WIRE_SEEN, &seen));
    assert_int_equal(seen, 3);
    int64_t newest = 0;
    OK(w, store_points_newest(w->store, &newest, &w->err));
    assert_int_equal(newest, 2);
    world_expect(w, &job, JOB_STATE_RUNNING);
    world_attempt_close(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD_TEST(test_rank_says_why),
        WORLD_TEST(test_rank_is_killed),
        WORLD_TEST(test_last_words),
        WORLD_TEST(test_only_consequences),
        WORLD_TEST(test_keeper_is_killed),
        WORLD_TEST(test_ranks_end_without_being_done),
        WORLD_TEST(test_no_model_left),
        WORLD_TEST(test_rank_does_not_connect),
        WORLD_TEST(test_rank_is_silent),
        WORLD_TEST(test_daemon_stood_still),
        WORLD_TEST(test_ranks_do_not_move),
        WORLD_TEST(test_dead_rank_found_silent_first),
        WORLD_TEST(test_time_limit),
        WORLD_TEST(test_keeper_outlasts_its_ranks),
        WORLD_TEST(test_hello_must_prove_itself),
        WORLD_TEST(test_reconnect_sends_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* coordinator_control, coordinator_attempt: pause and resume in every state, restarts after faults,
 * time limits, a daemon that stops. */
#include "daemon/checkpoints.h"
#include "tests/lib/coordinator_world.h"

static int join_event(void *context, const struct store_event *event, struct err *err)
{
    char *text = context;
    size_t length = strlen(text);
    (void)snprintf(text + length, 4096 - length, "%s\n", event->message);
    return 0;
}

static void expect_event(struct world *w, const struct world_job *job, const char *text)
{
    char events[4096] = "";
    OK(w, store_events_after(w->store, job->id, 0, 100, join_event, events, &w->err));
    if (strstr(events, text) == NULL)
        fail_msg("\"%s\" is not in:\n%s", text, events);
}

static void pause_job(struct world *w, const struct world_job *job)
{
    OK(w, coordinator_pause(w->coordinator, job->id, &w->err));
    OK(w, coordinator_pause(w->coordinator, job->id, &w->err)); /* twice is once */
    world_run(w);
}

static void resume_job(struct world *w, const struct world_job *job, const char *checkpoint)
{
    OK(w, coordinator_resume(w->coordinator, job->id, checkpoint, &w->err));
}

/* ---- pause, resume ------------------------------------------------------------------------- */

static void test_pause_while_validating(void **state)
{
    struct world *w = *state;
    struct world_job first = world_submit(w, 1, ""), second = world_submit(w, 1, ""),
                     third = world_submit(w, 1, "");
    world_run(w);
    pause_job(w, &third); /* has no child yet */
    world_expect(w, &third, JOB_STATE_PAUSED);
    struct host_process *child = &w->fake.processes[0];
    pause_job(w, &first);
    world_expect(w, &first, JOB_STATE_PAUSING);
    assert_int_equal(child->last_signal, SIGKILL);
    fake_host_end(child, 0, SIGKILL);
    world_run(w);
    world_expect(w, &first, JOB_STATE_PAUSED);
    world_expect(w, &second, JOB_STATE_VALIDATING);
    world_reopen(w);
    world_expect(w, &first, JOB_STATE_PAUSED);
    assert_int_equal(coordinator_resume(w->coordinator, first.id, "ftckpt_none_1", &w->err),
                     -ERR_NOT_FOUND);
    resume_job(w, &first, NULL); /* its files are checked from the start */
    world_expect(w, &first, JOB_STATE_VALIDATING);
}

static void test_pause_while_queued(void **state)
{
    struct world *w = *state;
    struct world_attempt a;
    struct world_job running = world_running(w, &a, "");
    struct world_job job = world_submit(w, 1, "");
    world_run(w);
    world_prepare(w, WORLD_GOOD_REPORT);
    world_expect(w, &job, JOB_STATE_QUEUED);
    pause_job(w, &job);
    world_expect(w, &job, JOB_STATE_PAUSED);
    struct coordinator_view view;
    coordinator_view(w->coordinator, job.id, &view);
    assert_int_equal(view.queue_position, 0);
    assert_string_equal(view.pending_reason, "it is paused until it is resumed");
    world_end_done(&a);
    world_attempt_close(&a);
    world_expect(w, &running, JOB_STATE_SUCCEEDED);
    world_expect(w, &job, JOB_STATE_PAUSED); /* free slots do not start it */
    resume_job(w, &job, NULL);
    world_expect(w, &job, JOB_STATE_QUEUED); /* not checked again */
    world_run(w);
    world_expect(w, &job, JOB_STATE_STARTING);
    assert_int_equal(coordinator_pause(w->coordinator, running.id, &w->err), -ERR_BAD_STATE);
    assert_int_equal(coordinator_resume(w->coordinator, running.id, NULL, &w->err), -ERR_BAD_STATE);
    assert_int_equal(coordinator_resume(w->coordinator, job.id, NULL, &w->err), -ERR_BAD_STATE);
    assert_int_equal(coordinator_pause(w->coordinator, "ftjob-none", &w->err), -ERR_NOT_FOUND);
    assert_int_equal(coordinator_resume(w->coordinator, "ftjob-none", NULL, &w->err),
                     -ERR_NOT_FOUND);
}

static void test_pause_while_starting(void **state)
{
    struct world *w = *state;
    struct world_attempt a;
    struct world_job job = world_submit(w, 2, "");
    uint32_t number = 0;
    world_run(w);
    world_prepare(w, WORLD_GOOD_REPORT);
    pause_job(w, &job);
    world_expect(w, &job, JOB_STATE_PAUSING);
    world_attempt_open(w, &a); /* ranks that connect later are asked too */
    assert_true(world_receive(&a, 0, WIRE_PAUSE, &number));
    assert_true(world_receive(&a, 1, WIRE_PAUSE, &number));
    world_end_paused(&a, 0);
    world_expect(w, &job, JOB_STATE_PAUSED);
    assert_true(coordinator_is_idle(w->coordinator));
    world_attempt_close(&a);
}

static void test_pause_and_resume_a_running_job(void **state)
{
    struct world *w = *state;
    struct world_attempt a;
    struct world_job job = world_running(w, &a, "");
    struct world_job next = world_submit(w, 2, "");
    uint32_t number = 0;
    world_run(w);
    world_prepare(w, WORLD_GOOD_REPORT);
    pause_job(w, &job);
    world_expect(w, &job, JOB_STATE_PAUSING);
    assert_true(world_receive(&a, 1, WIRE_PAUSE, &number));
    world_pass(w, 1000);
    assert_false(world_receive(&a, 1, WIRE_PAUSE, &number)); /* asked once a connection */
    (void)close(a.fds[1]);
    world_connect(&a, 1);
    world_run(w);
    assert_true(world_receive(&a, 1, WIRE_PAUSE, &number));
    world_end_paused(&a, 3);
    world_expect(w, &job, JOB_STATE_PAUSED);
    expect_event(w, &job, "Job is paused: step 3 is saved (ftckpt_");
    world_attempt_close(&a);
    world_expect(w, &next, JOB_STATE_STARTING); /* the slots are free */
    struct world_row row = world_row(w, &job);
    assert_int_equal(row.steps_done, 3);
    assert_int_equal(row.restarts, 0);
    assert_int_equal(row.finished_ms, 0);

    world_attempt_open(w, &a);
    world_end_done(&a);
    world_attempt_close(&a);
    resume_job(w, &job, NULL);
    world_run(w);
    world_attempt_open(w, &a);
    assert_int_equal(a.plan.attempt, 2);
    assert_int_equal(a.plan.steps_done, 3);
    CLEANUP(mem_free_ptr) char *from = checkpoint_dir(a.plan.job_dir, 3);
    assert_string_equal(a.plan.resume_from, from);
    assert_int_equal(world_row(w, &job).resumed_step, 3);
    world_ready(&a);
    world_end_done(&a);
    world_expect(w, &job, JOB_STATE_SUCCEEDED);
    assert_int_equal(world_row(w, &job).trained_tokens, 1234);
    world_attempt_close(&a);
}

/* Where the folder of checkpoints should be is something else: the pause ends all the same. */
static void test_pause_with_checkpoints_unread(void **state)
{
    struct world *w = *state;
    struct world_attempt a;
    struct world_job job = world_running(w, &a, "");
    CLEANUP(mem_free_ptr) char *folder = io_join(a.plan.job_dir, "checkpoints");
    pause_job(w, &job);
    const struct exit_report report = world_clean_exit(&a);
    OK(w, io_write_file(folder, "x", 1, 0600, &w->err));
    world_all(&a, (struct wire_frame){.type = WIRE_PAUSED, .paused = {.step = 2}});
    world_end(&a, &report, 0);
    world_expect(w, &job, JOB_STATE_PAUSED);
    expect_event(w, &job, "Job is paused: its checkpoints cannot be listed");
    world_attempt_close(&a);
}

static void test_done_before_the_pause(void **state)
{
    struct world *w = *state;
    struct world_attempt a;
    struct world_job job = world_running(w, &a, "");
    pause_job(w, &job);
    world_end_done(&a);
    world_expect(w, &job, JOB_STATE_SUCCEEDED);
    world_attempt_close(&a);
}

/* It is at its end at once, and may be cancelled again. */
static void test_cancel_of_one_that_waits(void **state)
{
    struct world *w = *state;
    struct world_job job = world_submit(w, 1, "");
    OK(w, coordinator_cancel(w->coordinator, job.id, &w->err));
    world_expect(w, &job, JOB_STATE_CANCELLED);
    OK(w, coordinator_cancel(w->coordinator, job.id, &w->err));
}

/* Its child has to go first. */
static void test_cancel_while_files_are_checked(void **state)
{
    struct world *w = *state;
    struct world_job job = world_submit(w, 1, "");
    world_run(w);
    struct host_process *child = fake_host_find(&w->fake, "--prepare");
    assert_non_null(child);
    OK(w, coordinator_cancel(w->coordinator, job.id, &w->err));
    assert_int_equal(child->last_signal, SIGKILL);
    world_run(w);
    world_expect(w, &job, JOB_STATE_CANCELLING);
    fake_host_end(child, 0, SIGKILL);
    world_run(w);
    world_expect(w, &job, JOB_STATE_CANCELLED);
}

static void test_cancel_while_pausing_and_paused(void **state)
{
    struct world *w = *state;
    struct world_attempt a;
    uint32_t number = 0;
    struct world_job job = world_running(w, &a, "");
    pause_job(w, &job);
    OK(w, coordinator_cancel(w->coordinator, job.id, &w->err));
    assert_true(world_receive(&a, 0, WIRE_CANCEL, &number));
    assert_int_equal(coordinator_pause(w->coordinator, job.id, &w->err), -ERR_BAD_STATE);
    world_end(&a, NULL, 0);
    world_expect(w, &job, JOB_STATE_CANCELLED);
    world_attempt_close(&a);

    struct world_job second = world_running(w, &a, "");
    pause_job(w, &second);
    world_end_paused(&a, 1);
    world_attempt_close(&a);
    OK(w, coordinator_cancel(w->coordinator, second.id, &w->err));
    world_run(w);
    world_expect(w, &second, JOB_STATE_CANCELLED);
    assert_int_equal(coordinator_resume(w->coordinator, second.id, NULL, &w->err), -ERR_BAD_STATE);
}

static void test_resume_from_an_earlier_checkpoint(void **state)
{
    struct world *w = *state;
    struct world_attempt a;
    struct world_job job = world_running(w, &a, "");
    char id[LIMIT_ID_BYTES + 1];
    for (int64_t step = 1; step <= 3; step++)
        world_checkpoint(&a, step);
    pause_job(w, &job);
    world_end_paused(&a, 4);
    checkpoints_id(job.id, 7, id);
    assert_int_equal(coordinator_resume(w->coordinator, job.id, id, &w->err), -ERR_NOT_FOUND);
    assert_string_equal(w->err.field, "checkpoint");
    world_expect(w, &job, JOB_STATE_PAUSED);
    checkpoints_id(job.id, 2, id);
    resume_job(w, &job, id);
    int64_t newest = 0;
    OK(w, checkpoints_newest(a.plan.job_dir, &newest, &w->err));
    assert_int_equal(newest, 2); /* those after it are given up */
    assert_int_equal(world_row(w, &job).steps_done, 2);
    expect_event(w, &job, "Job is resumed: it goes on after step 2.");
    world_attempt_close(&a);
    world_run(w);
    world_attempt_open(w, &a);
    assert_int_equal(a.plan.steps_done, 2);
    world_attempt_close(&a);
}

/* Every allocation fails once: the job is as it was, or it is resumed. */
static void test_allocation_failures(void **state)
{
    struct world *w = *state;
    struct world_attempt a;
    struct world_job job = world_running(w, &a, "");
    char id[LIMIT_ID_BYTES + 1];
    checkpoints_id(job.id, 2, id);
    world_checkpoint(&a, 2);
    int failures = 0, rc = 0;
    do {
        mem_fault_after(failures + 1);
        rc = coordinator_pause(w->coordinator, job.id, &w->err);
        assert_int_equal(mem_fault_after(0), rc != 0);
        world_expect(w, &job, rc != 0 ? JOB_STATE_RUNNING : JOB_STATE_PAUSING);
        failures += rc != 0;
    } while (rc != 0);
    assert_true(failures >= 1);
    world_end_paused(&a, 3);
    world_attempt_close(&a);
    failures = 0;
    do {
        mem_fault_after(failures + 1);
        rc = coordinator_resume(w->coordinator, job.id, id, &w->err);
        assert_int_equal(mem_fault_after(0), rc != 0);
        world_expect(w, &job, rc != 0 ? JOB_STATE_PAUSED : JOB_STATE_QUEUED);
        failures += rc != 0;
    } while (rc != 0);
    assert_true(failures >= 5);
    world_run(w);
    world_attempt_open(w, &a);
    assert_int_equal(a.plan.steps_done, 2);
    world_attempt_close(&a);
}

/* ---- restarts ------------------------------------------------------------------------------ */

static void test_fault_restarts_from_the_last_checkpoint(void **state)
{
    struct world *w = *state;
    struct world_attempt a;
    struct world_job job = world_running(w, &a, ",\"max_restarts\":1");
    world_checkpoint(&a, 2);
    world_end_killed(&a, 1);
    world_attempt_close(&a);
    world_expect(w, &job, JOB_STATE_STARTING); /* queued, and started again at once */
    expect_event(w, &job,
                 "rank 1 was ended by signal 9 (SIGKILL) before the first step, start. "
                 "Restart 1 of 1: step 2 is saved (ftckpt_");
    assert_int_equal(world_row(w, &job).restarts, 1);
    world_attempt_open(w, &a);
    assert_int_equal(a.plan.attempt, 2);
    assert_int_equal(a.plan.steps_done, 2);
    world_ready(&a);
    world_end_killed(&a, 0);
    world_attempt_close(&a);
    world_expect(w, &job, JOB_STATE_FAILED); /* once is enough */
    assert_string_equal(world_row(w, &job).reason, "rank_died");
    expect_event(w, &job, "To go on, resume the job: step 2 is saved");

    OK(w, coordinator_resume(w->coordinator, job.id, NULL, &w->err)); /* by hand it may */
    assert_int_equal(world_row(w, &job).restarts, 0);
    assert_int_equal(world_row(w, &job).finished_ms, 0);
    assert_string_equal(world_row(w, &job).reason, "");
    world_run(w);
    world_attempt_open(w, &a);
    assert_int_equal(a.plan.attempt, 3);
    world_ready(&a);
    world_end_done(&a);
    world_expect(w, &job, JOB_STATE_SUCCEEDED);
    world_attempt_close(&a);
}

static void test_other_faults_do_not_restart(void **state)
{
    struct world *w = *state;
    struct world_attempt a;
    struct world_job job = world_running(w, &a, ",\"max_restarts\":5");
    struct wire_frame failed = {.type = WIRE_FAILED, .failed = {.code = ERR_NONFINITE, .step = 3}};
    (void)snprintf(failed.failed.text, sizeof failed.failed.text, "the loss is nan");
    world_send(&a, 0, failed);
    world_run(w);
    struct exit_report report = world_clean_exit(&a);
    report.first_failed = 0;
    report.ranks[0].exit_status = 70;
    world_end(&a, &report, 0);
    world_expect_failed(w, &job, "nonfinite", "");
    world_attempt_close(&a);
    /* Without a checkpoint there is nothing to resume. */
    assert_int_equal(coordinator_resume(w->coordinator, job.id, NULL, &w->err), -ERR_BAD_STATE);
    assert_int_equal(coordinator_cancel(w->coordinator, job.id, &w->err), -ERR_BAD_STATE);
    world_run(w);
    world_expect(w, &job, JOB_STATE_FAILED);
}

static void test_fault_while_pausing_pauses(void **state)
{
    struct world *w = *state;
    struct world_attempt a;
    struct world_job job = world_running(w, &a, "");
    world_checkpoint(&a, 1);
    pause_job(w, &job);
    world_end_killed(&a, 0);
    world_expect(w, &job, JOB_STATE_PAUSED);
    expect_event(w, &job, "Job is paused: step 1 is saved");
    world_attempt_close(&a);
}

/* ---- time limit ---------------------------------------------------------------------------- */

static void test_time_limit_keeps_a_checkpoint(void **state)
{
    struct world *w = *state;
    struct world_attempt a;
    uint32_t number = 0;
    struct world_job job = world_running(w, &a, ",\"time_limit_s\":10,\"max_restarts\":3");
    world_pass(w, 6000);
    pause_job(w, &job); /* its running time stays counted */
    world_end_paused(&a, 6);
    world_attempt_close(&a);
    assert_int_equal(world_row(w, &job).ran_ms, 6000);
    world_pass(w, 100000);
    resume_job(w, &job, NULL);
    world_run(w);
    world_attempt_open(w, &a);
    world_ready(&a);
    world_pass(w, 2999);
    assert_false(world_receive(&a, 0, WIRE_PAUSE, &number));
    world_pass(w, 1);
    assert_true(world_receive(&a, 0, WIRE_PAUSE, &number));
    world_end_paused(&a, 9);
    world_expect(w, &job, JOB_STATE_FAILED);
    struct world_row row = world_row(w, &job);
    assert_string_equal(row.reason, "time_limit");
    assert_non_null(strstr(row.text, "step 9 is saved"));
    assert_non_null(strstr(row.text, "resume gives it as much time again"));
    world_attempt_close(&a);
    resume_job(w, &job, NULL);
    world_run(w);
    world_attempt_open(w, &a);
    assert_int_equal(a.plan.steps_done, 9);
    world_ready(&a);
    assert_int_equal(world_row(w, &job).ran_ms, 0);
    world_pass(w, 8000);
    assert_false(world_receive(&a, 0, WIRE_PAUSE, &number));
    world_attempt_close(&a);
}

/* ---- the daemon stops ---------------------------------------------------------------------- */

static void test_stopping_daemon_pauses_jobs(void **state)
{
    struct world *w = *state;
    struct world_attempt a;
    struct world_job running = world_running(w, &a, "");
    struct world_job checking = world_submit(w, 1, "");
    uint32_t number = 0;
    world_run(w);
    coordinator_stop(w->coordinator);
    struct host_process *child = fake_host_find(&w->fake, "--prepare");
    assert_int_equal(child->last_signal, SIGKILL);
    world_run(w);
    assert_true(world_receive(&a, 1, WIRE_PAUSE, &number));
    assert_false(coordinator_is_idle(w->coordinator));
    assert_int_equal(coordinator_resume(w->coordinator, running.id, NULL, &w->err),
                     -ERR_UNAVAILABLE);
    fake_host_end(child, 0, SIGKILL);
    world_end_paused(&a, 4);
    assert_true(coordinator_is_idle(w->coordinator));
    world_expect(w, &running, JOB_STATE_QUEUED);
    world_expect(w, &checking, JOB_STATE_VALIDATING);
    world_attempt_close(&a);

    world_reopen(w);
    world_run(w);
    world_expect(w, &running, JOB_STATE_STARTING);
    world_attempt_open(w, &a);
    assert_int_equal(a.plan.attempt, 2);
    assert_int_equal(a.plan.steps_done, 4);
    assert_int_equal(world_row(w, &running).restarts, 0);
    assert_non_null(fake_host_find(&w->fake, "--prepare"));
    world_attempt_close(&a);
}

static void test_stopping_daemon_leaves_jobs(void **state)
{
    struct world *w = *state;
    struct world_attempt a;
    world_close(w);
    w->config.leave_running = true;
    world_open(w);
    struct world_job job = world_running(w, &a, "");
    uint32_t number = 0;
    coordinator_stop(w->coordinator);
    assert_true(coordinator_is_idle(w->coordinator));
    world_run(w);
    assert_false(world_receive(&a, 0, WIRE_PAUSE, &number));
    assert_int_equal(a.keeper->last_signal, 0);
    world_expect(w, &job, JOB_STATE_RUNNING);
    world_attempt_close(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD_TEST(test_pause_while_validating),
        WORLD_TEST(test_pause_while_queued),
        WORLD_TEST(test_pause_while_starting),
        WORLD_TEST(test_pause_and_resume_a_running_job),
        WORLD_TEST(test_pause_with_checkpoints_unread),
        WORLD_TEST(test_done_before_the_pause),
        WORLD_TEST(test_cancel_of_one_that_waits),
        WORLD_TEST(test_cancel_while_files_are_checked),
        WORLD_TEST(test_cancel_while_pausing_and_paused),
        WORLD_TEST(test_resume_from_an_earlier_checkpoint),
        WORLD_TEST(test_allocation_failures),
        WORLD_TEST(test_fault_restarts_from_the_last_checkpoint),
        WORLD_TEST(test_other_faults_do_not_restart),
        WORLD_TEST(test_fault_while_pausing_pauses),
        WORLD_TEST(test_time_limit_keeps_a_checkpoint),
        WORLD_TEST(test_stopping_daemon_pauses_jobs),
        WORLD_TEST(test_stopping_daemon_leaves_jobs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

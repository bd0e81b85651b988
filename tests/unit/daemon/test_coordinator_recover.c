/* coordinator_recover: a second coordinator on the store of one that was killed. */
#include "tests/lib/coordinator_world.h"

static void reopen(struct world *w)
{
    world_close(w);
    world_open(w);
}

static void test_validating_and_queued_go_on(void **state)
{
    struct world *w = *state;
    struct world_job queued = world_submit(w, 2, ",\"priority\":3");
    world_run(w);
    world_prepare(w, WORLD_GOOD_REPORT); /* takes both slots */
    struct world_job waiting = world_submit(w, 1, "");
    world_run(w);
    world_prepare(w, WORLD_GOOD_REPORT);
    struct world_job checking = world_submit(w, 1, "");
    world_run(w);
    world_expect(w, &queued, JOB_STATE_STARTING);
    world_expect(w, &waiting, JOB_STATE_QUEUED);
    world_expect(w, &checking, JOB_STATE_VALIDATING);
    reopen(w);
    struct coordinator_view view;
    coordinator_view(w->coordinator, waiting.id, &view);
    assert_int_equal(view.queue_position, 1);
    world_run(w);
    world_expect(w, &queued, JOB_STATE_FAILED); /* its keeper is gone */
    assert_string_equal(world_row(w, &queued).reason, "coordinator_lost");
    world_expect(w, &waiting, JOB_STATE_STARTING);
    world_prepare(w, WORLD_GOOD_REPORT);
    world_expect(w, &checking, JOB_STATE_STARTING);
}

static void test_running_keeper_is_stopped(void **state)
{
    struct world *w = *state;
    struct world_attempt a;
    struct world_job job = world_running(w, &a, "");
    struct world_job next = world_submit(w, 1, "");
    world_run(w);
    world_prepare(w, WORLD_GOOD_REPORT);
    w->fake.adoptable = (struct host_identity){.pid = a.keeper->pid, .start_time = 77};
    world_attempt_close(&a);
    reopen(w);
    world_run(w);
    world_expect(w, &job, JOB_STATE_RUNNING);
    world_expect(w, &next, JOB_STATE_QUEUED); /* the slots are the old keeper's */
    struct host_process *keeper = fake_host_find(&w->fake, "adopted");
    assert_non_null(keeper);
    assert_int_equal(keeper->last_signal, SIGTERM);
    world_pass(w, w->config.stop_grace_ms);
    assert_int_equal(keeper->last_signal, SIGKILL);
    fake_host_end(keeper, -1, 0);
    world_run(w);
    world_expect(w, &job, JOB_STATE_FAILED);
    assert_string_equal(world_row(w, &job).reason, "coordinator_lost");
    world_expect(w, &next, JOB_STATE_STARTING);
}

static void test_recycled_pid_is_left_alone(void **state)
{
    struct world *w = *state;
    struct world_attempt a;
    struct world_job job = world_running(w, &a, "");
    w->fake.adoptable = (struct host_identity){.pid = a.keeper->pid, .start_time = 78};
    world_attempt_close(&a);
    reopen(w);
    world_run(w);
    assert_null(fake_host_find(&w->fake, "adopted"));
    world_expect(w, &job, JOB_STATE_FAILED);
}

/* The daemon died after the job was STARTING and before it wrote down who the keeper is. */
static void forget_keeper(struct world *w, const struct world_job *job)
{
    const struct store_attempt attempt = {
        .job_id = job->id, .number = 1, .started_ms = 1, .boot_id = "", .outcome = ""};
    OK(w, store_attempt_put(w->store, &attempt, &w->err));
}

static void test_never_started_is_queued_again(void **state)
{
    struct world *w = *state;
    struct world_job job = world_submit(w, 2, "");
    world_run(w);
    world_prepare(w, WORLD_GOOD_REPORT);
    forget_keeper(w, &job);
    reopen(w);
    world_expect(w, &job, JOB_STATE_QUEUED);
    world_run(w);
    world_expect(w, &job, JOB_STATE_STARTING);
    assert_int_equal(world_row(w, &job).attempt, 2);
}

static void test_keeper_file_tells_who_it_is(void **state)
{
    struct world *w = *state;
    struct world_job job = world_submit(w, 2, "");
    world_run(w);
    world_prepare(w, WORLD_GOOD_REPORT);
    forget_keeper(w, &job);
    struct host_process *keeper = fake_host_find(&w->fake, "--keep");
    char text[128];
    (void)snprintf(text, sizeof text, "{\"pid\":%d,\"start_time\":77,\"boot_id\":\"b\"}",
                   keeper->pid);
    CLEANUP(mem_free_ptr) char *path = io_join(keeper->argument, "keeper.json");
    OK(w, io_write_file(path, text, strlen(text), 0600, &w->err));
    w->fake.adoptable = (struct host_identity){.pid = keeper->pid, .start_time = 77};
    reopen(w);
    assert_non_null(fake_host_find(&w->fake, "adopted"));
    world_expect(w, &job, JOB_STATE_STARTING);
}

static void test_cancelling_is_finished(void **state)
{
    struct world *w = *state;
    struct world_attempt a;
    struct world_job job = world_running(w, &a, "");
    OK(w, coordinator_cancel(w->coordinator, job.id, &w->err));
    w->fake.adoptable = (struct host_identity){.pid = a.keeper->pid, .start_time = 77};
    world_attempt_close(&a);
    reopen(w);
    world_run(w);
    world_expect(w, &job, JOB_STATE_CANCELLING);
    fake_host_end(fake_host_find(&w->fake, "adopted"), -1, 0);
    world_run(w);
    world_expect(w, &job, JOB_STATE_CANCELLED);
}

static void test_allocation_failures(void **state)
{
    struct world *w = *state;
    struct world_job job = world_submit(w, 1, "");
    world_close(w);
    int failures = 0;
    for (int n = 1; w->coordinator == NULL; n++) {
        OK(w, loop_new(&w->loop, &w->err));
        OK(w, store_open(w->dir, &w->store, &w->err));
        mem_fault_after(n);
        int rc = coordinator_new(&w->config, &w->fake.host, w->store, &w->bus, w->loop,
                                 &w->coordinator, &w->err);
        mem_fault_after(0);
        if (rc != 0) {
            failures++;
            store_close(w->store);
            loop_free(w->loop);
        }
    }
    assert_true(failures >= 6);
    world_run(w);
    world_expect(w, &job, JOB_STATE_VALIDATING);
}

#define WORLD_TEST(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD_TEST(test_validating_and_queued_go_on),
        WORLD_TEST(test_running_keeper_is_stopped),
        WORLD_TEST(test_recycled_pid_is_left_alone),
        WORLD_TEST(test_never_started_is_queued_again),
        WORLD_TEST(test_keeper_file_tells_who_it_is),
        WORLD_TEST(test_cancelling_is_finished),
        WORLD_TEST(test_allocation_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* supervisor_end: the stop ladder, what outlives it, control groups; cancelling in each state. */
#include "common/kernel_file.h"
#include "tests/lib/supervisor_scene.h"

/* ---- control groups ------------------------------------------------------------------------ */

/* A folder that plays the hierarchy, in which the daemon may make groups. */
static struct groups {
    char root[96];
    struct cgroup_home home;
} groups;

static void put(const char *group, const char *name, const char *text)
{
    struct err err;
    char path[PATH_MAX];
    kernel_file_path(group, name, path);
    assert_int_equal(io_write_file(path, text, strlen(text), 0600, &err), 0);
}

static void open_groups(struct world *w)
{
    groups = (struct groups){.home = {.path = "/home", .memory = true}};
    (void)snprintf(groups.root, sizeof groups.root, "%s/groups", w->dir);
    CLEANUP(mem_free_ptr) char *home = io_join(groups.root, "home");
    OK(w, io_make_dirs(home, 0700, &w->err));
    kernel_file_root(groups.root);
    world_close(w);
    w->config.cgroup = &groups.home;
    world_open(w);
}

/* A running job whose group has processes. */
static struct world_job running_in_group(struct world *w, struct world_attempt *a)
{
    struct world_job job = world_running(w, a, "");
    assert_non_null(a->plan.cgroup);
    put(a->plan.cgroup, "cgroup.events", "populated 1\n");
    put(a->plan.cgroup, "cgroup.kill", "");
    return job;
}

/* What the supervisor wrote to cgroup.kill; forgotten then. */
static bool was_killed(const char *group)
{
    char text[KERNEL_FILE_BYTES];
    kernel_file_read(group, "cgroup.kill", text);
    put(group, "cgroup.kill", "");
    return strcmp(text, "1") == 0;
}

/* The kernel removes a group with its files. */
static void empty_group(const char *group)
{
    char path[PATH_MAX];
    static const char *const files[] = {"cgroup.kill", "cgroup.events", "memory.events",
                                        "memory.max", "memory.peak"};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        kernel_file_path(group, files[i], path);
        (void)unlink(path);
    }
}

static bool group_is_there(const char *group)
{
    char path[PATH_MAX];
    kernel_file_path(group, "", path);
    return io_exists(path);
}

static void test_group_ends_with_the_job(void **state)
{
    struct world *w = *state;
    struct world_attempt a;
    open_groups(w);
    struct world_job job = running_in_group(w, &a);
    OK(w, coordinator_cancel(w->coordinator, job.id, &w->err));
    world_pass(w, w->config.stop_grace_ms);
    assert_false(was_killed(a.plan.cgroup)); /* SIGTERM to the keeper is not for all */
    world_pass(w, w->config.stop_grace_ms);
    assert_int_equal(a.keeper->last_signal, SIGKILL);
    assert_true(was_killed(a.plan.cgroup));
    world_end(&a, NULL, SIGKILL);
    world_expect(w, &job, JOB_STATE_CANCELLING); /* one left the session, not the group */
    assert_true(was_killed(a.plan.cgroup));
    empty_group(a.plan.cgroup);
    world_run(w);
    world_expect(w, &job, JOB_STATE_CANCELLED);
    assert_false(group_is_there(a.plan.cgroup));
    kernel_file_root("");
    world_attempt_close(&a);
}

/* memory.events and the like of a group whose processes have ended. */
static void end_killed_for_memory(struct world_attempt *a, const char *max, const char *events)
{
    put(a->plan.cgroup, "cgroup.events", "populated 0\n");
    put(a->plan.cgroup, "memory.max", max);
    put(a->plan.cgroup, "memory.peak", "3221225472\n");
    put(a->plan.cgroup, "memory.events", events);
}

static void test_host_memory_runs_out(void **state)
{
    static const struct {
        const char *max, *events, *code, *text;
    } cases[] = {
        {"3221225472\n", "max 9\noom 1\noom_kill 1\n", "host_oom",
         "host out of memory: the kernel killed rank 1 in step 8, data; its limit of 3.00 GiB "
         "(memory.max) was reached; the job took 3.00 GiB at most; collective 40: none"},
        {"max\n", "max 0\noom 0\noom_kill 1\n", "host_oom",
         "the machine's memory, or that of a group around it, ran out; the job took 3.00 GiB"},
        {"max\n", "max 0\noom 0\noom_kill 0\n", "rank_died",
         "rank 1 was ended by signal 9 (SIGKILL) in step 8, data"},
    };
    struct world *w = *state;
    open_groups(w);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct world_attempt a;
        struct world_job job = running_in_group(w, &a);
        beat(&a, 1, 7, 40); /* a second old */
        struct exit_report report = world_clean_exit(&a);
        report.first_failed = 1;
        report.ranks[1] = (struct exit_rank){.pid = 2001,
                                             .exit_status = -1,
                                             .signal = SIGKILL,
                                             .has_place = true,
                                             .step = 8,
                                             .phase = WIRE_PHASE_DATA};
        (void)snprintf(report.collective, sizeof report.collective, "collective 40: none");
        end_killed_for_memory(&a, cases[i].max, cases[i].events);
        world_end(&a, &report, 0);
        expect_failed(w, &job, cases[i].code, cases[i].text);
        empty_group(a.plan.cgroup);
        world_attempt_close(&a);
    }
    struct world_attempt a;
    struct world_job job = running_in_group(w, &a);
    end_killed_for_memory(&a, "max\n", "oom_kill 3\n");
    world_end(&a, NULL, SIGKILL);
    expect_failed(w, &job, "host_oom", "the kernel killed the keeper, its ranks with it; the mach");
    kernel_file_root("");
    world_attempt_close(&a);
}

/* ---- cancelling ---------------------------------------------------------------------------- */

static void test_cancel_while_validating(void **state)
{
    struct world *w = *state;
    struct world_job with_child = world_submit(w, 1, ""), second = world_submit(w, 1, ""),
                     without = world_submit(w, 1, "");
    world_run(w);
    OK(w, coordinator_cancel(w->coordinator, without.id, &w->err));
    world_run(w);
    world_expect(w, &without, JOB_STATE_CANCELLED);
    OK(w, coordinator_cancel(w->coordinator, without.id, &w->err)); /* cancelled is cancelled */
    struct host_process *child = &w->fake.processes[0];
    OK(w, coordinator_cancel(w->coordinator, with_child.id, &w->err));
    OK(w, coordinator_cancel(w->coordinator, with_child.id, &w->err));
    assert_int_equal(child->last_signal, SIGKILL);
    world_run(w);
    world_expect(w, &with_child, JOB_STATE_CANCELLING); /* its child still lives */
    fake_host_end(child, 0, SIGKILL);
    world_run(w);
    world_expect(w, &with_child, JOB_STATE_CANCELLED);
    world_expect(w, &second, JOB_STATE_VALIDATING);
    assert_int_equal(coordinator_cancel(w->coordinator, "ftjob-none", &w->err), -ERR_NOT_FOUND);
}

static void test_cancel_while_starting(void **state)
{
    struct world *w = *state;
    struct world_job job = world_queued(w, "");
    struct host_process *keeper = fake_host_find(&w->fake, "--keep");
    OK(w, coordinator_cancel(w->coordinator, job.id, &w->err));
    assert_int_equal(keeper->last_signal, SIGTERM); /* nobody is there to hear CANCEL */
    fake_host_end(keeper, 0, SIGTERM);
    world_run(w);
    world_expect(w, &job, JOB_STATE_CANCELLED);
    assert_string_equal(world_row(w, &job).reason, "cancelled");
}

static int count_stuck(void *context, const struct store_event *event, struct err *err)
{
    *(int *)context += strstr(event->message, "rank 1 (process 1) does not end: state D, SIGKILL "
                                              "was sent at 1970-01-01T00:") == event->message;
    return 0;
}

static int told_stuck(struct world *w, const struct world_job *job)
{
    int count = 0;
    OK(w, store_events_after(w->store, job->id, 0, 100, count_stuck, &count, &w->err));
    return count;
}

static void test_cancel_ladder(void **state)
{
    struct world *w = *state;
    struct world_attempt a;
    struct world_job job = world_running(w, &a, "");
    OK(w, coordinator_cancel(w->coordinator, job.id, &w->err));
    world_expect(w, &job, JOB_STATE_CANCELLING);
    uint32_t number = 0;
    for (uint32_t i = 0; i < 2; i++)
        assert_true(world_receive(&a, i, WIRE_CANCEL, &number));
    assert_int_equal(a.keeper->last_signal, 0);
    world_pass(w, w->config.stop_grace_ms);
    assert_int_equal(a.keeper->last_signal, SIGTERM);
    world_pass(w, w->config.stop_grace_ms);
    assert_int_equal(a.keeper->last_signal, SIGKILL);
    assert_int_equal(w->fake.session, a.keeper->pid);
    w->fake.session_left = 1; /* stuck in the kernel */
    w->fake.stuck_pid = 1;
    fake_host_end(a.keeper, 0, SIGKILL);
    world_hang_up(&a);
    world_pass(w, w->config.stop_grace_ms - 1);
    assert_int_equal(told_stuck(w, &job), 0);
    world_pass(w, 1);
    assert_int_equal(told_stuck(w, &job), 1);
    world_pass(w, 3600000);
    assert_int_equal(told_stuck(w, &job), 1);
    world_expect(w, &job, JOB_STATE_CANCELLING);
    struct world_job waiting = world_submit(w, 1, "");
    world_run(w);
    world_prepare(w, WORLD_GOOD_REPORT);
    world_expect(w, &waiting, JOB_STATE_QUEUED); /* the slots are not free */
    w->fake.session_left = 0;
    world_run(w);
    world_expect(w, &job, JOB_STATE_CANCELLED);
    world_expect(w, &waiting, JOB_STATE_STARTING);
    world_attempt_close(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD_TEST(test_group_ends_with_the_job), WORLD_TEST(test_host_memory_runs_out),
        WORLD_TEST(test_cancel_while_validating), WORLD_TEST(test_cancel_while_starting),
        WORLD_TEST(test_cancel_ladder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

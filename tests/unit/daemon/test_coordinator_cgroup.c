/* coordinator_cgroup: groups of attempts in a folder that plays the hierarchy. */
#include "tests/lib/coordinator_world.h"

/* Groups can be made in <dir>/groups from now on. */
static void open_home(struct world *w, struct cgroup_home *home)
{
    *home = (struct cgroup_home){.memory = true};
    (void)snprintf(home->path, sizeof home->path, "%s/groups", w->dir);
    OK(w, io_make_dirs(home->path, 0700, &w->err));
    world_close(w);
    w->config.cgroup = home;
    world_open(w);
}

/* Of attempts that are over control groups go, of those that go on they stay, as do others'. */
static void test_leftover_groups_are_removed(void **state)
{
    struct world *w = *state;
    struct world_attempt a;
    struct cgroup_home home;
    open_home(w, &home);
    struct world_job job = world_running(w, &a, ""), queued = world_submit(w, 2, "");
    CLEANUP(mem_free_ptr) char *goes_on = mem_printf("%s/ithaca-%s-1", home.path, job.id);
    CLEANUP(mem_free_ptr) char *over = mem_printf("%s/ithaca-%s-7", home.path, job.id);
    CLEANUP(mem_free_ptr) char *early = mem_printf("%s/ithaca-%s-1", home.path, queued.id);
    CLEANUP(mem_free_ptr) char *foreign = mem_printf("%s/ithaca-ftjob-x-1", home.path);
    assert_string_equal(a.plan.cgroup, goes_on);
    OK(w, io_make_dirs(over, 0700, &w->err));
    OK(w, io_make_dirs(early, 0700, &w->err));
    OK(w, io_make_dirs(foreign, 0700, &w->err));
    w->fake.adoptable = (struct host_identity){.pid = a.keeper->pid, .start_time = 77};
    world_hang_up(&a);
    world_reopen(w);
    assert_true(io_exists(goes_on) && io_exists(foreign));
    assert_false(io_exists(over) || io_exists(early));
    fake_host_end(fake_host_find(&w->fake, "adopted"), -1, 0);
    world_run(w);
    assert_false(io_exists(goes_on));
    world_attempt_close(&a);
}

static void test_job_starts_without_a_group(void **state)
{
    struct world *w = *state;
    struct world_attempt a;
    struct cgroup_home home;
    open_home(w, &home);
    OK(w, io_remove_tree(home.path, &w->err));
    struct world_job job = world_running(w, &a, "");
    assert_null(a.plan.cgroup);
    world_end_done(&a);
    world_expect(w, &job, JOB_STATE_SUCCEEDED);
    world_attempt_close(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD_TEST(test_leftover_groups_are_removed),
        WORLD_TEST(test_job_starts_without_a_group),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

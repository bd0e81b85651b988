/* coordinator_progress: what all jobs have done is one wait for the disk a second, however many
 * jobs there are, and nothing of it is lost where it cannot be written for a while. */
#include "tests/lib/coordinator_world.h"

#include <sqlite3.h>

enum { JOBS = 3 };

static void setup_jobs(struct world *w, struct world_attempt attempts[JOBS],
                       struct world_job jobs[JOBS])
{
    w->config.cpu_slots = 2 * JOBS;
    world_reopen(w);
    for (int i = 0; i < JOBS; i++) {
        jobs[i] = world_queued(w, "");
        world_attempt_open(w, &attempts[i]);
        world_ready(&attempts[i]);
        world_expect(w, &jobs[i], JOB_STATE_RUNNING);
    }
    world_pass(w, 1000); /* what came of their start is written */
}

static void step_all(struct world *w, struct world_attempt attempts[JOBS], uint64_t step)
{
    for (int i = 0; i < JOBS; i++)
        world_send(&attempts[i], 0,
                   (struct wire_frame){.type = WIRE_METRICS, .metrics = {.step = step}});
    world_run(w);
}

static void expect_steps(struct world *w, const struct world_job jobs[JOBS], int64_t steps)
{
    for (int i = 0; i < JOBS; i++)
        assert_int_equal(world_row(w, &jobs[i]).steps_done, steps);
}

static void test_one_write_a_second(void **state)
{
    struct world *w = *state;
    struct world_attempt attempts[JOBS];
    struct world_job jobs[JOBS];
    setup_jobs(w, attempts, jobs);
    const struct exposition_histogram *writes = store_write_times(w->store, 0);
    int64_t before = writes->count;
    for (uint64_t step = 1; step <= 20; step++) {
        step_all(w, attempts, step);
        world_pass(w, 500);
    }
    expect_steps(w, jobs, 20);
    assert_in_range(writes->count - before, 10, 11); /* of 60 steps in ten seconds */
    for (int i = 0; i < JOBS; i++)
        world_attempt_close(&attempts[i]);
}

static void test_nothing_is_lost_while_nothing_is_written(void **state)
{
    struct world *w = *state;
    struct world_attempt attempts[JOBS];
    struct world_job jobs[JOBS];
    setup_jobs(w, attempts, jobs);
    CLEANUP(mem_free_ptr) char *path = io_join(w->dir, "jobs.db");
    sqlite3 *guest = NULL;
    assert_int_equal(sqlite3_open(path, &guest), SQLITE_OK);
    assert_int_equal(sqlite3_exec(guest, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    step_all(w, attempts, 1);
    world_pass(w, 2000);
    expect_steps(w, jobs, 0);
    assert_int_equal(sqlite3_close(guest), SQLITE_OK); /* rolls back */
    world_pass(w, 2000);
    expect_steps(w, jobs, 1);
    for (int i = 0; i < JOBS; i++)
        world_attempt_close(&attempts[i]);
}

/* What is written of the others is undone with what cannot be, and is written again with it. */
static void test_one_that_cannot_be_written(void **state)
{
    struct world *w = *state;
    struct world_attempt attempts[JOBS];
    struct world_job jobs[JOBS];
    char trigger[256];
    setup_jobs(w, attempts, jobs);
    CLEANUP(mem_free_ptr) char *path = io_join(w->dir, "jobs.db");
    sqlite3 *guest = NULL;
    (void)snprintf(trigger, sizeof trigger,
                   "CREATE TRIGGER no BEFORE UPDATE ON jobs WHEN new.id = '%s' "
                   "BEGIN SELECT raise(ABORT, 'no'); END",
                   jobs[1].id);
    assert_int_equal(sqlite3_open(path, &guest), SQLITE_OK);
    assert_int_equal(sqlite3_exec(guest, trigger, NULL, NULL, NULL), SQLITE_OK);
    step_all(w, attempts, 1);
    world_pass(w, 2000);
    expect_steps(w, jobs, 0);
    assert_int_equal(sqlite3_exec(guest, "DROP TRIGGER no", NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_close(guest), SQLITE_OK);
    world_pass(w, 2000);
    expect_steps(w, jobs, 1);
    for (int i = 0; i < JOBS; i++)
        world_attempt_close(&attempts[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD_TEST(test_one_write_a_second),
        WORLD_TEST(test_nothing_is_lost_while_nothing_is_written),
        WORLD_TEST(test_one_that_cannot_be_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* What attempts held and trained, as the coordinator writes it down: by ranks' steps, under one
 * daemon and over several. */
#include "daemon/store_attempts.h"
#include "daemon/store_sql.h"
#include "tests/lib/coordinator_world.h"

#include <fcntl.h>

struct wanted {
    int64_t number;
    struct store_held held;
};

static int take_held(void *context, const struct store_held *held, struct err *err)
{
    struct wanted *wanted = context;
    if (held->number == wanted->number)
        wanted->held = *held; /* its strings are the store's: not looked at */
    return 0;
}

/* An attempt of the only job. */
static struct store_held look(struct world *w, int64_t number)
{
    struct wanted wanted = {.number = number};
    int64_t count = 0;
    const struct store_held_page all = {
        .now_ms = w->fake.host.ops->wall_ms(&w->fake.host), .job_id = "", .limit = 9};
    OK(w, store_attempts_held(w->store, &all, take_held, &wanted, &count, &w->err));
    assert_true(count >= number);
    return wanted.held;
}

/* Both ranks say that a step of 100 tokens has ended, `ms` after `since_ms`. */
static void step(struct world_attempt *a, uint64_t number, int64_t since_ms, int64_t ms)
{
    const struct wire_frame frame = {
        .type = WIRE_METRICS,
        .metrics = {.step = number,
                    .wall_s = (double)(since_ms + ms) / 1000,
                    .count = 2,
                    .points = {{.metric = METRIC_LOSS, .value = (double)NAN},
                               {.metric = METRIC_TOKENS, .value = 100}}}};
    world_all(a, frame);
}

/* Tokens and steps of both attempts: the second is thought to go on after step 3, but finds that
 * checkpoint damaged and goes on after step 1. */
static void test_steps_of_attempts(void **state)
{
    struct world *w = *state;
    struct world_attempt a, b;
    struct world_job job = world_running(w, &a, ",\"max_restarts\":1");
    world_checkpoint(&a, 3);
    for (uint64_t i = 1; i <= 4; i++)
        step(&a, i, 0, 0);
    world_end_killed(&a, 1);
    world_attempt_close(&a);
    assert_int_equal(look(w, 1).from_step, 0);
    assert_int_equal(look(w, 1).step, 4);
    assert_int_equal(look(w, 1).tokens, 400); /* rank 0 speaks for all */
    world_pass(w, 60000);
    world_attempt_open(w, &b);
    world_ready(&b);
    assert_int_equal(look(w, 2).from_step, 3);
    assert_int_equal(look(w, 2).step, 3);
    assert_int_equal(look(w, 1).kept_step, 3);
    step(&b, 2, 0, 0);
    step(&b, 3, 0, 0);
    world_end_done(&b);
    world_attempt_close(&b);
    world_expect(w, &job, JOB_STATE_SUCCEEDED);
    assert_int_equal(look(w, 2).from_step, 1);
    assert_int_equal(look(w, 2).step, 3);
    assert_int_equal(look(w, 2).tokens, 200);
    assert_int_equal(look(w, 1).kept_step, 1);
    assert_int_equal(look(w, 1).tokens, 400);
}

/* Where no daemon saw the end it is not the time when one looked: the machine was off for days. */
static void test_time_off_is_not_held(void **state)
{
    enum { OFF_MS = 2 * 86400000, NONE = -1 };
    static const struct {
        int64_t steps, reported_ms, ended_ms; /* after it began; NONE: no report */
    } rows[] = {{2, NONE, 3000},
                {2, 5123, 5123},
                {2, OFF_MS + 1000000, OFF_MS}, /* a clock that was wrong: when one looked, then */
                {0, NONE, 0}};
    struct world *w = *state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct world_attempt a;
        struct world_job job = world_running(w, &a, "");
        const int64_t began_ms = look(w, 1).started_ms;
        for (int64_t number = 1; number <= rows[i].steps; number++)
            step(&a, (uint64_t)number, began_ms, 2000 * number - 1000);
        world_run(w);
        struct exit_report report = world_clean_exit(&a);
        report.first_failed = 1;
        report.ranks[1].exit_status = -1;
        report.ranks[1].signal = SIGKILL;
        CLEANUP(mem_free_ptr) char *path = io_join(a.keeper->argument, "exit.json");
        const int64_t reported_ms = began_ms + rows[i].reported_ms;
        const struct timespec times[2] = {
            {.tv_nsec = UTIME_OMIT},
            {.tv_sec = reported_ms / 1000, .tv_nsec = reported_ms % 1000 * 1000000}};
        if (rows[i].reported_ms != NONE) {
            world_exit_report(&a, &report);
            assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
        }
        world_attempt_close(&a);
        w->fake.session = 0;
        w->fake.now_ms += began_ms + OFF_MS - w->fake.host.ops->wall_ms(&w->fake.host);
        world_reopen(w);
        world_run(w);
        world_expect(w, &job, JOB_STATE_FAILED);
        const struct store_held held = look(w, 1);
        assert_int_equal(held.started_ms, began_ms);
        assert_int_equal(held.ended_ms, began_ms + rows[i].ended_ms);
        assert_int_equal(held.step, rows[i].steps);
        assert_int_equal(held.tokens, 100 * rows[i].steps);
        OK(w, store_job_delete(w->store, job.id, &w->err));
        assert_int_equal(sqlite3_exec(w->store->databases[STORE_JOBS], "DELETE FROM attempts_gone",
                                      NULL, NULL, NULL),
                         SQLITE_OK);
    }
}

/* What comes again after a take-over is counted once, what is new, too; the time goes on. */
static void test_held_over_two_daemons(void **state)
{
    struct world *w = *state;
    struct world_attempt a;
    struct world_job job = world_running(w, &a, "");
    const int64_t began_ms = look(w, 1).started_ms;
    step(&a, 1, began_ms, 1000);
    step(&a, 2, began_ms, 2000);
    world_run(w);
    w->fake.adoptable = (struct host_identity){.pid = a.keeper->pid, .start_time = 77};
    world_hang_up(&a);
    w->fake.now_ms += 3600000;
    world_reopen(w);
    assert_int_equal(look(w, 1).ended_ms, w->fake.host.ops->wall_ms(&w->fake.host));
    a.next_seq[0] = a.next_seq[1] = 1;
    for (uint32_t i = 0; i < 2; i++) {
        buf_clear(&a.in[i]);
        world_connect(&a, i);
    }
    for (uint64_t number = 1; number <= 3; number++)
        step(&a, number, began_ms, 1000 * (int64_t)number);
    world_pass(w, 2000);
    a.keeper = fake_host_find(&w->fake, "adopted");
    (void)snprintf(a.keeper->argument, sizeof a.keeper->argument, "%s/attempt-1", a.plan.job_dir);
    world_end_done(&a);
    world_expect(w, &job, JOB_STATE_SUCCEEDED);
    world_attempt_close(&a);
    const struct store_held held = look(w, 1);
    assert_int_equal(held.tokens, 300);
    assert_int_equal(held.step, 3);
    assert_true(held.ended_ms - began_ms >= 3600000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD_TEST(test_steps_of_attempts),
        WORLD_TEST(test_time_off_is_not_held),
        WORLD_TEST(test_held_over_two_daemons),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* store_attempts: what attempts held, of jobs that run, have ended, and are deleted. */
#include "daemon/store_attempts.h"
#include "tests/lib/store_fixture.h"

static void put(struct fixture *f, const char *job_id, int64_t number, int64_t started_ms,
                int64_t ended_ms)
{
    const struct store_attempt attempt = {.job_id = job_id,
                                          .number = number,
                                          .started_ms = started_ms,
                                          .ended_ms = ended_ms,
                                          .boot_id = "",
                                          .outcome = ended_ms > 0 ? "ok" : "",
                                          .outcome_text = "a sentence of the user's",
                                          .gpus = number == 2 ? "GPU-a,GPU-b" : "",
                                          .from_step = number * 10,
                                          .step = number * 10 + 15,
                                          .tokens = number * 100};
    OK(f, store_attempt_put(f->store, &attempt, &f->err));
}

static void move(struct fixture *f, const char *job_id, enum job_state from, enum job_state to,
                 int64_t attempt)
{
    char event_id[64];
    static int count;
    int64_t row = 0;
    (void)snprintf(event_id, sizeof event_id, "ftevent-move-%d", count++);
    const struct store_job_move move = {.id = job_id,
                                        .from = from,
                                        .to = to,
                                        .now_ms = 5000,
                                        .event_id = event_id,
                                        .event_text = "moved",
                                        .event_level = "info",
                                        .attempt = attempt};
    OK(f, store_job_move(f->store, &move, &row, &f->err));
}

struct pages {
    char text[512];
    char job_id[64]; /* newest row: the next page goes on after it */
    int64_t number;
};

static int print_held(void *context, const struct store_held *held, struct err *err)
{
    struct pages *out = context;
    assert_string_equal(held->owner, "admin");
    assert_string_equal(held->model, "tiny");
    assert_int_equal(held->slots, 2);
    assert_int_equal(held->has_gpus, held->number == 2);
    assert_int_equal(held->tokens, held->number * 100);
    bool open = held->ended_ms == 9000 || held->ended_ms == 3000; /* now, or its end is unknown */
    assert_string_equal(held->outcome, open ? "" : "ok");
    (void)snprintf(out->text + strlen(out->text), sizeof out->text - strlen(out->text),
                   "%s/%d %s %d-%d kept %d; ", held->job_id + strlen("ftjob-"), (int)held->number,
                   held->state, (int)held->started_ms, (int)held->ended_ms, (int)held->kept_step);
    (void)snprintf(out->job_id, sizeof out->job_id, "%s", held->job_id);
    out->number = held->number;
    return 0;
}

/* All pages of `limit`. */
static struct pages held(struct fixture *f, int64_t limit)
{
    struct pages out = {.number = 0};
    int64_t count = limit;
    while (count == limit) {
        const struct pages before = out; /* rows change the other while they are read */
        const struct store_held_page page = {
            .now_ms = 9000, .job_id = before.job_id, .number = before.number, .limit = limit};
        OK(f, store_attempts_held(f->store, &page, print_held, &out, &count, &f->err));
    }
    return out;
}

/* Job 1 runs for the second time, 2 has ended, 3 waits after an end that was never written. */
static void make_jobs(struct fixture *f)
{
    for (int n = 1; n <= 3; n++) {
        char id[32];
        (void)snprintf(id, sizeof id, "ftjob-%d", n);
        add_job(f, n, "null");
        put(f, id, 1, 1000 * n, n == 3 ? 0 : 1000 * n + 500);
        move(f, id, JOB_STATE_VALIDATING, JOB_STATE_QUEUED, 0);
        move(f, id, JOB_STATE_QUEUED, JOB_STATE_STARTING, 1);
        if (n == 2) {
            move(f, id, JOB_STATE_STARTING, JOB_STATE_FAILED, 0);
            continue;
        }
        move(f, id, JOB_STATE_STARTING, JOB_STATE_QUEUED, 0);
        if (n == 3)
            continue;
        move(f, id, JOB_STATE_QUEUED, JOB_STATE_STARTING, 2);
        put(f, id, 2, 4000, 0);
        move(f, id, JOB_STATE_STARTING, JOB_STATE_RUNNING, 0);
    }
}

#define JOB_1 "1/1 running 1000-1500 kept 20; 1/2 running 4000-9000 kept -1; "
#define JOB_2 "2/1 failed 2000-2500 kept -1; "
#define JOB_3 "3/1 queued 3000-3000 kept -1; "

static void test_held(void **state)
{
    struct fixture *f = *state;
    make_jobs(f);
    for (int64_t limit = 1; limit < 6; limit++)
        assert_string_equal(held(f, limit).text, JOB_1 JOB_2 JOB_3);
}

/* What was held is the same before and after, once, and what users wrote is gone. */
static void test_deleted_jobs_stay_in_the_sums(void **state)
{
    struct fixture *f = *state;
    make_jobs(f);
    move(f, "ftjob-1", JOB_STATE_RUNNING, JOB_STATE_SUCCEEDED, 0);
    put(f, "ftjob-1", 2, 4000, 6000);
    struct pages before = held(f, 9);
    assert_non_null(strstr(before.text, "1/2 succeeded 4000-6000"));
    assert_int_equal(store_job_delete(f->store, "ftjob-3", &f->err), -ERR_BAD_STATE);
    OK(f, store_job_delete(f->store, "ftjob-1", &f->err));
    OK(f, store_job_delete(f->store, "ftjob-2", &f->err));
    assert_string_equal(held(f, 1).text, before.text);
    store_close(f->store);
    OK(f, store_open(f->dir, &f->store, &f->err));
    assert_string_equal(held(f, 9).text, before.text);
    int64_t left = -1;
    OK(f, store_query_i64(f->store, STORE_JOBS, "SELECT count(*) FROM attempts", NULL, &left,
                          &f->err));
    assert_int_equal(left, 1);
}

/* The oldest of deleted jobs go, by their end, and nothing else does. */
static void test_forget(void **state)
{
    struct fixture *f = *state;
    make_jobs(f);
    move(f, "ftjob-1", JOB_STATE_RUNNING, JOB_STATE_SUCCEEDED, 0);
    put(f, "ftjob-1", 2, 4000, 6000);
    OK(f, store_job_delete(f->store, "ftjob-1", &f->err));
    OK(f, store_attempts_forget(f->store, 1500, &f->err));
    assert_non_null(strstr(held(f, 9).text, "1/1 succeeded 1000-1500"));
    OK(f, store_attempts_forget(f->store, 6000, &f->err));
    assert_string_equal(held(f, 9).text, "1/2 succeeded 4000-6000 kept -1; " JOB_2 JOB_3);
}

/* Where the rows of what was held cannot be written the job stays, too. */
static void test_deletion_is_whole(void **state)
{
    struct fixture *f = *state;
    make_jobs(f);
    assert_int_equal(sqlite3_exec(f->store->databases[STORE_JOBS],
                                  "CREATE TRIGGER refuse BEFORE DELETE ON jobs BEGIN SELECT "
                                  "raise(ABORT, 'no'); END",
                                  NULL, NULL, NULL),
                     SQLITE_OK);
    struct pages before = held(f, 9);
    assert_true(store_job_delete(f->store, "ftjob-2", &f->err) < 0);
    assert_string_equal(held(f, 9).text, before.text);
}

static void test_progress(void **state)
{
    struct fixture *f = *state;
    make_jobs(f);
    struct store_progress progress = {
        .steps_done = 7, .attempt = 2, .from_step = 5, .step = 33, .tokens = 200};
    OK(f, store_job_progress(f->store, "ftjob-1", &progress, &f->err));
    assert_non_null(strstr(held(f, 9).text, "1/1 running 1000-1500 kept 5; "));
    progress = (struct store_progress){.steps_done = 8, .from_step = 1}; /* of no attempt */
    OK(f, store_job_progress(f->store, "ftjob-1", &progress, &f->err));
    assert_non_null(strstr(held(f, 9).text, "1/1 running 1000-1500 kept 5; "));
}

static int print_attempt(void *context, const struct store_attempt *a, struct err *err)
{
    (void)snprintf(context, 256, "%s %d %d %d %d %d %s|%s|%s|%s %d %d %d", a->job_id,
                   (int)a->number, (int)a->started_ms, (int)a->ended_ms, (int)a->keeper_pid,
                   (int)a->keeper_start_time, a->boot_id, a->outcome, a->outcome_text, a->gpus,
                   (int)a->from_step, (int)a->step, (int)a->tokens);
    return 0;
}

static void expect_attempt(struct fixture *f, const char *job_id, int64_t number,
                           const char *wanted)
{
    char text[256];
    OK(f, store_attempt_get(f->store, job_id, number, print_attempt, text, &f->err));
    assert_string_equal(text, wanted);
}

/* Each value is another one; a start that is set is that of one attempt of one job. */
static void test_rows(void **state)
{
    struct fixture *f = *state;
    const struct store_attempt attempt = {.job_id = "ftjob-2",
                                          .number = 2,
                                          .started_ms = 3,
                                          .ended_ms = 4,
                                          .keeper_pid = 5,
                                          .keeper_start_time = 6,
                                          .boot_id = "boot",
                                          .outcome = "outcome",
                                          .outcome_text = "text",
                                          .gpus = "gpus",
                                          .from_step = 7,
                                          .step = 8,
                                          .tokens = 9};
    char text[256];
    make_jobs(f);
    OK(f, store_attempt_put(f->store, &attempt, &f->err));
    OK(f, store_attempt_move(f->store, "ftjob-2", 2, 33, &f->err));
    expect_attempt(f, "ftjob-2", 2, "ftjob-2 2 33 4 5 6 boot|outcome|text|gpus 7 8 9");
    expect_attempt(f, "ftjob-2", 1,
                   "ftjob-2 1 2000 2500 0 0 |ok|a sentence of the user's| 10 25 100");
    expect_attempt(f, "ftjob-1", 2,
                   "ftjob-1 2 4000 0 0 0 ||a sentence of the user's|GPU-a,GPU-b 20 35 200");
    assert_int_equal(store_attempt_get(f->store, "ftjob-2", 3, print_attempt, text, &f->err),
                     -ERR_NOT_FOUND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_held, setup, teardown),
        cmocka_unit_test_setup_teardown(test_deleted_jobs_stay_in_the_sums, setup, teardown),
        cmocka_unit_test_setup_teardown(test_forget, setup, teardown),
        cmocka_unit_test_setup_teardown(test_deletion_is_whole, setup, teardown),
        cmocka_unit_test_setup_teardown(test_progress, setup, teardown),
        cmocka_unit_test_setup_teardown(test_rows, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

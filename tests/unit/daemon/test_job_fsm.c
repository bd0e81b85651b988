/* job_fsm: every pair of states against an independent list of the legal moves, and job_move over
 * all of them in a real store. */
#include "common/io.h"
#include "common/mem.h"
#include "daemon/job_fsm.h"
#include "daemon/store_sql.h"
#include "tests/lib/cmocka.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* As the API's documentation draws them. "unfinished" moves are added by the test. */
static const char *const legal[] = {
    "validating queued",    "queued starting",      "starting running", "running succeeded",
    "running pausing",      "pausing paused",       "paused queued",    "running preempting",
    "preempting queued",    "starting queued",      "running queued",   "cancelling cancelled",
    "validating paused",    "validating pausing",   "queued paused",    "starting pausing",
    "pausing succeeded",    "paused validating",    "failed queued",    "preempting pausing",
    "preempting succeeded", "validating cancelled", "queued cancelled", "paused cancelled",
};

static bool is_legal(enum job_state from, enum job_state to)
{
    char pair[64];
    (void)snprintf(pair, sizeof pair, "%s %s", job_state_name(from), job_state_name(to));
    for (size_t i = 0; i < sizeof legal / sizeof legal[0]; i++)
        if (strcmp(legal[i], pair) == 0)
            return true;
    if (job_state_is_end(from))
        return false;
    return to == JOB_STATE_FAILED || (to == JOB_STATE_CANCELLING && from != JOB_STATE_CANCELLING);
}

static void test_names(void **state)
{
    for (int i = 0; i < JOB_STATE_COUNT; i++)
        assert_int_equal(job_state_parse(job_state_name((enum job_state)i)), i);
    assert_int_equal(job_state_parse("nonsense"), JOB_STATE_COUNT);
    assert_string_equal(job_state_public_name(JOB_STATE_VALIDATING), "validating_files");
    assert_string_equal(job_state_public_name(JOB_STATE_CANCELLING), "running");
}

static void test_every_pair(void **state)
{
    for (int from = 0; from < JOB_STATE_COUNT; from++)
        for (int to = 0; to < JOB_STATE_COUNT; to++)
            if (job_state_may_move((enum job_state)from, (enum job_state)to) !=
                is_legal((enum job_state)from, (enum job_state)to))
                fail_msg("%s -> %s", job_state_name((enum job_state)from),
                         job_state_name((enum job_state)to));
}

static int64_t fake_wall_ms(struct host *host)
{
    return 123456;
}

static int fake_random(struct host *host, void *ret_bytes, size_t length, struct err *err)
{
    static uint8_t next;
    for (size_t i = 0; i < length; i++)
        ((uint8_t *)ret_bytes)[i] = (uint8_t)(next = (uint8_t)(next * 5 + 17));
    next++;
    return 0;
}

static const struct host_ops fake_ops = {.wall_ms = fake_wall_ms, .random = fake_random};

static int check_state(void *context, const struct store_job *job, struct err *err)
{
    enum job_state wanted = *(enum job_state *)context;
    assert_int_equal(job->state, wanted);
    assert_int_equal(job->finished_ms, job_state_is_end(wanted) ? 123456 : 0);
    bool ran = wanted == JOB_STATE_RUNNING || wanted == JOB_STATE_SUCCEEDED;
    assert_int_equal(job->started_ms, ran ? 123456 : 0);
    return 0;
}

static int take_value(void *ret_value, int columns, char **values, char **names)
{
    *(int64_t *)ret_value = atoll(values[0]);
    return 1; /* the first row is enough */
}

/* What a query of one value gives. */
static int64_t value_of(struct store *store, const char *sql)
{
    int64_t value = -1;
    (void)sqlite3_exec(store->databases[STORE_JOBS], sql, take_value, &value, NULL);
    return value;
}

/* The job's and its newest event's rows after a move. */
static void check_move(struct store *store, const struct job_move *move)
{
    char sql[512], text[64];
    (void)snprintf(text, sizeof text, "Job is %s.", job_state_name(move->to));
    (void)snprintf(sql, sizeof sql,
                   "SELECT level = '%s' AND message = '%s' FROM job_events ORDER BY row DESC",
                   move->to == JOB_STATE_FAILED ? "error"
                   : move->restarted            ? "warn"
                                                : "info",
                   move->event_text != NULL    ? move->event_text
                   : move->reason_text != NULL ? move->reason_text
                                               : text);
    assert_int_equal(value_of(store, sql), 1);
    (void)snprintf(sql, sizeof sql, "SELECT reason_text = '%s' FROM jobs",
                   move->reason_text != NULL ? move->reason_text : "");
    assert_int_equal(value_of(store, sql), 1);
    assert_int_equal(value_of(store, "SELECT prepared FROM jobs"),
                     move->from == JOB_STATE_VALIDATING && move->to == JOB_STATE_QUEUED);
}

static void test_moves_in_a_store(void **state)
{
    struct err err;
    struct store *store = NULL;
    struct host host = {.ops = &fake_ops};
    char dir[] = "/tmp/test_job_fsm.XXXXXX";
    assert_non_null(mkdtemp(dir));
    assert_int_equal(store_open(dir, &store, &err), 0);
    const struct store_job job = {.id = "ftjob-1",
                                  .owner = "",
                                  .spec_json = "{}",
                                  .model = "",
                                  .model_dir = "",
                                  .training_file = "",
                                  .validation_file = ""};
    int64_t row = 0, previous = 0;
    assert_int_equal(store_job_insert(store, &job, "ftevent-0", &previous, &err), 0);
    for (int from = 0; from < JOB_STATE_COUNT; from++) {
        for (int to = 0; to < JOB_STATE_COUNT; to++) {
            if (!job_state_may_move((enum job_state)from, (enum job_state)to))
                continue;
            char sql[128];
            (void)snprintf(sql, sizeof sql,
                           "UPDATE jobs SET state = '%s', started_ms = 0, finished_ms = 0, "
                           "prepared = 0",
                           job_state_name((enum job_state)from));
            sqlite3 *jobs = store->databases[STORE_JOBS];
            assert_int_equal(sqlite3_exec(jobs, sql, NULL, NULL, NULL), SQLITE_OK);
            struct job_move move = {.id = "ftjob-1",
                                    .from = (enum job_state)from,
                                    .to = (enum job_state)to,
                                    .reason_text = previous % 2 ? "Why." : NULL,
                                    .event_text = previous % 3 ? NULL : "What.",
                                    .restarted = previous % 5 == 0};
            MUST_WORK(job_move(store, &host, &move, &row, &err), &err);
            check_move(store, &move);
            assert_int_equal(row, previous + 1);
            previous = row;
            enum job_state wanted = (enum job_state)to;
            assert_int_equal(store_job_get(store, "ftjob-1", check_state, &wanted, &err), 0);
            if (from != to) /* it is no longer in `from` */
                assert_int_equal(job_move(store, &host, &move, &row, &err), -ERR_BAD_STATE);
        }
    }
    store_close(store);
    assert_int_equal(io_remove_tree(dir, &err), 0);
    assert_int_equal(mem_live(), 0);
}

static void test_new_id(void **state)
{
    struct err err;
    struct host host = {.ops = &fake_ops};
    char first[64], second[64];
    assert_int_equal(host_new_id(&host, "ftjob-", first, sizeof first, &err), 0);
    assert_int_equal(host_new_id(&host, "ftjob-", second, sizeof second, &err), 0);
    assert_int_equal(strlen(first), 6 + HOST_ID_RANDOM_CHARS);
    assert_int_equal(strspn(first + 6, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                       "0123456789"),
                     HOST_ID_RANDOM_CHARS);
    assert_string_not_equal(first, second);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_every_pair),
        cmocka_unit_test(test_moves_in_a_store),
        cmocka_unit_test(test_new_id),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

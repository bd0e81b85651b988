/* store: points keep what is not finite; files, tokens, attempts; damaged and newer files are
 * refused, one daemon a folder. */
#include "common/clock.h"
#include "daemon/store_attempts.h"
#include "tests/lib/store_fixture.h"

#include <sys/wait.h>
#include <unistd.h>

struct points {
    int count;
    int64_t last_row;
    double values[64];
    int64_t steps[64];
};

static int collect_point(void *context, const struct store_point *point, struct err *err)
{
    struct points *points = context;
    assert_true(point->row > points->last_row);
    points->last_row = point->row;
    points->steps[points->count] = point->step;
    points->values[points->count++] = point->value;
    return 0;
}

static void test_points(void **state)
{
    struct fixture *f = *state;
    struct store_point batch[] = {
        {.job_id = "ftjob-1", .attempt = 1, .step = 1, .metric = METRIC_LOSS, .value = 2.5},
        {.job_id = "ftjob-1", .attempt = 1, .step = 1, .metric = METRIC_GRAD_NORM, .value = NAN},
        {.job_id = "ftjob-2", .attempt = 1, .step = 1, .metric = METRIC_LOSS, .value = 9},
        {.job_id = "ftjob-1", .attempt = 2, .step = 2, .metric = METRIC_LOSS, .value = INFINITY},
        {.job_id = "ftjob-1", .attempt = 2, .step = 3, .metric = METRIC_LOSS, .value = -INFINITY},
    };
    int64_t newest = 0, again = 0;
    OK(f, store_points_insert(f->store, batch, 5, &newest, &f->err));
    OK(f, store_points_newest(f->store, &again, &f->err));
    assert_int_equal(newest, again);

    struct store_point_query query = {.job_id = "ftjob-1", .all_metrics = true, .limit = 3};
    struct points got = {.count = 0};
    bool more = false;
    OK(f, store_points_list(f->store, &query, collect_point, &got, &more, &f->err));
    assert_int_equal(got.count, 3);
    assert_true(more);
    assert_true(got.values[0] == 2.5 && isnan(got.values[1]) && got.values[2] > 1e300);
    query.after_row = got.last_row;
    OK(f, store_points_list(f->store, &query, collect_point, &got, &more, &f->err));
    assert_int_equal(got.count, 4);
    assert_false(more);
    assert_true(isinf(got.values[3]) && got.values[3] < 0);

    struct points loss = {.count = 0};
    query =
        (struct store_point_query){.job_id = "ftjob-1", .attempt = 2, .from_step = 3, .limit = 100};
    query.metrics[METRIC_LOSS] = true;
    OK(f, store_points_list(f->store, &query, collect_point, &loss, &more, &f->err));
    assert_int_equal(loss.count, 1);
    assert_int_equal(loss.steps[0], 3);

    struct points all = {.count = 0}, latest = {.count = 0};
    OK(f, store_points_after(f->store, NULL, 1, 100, collect_point, &all, &f->err));
    assert_int_equal(all.count, 4);
    OK(f, store_point_latest(f->store, "ftjob-2", METRIC_LOSS, collect_point, &latest, &f->err));
    assert_true(latest.values[0] == 9);
    assert_int_equal(
        store_point_latest(f->store, "ftjob-2", METRIC_TOKENS, collect_point, &latest, &f->err),
        -ERR_NOT_FOUND);
    assert_int_equal(
        store_point_latest(f->store, "ftjob-3", METRIC_LOSS, collect_point, &latest, &f->err),
        -ERR_NOT_FOUND);
}

/* A rank sends again what an earlier daemon did not acknowledge. */
static void test_points_are_stored_once(void **state)
{
    struct fixture *f = *state;
    struct store_point batch[] = {
        {.job_id = "ftjob-1", .attempt = 1, .step = 1, .metric = METRIC_LOSS, .value = 2.5},
        {.job_id = "ftjob-1", .attempt = 1, .step = 2, .metric = METRIC_LOSS, .value = 2},
    };
    int64_t newest = 0, again = 0;
    struct points got = {.count = 0};
    OK(f, store_points_insert(f->store, batch, 1, &newest, &f->err));
    batch[0].value = 7;
    OK(f, store_points_insert(f->store, batch, 2, &again, &f->err));
    OK(f, store_points_insert(f->store, batch, 2, &again, &f->err));
    OK(f, store_points_after(f->store, "ftjob-1", 0, 10, collect_point, &got, &f->err));
    assert_int_equal(got.count, 2);
    assert_true(got.values[0] == 2.5 && got.values[1] == 2);
}

/* Attempt 2 began at step 3: where it has a value, attempt 1's is history. */
static void test_newest_attempt_of_each_step(void **state)
{
    struct fixture *f = *state;
    struct store_point batch[8];
    for (int i = 0; i < 8; i++)
        batch[i] = (struct store_point){.job_id = "ftjob-1",
                                        .attempt = i < 4 ? 1 : 2,
                                        .step = i < 4 ? i + 1 : i - 1,
                                        .metric = METRIC_LOSS,
                                        .value = i};
    int64_t newest = 0;
    bool more = false;
    struct points got = {.count = 0}, first = {.count = 0};
    OK(f, store_points_insert(f->store, batch, 8, &newest, &f->err));
    struct store_point_query query = {.job_id = "ftjob-1", .all_metrics = true, .limit = 100};
    OK(f, store_points_list(f->store, &query, collect_point, &got, &more, &f->err));
    static const double wanted[] = {0, 1, 4, 5, 6, 7}; /* steps 1 2 3 4 5 6 */
    assert_int_equal(got.count, 6);
    for (int i = 0; i < 6; i++) {
        assert_true(got.values[i] == wanted[i]);
        assert_int_equal(got.steps[i], i + 1);
    }
    query.attempt = 1;
    OK(f, store_points_list(f->store, &query, collect_point, &first, &more, &f->err));
    assert_int_equal(first.count, 4);
}

static int check_prepared(void *context, const struct store_job *job, struct err *err)
{
    assert_int_equal(job->prepared, *(bool *)context);
    assert_int_equal(job->ran_ms + job->restarts + job->resumed_step, 0);
    return 0;
}

static int check_held(void *context, const struct store_held *held, struct err *err)
{
    assert_int_equal(held->ended_ms - held->started_ms, 10);
    assert_int_equal(held->step, -1); /* not known: nothing of it was lost */
    assert_int_equal(held->slots, 2);
    return 0;
}

/* Files of version 1: what they lacked has its value, points that came twice are there once. */
static void test_migration_from_version_1(void **state)
{
    struct fixture *f = *state;
    add_job(f, 1, "null");
    add_job(f, 2, "null");
    const char *const jobs = "UPDATE jobs SET state = 'queued' WHERE id = 'ftjob-2';"
                             "DROP VIEW attempts_held; DROP TABLE attempts_gone;"
                             "ALTER TABLE attempts DROP COLUMN from_step;"
                             "ALTER TABLE attempts DROP COLUMN step;"
                             "ALTER TABLE attempts DROP COLUMN tokens;"
                             "INSERT INTO attempts (job_id, number, started_ms, ended_ms, "
                             "keeper_pid, keeper_start_time, boot_id, outcome) VALUES "
                             "('ftjob-1', 1, 10, 20, 1, 1, 'b', 'oom');"
                             "ALTER TABLE jobs DROP COLUMN prepared;"
                             "ALTER TABLE jobs DROP COLUMN restarts;"
                             "ALTER TABLE jobs DROP COLUMN ran_ms;"
                             "ALTER TABLE jobs DROP COLUMN resumed_step;"
                             "ALTER TABLE attempts DROP COLUMN outcome_text;"
                             "DROP TABLE replays; DROP INDEX files_owner;"
                             "ALTER TABLE attempts DROP COLUMN gpus; DROP TABLE gpus;"
                             "DROP INDEX files_expires; DROP INDEX jobs_result_file;"
                             "ALTER TABLE files DROP COLUMN expires_ms;"
                             "ALTER TABLE jobs DROP COLUMN result_file;"
                             "DROP TABLE uploads;"
                             "ALTER TABLE jobs DROP COLUMN predicted_step_s;"
                             "ALTER TABLE jobs DROP COLUMN asked_json;"
                             "DROP INDEX jobs_experiment;"
                             "ALTER TABLE jobs DROP COLUMN experiment;"
                             "DROP TABLE experiment_points; DROP TABLE experiments;"
                             "DROP TABLE webhooks; DROP TABLE webhook_cursor;"
                             "DROP TABLE webhook_secrets;"
                             "DROP TABLE usage; DROP TABLE queue;"
                             "DROP TABLE gone; DROP TRIGGER jobs_gone; DROP TRIGGER files_gone;"
                             "PRAGMA user_version = 1";
    const char *const metrics =
        "DROP INDEX points_key;"
        "INSERT INTO jobs (number, id) VALUES (1, 'ftjob-1');"
        "INSERT INTO points (job, attempt, step, rank, metric, value, wall_s) VALUES "
        "(1, 1, 1, 0, 0, 2.5, 0), (1, 1, 1, 0, 0, 3.5, 0), (1, 1, 2, 0, 0, 1.5, 0);"
        "PRAGMA user_version = 1";
    sqlite3 **databases = f->store->databases;
    assert_int_equal(sqlite3_exec(databases[STORE_JOBS], jobs, NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_exec(databases[STORE_METRICS], metrics, NULL, NULL, NULL), SQLITE_OK);
    store_close(f->store);
    f->store = NULL;
    OK(f, store_open(f->dir, &f->store, &f->err));
    bool prepared = false;
    OK(f, store_job_get(f->store, "ftjob-1", check_prepared, &prepared, &f->err));
    prepared = true;
    OK(f, store_job_get(f->store, "ftjob-2", check_prepared, &prepared, &f->err));
    struct points got = {.count = 0};
    OK(f, store_points_after(f->store, "ftjob-1", 0, 10, collect_point, &got, &f->err));
    assert_int_equal(got.count, 2);
    assert_true(got.values[0] == 2.5 && got.values[1] == 1.5);
    const struct store_held_page all = {.job_id = "", .limit = 9};
    int64_t held = 0;
    OK(f, store_attempts_held(f->store, &all, check_held, NULL, &held, &f->err));
    assert_int_equal(held, 1);
}

static int check_file(void *context, const struct store_file *file, struct err *err)
{
    assert_string_equal(file->filename, "../../x\xc3\xa9.jsonl");
    assert_string_equal(file->status, context);
    return 0;
}

static int count_file(void *context, const struct store_file *file, struct err *err)
{
    ++*(int *)context;
    return 0;
}

static void test_files(void **state)
{
    struct fixture *f = *state;
    struct store_file file = {.id = "file-a",
                              .created_ms = 5,
                              .filename = "../../x\xc3\xa9.jsonl",
                              .purpose = "fine-tune",
                              .bytes = 1LL << 40,
                              .status = "uploaded",
                              .status_details = "",
                              .hash = "",
                              .owner = "admin"};
    OK(f, store_file_insert(f->store, &file, &f->err));
    assert_int_not_equal(store_file_insert(f->store, &file, &f->err), 0);
    file.id = "file-b";
    file.purpose = "fine-tune-results";
    OK(f, store_file_insert(f->store, &file, &f->err));
    OK(f, store_file_set_status(f->store, "file-a", "error", "line 3: bad", &f->err));
    OK(f, store_file_get(f->store, "file-a", check_file, (void *)(uintptr_t) "error", &f->err));
    int all = 0, some = 0;
    bool more = true;
    struct store_page page = {.limit = 10};
    OK(f, store_files_list(f->store, NULL, "", &page, count_file, &all, &more, &f->err));
    OK(f, store_files_list(f->store, NULL, "fine-tune", &page, count_file, &some, &more, &f->err));
    assert_int_equal(all, 2);
    assert_int_equal(some, 1);
    OK(f, store_file_delete(f->store, "file-a", &f->err));
    assert_int_equal(store_file_delete(f->store, "file-a", &f->err), -ERR_NOT_FOUND);
    assert_int_equal(store_file_set_status(f->store, "file-a", "error", "", &f->err),
                     -ERR_NOT_FOUND);
}

struct tokens {
    int count;
    char ids[8][16];
    int64_t used_ms, revoked_ms; /* of the last one */
};

static int collect_token(void *context, const struct store_token *token, struct err *err)
{
    struct tokens *tokens = context;
    (void)snprintf(tokens->ids[tokens->count++], 16, "%s", token->id);
    tokens->used_ms = token->last_used_ms;
    tokens->revoked_ms = token->revoked_ms;
    assert_string_equal(token->user, "ann");
    assert_string_equal(token->scope, "submit");
    return 0;
}

static int64_t revoked_ms(struct fixture *f, const char *prefix)
{
    struct tokens found = {.count = 0};
    OK(f, store_token_find(f->store, prefix, collect_token, &found, &f->err));
    return found.revoked_ms;
}

static void test_tokens(void **state)
{
    struct fixture *f = *state;
    uint8_t first[STORE_HASH_BYTES] = {0, 1, 2}, second[STORE_HASH_BYTES] = {0, 1, 3};
    struct store_token token = {.id = "token-1",
                                .parent = "",
                                .prefix = "ithaca-aaaaaaaa",
                                .hash = first,
                                .name = "laptop",
                                .user = "ann",
                                .scope = "submit",
                                .created_ms = 1};
    struct store_token session = token;
    session.id = "session-1";
    session.parent = "token-1";
    session.prefix = "ithaca-ssssssss";
    session.hash = second;
    session.expires_ms = 100;
    struct tokens found = {.count = 0};
    OK(f, store_token_put(f->store, &token, &f->err));
    OK(f, store_token_used(f->store, "token-1", 50, &f->err));
    OK(f, store_token_put(f->store, &token, &f->err)); /* the same: nothing changes */
    OK(f, store_token_find(f->store, token.prefix, collect_token, &found, &f->err));
    assert_int_equal(found.used_ms, 50);
    token.hash = second;
    token.prefix = "ithaca-bbbbbbbb";
    OK(f, store_token_put(f->store, &token, &f->err));
    OK(f, store_token_find(f->store, token.prefix, collect_token, &found, &f->err));
    assert_int_equal(found.used_ms, 0);
    assert_int_equal(store_token_find(f->store, "ithaca-aaaaaaaa", collect_token, &found, &f->err),
                     -ERR_AUTH);
    OK(f, store_token_put(f->store, &session, &f->err));
    session.id = "session-2"; /* a public part that is taken */
    assert_int_equal(store_token_put(f->store, &session, &f->err), -ERR_INTERNAL);

    const struct store_page page = {.limit = 10};
    bool more = true;
    struct tokens listed = {.count = 0};
    OK(f, store_tokens_list(f->store, &page, collect_token, &listed, &more, &f->err));
    assert_int_equal(listed.count, 1); /* no session */
    assert_false(more);
    assert_int_equal(store_token_revoke(f->store, "token-2", 60, &f->err), -ERR_NOT_FOUND);
    OK(f, store_token_revoke(f->store, "token-1", 60, &f->err));
    OK(f, store_token_revoke(f->store, "token-1", 70, &f->err)); /* it was before */
    assert_int_equal(revoked_ms(f, token.prefix), 60);
    assert_int_equal(revoked_ms(f, "ithaca-ssssssss"), 60); /* with the token */
    OK(f, store_tokens_prune(f->store, 50, &f->err));       /* sessions go at once */
    assert_int_equal(store_token_find(f->store, "ithaca-ssssssss", collect_token, &found, &f->err),
                     -ERR_AUTH);
    bool counts = true;
    int64_t left = -1;
    OK(f, store_token_counts(f->store, "token-1", 50, &counts, &f->err));
    assert_false(counts);
    OK(f, store_tokens_count(f->store, 50, &left, &f->err));
    assert_int_equal(left, 0);
    token.id = "token-2";
    token.prefix = "ithaca-cccccccc";
    token.expires_ms = 100;
    OK(f, store_token_put(f->store, &token, &f->err));
    OK(f, store_tokens_count(f->store, 99, &left, &f->err));
    assert_int_equal(left, 1);
    OK(f, store_token_counts(f->store, "token-2", 99, &counts, &f->err));
    assert_true(counts);
    OK(f, store_token_counts(f->store, "token-2", 100, &counts, &f->err));
    assert_false(counts);
    OK(f, store_tokens_prune(f->store, 59 + STORE_TOKENS_KEPT_MS, &f->err));
    found.count = 0;
    OK(f, store_token_find(f->store, "ithaca-cccccccc", collect_token, &found, &f->err));
    OK(f, store_tokens_prune(f->store, 100 + STORE_TOKENS_KEPT_MS, &f->err));
    listed.count = 0;
    OK(f, store_tokens_list(f->store, &page, collect_token, &listed, &more, &f->err));
    assert_int_equal(listed.count, 0);
}

static int check_attempt(void *context, const struct store_attempt *attempt, struct err *err)
{
    assert_int_equal(attempt->keeper_pid, 44);
    assert_int_equal(attempt->started_ms, 10);
    assert_string_equal(attempt->outcome, context);
    return 0;
}

static void test_attempts(void **state)
{
    struct fixture *f = *state;
    add_job(f, 1, "null");
    struct store_attempt attempt = {.job_id = "ftjob-1",
                                    .number = 1,
                                    .started_ms = 10,
                                    .keeper_pid = 44,
                                    .keeper_start_time = 1LL << 40,
                                    .boot_id = "b",
                                    .outcome = "",
                                    .outcome_text = ""};
    OK(f, store_attempt_put(f->store, &attempt, &f->err));
    OK(f,
       store_attempt_get(f->store, "ftjob-1", 1, check_attempt, (void *)(uintptr_t) "", &f->err));
    attempt.started_ms = 99; /* kept from the first time */
    attempt.outcome = "ok";
    OK(f, store_attempt_put(f->store, &attempt, &f->err));
    OK(f,
       store_attempt_get(f->store, "ftjob-1", 1, check_attempt, (void *)(uintptr_t) "ok", &f->err));
    assert_int_equal(store_attempt_get(f->store, "ftjob-1", 2, check_attempt, NULL, &f->err),
                     -ERR_NOT_FOUND);
}

/* Between fork() and its first step a child has all that a daemon had that may have ended. */
static void test_a_child_of_the_daemon_before(void **state)
{
    struct fixture *f = *state;
    pid_t child = fork();
    if (child == 0) {
        clock_sleep_ms(300);
        _exit(0);
    }
    store_close(f->store);
    f->store = NULL;
    OK(f, store_open(f->dir, &f->store, &f->err));
    assert_int_equal(waitpid(child, NULL, 0), child);
}

static void test_reopen_and_modes(void **state)
{
    struct fixture *f = *state;
    add_job(f, 1, "null");
    struct store *second = NULL;
    assert_int_equal(store_open(f->dir, &second, &f->err), -ERR_IN_USE);
    assert_non_null(strstr(f->err.text, "in use by another daemon; stop that one"));
    OK(f, store_check(f->store, &f->err));
    const char *names[] = {"jobs.db", "metrics.db", "jobs.db-wal", "metrics.db-wal"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        CLEANUP(mem_free_ptr) char *path = io_join(f->dir, names[i]);
        struct stat info;
        assert_int_equal(stat(path, &info), 0);
        assert_int_equal(info.st_mode & 0777, 0600);
    }
    store_close(f->store);
    f->store = NULL;
    CLEANUP(mem_free_ptr) char *log_path = io_join(f->dir, "jobs.db-wal");
    assert_false(io_exists(log_path));
    OK(f, store_open(f->dir, &f->store, &f->err));
    struct ids ids = {.count = 0};
    OK(f, store_jobs_in_state(f->store, JOB_STATE_VALIDATING, collect_job, &ids, &f->err));
    assert_int_equal(ids.count, 1);
}

static void test_newer_and_damaged_files_are_refused(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(sqlite3_exec(f->store->databases[STORE_JOBS], "PRAGMA user_version = 999",
                                  NULL, NULL, NULL),
                     SQLITE_OK);
    store_close(f->store);
    f->store = NULL;
    assert_int_equal(store_open(f->dir, &f->store, &f->err), -ERR_CORRUPT);
    assert_non_null(strstr(f->err.text, "version 999"));
    assert_non_null(strstr(f->err.text, "start a newer ithacad"));
    CLEANUP(mem_free_ptr) char *path = io_join(f->dir, "jobs.db");
    OK(f, io_write_file(path, "this is no database, not at all, not even a little", 50, 0600,
                        &f->err));
    assert_int_equal(store_open(f->dir, &f->store, &f->err), -ERR_CORRUPT);
    assert_non_null(strstr(f->err.text, "jobs.db is damaged"));
    assert_non_null(strstr(f->err.text, "backup"));
}

/* Every allocation of our own fails once; the store stays usable. */
static void test_allocation_failures(void **state)
{
    struct fixture *f = *state;
    store_close(f->store);
    f->store = NULL;
    int failures = 0;
    for (int n = 1; f->store == NULL; n++) {
        mem_fault_after(n);
        int rc = store_open(f->dir, &f->store, &f->err);
        if (rc != 0)
            assert_int_equal(rc, -ERR_NOMEM);
        failures += rc != 0;
    }
    mem_fault_after(0);
    assert_true(failures >= 4);
    add_job(f, 1, "null");
    const struct store_job_move move = {.id = "ftjob-1",
                                        .from = JOB_STATE_VALIDATING,
                                        .to = JOB_STATE_QUEUED,
                                        .reason = "",
                                        .reason_text = "",
                                        .event_id = "ftevent-q",
                                        .event_text = "queued",
                                        .event_level = "info"};
    int64_t row = 0;
    mem_fault_after(1);
    assert_int_equal(store_job_move(f->store, &move, &row, &f->err), -ERR_NOMEM);
    mem_fault_after(0);
    OK(f, store_job_move(f->store, &move, &row, &f->err));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_points, setup, teardown),
        cmocka_unit_test_setup_teardown(test_points_are_stored_once, setup, teardown),
        cmocka_unit_test_setup_teardown(test_newest_attempt_of_each_step, setup, teardown),
        cmocka_unit_test_setup_teardown(test_migration_from_version_1, setup, teardown),
        cmocka_unit_test_setup_teardown(test_files, setup, teardown),
        cmocka_unit_test_setup_teardown(test_tokens, setup, teardown),
        cmocka_unit_test_setup_teardown(test_attempts, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_child_of_the_daemon_before, setup, teardown),
        cmocka_unit_test_setup_teardown(test_reopen_and_modes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_newer_and_damaged_files_are_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_allocation_failures, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

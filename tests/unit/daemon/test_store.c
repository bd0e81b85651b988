/* store: what goes in comes out, pages meet without a gap, a move is all or nothing, points keep
 * what is not finite, damaged and newer files are refused, one daemon a folder. */
#include "common/io.h"
#include "common/mem.h"
#include "daemon/job_fsm.h"
#include "daemon/store.h"
#include "daemon/store_sql.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct fixture {
    char dir[64];
    struct store *store;
    struct err err;
};

#define OK(f, call)                                   \
    do {                                              \
        if ((call) != 0)                              \
            fail_msg("%s: %s", #call, (f)->err.text); \
    } while (0)

static int setup(void **state)
{
    struct fixture *f = mem_new(1, sizeof *f);
    (void)snprintf(f->dir, sizeof f->dir, "/tmp/test_store.XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    OK(f, store_open(f->dir, &f->store, &f->err));
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    store_close(f->store);
    OK(f, io_remove_tree(f->dir, &f->err));
    mem_free(f);
    assert_int_equal(mem_live(), 0);
    return 0;
}

static void add_job(struct fixture *f, int n, const char *metadata)
{
    char id[64], event_id[64], spec[256];
    (void)snprintf(id, sizeof id, "ftjob-%d", n);
    (void)snprintf(event_id, sizeof event_id, "ftevent-%d", n);
    (void)snprintf(spec, sizeof spec, "{\"model\":\"tiny\",\"metadata\":%s}", metadata);
    const struct store_job job = {.id = id,
                                  .created_ms = 1000 + n,
                                  .owner = "admin",
                                  .spec_json = spec,
                                  .model = "tiny",
                                  .model_dir = "/models/tiny",
                                  .training_file = "file-a",
                                  .validation_file = "",
                                  .priority = n,
                                  .ranks = 2};
    int64_t row = 0;
    OK(f, store_job_insert(f->store, &job, event_id, &row, &f->err));
    assert_true(row > 0);
}

struct ids {
    char text[512];
    int count;
};

static int collect_job(void *context, const struct store_job *job, struct err *err)
{
    (void)err;
    struct ids *ids = context;
    (void)snprintf(ids->text + strlen(ids->text), sizeof ids->text - strlen(ids->text), "%s ",
                   job->id + strlen("ftjob-"));
    ids->count++;
    return 0;
}

static int check_new_job(void *context, const struct store_job *job, struct err *err)
{
    (void)err;
    assert_string_equal(job->id, "ftjob-7");
    assert_int_equal(job->created_ms, 1007);
    assert_int_equal(job->started_ms, 0);
    assert_int_equal(job->state, JOB_STATE_VALIDATING);
    assert_string_equal(job->reason, "");
    assert_string_equal(job->fine_tuned_model, "");
    assert_string_equal(job->model_dir, "/models/tiny");
    assert_int_equal(job->priority, 7);
    assert_int_equal(job->ranks, 2);
    assert_int_equal(job->attempt, 0);
    *(bool *)context = true;
    return 0;
}

static void test_job_round_trip(void **state)
{
    struct fixture *f = *state;
    add_job(f, 7, "null");
    bool seen = false;
    OK(f, store_job_get(f->store, "ftjob-7", check_new_job, &seen, &f->err));
    assert_true(seen);
    assert_int_equal(store_job_get(f->store, "ftjob-8", check_new_job, &seen, &f->err),
                     -ERR_NOT_FOUND);
    int64_t users = 0;
    OK(f, store_jobs_using_file(f->store, "file-a", &users, &f->err));
    assert_int_equal(users, 1);
    OK(f, store_jobs_using_file(f->store, "", &users, &f->err));
}

static void test_job_pages_and_metadata(void **state)
{
    struct fixture *f = *state;
    for (int n = 1; n <= 5; n++)
        add_job(f, n, n % 2 ? "{\"team\":\"odd\",\"it's\":\"x\\\"y\"}" : "{\"team\":\"even\"}");
    struct store_page page = {.limit = 2, .order = STORE_NEWEST_FIRST};
    const char *afters[] = {"", "ftjob-4", "ftjob-2"};
    const char *wanted[] = {"5 4 ", "3 2 ", "1 "};
    for (int i = 0; i < 3; i++) {
        struct ids ids = {.count = 0};
        bool more = false;
        page.after = afters[i];
        OK(f, store_jobs_list(f->store, NULL, &page, collect_job, &ids, &more, &f->err));
        assert_string_equal(ids.text, wanted[i]);
        assert_int_equal(more, i < 2);
    }
    struct ids odd = {.count = 0}, none = {.count = 0}, oldest = {.count = 0};
    bool more = true;
    page = (struct store_page){.limit = 10, .order = STORE_OLDEST_FIRST};
    OK(f, store_jobs_list(f->store, "{\"team\":\"odd\",\"it's\":\"x\\\"y\"}", &page, collect_job,
                          &odd, &more, &f->err));
    assert_string_equal(odd.text, "1 3 5 ");
    assert_false(more);
    OK(f, store_jobs_list(f->store, "{\"team\":\"odd\",\"no\":\"1\"}", &page, collect_job, &none,
                          &more, &f->err));
    assert_int_equal(none.count, 0);
    OK(f, store_jobs_in_state(f->store, JOB_STATE_VALIDATING, collect_job, &oldest, &f->err));
    assert_string_equal(oldest.text, "1 2 3 4 5 ");
    page.after = "ftjob-99";
    assert_int_equal(store_jobs_list(f->store, NULL, &page, collect_job, &none, &more, &f->err),
                     -ERR_INVALID_VALUE);
    assert_string_equal(f->err.field, "after");
}

static int stop_list(void *context, const struct store_job *job, struct err *err)
{
    (void)context;
    return err_set(err, ERR_TOO_LARGE, "enough at %s", job->id);
}

static void test_callback_ends_list(void **state)
{
    struct fixture *f = *state;
    add_job(f, 1, "null");
    add_job(f, 2, "null");
    for (int i = 0; i < 2; i++) /* twice: the statement was given back */
        assert_int_equal(
            store_jobs_in_state(f->store, JOB_STATE_VALIDATING, stop_list, NULL, &f->err),
            -ERR_TOO_LARGE);
}

static int collect_event(void *context, const struct store_event *event, struct err *err)
{
    (void)err;
    struct ids *ids = context;
    (void)snprintf(ids->text + strlen(ids->text), sizeof ids->text - strlen(ids->text), "%s|",
                   event->message);
    ids->count++;
    return 0;
}

static int check_moved(void *context, const struct store_job *job, struct err *err)
{
    (void)err;
    (void)context;
    assert_int_equal(job->state, JOB_STATE_FAILED);
    assert_string_equal(job->reason, "rank_died");
    assert_string_equal(job->reason_text, "rank 1 died");
    assert_int_equal(job->finished_ms, 5000);
    assert_int_equal(job->attempt, 3);
    return 0;
}

static void test_move_is_compare_and_set(void **state)
{
    struct fixture *f = *state;
    add_job(f, 1, "null");
    struct store_job_move move = {.id = "ftjob-1",
                                  .from = JOB_STATE_RUNNING,
                                  .to = JOB_STATE_FAILED,
                                  .now_ms = 5000,
                                  .reason = "rank_died",
                                  .reason_text = "rank 1 died",
                                  .event_id = "ftevent-x",
                                  .event_text = "rank 1 died",
                                  .event_level = "error",
                                  .attempt = 3,
                                  .ended = true};
    int64_t row = 0;
    assert_int_equal(store_job_move(f->store, &move, &row, &f->err), -ERR_BAD_STATE);
    assert_non_null(strstr(f->err.text, "is validating, not running"));
    move.from = JOB_STATE_VALIDATING;
    move.event_id = "ftevent-1"; /* taken: the event fails, so the state must stay too */
    assert_int_not_equal(store_job_move(f->store, &move, &row, &f->err), 0);
    struct ids ids = {.count = 0};
    OK(f, store_jobs_in_state(f->store, JOB_STATE_VALIDATING, collect_job, &ids, &f->err));
    assert_int_equal(ids.count, 1);
    move.event_id = "ftevent-x";
    OK(f, store_job_move(f->store, &move, &row, &f->err));
    OK(f, store_job_get(f->store, "ftjob-1", check_moved, NULL, &f->err));
    struct ids events = {.count = 0};
    OK(f, store_events_after(f->store, "ftjob-1", 0, 10, collect_event, &events, &f->err));
    assert_int_equal(events.count, 2);
    int64_t newest = 0;
    OK(f, store_events_newest(f->store, &newest, &f->err));
    assert_int_equal(newest, row);
    move.id = "ftjob-2";
    assert_int_equal(store_job_move(f->store, &move, &row, &f->err), -ERR_NOT_FOUND);
}

static void test_event_pages(void **state)
{
    struct fixture *f = *state;
    add_job(f, 1, "null");
    add_job(f, 2, "null");
    for (int n = 10; n < 14; n++) {
        char id[32], text[32];
        (void)snprintf(id, sizeof id, "ftevent-%d", n);
        (void)snprintf(text, sizeof text, "m%d", n);
        const struct store_event event = {.id = id,
                                          .job_id = "ftjob-1",
                                          .created_ms = n,
                                          .level = "warn",
                                          .type = "message",
                                          .message = text,
                                          .data_json = ""};
        int64_t row = 0;
        OK(f, store_event_insert(f->store, &event, &row, &f->err));
    }
    struct ids newest = {.count = 0}, next = {.count = 0};
    bool more = false;
    struct store_page page = {.limit = 3, .order = STORE_NEWEST_FIRST};
    OK(f, store_events_list(f->store, "ftjob-1", &page, collect_event, &newest, &more, &f->err));
    assert_string_equal(newest.text, "m13|m12|m11|");
    assert_true(more);
    page.after = "ftevent-11";
    OK(f, store_events_list(f->store, "ftjob-1", &page, collect_event, &next, &more, &f->err));
    assert_non_null(strstr(next.text, "m10|Job created"));
    assert_false(more);
    page.after = "ftevent-2"; /* another job's */
    assert_int_equal(
        store_events_list(f->store, "ftjob-1", &page, collect_event, &next, &more, &f->err),
        -ERR_INVALID_VALUE);
    const struct store_event orphan = {.id = "ftevent-z",
                                       .job_id = "ftjob-none",
                                       .level = "info",
                                       .type = "message",
                                       .message = "x",
                                       .data_json = ""};
    int64_t row = 0;
    assert_int_not_equal(store_event_insert(f->store, &orphan, &row, &f->err), 0);
}

struct points {
    int count;
    int64_t last_row;
    double values[64];
    int64_t steps[64];
};

static int collect_point(void *context, const struct store_point *point, struct err *err)
{
    (void)err;
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

static int check_file(void *context, const struct store_file *file, struct err *err)
{
    (void)err;
    assert_string_equal(file->filename, "../../x\xc3\xa9.jsonl");
    assert_string_equal(file->status, context);
    return 0;
}

static int count_file(void *context, const struct store_file *file, struct err *err)
{
    (void)file;
    (void)err;
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
    OK(f, store_files_list(f->store, "", &page, count_file, &all, &more, &f->err));
    OK(f, store_files_list(f->store, "fine-tune", &page, count_file, &some, &more, &f->err));
    assert_int_equal(all, 2);
    assert_int_equal(some, 1);
    OK(f, store_file_delete(f->store, "file-a", &f->err));
    assert_int_equal(store_file_delete(f->store, "file-a", &f->err), -ERR_NOT_FOUND);
    assert_int_equal(store_file_set_status(f->store, "file-a", "error", "", &f->err),
                     -ERR_NOT_FOUND);
}

static int check_token(void *context, const struct store_token *token, struct err *err)
{
    (void)err;
    assert_string_equal(token->name, context);
    assert_string_equal(token->scopes, "read submit admin");
    return 0;
}

static void test_tokens(void **state)
{
    struct fixture *f = *state;
    uint8_t first[STORE_HASH_BYTES] = {0, 1, 2}, second[STORE_HASH_BYTES] = {0, 1, 3};
    struct store_token token = {
        .name = "admin", .hash = first, .scopes = "read submit admin", .created_ms = 1};
    OK(f, store_token_put(f->store, &token, &f->err));
    OK(f, store_token_find(f->store, first, check_token, (void *)(uintptr_t) "admin", &f->err));
    assert_int_equal(store_token_find(f->store, second, check_token, NULL, &f->err), -ERR_AUTH);
    token.hash = second;
    OK(f, store_token_put(f->store, &token, &f->err));
    assert_int_equal(store_token_find(f->store, first, check_token, NULL, &f->err), -ERR_AUTH);
}

static int check_attempt(void *context, const struct store_attempt *attempt, struct err *err)
{
    (void)err;
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
                                    .outcome = ""};
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

static void test_reopen_and_modes(void **state)
{
    struct fixture *f = *state;
    add_job(f, 1, "null");
    struct store *second = NULL;
    assert_int_equal(store_open(f->dir, &second, &f->err), -ERR_IN_USE);
    assert_non_null(strstr(f->err.text, "in use by another daemon"));
    OK(f, store_check(f->store, &f->err));
    const char *names[] = {"jobs.db", "metrics.db", "lock", "jobs.db-wal", "metrics.db-wal"};
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
    CLEANUP(mem_free_ptr) char *path = io_join(f->dir, "jobs.db");
    OK(f, io_write_file(path, "this is no database, not at all, not even a little", 50, 0600,
                        &f->err));
    assert_int_equal(store_open(f->dir, &f->store, &f->err), -ERR_CORRUPT);
    assert_non_null(strstr(f->err.text, "jobs.db"));
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
        cmocka_unit_test_setup_teardown(test_job_round_trip, setup, teardown),
        cmocka_unit_test_setup_teardown(test_job_pages_and_metadata, setup, teardown),
        cmocka_unit_test_setup_teardown(test_callback_ends_list, setup, teardown),
        cmocka_unit_test_setup_teardown(test_move_is_compare_and_set, setup, teardown),
        cmocka_unit_test_setup_teardown(test_event_pages, setup, teardown),
        cmocka_unit_test_setup_teardown(test_points, setup, teardown),
        cmocka_unit_test_setup_teardown(test_files, setup, teardown),
        cmocka_unit_test_setup_teardown(test_tokens, setup, teardown),
        cmocka_unit_test_setup_teardown(test_attempts, setup, teardown),
        cmocka_unit_test_setup_teardown(test_reopen_and_modes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_newer_and_damaged_files_are_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_allocation_failures, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

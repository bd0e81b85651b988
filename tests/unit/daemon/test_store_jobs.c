/* store_jobs, store_events: what goes in comes out, pages meet without a gap, a move is all or
 * nothing. */
#include "daemon/store_experiments.h"
#include "daemon/store_sql.h"

#include "tests/lib/store_fixture.h"

static int check_new_job(void *context, const struct store_job *job, struct err *err)
{
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
}

static int print_job(void *context, const struct store_job *j, struct err *err)
{
    (void)snprintf(context, 1024,
                   "%s %lld %lld %lld %s %s|%s %s %s %s %s %s %s %s %lld %lld %lld %lld %lld %lld "
                   "%d %lld %lld %lld %s %g %s %s",
                   j->id, (long long)j->created_ms, (long long)j->started_ms,
                   (long long)j->finished_ms, job_state_name(j->state), j->reason, j->reason_text,
                   j->owner, j->spec_json, j->model, j->model_dir, j->training_file,
                   j->validation_file, j->fine_tuned_model, (long long)j->priority,
                   (long long)j->ranks, (long long)j->attempt, (long long)j->steps_done,
                   (long long)j->steps_total, (long long)j->trained_tokens, j->prepared,
                   (long long)j->restarts, (long long)j->ran_ms, (long long)j->resumed_step,
                   j->result_file, j->predicted_step_s, j->experiment, j->asked_json);
    return 0;
}

static void expect_job(struct fixture *f, const char *wanted)
{
    char text[1024] = "";
    OK(f, store_job_get(f->store, "ftjob-full", print_job, text, &f->err));
    assert_string_equal(text, wanted);
}

/* Each value is another one, so none can stand for another. */
static void add_full_job(struct fixture *f)
{
    const struct store_point_row point = {
        .status = STORE_POINT_WAITING, .note = "", .facts_json = "{}", .body_json = "{}"};
    const struct store_experiment experiment = {
        .id = "exp-1", .owner = "ann", .name = "", .spec_json = "{}"};
    const struct store_job job = {.id = "ftjob-full",
                                  .created_ms = 11,
                                  .owner = "ann",
                                  .spec_json = "{\"spec\":1}",
                                  .model = "model",
                                  .model_dir = "dir",
                                  .training_file = "file-t",
                                  .validation_file = "file-v",
                                  .priority = 12,
                                  .ranks = 13,
                                  .predicted_step_s = 1.5,
                                  .experiment = "exp-1",
                                  .asked_json = "asked"};
    int64_t row = 0;
    OK(f, store_experiment_insert(f->store, &experiment, &point, 1, &f->err));
    OK(f, store_job_insert(f->store, &job, "ftevent-full", &row, &f->err));
}

/* What moves and progress set, and what they leave: the first time that it ran, what is known. */
static void test_what_moves_change(void **state)
{
    struct fixture *f = *state;
    int64_t row = 0;
    add_full_job(f);
    expect_job(f,
               "ftjob-full 11 0 0 validating | ann {\"spec\":1} model dir file-t file-v  12 13 0 "
               "0 0 0 0 0 0 0  1.5 exp-1 asked");
    struct store_job_move move = {.id = "ftjob-full",
                                  .from = JOB_STATE_VALIDATING,
                                  .to = JOB_STATE_RUNNING,
                                  .now_ms = 100,
                                  .reason = "why",
                                  .reason_text = "text",
                                  .event_id = "ftevent-a",
                                  .event_text = "",
                                  .event_level = "info",
                                  .fine_tuned_model = "made",
                                  .trained_tokens = 21,
                                  .attempt = 22,
                                  .resumed_step = 23,
                                  .ran = true,
                                  .prepared = true,
                                  .restarted = true};
    OK(f, store_job_move(f->store, &move, &row, &f->err));
    struct store_progress progress = {
        .steps_done = 31, .steps_total = 32, .trained_tokens = 33, .ran_ms = 34};
    OK(f, store_job_progress(f->store, "ftjob-full", &progress, &f->err));
    const struct store_file file = {.id = "file-r",
                                    .filename = "",
                                    .purpose = "fine-tune-results",
                                    .status = "processed",
                                    .status_details = "",
                                    .hash = "",
                                    .owner = "ann"};
    OK(f, store_job_set_result(f->store, "ftjob-full", &file, &f->err));
    expect_job(f, "ftjob-full 11 100 0 running why|text ann {\"spec\":1} model dir file-t file-v "
                  "made 12 13 22 31 32 33 1 1 34 23 file-r 1.5 exp-1 asked");
    move = (struct store_job_move){.id = "ftjob-full",
                                   .from = JOB_STATE_RUNNING,
                                   .to = JOB_STATE_FAILED,
                                   .now_ms = 200,
                                   .reason = "",
                                   .reason_text = "",
                                   .event_id = "ftevent-b",
                                   .event_text = "",
                                   .event_level = "info",
                                   .ran = true,
                                   .ended = true};
    OK(f, store_job_move(f->store, &move, &row, &f->err));
    progress = (struct store_progress){.steps_done = 41, .ran_ms = 42};
    OK(f, store_job_progress(f->store, "ftjob-full", &progress, &f->err));
    expect_job(f, "ftjob-full 11 100 200 failed | ann {\"spec\":1} model dir file-t file-v made 12 "
                  "13 22 41 32 33 1 1 42 23 file-r 1.5 exp-1 asked");
    move.from = JOB_STATE_FAILED;
    move.to = JOB_STATE_QUEUED;
    move.event_id = "ftevent-c";
    move.ran = move.ended = false;
    move.renewed = true;
    OK(f, store_job_move(f->store, &move, &row, &f->err));
    expect_job(f,
               "ftjob-full 11 100 0 queued | ann {\"spec\":1} model dir file-t file-v made 12 13 "
               "22 41 32 33 1 0 0 23 file-r 1.5 exp-1 asked");
    char text[1024] = "";
    OK(f, store_job_by_result(f->store, "made", print_job, text, &f->err));
    assert_memory_equal(text, "ftjob-full", 10);
}

static void expect_sum(struct fixture *f, const char *job_id, int64_t first, int64_t last,
                       int64_t tokens, int64_t last_ms)
{
    struct store_points_sum sum;
    OK(f, store_points_sum(f->store, job_id, 1, &sum, &f->err));
    assert_int_equal(sum.first_step, first);
    assert_int_equal(sum.last_step, last);
    assert_int_equal(sum.tokens, tokens);
    assert_int_equal(sum.last_ms, last_ms);
}

/* What was measured goes with the job, that of others stays. */
static void test_points_go_with_their_job(void **state)
{
    struct fixture *f = *state;
    struct store_point points[6];
    int64_t row = 0;
    for (int i = 0; i < 6; i++)
        points[i] = (struct store_point){.job_id = "ftjob-1",
                                         .attempt = 1,
                                         .step = 4 + i,
                                         .metric = METRIC_TOKENS,
                                         .value = 1 << i,
                                         .wall_s = i + 0.5};
    points[2].rank = 1; /* of these three nothing counts for the attempt of rank 0 */
    points[3].attempt = 2;
    points[4].metric = METRIC_LOSS;
    points[5].job_id = "ftjob-2";
    add_job(f, 1, "null");
    add_job(f, 2, "null");
    OK(f, store_points_insert(f->store, points, 6, &row, &f->err));
    expect_sum(f, "ftjob-1", 4, 5, 3, 1500);
    expect_sum(f, "ftjob-2", 9, 9, 32, 5500);
    assert_int_equal(store_job_delete(f->store, "ftjob-1", &f->err), -ERR_BAD_STATE);
    const struct store_job_move move = {.id = "ftjob-1",
                                        .from = JOB_STATE_VALIDATING,
                                        .to = JOB_STATE_CANCELLED,
                                        .reason = "",
                                        .reason_text = "",
                                        .event_id = "ftevent-a",
                                        .event_text = "",
                                        .event_level = "info",
                                        .ended = true};
    OK(f, store_job_move(f->store, &move, &row, &f->err));
    OK(f, store_job_delete(f->store, "ftjob-1", &f->err));
    expect_sum(f, "ftjob-1", 0, 0, 0, 0);
    for (bool more = true; more;)
        OK(f, store_points_purge(f->store, &more, &f->err));
    expect_sum(f, "ftjob-2", 9, 9, 32, 5500);
    int64_t left = 0;
    OK(f, store_query_i64(f->store, STORE_METRICS, "SELECT count(*) FROM points", NULL, &left,
                          &f->err));
    assert_int_equal(left, 1);
    OK(f,
       store_query_i64(f->store, STORE_METRICS, "SELECT count(*) FROM jobs", NULL, &left, &f->err));
    assert_int_equal(left, 1); /* its name is gone too */
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
        OK(f, store_jobs_list(f->store, NULL, NULL, &page, collect_job, &ids, &more, &f->err));
        assert_string_equal(ids.text, wanted[i]);
        assert_int_equal(more, i < 2);
    }
    struct ids odd = {.count = 0}, none = {.count = 0}, oldest = {.count = 0};
    bool more = true;
    page = (struct store_page){.limit = 10, .order = STORE_OLDEST_FIRST};
    OK(f, store_jobs_list(f->store, "", "{\"team\":\"odd\",\"it's\":\"x\\\"y\"}", &page,
                          collect_job, &odd, &more, &f->err));
    assert_string_equal(odd.text, "1 3 5 ");
    assert_false(more);
    OK(f, store_jobs_list(f->store, "", "{\"team\":\"odd\",\"no\":\"1\"}", &page, collect_job,
                          &none, &more, &f->err));
    assert_int_equal(none.count, 0);
    OK(f, store_jobs_in_state(f->store, JOB_STATE_VALIDATING, collect_job, &oldest, &f->err));
    assert_string_equal(oldest.text, "1 2 3 4 5 ");
    page = (struct store_page){
        .after = "ftjob-99", .after_row = 3, .limit = 10, .order = STORE_NEWEST_FIRST};
    struct ids behind = {.count = 0}; /* whose row may be gone */
    OK(f, store_jobs_list(f->store, NULL, NULL, &page, collect_job, &behind, &more, &f->err));
    assert_string_equal(behind.text, "2 1 ");
    page.after_row = 0;
    assert_int_equal(
        store_jobs_list(f->store, NULL, NULL, &page, collect_job, &none, &more, &f->err),
        -ERR_INVALID_VALUE);
    assert_string_equal(f->err.field, "after");
}

static void test_jobs_by_the_end_of_their_ids(void **state)
{
    struct fixture *f = *state;
    for (int n = 1; n <= 21; n++)
        add_job(f, n, "null");
    static const char *const tails[] = {"1", "b-1", "ftjob-20", "22", "_1", ""};
    static const char *const wanted[] = {"1 11 21 ", "1 ", "20 ", "", "", ""};
    for (int i = 0; i < 6; i++) {
        struct ids ids = {.count = 0};
        OK(f, store_jobs_by_tail(f->store, tails[i], collect_job, &ids, &f->err));
        assert_string_equal(ids.text, wanted[i]);
    }
}

static void delete_job(struct fixture *f, const char *id)
{
    OK(f, store_run(f->store, STORE_JOBS, "UPDATE jobs SET state = 'failed' WHERE id = ?",
                    STORE_VALUES(store_text(id)), &f->err));
    OK(f, store_job_delete(f->store, id, &f->err));
}

/* Who deletes what it lists goes on after rows that are not there any more. */
static void test_pages_go_on_after_deleted_rows(void **state)
{
    struct fixture *f = *state;
    struct ids next = {.count = 0}, older = {.count = 0};
    bool more = false;
    for (int n = 1; n <= 6; n++)
        add_job(f, n, "{}");
    delete_job(f, "ftjob-5");
    delete_job(f, "ftjob-4");
    struct store_page page = {.limit = 2, .order = STORE_NEWEST_FIRST, .after = "ftjob-5"};
    OK(f, store_jobs_list(f->store, NULL, NULL, &page, collect_job, &next, &more, &f->err));
    assert_string_equal(next.text, "3 2 ");
    assert_true(more);
    page = (struct store_page){.limit = 9, .order = STORE_OLDEST_FIRST, .after = "ftjob-4"};
    OK(f, store_jobs_list(f->store, NULL, NULL, &page, collect_job, &older, &more, &f->err));
    assert_string_equal(older.text, "6 ");
    assert_int_equal(store_experiments_list(f->store, "", &page, NULL, NULL, &more, &f->err),
                     -ERR_INVALID_VALUE); /* a row of another list */
}

/* What is remembered of deleted rows has an end. */
static void test_few_deleted_rows_are_remembered(void **state)
{
    struct fixture *f = *state;
    int64_t count = 0;
    OK(f, store_run(f->store, STORE_JOBS,
                    "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 70000) "
                    "INSERT INTO gone (kind, id, place) SELECT 'jobs', i, i FROM n",
                    NULL, &f->err));
    add_job(f, 1, "{}");
    delete_job(f, "ftjob-1");
    OK(f,
       store_query_i64(f->store, STORE_JOBS, "SELECT count(*) FROM gone", NULL, &count, &f->err));
    assert_int_equal(count, 65536);
    OK(f, store_query_i64(f->store, STORE_JOBS, "SELECT count(*) FROM gone WHERE id = 'ftjob-1'",
                          NULL, &count, &f->err));
    assert_int_equal(count, 1);
}

static int stop_list(void *context, const struct store_job *job, struct err *err)
{
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
    struct ids *ids = context;
    (void)snprintf(ids->text + strlen(ids->text), sizeof ids->text - strlen(ids->text), "%s|",
                   event->message);
    ids->count++;
    return 0;
}

static int check_moved(void *context, const struct store_job *job, struct err *err)
{
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_job_round_trip, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_moves_change, setup, teardown),
        cmocka_unit_test_setup_teardown(test_points_go_with_their_job, setup, teardown),
        cmocka_unit_test_setup_teardown(test_job_pages_and_metadata, setup, teardown),
        cmocka_unit_test_setup_teardown(test_jobs_by_the_end_of_their_ids, setup, teardown),
        cmocka_unit_test_setup_teardown(test_pages_go_on_after_deleted_rows, setup, teardown),
        cmocka_unit_test_setup_teardown(test_few_deleted_rows_are_remembered, setup, teardown),
        cmocka_unit_test_setup_teardown(test_callback_ends_list, setup, teardown),
        cmocka_unit_test_setup_teardown(test_move_is_compare_and_set, setup, teardown),
        cmocka_unit_test_setup_teardown(test_event_pages, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

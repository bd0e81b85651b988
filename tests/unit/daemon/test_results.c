/* results: the CSV of a job: each step once, of its newest attempt, over windows; what is not
 * finite, what is missing; that a second file takes the first one's place. And what is left of a
 * job that is deleted. */
#include "daemon/results.h"

#include "daemon/trash.h"
#include "tests/lib/http_world.h"

#include <math.h>

static void put_point(struct http_world *h, const char *job_id, enum metric_id metric,
                      int64_t attempt, int64_t step, double value)
{
    const struct store_point point = {
        .job_id = job_id, .attempt = attempt, .step = step, .metric = metric, .value = value};
    int64_t row = 0;
    OK(h->w, store_points_insert(h->w->store, &point, 1, &row, &h->w->err));
}

/* Writes the job's results; how many calls that took. */
static int write_results(struct http_world *h, const char *job_id)
{
    struct results *results = NULL;
    bool done = false;
    int calls = 0;
    OK(h->w, results_new(h->w->store, &h->w->fake.host, h->w->dir, job_id, &results, &h->w->err));
    for (; !done && calls < 100; calls++)
        OK(h->w, results_step(results, &done, &h->w->err));
    results_free(results);
    assert_true(done);
    return calls;
}

/* The job's result file, in `body`. */
static void ask_results(struct http_world *h, const char *job_id)
{
    ask(h, "GET", http_target(JOBS "/%s", job_id).text, NULL);
    assert_int_equal(json_array_size(answer(h, "result_files")), 1);
    ask(h, "GET",
        http_target("/v1/files/%s/content", json_string_value(answer(h, "result_files.0"))).text,
        NULL);
    assert_int_equal(h->status, 200);
}

static void test_lines(void **state)
{
    struct http_world *h = *state;
    struct world_job job = world_submit(h->w, 1, "");
    put_point(h, job.id, METRIC_LOSS, 1, 1, 2.5);
    put_point(h, job.id, METRIC_ACCURACY, 1, 1, 0.25);
    put_point(h, job.id, METRIC_LOSS, 1, 2, 99); /* done again by the next attempt */
    put_point(h, job.id, METRIC_LOSS, 2, 2, (double)NAN);
    put_point(h, job.id, METRIC_VALID_LOSS, 2, 2, 1.5);
    put_point(h, job.id, METRIC_VALID_ACCURACY, 2, 2, 1);
    put_point(h, job.id, METRIC_LOSS, 2, 3, -(double)INFINITY);
    put_point(h, job.id, METRIC_HOST_BYTES, 2, 4, 7); /* no column of it */
    put_point(h, job.id, METRIC_LOSS, 2, 2 * RESULTS_STEPS + 1, 1);
    assert_int_equal(write_results(h, job.id), 3);
    ask_results(h, job.id);
    char last[64];
    (void)snprintf(last, sizeof last, "%d,1,,,,,\n", 2 * RESULTS_STEPS + 1);
    static const char lines[] =
        "step,train_loss,train_mean_token_accuracy,valid_loss,valid_mean_token_accuracy,"
        "full_valid_loss,full_valid_mean_token_accuracy\n"
        "1,2.5,0.25,,,,\n"
        "2,nan,,1.5,1,1.5,1\n"
        "3,-inf,,,,,\n";
    assert_memory_equal(h->body, lines, sizeof lines - 1);
    assert_string_equal(h->body + sizeof lines - 1, last);
    put_point(h, job.id, METRIC_LOSS, 2, 4, 8);
    assert_int_equal(write_results(h, job.id), 3);
    ask_results(h, job.id);
    assert_non_null(strstr(h->body, "\n4,8,,,,,\n"));
    ask(h, "GET", "/v1/files?purpose=fine-tune-results", NULL);
    assert_int_equal(json_array_size(answer(h, "data")), 1);
}

static void test_job_without_points(void **state)
{
    struct http_world *h = *state;
    struct world_job job = world_submit(h->w, 1, "");
    struct results *results = NULL;
    assert_int_equal(
        results_new(h->w->store, &h->w->fake.host, h->w->dir, job.id, &results, &h->w->err),
        -ERR_NOT_FOUND);
    results_free(NULL);
}

static void test_deleted_job_leaves_nothing(void **state)
{
    struct http_world *h = *state;
    struct world_job job = http_world_succeeded(h);
    const struct http_target target = http_target(JOBS "/%s", job.id);
    CLEANUP(mem_free_ptr) char *folder = mem_printf("%s/jobs/%s", h->w->dir, job.id);
    CLEANUP(mem_free_ptr) char *trashed = NULL;
    for (int64_t step = 1; step <= 5000; step++)
        put_point(h, job.id, METRIC_HOST_BYTES, 1, step, 1);
    put_point(h, job.id, METRIC_LOSS, 1, 1, 1);
    (void)write_results(h, job.id);
    struct world_job waits = world_submit(h->w, 1, "");
    ask(h, "DELETE", http_target(JOBS "/%s", waits.id).text, NULL);
    expect(h, 400, "error.code", "invalid_state");
    ask(h, "DELETE", target.text, NULL);
    expect(h, 200, "id", job.id);
    assert_true(answer_int(h, "ithaca.freed_bytes") > 0);
    assert_false(io_exists(folder));
    OK(h->w, trash_next(h->w->dir, "", &trashed, &h->w->err));
    assert_string_equal(trashed, job.id);
    ask(h, "GET", target.text, NULL);
    assert_int_equal(h->status, 404);
    ask(h, "DELETE", target.text, NULL);
    assert_int_equal(h->status, 404);
    ask(h, "GET", "/v1/files?purpose=fine-tune-results", NULL);
    assert_int_equal(json_array_size(answer(h, "data")), 0);
    http_world_turn(h);
    bool more = true;
    OK(h->w, store_points_purge(h->w->store, &more, &h->w->err));
    assert_false(more); /* housekeeping has deleted its points, some at a time */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        HTTP_TEST(test_lines),
        HTTP_TEST(test_job_without_points),
        HTTP_TEST(test_deleted_job_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* api_metrics: events with pages, points as series with every filter, a rank's output by pieces. */
#include "tests/lib/http_world.h"

static void ask_job(struct http_world *h, const struct world_job *job, const char *tail)
{
    ask(h, "GET", http_target(JOBS "/%s%s", job->id, tail).text, NULL);
}

static void test_events(void **state)
{
    struct http_world *h = *state;
    struct world_job job = http_world_succeeded(h);
    char tail[128];
    ask_job(h, &job, "/events");
    size_t all = json_array_size(answer(h, "data"));
    assert_true(all >= 4);
    expect(h, 200, "data.0.data.state", "succeeded"); /* newest first */
    expect(h, 200, "data.0.object", "fine_tuning.job.event");
    ask_job(h, &job, "/events?limit=2");
    assert_int_equal(json_array_size(answer(h, "data")), 2);
    assert_true(json_is_true(answer(h, "has_more")));
    (void)snprintf(tail, sizeof tail, "/events?limit=100&after=%s",
                   json_string_value(answer(h, "last_id")));
    ask_job(h, &job, tail);
    assert_int_equal(json_array_size(answer(h, "data")), all - 2);
    ask_job(h, &job, "/events?after=ftevent-none");
    expect(h, 400, "error.param", "after");
    ask_job(h, &(struct world_job){.id = "ftjob-none"}, "/events");
    assert_int_equal(h->status, 404);
}

/* A job with points: attempt 1 of ranks 0 and 1, steps 1..3; attempt 2 of rank 0, steps 3..4. */
static struct world_job with_points(struct http_world *h)
{
    struct world_job job = world_submit(h->w, 2, "");
    struct store_point points[16];
    size_t count = 0;
    int64_t row = 0;
    for (int64_t step = 1; step <= 3; step++)
        for (int64_t rank = 0; rank < 2; rank++)
            points[count++] = (struct store_point){.job_id = job.id,
                                                   .attempt = 1,
                                                   .step = step,
                                                   .rank = rank,
                                                   .metric = METRIC_HOST_BYTES,
                                                   .value = (double)(step * 10 + rank)};
    for (int64_t step = 3; step <= 4; step++)
        points[count++] = (struct store_point){.job_id = job.id,
                                               .attempt = 2,
                                               .step = step,
                                               .metric = METRIC_LOSS,
                                               .value = step == 4 ? (double)NAN : 0.5,
                                               .wall_s = 12.5};
    OK(h->w, store_points_insert(h->w->store, points, count, &row, &h->w->err));
    return job;
}

static size_t points_in(struct http_world *h)
{
    size_t i, count = 0;
    const json_t *series;
    json_array_foreach(answer(h, "data"), i, series)
    {
        count += json_array_size(json_object_get(series, "points"));
    }
    return count;
}

static void test_series(void **state)
{
    struct http_world *h = *state;
    struct world_job job = with_points(h);
    ask_job(h, &job, "/metrics");
    expect(h, 200, "object", "fine_tuning.job.metrics");
    assert_int_equal(json_array_size(answer(h, "data")), 3);
    assert_int_equal(points_in(h), 8);
    expect(h, 200, "data.0.key", "host_bytes");
    expect(h, 200, "data.0.unit", metric_unit(METRIC_HOST_BYTES));
    assert_int_equal(answer_int(h, "data.1.rank"), 1);
    ask_job(h, &job, "/metrics?keys=loss");
    assert_int_equal(json_array_size(answer(h, "data")), 1);
    assert_int_equal(answer_int(h, "data.0.attempt"), 2);
    assert_int_equal(answer_int(h, "data.0.points.0.0"), 3);
    assert_true(json_number_value(answer(h, "data.0.points.0.1")) == 0.5);
    assert_true(json_number_value(answer(h, "data.0.points.0.2")) == 12.5);
    assert_true(json_is_null(answer(h, "data.0.points.1.1"))); /* JSON has no NaN */
    ask_job(h, &job, "/metrics?keys=loss,host_bytes&attempt=1");
    assert_int_equal(points_in(h), 6);
    ask_job(h, &job, "/metrics?rank=1&from_step=2");
    assert_int_equal(points_in(h), 2);
    ask_job(h, &job, "/metrics?from_step=5");
    assert_int_equal(points_in(h), 0);
    ask_job(h, &job, "/metrics?keys=");
    assert_int_equal(points_in(h), 0); /* none was asked for */
}

static void test_pages(void **state)
{
    struct http_world *h = *state;
    struct world_job job = with_points(h);
    char tail[64] = "/metrics?limit=3";
    size_t seen = 0;
    int pages = 0;
    do {
        ask_job(h, &job, tail);
        seen += points_in(h);
        pages++;
        (void)snprintf(tail, sizeof tail, "/metrics?limit=3&after=%lld",
                       (long long)answer_int(h, "after"));
    } while (json_is_true(answer(h, "has_more")) && pages < 10);
    assert_int_equal(pages, 3);
    assert_int_equal(seen, 8);
    ask_job(h, &job, tail); /* after the last: nothing, and the cursor stays */
    assert_int_equal(points_in(h), 0);
    assert_non_null(strstr(tail, "after="));
    assert_int_equal(answer_int(h, "after"), strtoll(strstr(tail, "after=") + 6, NULL, 10));
    static const char *const bad[][2] = {
        {"/metrics?keys=loss,speed", "keys"}, {"/metrics?from_step=-1", "from_step"},
        {"/metrics?attempt=0", "attempt"},    {"/metrics?rank=64", "rank"},
        {"/metrics?limit=0", "limit"},        {"/metrics?after=x", "after"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        ask_job(h, &job, bad[i][0]);
        expect(h, 400, "error.param", bad[i][1]);
    }
}

static void test_logs(void **state)
{
    struct http_world *h = *state;
    struct world_job job = world_submit(h->w, 2, "");
    CLEANUP(mem_free_ptr) char *attempt = mem_printf("%s/jobs/%s/attempt-0", h->w->dir, job.id);
    CLEANUP(mem_free_ptr) char *path = io_join(attempt, "rank-1.log");
    ask_job(h, &job, "/logs?rank=1"); /* it has said nothing yet */
    expect(h, 200, "text", "");
    assert_int_equal(answer_int(h, "after"), 0);
    OK(h->w, io_make_dirs(attempt, 0700, &h->w->err));
    OK(h->w, io_write_file(path, "one\0two\xc3\xa4\n", 10, 0600, &h->w->err));
    ask_job(h, &job, "/logs?rank=1");
    expect(h, 200, "text", "one two\xc3\xa4\n");
    assert_int_equal(answer_int(h, "after"), 10);
    ask_job(h, &job, "/logs?rank=1&after=8"); /* from within a character */
    expect(h, 200, "text", "?\n");
    ask_job(h, &job, "/logs?rank=1&after=10");
    expect(h, 200, "text", "");
    assert_int_equal(answer_int(h, "after"), 10);
    ask_job(h, &job, "/logs?rank=1&after=500"); /* behind the end */
    expect(h, 200, "text", "");
    assert_int_equal(answer_int(h, "after"), 500);
    ask_job(h, &job, "/logs?rank=2");
    expect(h, 400, "error.param", "rank");
    ask_job(h, &job, "/logs?attempt=2");
    expect(h, 400, "error.param", "attempt");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink("/etc/passwd", path), 0);
    ask_job(h, &job, "/logs?rank=1"); /* is not followed */
    assert_int_equal(h->status, 500);
    assert_null(strstr(h->body, "root:"));
}

/* The end of a long output, and all of it in pieces. */
static void test_long_log(void **state)
{
    struct http_world *h = *state;
    struct world_job job = world_submit(h->w, 1, "");
    CLEANUP(mem_free_ptr) char *attempt = mem_printf("%s/jobs/%s/attempt-0", h->w->dir, job.id);
    CLEANUP(mem_free_ptr) char *path = io_join(attempt, "rank-0.log");
    enum { LONG = 150000, PIECE = 64 << 10 };
    CLEANUP(mem_free_ptr) char *text = mem_new(1, LONG);
    for (int i = 0; i < LONG; i++)
        text[i] = (char)('a' + i % 23);
    OK(h->w, io_make_dirs(attempt, 0700, &h->w->err));
    OK(h->w, io_write_file(path, text, LONG, 0600, &h->w->err));
    ask_job(h, &job, "/logs");
    assert_int_equal(answer_int(h, "start"), LONG - PIECE);
    assert_int_equal(answer_int(h, "after"), LONG);
    assert_memory_equal(json_string_value(answer(h, "text")), text + LONG - PIECE, PIECE);
    int64_t at = 0;
    for (int pieces = 0; pieces < 3; pieces++) {
        char tail[64];
        (void)snprintf(tail, sizeof tail, "/logs?after=%lld", (long long)at);
        ask_job(h, &job, tail);
        const char *piece = json_string_value(answer(h, "text"));
        assert_memory_equal(piece, text + at, strlen(piece));
        at = answer_int(h, "after");
    }
    assert_int_equal(at, LONG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        HTTP_TEST(test_events), HTTP_TEST(test_series),   HTTP_TEST(test_pages),
        HTTP_TEST(test_logs),   HTTP_TEST(test_long_log),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* api_checkpoints: the list in OpenAI's shape, its pages, and a cursor whose checkpoint has been
 * removed meanwhile. */
#include "daemon/checkpoints.h"
#include "tests/lib/http_world.h"

static void ask_list(struct http_world *h, const struct world_job *job, const char *query)
{
    ask(h, "GET", http_target(JOBS "/%s/checkpoints%s", job->id, query).text, NULL);
}

static void test_list(void **state)
{
    struct http_world *h = *state;
    struct world_attempt a;
    char id[LIMIT_ID_BYTES + 1], tail[160];
    struct world_job job = world_running(h->w, &a, "");
    ask_list(h, &job, "");
    assert_int_equal(h->status, 200);
    assert_int_equal(json_array_size(answer(h, "data")), 0);
    for (int64_t step = 1; step <= 12; step++)
        world_checkpoint(&a, step * 10);
    ask_list(h, &job, "");
    assert_int_equal(json_array_size(answer(h, "data")), 10);
    assert_true(json_is_true(answer(h, "has_more")));
    checkpoints_id(job.id, 120, id);
    expect(h, 200, "data.0.id", id);
    expect(h, 200, "data.0.object", "fine_tuning.job.checkpoint");
    expect(h, 200, "data.0.fine_tuning_job_id", job.id);
    assert_int_equal(answer_int(h, "data.0.step_number"), 120);
    assert_int_equal(answer_int(h, "data.0.metrics.step"), 120);
    assert_true(json_number_value(answer(h, "data.0.metrics.train_loss")) == 2.5);
    assert_true(json_is_null(answer(h, "data.0.metrics.valid_loss"))); /* there was none */
    assert_int_equal(answer_int(h, "data.0.ithaca.ranks"), 2);
    assert_int_equal(answer_int(h, "data.0.ithaca.bytes"), 4);
    (void)snprintf(tail, sizeof tail, "ft:tiny-llama:local:sail:%s:ckpt-step-120",
                   job.id + strlen(job.id) - 8);
    expect(h, 200, "data.0.fine_tuned_model_checkpoint", tail);
    CLEANUP(mem_free_ptr) char *dir = checkpoint_dir(a.plan.job_dir, 30);
    OK(h->w, io_remove_tree(dir, &h->w->err)); /* where the next page begins */
    (void)snprintf(tail, sizeof tail, "?after=%s", json_string_value(answer(h, "last_id")));
    ask_list(h, &job, tail);
    assert_int_equal(json_array_size(answer(h, "data")), 2);
    assert_int_equal(answer_int(h, "data.0.step_number"), 20);
    assert_true(json_is_false(answer(h, "has_more")));
    ask_list(h, &job, "?limit=11"); /* all that are left: no more */
    assert_int_equal(json_array_size(answer(h, "data")), 11);
    assert_true(json_is_false(answer(h, "has_more")));
    world_attempt_close(&a);
}

/* What was measured is there, as it last was at the checkpoint's step; the rest is null. */
static void test_metrics(void **state)
{
    struct http_world *h = *state;
    struct world_attempt a;
    struct world_job job = world_running(h->w, &a, "");
    const struct store_point points[] = {
        {.job_id = job.id, .attempt = 1, .step = 10, .metric = METRIC_ACCURACY, .value = 0.25},
        {.job_id = job.id, .attempt = 1, .step = 20, .metric = METRIC_ACCURACY, .value = 0.5},
        {.job_id = job.id,
         .attempt = 1,
         .step = 15,
         .metric = METRIC_VALID_ACCURACY,
         .value = 0.75},
        {.job_id = job.id, .attempt = 1, .step = 25, .metric = METRIC_VALID_ACCURACY, .value = 1},
    };
    int64_t row = 0;
    OK(h->w, store_points_insert(h->w->store, points, 4, &row, &h->w->err));
    world_checkpoint(&a, 10);
    world_checkpoint(&a, 20);
    ask_list(h, &job, "");
    static const struct {
        const char *path;
        double value; /* -1: null */
    } rows[] = {{"data.0.metrics.train_mean_token_accuracy", 0.5},
                {"data.0.metrics.valid_mean_token_accuracy", 0.75},
                {"data.0.metrics.full_valid_mean_token_accuracy", 0.75},
                {"data.0.metrics.full_valid_loss", -1},
                {"data.1.metrics.train_mean_token_accuracy", 0.25},
                {"data.1.metrics.valid_mean_token_accuracy", -1},
                {"data.1.metrics.full_valid_mean_token_accuracy", -1}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const json_t *value = answer(h, rows[i].path);
        assert_non_null(value);
        assert_true(rows[i].value < 0 ? json_is_null(value)
                                      : json_number_value(value) == rows[i].value);
    }
    world_attempt_close(&a);
}

static void test_refusals(void **state)
{
    struct http_world *h = *state;
    struct world_job job = world_submit(h->w, 1, "");
    static const char *const cursors[] = {"?after=ftckpt_other_10", "?after=x",
                                          "?after=ftckpt_%_10"};
    for (size_t i = 0; i < sizeof cursors / sizeof cursors[0]; i++) {
        ask_list(h, &job, cursors[i]);
        assert_int_equal(h->status, 400);
    }
    expect(h, 400, "error.code", "invalid_value");
    ask_list(h, &job, "?limit=0");
    expect(h, 400, "error.param", "limit");
    ask_list(h, &(struct world_job){.id = "ftjob-none"}, "");
    expect(h, 404, "error.code", "not_found");
}

int main(void)
{
    const struct CMUnitTest tests[] = {HTTP_TEST(test_list), HTTP_TEST(test_metrics),
                                       HTTP_TEST(test_refusals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

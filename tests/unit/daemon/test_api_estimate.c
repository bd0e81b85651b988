/* api_estimate: what a job would take, asked for without making one, and jobs that this machine
 * cannot hold, refused at submit. */
#include "tests/lib/http_world.h"

#define ESTIMATE "/v1/fine_tuning/estimate"

static void test_estimate(void **state)
{
    struct http_world *h = *state;
    ask(h, "POST", ESTIMATE, "{\"model\":\"tiny-llama\",\"ithaca\":{\"seq_len\":64}}");
    expect(h, 200, "object", "fine_tuning.estimate");
    expect(h, 200, "model", "tiny-llama");
    assert_true(json_is_true(answer(h, "memory.fits")));
    assert_true(answer_int(h, "memory.peak_device_bytes") > 0);
    assert_true(json_is_null(answer(h, "message")));
    assert_int_equal(answer_int(h, "ithaca.seq_len"), 64);
    int64_t little = answer_int(h, "memory.peak_device_bytes");
    ask(h, "POST", ESTIMATE, "{\"model\":\"tiny-llama\",\"ithaca\":{\"seq_len\":128}}");
    assert_true(answer_int(h, "memory.peak_device_bytes") > little);
    ask(h, "POST", ESTIMATE, /* a shape that is not here, far too large for this machine */
        "{\"model\":\"llama3-70b\",\"ithaca\":{\"seq_len\":65536}}");
    assert_int_equal(h->status, 200);
    assert_true(json_is_false(answer(h, "memory.fits")));
    assert_true(json_is_string(answer(h, "message")));
    ask(h, "GET", "/v1/fine_tuning/jobs", NULL);
    assert_int_equal(json_array_size(answer(h, "data")), 0); /* no job was made */
}

static void test_refusals(void **state)
{
    struct http_world *h = *state;
    ask(h, "POST", ESTIMATE, "{\"model\":\"none\"}");
    expect(h, 404, "error.param", "model");
    ask(h, "POST", ESTIMATE, "{}");
    expect(h, 400, "error.param", "model");
    ask(h, "POST", ESTIMATE, "{\"model\":\"tiny-llama\",\"ithaca\":{\"gpus\":0}}");
    expect(h, 400, "error.param", "ithaca.gpus");
    ask(h, "POST", ESTIMATE, "");
    expect(h, 400, "error.code", "invalid_json");
}

/* A model whose weights alone are more than any machine here has. */
static void test_admission(void **state)
{
    struct http_world *h = *state;
    struct model_config config = *model_config_builtin("tiny-llama");
    config.layers = 8;
    config.hidden_size = config.intermediate_size = 65536;
    config.heads = config.kv_heads = 512;
    config.head_dim = 128;
    CLEANUP(json_unref) json_t *json = model_config_json(&config);
    CLEANUP(mem_free_ptr) char *folder = io_join(h->models, "huge");
    CLEANUP(mem_free_ptr) char *path = io_join(folder, "config.json");
    OK(h->w, io_make_dirs(folder, 0700, &h->w->err));
    OK(h->w, json_write_file(path, json, 0600, &h->w->err));
    http_world_file(h, "file-a", "{}");
    ask(h, "POST", "/v1/fine_tuning/jobs",
        "{\"model\":\"huge\",\"training_file\":\"file-a\",\"ithaca\":{\"seq_len\":64}}");
    expect(h, 400, "error.code", "does_not_fit");
    ask(h, "GET", "/v1/fine_tuning/jobs", NULL);
    assert_int_equal(json_array_size(answer(h, "data")), 0);
    ask(h, "POST", ESTIMATE, "{\"model\":\"huge\",\"ithaca\":{\"seq_len\":64}}");
    assert_int_equal(h->status, 200);
    assert_true(json_is_false(answer(h, "memory.fits")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {HTTP_TEST(test_estimate), HTTP_TEST(test_refusals),
                                       HTTP_TEST(test_admission)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

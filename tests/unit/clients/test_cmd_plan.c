/* cmd_plan: lengths as people write them, options that become fields, what is no model, and the
 * status of a plan that does not fit. No daemon is asked. */
#include "common/model_config.h"
#include "tests/lib/fake_server.h"

/* A member of the plan that was printed as JSON. */
static int64_t plan_int(struct scene *s, const char *key)
{
    CLEANUP(json_unref) json_t *plan = NULL;
    if (s->rc != 0)
        fail_msg("%s", s->err.text);
    assert_int_equal(json_parse(s->out, strlen(s->out), "plan", &plan, &s->err), 0);
    return json_integer_value(json_object_get(plan, key));
}

static void test_lengths(void **state)
{
    struct scene *s = *state;
    static const struct {
        const char *text;
        int64_t length; /* 0: refused */
    } lengths[] = {{"4096", 4096},
                   {"4K", 4096},
                   {"1M", 1 << 20},
                   {"17M", 0},
                   {"16777217", 0},
                   {"0", 0},
                   {"-1", 0},
                   {"4k", 0},
                   {"4KB", 0},
                   {"K", 0},
                   {"", 0},
                   {"4.5K", 0},
                   {"4 K", 0},
                   {"9223372036854775807", 0},
                   {"99999999999999999999", 0},
                   {"9007199254740993K", 0}};
    s->json = true;
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        scene_run(s, cmd_plan, "--model", "tiny-llama", "--seq-len", lengths[i].text, NULL);
        if (lengths[i].length == 0)
            scene_expect_usage(s, "--seq-len");
        else
            assert_int_equal(plan_int(s, "seq_len"), lengths[i].length);
    }
    scene_run(s, cmd_plan, "--model", "tiny-llama", "--seq-len", "64", "--gpus", "2", NULL);
    assert_int_equal(plan_int(s, "gpus"), 2);
    assert_int_equal(s->server.asked_count, 0);
}

static void test_models(void **state)
{
    struct scene *s = *state;
    CLEANUP(mem_free_ptr) char *folder = scene_path(s, "my-model");
    CLEANUP(json_unref) json_t *json = model_config_json(model_config_builtin("tiny-llama"));
    CLEANUP(mem_free_ptr) char *config = io_join(folder, "config.json");
    assert_int_equal(io_make_dirs(folder, 0700, &s->err), 0);
    s->json = true;
    scene_run(s, cmd_plan, "--model", "tiny-llama", "--seq-len=64", NULL);
    int64_t built_in = plan_int(s, "peak_device_bytes");
    scene_run(s, cmd_plan, "--model", folder, "--seq-len=64", NULL);
    assert_int_not_equal(s->rc, 0); /* no config.json yet */
    assert_int_equal(json_write_file(config, json, 0600, &s->err), 0);
    scene_put(s, "job.json", "{\"model\":\"tiny-llama\",\"ithaca\":{\"seq_len\":64}}");
    CLEANUP(mem_free_ptr) char *job = scene_path(s, "job.json");
    scene_run(s, cmd_plan, job, NULL);
    assert_int_equal(plan_int(s, "peak_device_bytes"), built_in);
    scene_run(s, cmd_plan, "--model", "no-llama", NULL);
    assert_int_equal(s->rc, -ERR_NOT_FOUND);
    assert_string_equal(s->err.field, "model");
    assert_non_null(strstr(s->err.text, "llama3-8b")); /* what is known */
    scene_run(s, cmd_plan, NULL);
    scene_expect_usage(s, "--model is missing");
}

/* A folder's path may be no model's name: it is planned all the same. */
static void test_folder(void **state)
{
    struct scene *s = *state;
    CLEANUP(mem_free_ptr) char *folder = scene_path(s, "my-model");
    CLEANUP(json_unref) json_t *json = model_config_json(model_config_builtin("tiny-llama"));
    CLEANUP(mem_free_ptr) char *config = io_join(folder, "config.json");
    assert_int_equal(io_make_dirs(folder, 0700, &s->err), 0);
    assert_int_equal(json_write_file(config, json, 0600, &s->err), 0);
    s->json = true;
    scene_run(s, cmd_plan, "--model", folder, "--seq-len=64", NULL);
    assert_true(plan_int(s, "peak_device_bytes") > 0);
}

static void test_what_does_not_fit(void **state)
{
    struct scene *s = *state;
    scene_run(s, cmd_plan, "--model", "llama3-8b", "--seq-len", "64K", "--memory", "1", NULL);
    assert_int_equal(s->rc, -ERR_DOES_NOT_FIT);
    assert_true(strlen(s->out) > 0); /* the plan is shown first */
    s->json = true;
    scene_run(s, cmd_plan, "--model", "llama3-8b", "--seq-len", "64K", "--memory", "1", NULL);
    assert_int_equal(s->rc, 0); /* "fits" says it */
    assert_non_null(strstr(s->out, "\"fits\": false"));
    scene_run(s, cmd_plan, "--model", "llama3-8b", "--max-seq-len", "--memory", "1", NULL);
    assert_int_equal(s->rc, -ERR_DOES_NOT_FIT);
    scene_run(s, cmd_plan, "--model", "tiny-llama", "--seq-len=64", "--buffers", NULL);
    assert_non_null(strstr(s->out, "\"buffers\": ["));
}

static void test_mistakes(void **state)
{
    struct scene *s = *state;
    scene_run(s, cmd_plan, "--model=tiny-llama", "--memory", "much", NULL);
    assert_int_not_equal(s->rc, 0);
    scene_run(s, cmd_plan, "--model=tiny-llama", "--backend", "tpu", NULL);
    scene_expect_usage(s, "write cpu, cuda");
    scene_run(s, cmd_plan, "--model=tiny-llama", "--colour", NULL);
    scene_expect_usage(s, "--colour");
    scene_run(s, cmd_plan, "--model=tiny-llama", "--gpus", "65", NULL);
    assert_int_not_equal(s->rc, 0);
    scene_run(s, cmd_ladder, NULL);
    scene_expect_usage(s, "--model is missing");
}

static void test_ladder(void **state)
{
    struct scene *s = *state;
    scene_run(s, cmd_ladder, "--model=tiny-llama", "--seq-len=64K", NULL);
    assert_int_equal(s->rc, 0);
    size_t lines = 0;
    for (const char *c = s->out; *c != '\0'; c++)
        lines += *c == '\n';
    assert_true(lines > 3);
    CLEANUP(json_unref) json_t *json = NULL;
    s->json = true;
    scene_run(s, cmd_ladder, "--model=tiny-llama", "--seq-len=64K", NULL);
    assert_int_equal(json_parse(s->out, strlen(s->out), "ladder", &json, &s->err), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENE_TEST(test_lengths),           SCENE_TEST(test_models),   SCENE_TEST(test_folder),
        SCENE_TEST(test_what_does_not_fit), SCENE_TEST(test_mistakes), SCENE_TEST(test_ladder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* model: the hand-written backward pass against finite differences (tests/lib/model_scene.h),
 * tensor by tensor, and the ways of computing one gradient (recompute, tiles) against each other.
 * tests/golden holds every element against fp64. */
#include "tests/lib/model_scene.h"

static void check_model(const char *name)
{
    struct model_config config = config_of(name);
    struct model_options options = {.tokens_max = TOKENS};
    struct scene scene;
    open_scene(&scene, &config, &options);
    random_weights(&scene, 1.0f);
    fill_batch(&scene.batch);
    double loss = gradient_of(&scene);
    assert_true(fabs(loss - loss_of(&scene)) < 1e-6); /* training and evaluation agree */
    for (int64_t i = 0; i < scene.shape.row_count; i++) {
        const struct model_shape_row *row = &scene.shape.rows[i];
        check_tensor(&scene, row, testing_copy(grad_of(&scene, row), row->elements));
    }
    close_scene(&scene);
}

static void test_llama(void **state)
{
    check_model("llama");
}

static void test_untied(void **state)
{
    check_model("untied");
}

static void test_biases_and_yarn(void **state)
{
    check_model("biases and yarn");
}

static void test_qwen2(void **state)
{
    check_model("qwen2");
}

static void test_qwen3(void **state)
{
    check_model("qwen3");
}

static void check_layout(const struct model_config *config, const struct model_options *options,
                         struct scene *plain)
{
    struct scene scene;
    open_scene(&scene, config, options);
    random_weights(&scene, 0.5f);
    copy_batch(&scene.batch, &plain->batch);
    (void)gradient_of(&scene);
    for (int64_t r = 0; r < scene.shape.row_count; r++) {
        const struct model_shape_row *row = &scene.shape.rows[r];
        double *want = testing_zeros(row->elements);
        for (int64_t j = 0; j < row->elements; j++)
            want[j] = (double)grad_of(plain, row)[j];
        testing_close(row->name, grad_of(&scene, row), want, NULL, row->elements, 1e-5);
    }
    close_scene(&scene);
}

/* Every way of computing gives one gradient. */
static void test_layouts(void **state)
{
    static const struct model_options layouts[] = {
        {.tokens_max = TOKENS, .tile_mlp = 1, .tile_loss = 1},
        {.tokens_max = TOKENS, .tile_mlp = 13, .tile_loss = 7},
        {.tokens_max = TOKENS, .recompute = JOB_recompute_INPUT},
        {.tokens_max = TOKENS, .recompute = JOB_recompute_INPUT_AND_ATTENTION},
        {.tokens_max = TOKENS, .recompute = JOB_recompute_ATTENTION},
        {.tokens_max = TOKENS, .recompute = JOB_recompute_ATTENTION, .keep_input_every = 2},
        {.tokens_max = TOKENS, .recompute = JOB_recompute_ATTENTION, .keep_input_every = 3},
        {.tokens_max = TOKENS, .recompute = JOB_recompute_ATTENTION, .keep_input_every = 9},
        {.tokens_max = TOKENS,
         .recompute = JOB_recompute_ATTENTION,
         .keep_input_every = 3,
         .replay_anew = true,
         .tile_mlp = 13},
        {.tokens_max = TOKENS,
         .recompute = JOB_recompute_ATTENTION,
         .keep_input_every = 4,
         .replay_anew = true},
        {.tokens_max = TOKENS, .context.heads_per_stage = 1},
        {.tokens_max = TOKENS, .context.heads_per_stage = 2},
        {.tokens_max = TOKENS, .recompute = JOB_recompute_INPUT, .context.heads_per_stage = 1},
        {.tokens_max = TOKENS,
         .recompute = JOB_recompute_INPUT_AND_ATTENTION,
         .context.heads_per_stage = 2,
         .tile_mlp = 11},
        {.tokens_max = TOKENS + 9,
         .recompute = JOB_recompute_INPUT,
         .tile_mlp = 17,
         .tile_loss = 64},
    };
    struct model_config config = config_of("qwen3");
    config.layers = 5;
    struct model_options options = {.tokens_max = TOKENS};
    struct scene plain;
    open_scene(&plain, &config, &options);
    random_weights(&plain, 0.5f); /* large ones magnify rounding */
    fill_batch(&plain.batch);
    (void)gradient_of(&plain);
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++)
        check_layout(&config, &layouts[i], &plain);
    close_scene(&plain);
}

static void test_empty_batch(void **state)
{
    struct model_config config = config_of("llama");
    struct model_options options = {.tokens_max = TOKENS};
    struct scene scene;
    open_scene(&scene, &config, &options);
    random_weights(&scene, 1.0f);
    batch_clear(&scene.batch);
    assert_true(gradient_of(&scene) == 0);
    for (int64_t r = 0; r < scene.shape.row_count; r++)
        for (int64_t j = 0; j < scene.shape.rows[r].elements; j++)
            assert_true(grad_of(&scene, &scene.shape.rows[r])[j] == 0);
    close_scene(&scene);
}

/* Field case R33: replacing one document leaves its neighbours' losses as they are. */
static void test_documents_apart(void **state)
{
    struct model_config config = config_of("llama");
    struct model_options options = {.tokens_max = TOKENS};
    struct scene scene;
    open_scene(&scene, &config, &options);
    random_weights(&scene, 1.0f);
    uint8_t none[TOKENS] = {0}, all[TOKENS];
    memset(all, 1, sizeof all);
    int32_t *a = testing_below(15, config.vocab_size), *b = testing_below(15, config.vocab_size);
    int32_t *c = testing_below(20, config.vocab_size);
    double loss[3];
    for (int i = 0; i < 3; i++) {
        batch_clear(&scene.batch);
        if (i < 2)
            batch_append(&scene.batch, i == 0 ? a : b, none, 15);
        batch_append(&scene.batch, c, all, 20);
        loss[i] = loss_of(&scene);
    }
    assert_true(fabs(loss[0] - loss[1]) < 1e-6);
    assert_true(fabs(loss[0] - loss[2]) < 1e-6); /* positions restart: alone is the same */
    close_scene(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_llama, testing_free),
        cmocka_unit_test_teardown(test_untied, testing_free),
        cmocka_unit_test_teardown(test_biases_and_yarn, testing_free),
        cmocka_unit_test_teardown(test_qwen2, testing_free),
        cmocka_unit_test_teardown(test_qwen3, testing_free),
        cmocka_unit_test_teardown(test_layouts, testing_free),
        cmocka_unit_test_teardown(test_empty_batch, testing_free),
        cmocka_unit_test_teardown(test_documents_apart, testing_free),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

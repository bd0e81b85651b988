/* lora: gradients of adapters against those of the model. With W + s B A in W's place the model
 * computes the same, and dB = s dW A^T, dA = s B^T dW, where dW is the gradient of that model's
 * weight (test_model_grad holds it against finite differences). With dropout there is no such
 * weight: against finite differences, one draw being a function like any other. */
#include "common/lora_shape.h"
#include "tests/lib/model_scene.h"

static struct job_spec spec_of(int64_t r, int64_t modules, double dropout)
{
    return (struct job_spec){.seed = 5,
                             .fsdp = true,
                             .lora = true,
                             .lora_r = r,
                             .lora_alpha = 3,
                             .lora_dropout = dropout,
                             .lora_modules = modules};
}
enum { ALL = (1 << JOB_lora_module_COUNT) - 1 };

/* What base and adapters of `from` come to, in a model of its own. */
static void merge(const struct scene *from, const struct job_spec *spec, struct scene *to)
{
    float scale = lora_shape_scale(spec);
    for (int64_t u = 0; u < from->fsdp.unit_count; u++)
        memcpy(to->fsdp.units[u].master, from->fsdp.units[u].frozen,
               (size_t)from->fsdp.units[u].shard * sizeof(float));
    for (int64_t i = 0; i < from->lora.shape.row_count; i += 2) {
        const struct model_shape_row *a = &from->lora.shape.rows[i], *b = a + 1;
        const struct model_shape_row *w = model_shape_find(&to->shape, a->kind, a->layer);
        const float *unit = from->lora.fsdp.units[a->unit].master;
        float *weights = to->fsdp.units[w->unit].master + w->offset;
        for (int64_t j = 0; j < w->elements; j++) {
            double sum = 0;
            for (int64_t k = 0; k < a->rows; k++)
                sum += (double)unit[b->offset + j / w->cols * a->rows + k] *
                       (double)unit[a->offset + k * w->cols + j % w->cols];
            weights[j] = (float)((double)weights[j] + (double)scale * sum);
        }
    }
}

/* dA and dB of an adapter from dW. */
static void check_adapter(struct scene *scene, const struct job_spec *spec, struct scene *merged,
                          const struct model_shape_row *a)
{
    const struct model_shape_row *b = a + 1;
    const struct model_shape_row *w = model_shape_find(&merged->shape, a->kind, a->layer);
    const float *dw = grad_of(merged, w), *a_now = weights_of(scene, a);
    const float *b_now = weights_of(scene, b);
    double *da = testing_zeros(a->elements), *db = testing_zeros(b->elements);
    double scale = (double)lora_shape_scale(spec);
    for (int64_t j = 0; j < w->elements; j++)
        for (int64_t k = 0; k < a->rows; k++) {
            int64_t at_a = k * w->cols + j % w->cols, at_b = j / w->cols * a->rows + k;
            da[at_a] += scale * (double)b_now[at_b] * (double)dw[j];
            db[at_b] += scale * (double)a_now[at_a] * (double)dw[j];
        }
    testing_close(a->name, grad_of(scene, a), da, NULL, a->elements, 2e-5);
    testing_close(b->name, grad_of(scene, b), db, NULL, b->elements, 2e-5);
}

static void check_merged(const char *name, int64_t r, int64_t modules,
                         const struct model_options *options)
{
    struct model_config config = config_of(name);
    struct model_options plain = {.tokens_max = TOKENS};
    struct job_spec spec = spec_of(r, modules, 0);
    struct scene scene, merged;
    open_scene_lora(&scene, &config, options, &spec);
    random_weights(&scene, 0.3f);
    fill_batch(&scene.batch);
    scene.batch.step = 1;
    double loss = gradient_of(&scene);
    open_scene(&merged, &config, &plain);
    merge(&scene, &spec, &merged);
    copy_batch(&merged.batch, &scene.batch);
    assert_true(fabs(loss - gradient_of(&merged)) < 1e-5);
    for (int64_t i = 0; i < scene.lora.shape.row_count; i += 2)
        check_adapter(&scene, &spec, &merged, &scene.lora.shape.rows[i]);
    close_scene(&merged);
    close_scene(&scene);
}

static void test_against_the_model(void **state)
{
    static const struct model_options whole = {.tokens_max = TOKENS},
                                      tiles = {.tokens_max = TOKENS,
                                               .tile_mlp = 7,
                                               .recompute = JOB_recompute_INPUT,
                                               .context.heads_per_stage = 1};
    check_merged("llama", 4, ALL, &whole);
    check_merged("qwen2", 5, ALL, &tiles);
    check_merged("qwen3", 1, ALL, &tiles);
    check_merged("biases and yarn", 24, ALL, &whole); /* of full rank */
    for (int m = 0; m < JOB_lora_module_COUNT; m++)
        check_merged(m % 2 == 0 ? "qwen3" : "llama", 3, 1 << m, m < 3 ? &tiles : &whole);
}

static void test_dropout_by_differences(void **state)
{
    struct model_config config = config_of("qwen3");
    struct model_options options = {.tokens_max = TOKENS, .tile_mlp = 16};
    struct job_spec spec = spec_of(3, ALL, 0.3);
    struct scene scene;
    open_scene_lora(&scene, &config, &options, &spec);
    random_weights(&scene, 0.4f);
    fill_batch(&scene.batch);
    scene.batch.step = 9;
    double dropped = gradient_of(&scene);
    for (int64_t i = 0; i < scene.lora.shape.row_count; i++) {
        const struct model_shape_row *row = &scene.lora.shape.rows[i];
        check_tensor(&scene, row, testing_copy(grad_of(&scene, row), row->elements));
    }
    assert_true(fabs(dropped - loss_of(&scene)) < 1e-6); /* the same draw */
    scene.batch.step = 10;
    assert_true(fabs(dropped - loss_of(&scene)) > 1e-4); /* another */
    scene.batch.step = 0;
    double whole = loss_of(&scene);
    assert_true(fabs(dropped - whole) > 1e-4); /* none */
    struct scene merged;
    struct model_options plain = {.tokens_max = TOKENS};
    open_scene(&merged, &config, &plain);
    merge(&scene, &spec, &merged);
    copy_batch(&merged.batch, &scene.batch);
    assert_true(fabs(whole - loss_of(&merged)) < 1e-5);
    close_scene(&merged);
    close_scene(&scene);
}

/* Adapters as they start change nothing. */
static void test_start(void **state)
{
    struct model_config config = config_of("untied");
    struct model_options options = {.tokens_max = TOKENS};
    struct job_spec spec = spec_of(4, ALL, 0);
    struct scene scene, base;
    open_scene_lora(&scene, &config, &options, &spec);
    random_fill(&scene.fsdp, 1000, 1.0f);
    CHECK(lora_start(&scene.lora, NULL, err));
    fill_batch(&scene.batch);
    double loss = gradient_of(&scene);
    for (int64_t i = 0; i < scene.lora.shape.row_count; i++) {
        const struct model_shape_row *row = &scene.lora.shape.rows[i];
        double size = 0;
        for (int64_t j = 0; j < row->elements; j++)
            size += fabs((double)grad_of(&scene, row)[j]);
        assert_true(row->index % 2 == 0 ? size == 0 : size > 0); /* B = 0: no gradient of A */
    }
    open_scene(&base, &config, &options);
    merge(&scene, &spec, &base);
    copy_batch(&base.batch, &scene.batch);
    assert_true(fabs(loss - loss_of(&base)) < 1e-6);
    close_scene(&base);
    close_scene(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_against_the_model, testing_free),
        cmocka_unit_test_teardown(test_dropout_by_differences, testing_free),
        cmocka_unit_test_teardown(test_start, testing_free),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

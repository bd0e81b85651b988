/* model_shape: totals of published models, names, units, order, the initialisation. */
#include "common/model_shape.h"

#include "common/mem.h"
#include "tests/lib/cmocka.h"

#include <math.h>
#include <string.h>

#include "tests/unit/common/published_models.h"

static struct model_config published_config(const struct published_model *model)
{
    struct model_config config = {
        .vocab_size = model->vocab,
        .hidden_size = model->hidden,
        .intermediate_size = model->mlp,
        .layers = model->layers,
        .heads = model->heads,
        .kv_heads = model->kv_heads,
        .head_dim = model->head_dim,
        .initializer_range = 0.02,
        .tie_embeddings = model->tied,
        .qkv_bias = strcmp(model->family, "qwen2") == 0,
        .qk_norm = strcmp(model->family, "qwen3") == 0,
    };
    return config;
}

/* What must hold for any table. */
static void check_table(const struct model_shape *shape)
{
    int64_t parameters = 0;
    int32_t unit = -1;
    int64_t end = 0;
    for (int64_t i = 0; i < shape->row_count; i++) {
        const struct model_shape_row *row = &shape->rows[i];
        assert_int_equal(row->index, i);
        assert_int_equal(row->elements, row->rows * row->cols);
        bool joined = row->kind == MODEL_TENSOR_K || row->kind == MODEL_TENSOR_V;
        assert_true(joined ? row->offset == end : row->offset % MODEL_SHAPE_ALIGN == 0);
        if (row->unit != unit) {
            assert_int_equal(row->unit, unit + 1);
            assert_int_equal(row->offset, 0);
            unit = row->unit;
        } else {
            assert_true(row->offset >= end && row->offset < end + MODEL_SHAPE_ALIGN);
        }
        end = row->offset + row->elements;
        assert_true(end <= shape->unit_elements[unit]);
        parameters += row->elements;
        assert_ptr_equal(model_shape_find(shape, row->kind, row->layer), row);
        assert_ptr_equal(model_shape_by_name(shape, row->name), row);
        if (row->layer >= 0)
            assert_int_equal(row->unit, row->layer + 1);
    }
    assert_int_equal(unit, shape->unit_count - 1);
    assert_int_equal(parameters, shape->parameters);
}

static void test_published(void **state)
{
    struct err err;
    for (size_t i = 0; i < sizeof published_models / sizeof published_models[0]; i++) {
        const struct published_model *model = &published_models[i];
        struct model_config config = published_config(model);
        struct model_shape shape;
        assert_int_equal(model_shape_build(&config, &shape, &err), 0);
        assert_int_equal(shape.parameters, model->parameters);
        check_table(&shape);
        const struct model_shape_row *q = model_shape_find(&shape, MODEL_TENSOR_Q, 1);
        assert_string_equal(q->name, "model.layers.1.self_attn.q_proj.weight");
        assert_int_equal(q->rows, model->heads * model->head_dim);
        assert_int_equal(q->cols, model->hidden);
        const struct model_shape_row *v = model_shape_find(&shape, MODEL_TENSOR_V, 0);
        assert_int_equal(v->rows, model->kv_heads * model->head_dim);
        const struct model_shape_row *o = model_shape_find(&shape, MODEL_TENSOR_O, 0);
        assert_int_equal(o->rows, model->hidden);
        assert_int_equal(o->cols, model->heads * model->head_dim);
        assert_int_equal(model_shape_find(&shape, MODEL_TENSOR_Q_BIAS, 0) != NULL, config.qkv_bias);
        assert_int_equal(model_shape_find(&shape, MODEL_TENSOR_K_NORM, 0) != NULL, config.qk_norm);
        assert_int_equal(model_shape_find(&shape, MODEL_TENSOR_HEAD, -1) == NULL, model->tied);
        model_shape_done(&shape);
    }
    assert_int_equal(mem_live(), 0);
}

static void test_tiny(void **state)
{
    struct err err;
    struct model_shape shape;
    const struct model_config *tiny = model_config_builtin("tiny-llama");
    assert_int_equal(model_shape_build(tiny, &shape, &err), 0);
    assert_int_equal(shape.parameters, 3019008);
    assert_int_equal(shape.unit_count, 6);
    assert_int_equal(shape.unit_elements[0], 264 * 256);
    assert_int_equal(shape.unit_elements[5], 256);
    assert_null(model_shape_by_name(&shape, "lm_head.weight"));
    model_shape_done(&shape);
}

/* head_dim apart from hidden / heads: 64 hidden, 4 heads, 2 kv heads, head_dim 32. */
static void test_wide_heads(void **state)
{
    struct err err;
    struct model_config config = {.vocab_size = 100,
                                  .hidden_size = 64,
                                  .intermediate_size = 96,
                                  .layers = 1,
                                  .heads = 4,
                                  .kv_heads = 2,
                                  .head_dim = 32,
                                  .qk_norm = true};
    struct model_shape shape;
    assert_int_equal(model_shape_build(&config, &shape, &err), 0);
    check_table(&shape);
    const struct model_shape_row *q = model_shape_find(&shape, MODEL_TENSOR_Q, 0);
    const struct model_shape_row *o = model_shape_find(&shape, MODEL_TENSOR_O, 0);
    assert_true(q->rows == 128 && q->cols == 64 && o->rows == 64 && o->cols == 128);
    model_shape_done(&shape);
}

static void test_init(void **state)
{
    struct err err;
    struct model_shape shape;
    struct model_config config = *model_config_builtin("tiny-llama");
    config.qkv_bias = config.o_bias = true;
    assert_int_equal(model_shape_build(&config, &shape, &err), 0);
    static const enum model_tensor kinds[] = {MODEL_TENSOR_Q, MODEL_TENSOR_DOWN,
                                              MODEL_TENSOR_EMBED};
    static const double stds[] = {0.05, 0.05 / 2.8284271247461903, 0.1}; /* sqrt(2 * 4 layers) */
    for (int k = 0; k < 3; k++) {
        const struct model_shape_row *row =
            model_shape_find(&shape, kinds[k], kinds[k] == MODEL_TENSOR_EMBED ? -1 : 2);
        double sum = 0;
        double squares = 0;
        for (int64_t i = 0; i < row->elements; i++) {
            double value = model_shape_init(&shape, row, i, 7);
            sum += value;
            squares += value * value;
        }
        double n = (double)row->elements;
        assert_true(fabs(sum / n) < 5 * stds[k] / sqrt(n));
        assert_true(fabs(sqrt(squares / n) / stds[k] - 1) < 5 / sqrt(2 * n));
    }
    const struct model_shape_row *q = model_shape_find(&shape, MODEL_TENSOR_Q, 2);
    const struct model_shape_row *k = model_shape_find(&shape, MODEL_TENSOR_K, 2);
    assert_true(model_shape_init(&shape, q, 0, 7) != model_shape_init(&shape, k, 0, 7));
    assert_true(model_shape_init(&shape, q, 0, 7) != model_shape_init(&shape, q, 0, 8));
    assert_true(model_shape_init(&shape, q, 5, 7) == model_shape_init(&shape, q, 5, 7));
    const struct model_shape_row *norm = model_shape_find(&shape, MODEL_TENSOR_LN2, 0);
    assert_true(model_shape_init(&shape, norm, 3, 7) == 1.0f);
    const struct model_shape_row *bias = model_shape_find(&shape, MODEL_TENSOR_V_BIAS, 0);
    assert_true(model_shape_init(&shape, bias, 3, 7) == 0.0f);
    const struct model_shape_row *out =
        model_shape_by_name(&shape, "model.layers.3.self_attn.o_proj.bias");
    assert_true(out != NULL && out->kind == MODEL_TENSOR_O_BIAS && out->dims == 1);
    assert_int_equal(out->rows, config.hidden_size);
    model_shape_done(&shape);
}

static void test_allocation_failure(void **state)
{
    struct err err;
    struct model_shape shape;
    for (int n = 1; n <= 2; n++) {
        mem_fault_after(n);
        assert_int_equal(model_shape_build(model_config_builtin("tiny-llama"), &shape, &err),
                         -ERR_NOMEM);
        mem_fault_after(0);
        assert_int_equal(mem_live(), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_published),          cmocka_unit_test(test_tiny),
        cmocka_unit_test(test_wide_heads),         cmocka_unit_test(test_init),
        cmocka_unit_test(test_allocation_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

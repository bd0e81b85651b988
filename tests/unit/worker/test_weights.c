/* weights: what a model folder must hold; field case R18 (tied embeddings and an lm_head). */
#include "worker/weights.h"

#include "common/io.h"
#include "common/mem.h"
#include "common/safetensors.h"
#include "worker/model_init.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char folder[64];

static struct model_config config_of(bool tied)
{
    return (struct model_config){.family = MODEL_FAMILY_LLAMA,
                                 .vocab_size = 16,
                                 .hidden_size = 8,
                                 .intermediate_size = 12,
                                 .layers = 1,
                                 .heads = 2,
                                 .kv_heads = 1,
                                 .head_dim = 4,
                                 .context_max = 16,
                                 .rms_norm_eps = 1e-5,
                                 .rope_theta = 10000,
                                 .initializer_range = 0.02,
                                 .tie_embeddings = tied};
}

static int setup(void **state)
{
    (void)state;
    (void)snprintf(folder, sizeof folder, "/tmp/ithaca-weights-XXXXXX");
    return mkdtemp(folder) == NULL ? -1 : 0;
}

static int teardown(void **state)
{
    (void)state;
    struct err err = {0};
    return io_remove_tree(folder, &err);
}

/* Writes weights for `made` and checks them as a model of `wanted`; the error's code. */
static enum err_code check(const struct model_config *made, const struct model_config *wanted,
                           const char **ret_text)
{
    static struct err err;
    struct model_shape shape = {0};
    struct safetensors *st = NULL;
    err = (struct err){0};
    assert_int_equal(model_init_weights(made, folder, 1, &err), 0);
    assert_int_equal(model_shape_build(wanted, &shape, &err), 0);
    assert_int_equal(safetensors_open_dir(folder, &st, &err), 0);
    (void)weights_check(&shape, st, folder, &err);
    safetensors_free(st);
    model_shape_done(&shape);
    *ret_text = err.text;
    return err.code;
}

static void test_plain(void **state)
{
    (void)state;
    const char *text;
    for (int tied = 0; tied < 2; tied++) {
        struct model_config config = config_of(tied == 1);
        assert_int_equal(check(&config, &config, &text), ERR_NONE);
    }
}

static void test_untied_without_head(void **state)
{
    (void)state;
    const char *text;
    struct model_config tied = config_of(true), untied = config_of(false);
    assert_int_equal(check(&tied, &untied, &text), ERR_MODEL);
    assert_non_null(strstr(text, "lm_head.weight"));
    assert_non_null(strstr(text, "tie_word_embeddings"));
}

/* The head of an untied model is not its embedding. */
static void test_tied_with_another_head(void **state)
{
    (void)state;
    const char *text;
    struct model_config tied = config_of(true), untied = config_of(false);
    assert_int_equal(check(&untied, &tied, &text), ERR_MODEL);
    assert_non_null(strstr(text, "lm_head.weight"));
}

static void test_tied_with_its_head(void **state)
{
    (void)state;
    struct err err = {0};
    struct model_config config = config_of(true);
    struct model_shape shape = {0};
    struct safetensors *st = NULL;
    struct safetensors_writer *writer = NULL;
    char path[128];
    (void)snprintf(path, sizeof path, "%s/model.safetensors", folder);
    assert_int_equal(model_shape_build(&config, &shape, &err), 0);
    assert_int_equal(safetensors_writer_new(path, &writer, &err), 0);
    for (int64_t i = 0; i <= shape.row_count; i++) {
        const struct model_shape_row *row = &shape.rows[i % shape.row_count];
        int64_t dims[2] = {row->rows, row->cols};
        const char *name = i < shape.row_count ? row->name : "lm_head.weight";
        assert_int_equal(safetensors_writer_declare(writer, name, DTYPE_F32, row->dims, dims, &err),
                         0);
    }
    for (int64_t i = 0; i <= shape.row_count; i++) { /* the last again the first: the embedding */
        static float values[16 * 12];
        const struct model_shape_row *row = &shape.rows[i % shape.row_count];
        for (int64_t j = 0; j < row->elements; j++)
            values[j] = (float)(i % shape.row_count) + (float)j * 0.001f;
        assert_int_equal(safetensors_writer_put_f32(writer, values, row->elements, &err), 0);
    }
    assert_int_equal(safetensors_writer_commit(writer, &err), 0);
    safetensors_writer_free(writer);
    assert_int_equal(safetensors_open_dir(folder, &st, &err), 0);
    assert_int_equal(weights_check(&shape, st, folder, &err), 0);
    safetensors_free(st);
    model_shape_done(&shape);
}

static void test_other_shape(void **state)
{
    (void)state;
    const char *text;
    struct model_config made = config_of(true), wanted = config_of(true);
    wanted.intermediate_size = 24;
    assert_int_equal(check(&made, &wanted, &text), ERR_MODEL);
    assert_non_null(strstr(text, "gate_proj"));
    wanted = config_of(true);
    wanted.layers = 2;
    assert_int_equal(check(&made, &wanted, &text), ERR_MODEL);
    assert_non_null(strstr(text, "layers.1."));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_plain, setup, teardown),
        cmocka_unit_test_setup_teardown(test_untied_without_head, setup, teardown),
        cmocka_unit_test_setup_teardown(test_tied_with_another_head, setup, teardown),
        cmocka_unit_test_setup_teardown(test_tied_with_its_head, setup, teardown),
        cmocka_unit_test_setup_teardown(test_other_shape, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

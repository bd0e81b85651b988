/* weights: what a model folder must hold and may not; field case R18 (tied embeddings and an
 * lm_head). */
#include "worker/weights.h"

#include "common/io.h"
#include "common/json.h"
#include "common/mem.h"
#include "common/safetensors.h"
#include "tests/lib/folder.h"
#include "worker/model_init.h"

#include <stdio.h>
#include <string.h>

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
    if (weights_check(&shape, st, folder, &err) == 0)
        (void)weights_check_tied(&shape, st, folder, &err);
    safetensors_free(st);
    model_shape_done(&shape);
    *ret_text = err.text;
    return err.code;
}

static void test_plain(void **state)
{
    const char *text;
    for (int tied = 0; tied < 2; tied++) {
        struct model_config config = config_of(tied == 1);
        assert_int_equal(check(&config, &config, &text), ERR_NONE);
    }
}

static void test_untied_without_head(void **state)
{
    const char *text;
    struct model_config tied = config_of(true), untied = config_of(false);
    assert_int_equal(check(&tied, &untied, &text), ERR_MODEL);
    assert_non_null(strstr(text, "lm_head.weight"));
    assert_non_null(strstr(text, "tie_word_embeddings"));
}

/* The head of an untied model is not its embedding. */
static void test_tied_with_another_head(void **state)
{
    const char *text;
    struct model_config tied = config_of(true), untied = config_of(false);
    assert_int_equal(check(&untied, &tied, &text), ERR_MODEL);
    assert_non_null(strstr(text, "lm_head.weight"));
}

/* Weights of `config` and one tensor more, of 4 elements or a copy of the embedding. */
static void write_with(const struct model_config *config, const char *name, enum dtype dtype,
                       enum dtype rest)
{
    struct err err = {0};
    struct model_shape shape = {0};
    struct safetensors_writer *writer = NULL;
    char path[128];
    (void)snprintf(path, sizeof path, "%s/model.safetensors", folder);
    assert_int_equal(model_shape_build(config, &shape, &err), 0);
    assert_int_equal(safetensors_writer_new(path, &writer, &err), 0);
    for (int64_t i = 0; i <= shape.row_count; i++) {
        const struct model_shape_row *row = &shape.rows[i % shape.row_count];
        int64_t dims[2] = {row->rows, row->cols};
        bool more = i == shape.row_count;
        assert_int_equal(safetensors_writer_declare(writer, more ? name : row->name,
                                                    more ? dtype : rest, row->dims, dims, &err),
                         0);
    }
    for (int64_t i = 0; i <= shape.row_count; i++) { /* the last again the first: the embedding */
        static float values[16 * 12];
        const struct model_shape_row *row = &shape.rows[i % shape.row_count];
        for (int64_t j = 0; j < row->elements; j++)
            values[j] = (float)(i % shape.row_count) + (float)j * 0.5f;
        assert_int_equal(safetensors_writer_put_f32(writer, values, row->elements, &err), 0);
    }
    assert_int_equal(safetensors_writer_commit(writer, &err), 0);
    safetensors_writer_free(writer);
    model_shape_done(&shape);
}

/* Of what write_with() wrote, with config.json beside. */
static enum err_code check_folder(const struct model_config *config, const char **ret_text)
{
    static struct err err;
    err = (struct err){0};
    CLEANUP(json_unref) json_t *json = model_config_json(config);
    CLEANUP(mem_free_ptr) char *path = io_join(folder, "config.json");
    assert_int_equal(json_write_file(path, json, 0644, &err), 0);
    (void)weights_check_folder(folder, &err);
    *ret_text = err.text;
    return err.code;
}

static void test_tied_with_its_head(void **state)
{
    const char *text;
    struct model_config config = config_of(true);
    write_with(&config, "lm_head.weight", DTYPE_F32, DTYPE_F32);
    assert_int_equal(check_folder(&config, &text), ERR_NONE);
    write_with(&config, "lm_head.weight", DTYPE_F32, DTYPE_BF16); /* the same numbers */
    assert_int_equal(check_folder(&config, &text), ERR_NONE);
}

/* A tensor that config.json knows nothing of would be ignored; some old buffers may be. */
static void test_more_tensors(void **state)
{
    const char *text;
    struct model_config config = config_of(true);
    static const char *const refused[] = {
        "model.layers.0.self_attn.q_proj.bias", "model.layers.1.mlp.up_proj.weight",
        "model.layers.0.mlp.up_proj.weight_scale", "rotary_emb.inv_freq.x", "score.weight"};
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        write_with(&config, refused[i], DTYPE_F32, DTYPE_F16);
        assert_int_equal(check_folder(&config, &text), ERR_MODEL);
        assert_non_null(strstr(text, refused[i]));
        assert_non_null(strstr(text, "/model.safetensors"));
    }
    write_with(&config, "model.layers.0.self_attn.rotary_emb.inv_freq", DTYPE_F32, DTYPE_BF16);
    assert_int_equal(check_folder(&config, &text), ERR_NONE);
    struct model_config untied = config_of(false);
    write_with(&config, "lm_head.weight", DTYPE_F32, DTYPE_BF16);
    assert_int_equal(check_folder(&untied, &text), ERR_NONE); /* then it is a part */
}

/* Types are refused before anything is read. */
static void test_other_types(void **state)
{
    const char *text;
    struct model_config config = config_of(true);
    static const char header[] =
        "{\"model.embed_tokens.weight\":{\"dtype\":\"U8\",\"shape\":[16,8],"
        "\"data_offsets\":[0,128]}}";
    char bytes[8 + sizeof header - 1 + 128] = {0};
    uint64_t length = sizeof header - 1;
    struct err err = {0};
    CLEANUP(mem_free_ptr) char *path = io_join(folder, "model.safetensors");
    memcpy(bytes, &length, sizeof length);
    memcpy(bytes + 8, header, sizeof header - 1);
    assert_int_equal(io_write_file(path, bytes, sizeof bytes, 0644, &err), 0);
    assert_int_equal(check_folder(&config, &text), ERR_MODEL);
    assert_non_null(strstr(text, "dtype U8"));
    assert_non_null(strstr(text, "model.embed_tokens.weight"));
}

static void test_other_shape(void **state)
{
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
        FOLDER_TEST(test_plain),
        FOLDER_TEST(test_untied_without_head),
        FOLDER_TEST(test_tied_with_another_head),
        FOLDER_TEST(test_tied_with_its_head),
        FOLDER_TEST(test_more_tensors),
        FOLDER_TEST(test_other_types),
        FOLDER_TEST(test_other_shape),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

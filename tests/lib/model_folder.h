/* model_folder: a model folder in memory, small enough to be made anew in every test, with the
 * built-in tokenizer. Weights come from a function of the tensor and the element. */
#pragma once
#include "common/io.h"
#include "common/json.h"
#include "common/mem.h"
#include "common/model_shape.h"
#include "common/safetensors.h"
#include "common/tokenizer.h"
#include "tests/lib/cmocka.h"

#include <stdio.h>
#include <stdlib.h>

struct model_folder {
    char dir[64];
    struct model_config config;
    struct err err;
};

/* qwen3's shape, as it has most: grouped heads, norms of heads; 264 tokens of the built-in
 * tokenizer. */
static const struct model_config model_folder_config = {.family = MODEL_FAMILY_QWEN3,
                                                        .vocab_size = 264,
                                                        .hidden_size = 16,
                                                        .intermediate_size = 24,
                                                        .layers = 2,
                                                        .heads = 4,
                                                        .kv_heads = 2,
                                                        .head_dim = 6,
                                                        .context_max = 64,
                                                        .rms_norm_eps = 1e-5,
                                                        .rope_theta = 10000,
                                                        .initializer_range = 0.3,
                                                        .qk_norm = true,
                                                        .bos_token = -1,
                                                        .eos_token = -1,
                                                        .pad_token = -1};

typedef float model_folder_fn(const struct model_shape_row *row, int64_t element);

static inline void model_folder_weights(struct model_folder *model, model_folder_fn *weight)
{
    struct model_shape shape = {0};
    struct safetensors_writer *writer = NULL;
    CLEANUP(mem_free_ptr) char *path = io_join(model->dir, "model.safetensors");
    OK(model, model_shape_build(&model->config, &shape, &model->err));
    OK(model, safetensors_writer_new(path, &writer, &model->err));
    for (int64_t i = 0; i < shape.row_count; i++) {
        const struct model_shape_row *row = &shape.rows[i];
        const int64_t dims[2] = {row->rows, row->cols};
        OK(model,
           safetensors_writer_declare(writer, row->name, DTYPE_F32, row->dims, dims, &model->err));
    }
    for (int64_t i = 0; i < shape.row_count; i++)
        for (int64_t at = 0; at < shape.rows[i].elements; at++) {
            float value = weight != NULL ? weight(&shape.rows[i], at)
                                         : model_shape_init(&shape, &shape.rows[i], at, 11);
            OK(model, safetensors_writer_put_f32(writer, &value, 1, &model->err));
        }
    OK(model, safetensors_writer_commit(writer, &model->err));
    safetensors_writer_free(writer);
    model_shape_done(&shape);
}

/* weight NULL: as a model is initialised. */
static inline void model_folder_open(struct model_folder *model, const struct model_config *config,
                                     model_folder_fn *weight)
{
    *model = (struct model_folder){.config = *config};
    (void)snprintf(model->dir, sizeof model->dir, "/dev/shm/ithaca-model-XXXXXX");
    assert_non_null(mkdtemp(model->dir));
    CLEANUP(json_unref) json_t *json = model_config_json(config);
    CLEANUP(mem_free_ptr) char *path = io_join(model->dir, "config.json");
    OK(model, json_write_file(path, json, 0600, &model->err));
    OK(model, tokenizer_write_builtin(model->dir, &model->err));
    model_folder_weights(model, weight);
}

static inline void model_folder_close(struct model_folder *model)
{
    OK(model, io_remove_tree(model->dir, &model->err));
}

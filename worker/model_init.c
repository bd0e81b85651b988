/* model_init: see model_init.h. Weights are a function of (seed, tensor, element), made in chunks.
 */
#include "worker/model_init.h"

#include "common/io.h"
#include "common/json.h"
#include "common/mem.h"
#include "common/model_shape.h"
#include "common/safetensors.h"
#include "common/tokenizer.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { MODEL_INIT_CHUNK_ELEMENTS = 1 << 16 };

static void model_init_writer_free(struct safetensors_writer **writer)
{
    safetensors_writer_free(*writer);
}

static int model_init_tensor(const struct model_shape *shape, const struct model_shape_row *row,
                             uint64_t seed, float *chunk, struct safetensors_writer *writer,
                             struct err *err)
{
    for (int64_t at = 0; at < row->elements; at += MODEL_INIT_CHUNK_ELEMENTS) {
        int64_t left = row->elements - at;
        int64_t count = left < MODEL_INIT_CHUNK_ELEMENTS ? left : MODEL_INIT_CHUNK_ELEMENTS;
        for (int64_t i = 0; i < count; i++)
            chunk[i] = model_shape_init(shape, row, at + i, seed);
        TRY(safetensors_writer_put_f32(writer, chunk, count, err));
    }
    return 0;
}

static int model_init_file(const struct model_shape *shape, const char *path, uint64_t seed,
                           struct err *err)
{
    CLEANUP(model_init_writer_free) struct safetensors_writer *writer = NULL;
    CLEANUP(mem_free_ptr) float *chunk = mem_new(MODEL_INIT_CHUNK_ELEMENTS, sizeof *chunk);
    if (chunk == NULL)
        return mem_fail(err, MODEL_INIT_CHUNK_ELEMENTS * sizeof *chunk, "a tensor chunk");
    TRY(safetensors_writer_new(path, &writer, err));
    for (int64_t i = 0; i < shape->row_count; i++) {
        const struct model_shape_row *row = &shape->rows[i];
        int64_t dims[2] = {row->rows, row->cols};
        TRY(safetensors_writer_declare(writer, row->name, DTYPE_F32, row->dims, dims, err));
    }
    for (int64_t i = 0; i < shape->row_count; i++)
        TRY(model_init_tensor(shape, &shape->rows[i], seed, chunk, writer, err));
    return safetensors_writer_commit(writer, err);
}

int model_init_weights(const struct model_config *config, const char *dir, uint64_t seed,
                       struct err *err)
{
    CLEANUP(mem_free_ptr) char *weights = io_join(dir, "model.safetensors");
    CLEANUP(mem_free_ptr) char *config_path = io_join(dir, "config.json");
    CLEANUP(json_unref) json_t *json = model_config_json(config);
    if (weights == NULL || config_path == NULL || json == NULL)
        return mem_fail(err, strlen(dir), "a model folder");
    CLEANUP(model_shape_done) struct model_shape shape = {0};
    TRY(model_shape_build(config, &shape, err));
    TRY(model_init_file(&shape, weights, seed, err));
    return json_write_file(config_path, json, 0644, err);
}

int model_init_builtin(const char *name, const char *dir, uint64_t seed, struct err *err)
{
    const struct model_config *config = model_config_builtin(name);
    if (config == NULL)
        return err_set(err, ERR_NOT_FOUND, "no built-in model is called \"%s\"", name);
    if (io_exists(dir))
        return err_set(err, ERR_IN_USE, "%s exists already", dir);
    CLEANUP(mem_free_ptr) char *temp = mem_printf("%s.tmp", dir);
    if (temp == NULL)
        return mem_fail(err, strlen(dir), "a path");
    TRY(io_remove_tree(temp, err)); /* of a run that did not end */
    TRY(io_make_dirs(temp, 0755, err));
    TRY(model_init_weights(config, temp, seed, err));
    TRY(tokenizer_write_builtin(temp, err));
    TRY(io_fsync_dir(temp, err));
    if (rename(temp, dir) != 0)
        return err_set_errno(err, errno, "rename %s to %s", temp, dir);
    return 0;
}

/* weights: see weights.h. Reads go through a bounded host buffer. */
#include "worker/weights.h"

#include "common/mem.h"
#include "common/rng.h"
#include "common/safetensors.h"

#include <string.h>

enum { WEIGHTS_CHUNK_ELEMENTS = 1 << 20 }; /* 4 MiB of host memory: large enough to stream */

static void weights_close(struct safetensors **st)
{
    safetensors_free(*st);
}

int weights_check_tied(const struct model_shape *shape, const struct safetensors *st,
                       const char *model_dir, struct err *err)
{
    const struct safetensors_entry *head = safetensors_find(st, "lm_head.weight");
    const struct model_shape_row *row = model_shape_find(shape, MODEL_TENSOR_EMBED, -1);
    if (!shape->config.tie_embeddings || head == NULL)
        return 0;
    const struct safetensors_entry *embed = safetensors_find(st, row->name);
    bool same = head->elements == row->elements;
    CLEANUP(mem_free_ptr) float *a = mem_new((size_t)2 * WEIGHTS_CHUNK_ELEMENTS, sizeof *a);
    if (a == NULL)
        return mem_fail(err, (size_t)2 * WEIGHTS_CHUNK_ELEMENTS * sizeof *a, "a tensor chunk");
    for (int64_t at = 0; same && at < row->elements; at += WEIGHTS_CHUNK_ELEMENTS) {
        int64_t left = row->elements - at;
        int64_t count = left < WEIGHTS_CHUNK_ELEMENTS ? left : WEIGHTS_CHUNK_ELEMENTS;
        TRY(safetensors_read_f32(st, embed, at, count, a, err));
        TRY(safetensors_read_f32(st, head, at, count, a + WEIGHTS_CHUNK_ELEMENTS, err));
        same = memcmp(a, a + WEIGHTS_CHUNK_ELEMENTS, (size_t)count * sizeof *a) == 0;
    }
    if (!same)
        return err_set(err, ERR_MODEL,
                       "%s: tie_word_embeddings is true, but lm_head.weight differs from %s; "
                       "set tie_word_embeddings to false or drop lm_head.weight",
                       model_dir, row->name);
    return 0;
}

static int weights_check_row(const struct model_shape_row *row, const struct safetensors *st,
                             const char *model_dir, struct err *err)
{
    const struct safetensors_entry *entry = safetensors_find(st, row->name);
    if (entry == NULL)
        return err_set(err, ERR_MODEL, "%s: tensor %s is missing%s", model_dir, row->name,
                       row->kind == MODEL_TENSOR_HEAD
                           ? "; set tie_word_embeddings if it is the embedding"
                           : "");
    const char *file = safetensors_file_name(st, entry->file);
    if (entry->dtype != DTYPE_F32 && entry->dtype != DTYPE_BF16 && entry->dtype != DTYPE_F16)
        return err_set(err, ERR_MODEL,
                       "%s/%s: tensor %s: dtype %s is not served for weights; served: F32, BF16, "
                       "F16",
                       model_dir, file, row->name, dtype_name(entry->dtype));
    if (entry->dims == row->dims && entry->shape[0] == row->rows &&
        (row->dims == 1 || entry->shape[1] == row->cols))
        return 0;
    return err_set(err, ERR_MODEL,
                   "%s/%s: tensor %s has %lld elements in %d dimensions; config.json makes it "
                   "[%lld, %lld]",
                   model_dir, file, row->name, (long long)entry->elements, (int)entry->dims,
                   (long long)row->rows, (long long)row->cols);
}

/* May a file hold this beside the model's tensors? */
static bool weights_may_hold(const struct model_shape *shape, const char *name)
{
    static const char buffer[] = ".rotary_emb.inv_freq";
    size_t length = strlen(name), tail = sizeof buffer - 1;
    return (length > tail && strcmp(name + length - tail, buffer) == 0) ||
           (shape->config.tie_embeddings && strcmp(name, "lm_head.weight") == 0);
}

int weights_check(const struct model_shape *shape, const struct safetensors *st,
                  const char *model_dir, struct err *err)
{
    for (int64_t i = 0; i < shape->row_count; i++)
        TRY(weights_check_row(&shape->rows[i], st, model_dir, err));
    if (safetensors_count(st) == shape->row_count)
        return 0; /* names differ: these are all */
    for (int64_t i = 0; i < safetensors_count(st); i++) {
        const struct safetensors_entry *entry = safetensors_at(st, i);
        if (!weights_may_hold(shape, entry->name) &&
            model_shape_by_name(shape, entry->name) == NULL)
            return err_set(err, ERR_MODEL,
                           "%s/%s: tensor %s is no part of the model that config.json describes",
                           model_dir, safetensors_file_name(st, entry->file), entry->name);
    }
    return 0;
}

int weights_check_folder(const char *model_dir, struct err *err)
{
    struct model_config config;
    CLEANUP(model_shape_done) struct model_shape shape = {0};
    CLEANUP(weights_close) struct safetensors *st = NULL;
    TRY(model_config_load(model_dir, &config, err));
    TRY(model_shape_build(&config, &shape, err));
    TRY(safetensors_open_dir(model_dir, &st, err));
    TRY(weights_check(&shape, st, model_dir, err));
    return weights_check_tied(&shape, st, model_dir, err);
}

/* Elements of a shard from `at` on: of the master, or in [act] by way of `converted`. */
static int weights_put(struct fsdp *fsdp, int64_t unit, int64_t at, const float *values,
                       int64_t count, void *converted, struct stream *stream, struct err *err)
{
    struct device *device = fsdp->device;
    const struct fsdp_unit *u = &fsdp->units[unit];
    enum dtype act = device->dev->act_dtype;
    if (fsdp->kind != FSDP_FROZEN || act == DTYPE_F32) {
        float *to = fsdp->kind == FSDP_FROZEN ? u->frozen : u->master;
        return device->dev->copy(device, stream, to + at, values, (size_t)count * sizeof *values,
                                 err);
    }
    dtype_from_f32(act, values, converted, (size_t)count);
    size_t size = dtype_bytes(act);
    return device->dev->copy(device, stream, (char *)u->frozen + (size_t)at * size, converted,
                             (size_t)count * size, err);
}

static int weights_load_piece(struct fsdp *fsdp, int64_t unit, const struct safetensors *st,
                              const struct fsdp_piece *piece, float *chunk, struct stream *stream,
                              struct err *err)
{
    const struct safetensors_entry *entry = safetensors_find(st, piece->row->name);
    for (int64_t at = 0; at < piece->count; at += WEIGHTS_CHUNK_ELEMENTS) {
        int64_t left = piece->count - at;
        int64_t count = left < WEIGHTS_CHUNK_ELEMENTS ? left : WEIGHTS_CHUNK_ELEMENTS;
        TRY(safetensors_read_f32(st, entry, piece->row_element + at, count, chunk, err));
        TRY(weights_put(fsdp, unit, piece->shard_element + at, chunk, count,
                        chunk + WEIGHTS_CHUNK_ELEMENTS, stream, err));
        TRY(fsdp->device->dev->sync(fsdp->device, stream, err)); /* chunk is read again */
    }
    return 0;
}

int weights_load(struct fsdp *fsdp, const char *model_dir, struct stream *stream, struct err *err)
{
    CLEANUP(weights_close) struct safetensors *st = NULL;
    TRY(safetensors_open_dir(model_dir, &st, err));
    TRY(weights_check(fsdp->shape, st, model_dir, err));
    if (fsdp->coll->rank == 0) /* the others need not read it too */
        TRY(weights_check_tied(fsdp->shape, st, model_dir, err));
    CLEANUP(mem_free_ptr) float *chunk = mem_new((size_t)2 * WEIGHTS_CHUNK_ELEMENTS, sizeof *chunk);
    if (chunk == NULL)
        return mem_fail(err, (size_t)2 * WEIGHTS_CHUNK_ELEMENTS * sizeof *chunk, "a tensor chunk");
    for (int64_t unit = 0; unit < fsdp->unit_count; unit++) {
        int64_t row = fsdp->units[unit].row_first;
        struct fsdp_piece piece;
        while (fsdp_next_piece(fsdp, unit, &row, &piece))
            TRY(weights_load_piece(fsdp, unit, st, &piece, chunk, stream, err));
    }
    fsdp_weights_changed(fsdp);
    return 0;
}

int weights_random(struct fsdp *fsdp, struct stream *stream, struct err *err)
{
    CLEANUP(mem_free_ptr) float *chunk = mem_new((size_t)2 * WEIGHTS_CHUNK_ELEMENTS, sizeof *chunk);
    if (chunk == NULL)
        return mem_fail(err, (size_t)2 * WEIGHTS_CHUNK_ELEMENTS * sizeof *chunk, "a tensor chunk");
    for (uint64_t i = 0; i < WEIGHTS_CHUNK_ELEMENTS; i++)
        chunk[i] = 0.02f * rng_normal(1, RNG_STREAM_INIT, i);
    for (int64_t unit = 0; unit < fsdp->unit_count; unit++)
        for (int64_t at = 0; at < fsdp->units[unit].shard; at += WEIGHTS_CHUNK_ELEMENTS) {
            int64_t left = fsdp->units[unit].shard - at;
            TRY(weights_put(fsdp, unit, at, chunk,
                            left < WEIGHTS_CHUNK_ELEMENTS ? left : WEIGHTS_CHUNK_ELEMENTS,
                            chunk + WEIGHTS_CHUNK_ELEMENTS, stream, err));
        }
    fsdp_weights_changed(fsdp);
    return fsdp->device->dev->sync(fsdp->device, stream, err); /* chunk is on its way until then */
}

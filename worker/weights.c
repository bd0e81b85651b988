/* weights: see weights.h. Reads go through a bounded host buffer. */
#include "worker/weights.h"

#include "common/mem.h"
#include "common/safetensors.h"

#include <string.h>

enum { WEIGHTS_CHUNK_ELEMENTS = 1 << 20 }; /* 4 MiB of host memory: large enough to stream */

static void weights_close(struct safetensors **st)
{
    safetensors_free(*st);
}

/* A tied head in the file must be the embedding. */
static int weights_check_tied(const struct model_shape *shape, const struct safetensors *st,
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

int weights_check(const struct model_shape *shape, const struct safetensors *st,
                  const char *model_dir, struct err *err)
{
    for (int64_t i = 0; i < shape->row_count; i++) {
        const struct model_shape_row *row = &shape->rows[i];
        const struct safetensors_entry *entry = safetensors_find(st, row->name);
        if (entry == NULL)
            return err_set(err, ERR_MODEL, "%s: tensor %s is missing%s", model_dir, row->name,
                           row->kind == MODEL_TENSOR_HEAD
                               ? "; set tie_word_embeddings if it is the embedding"
                               : "");
        bool same = entry->dims == row->dims && entry->shape[0] == row->rows &&
                    (row->dims == 1 || entry->shape[1] == row->cols);
        if (!same)
            return err_set(err, ERR_MODEL,
                           "%s: tensor %s has %lld elements in %d dimensions; config.json makes "
                           "it [%lld, %lld]",
                           model_dir, row->name, (long long)entry->elements, (int)entry->dims,
                           (long long)row->rows, (long long)row->cols);
    }
    return weights_check_tied(shape, st, model_dir, err);
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
        float *to = fsdp->units[unit].master + piece->shard_element + at;
        TRY(fsdp->device->dev->copy(fsdp->device, stream, to, chunk, (size_t)count * sizeof *chunk,
                                    err));
        TRY(fsdp->device->dev->sync(fsdp->device, stream, err)); /* chunk is read again */
    }
    return 0;
}

int weights_load(struct fsdp *fsdp, const char *model_dir, struct stream *stream, struct err *err)
{
    CLEANUP(weights_close) struct safetensors *st = NULL;
    TRY(safetensors_open_dir(model_dir, &st, err));
    TRY(weights_check(fsdp->shape, st, model_dir, err));
    CLEANUP(mem_free_ptr) float *chunk = mem_new(WEIGHTS_CHUNK_ELEMENTS, sizeof *chunk);
    if (chunk == NULL)
        return mem_fail(err, WEIGHTS_CHUNK_ELEMENTS * sizeof *chunk, "a tensor chunk");
    for (int64_t unit = 0; unit < fsdp->unit_count; unit++) {
        int64_t row = fsdp->units[unit].row_first;
        struct fsdp_piece piece;
        while (fsdp_next_piece(fsdp, unit, &row, &piece))
            TRY(weights_load_piece(fsdp, unit, st, &piece, chunk, stream, err));
    }
    fsdp_weights_changed(fsdp);
    return 0;
}

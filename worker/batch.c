/* batch: see batch.h. The host side holds the whole sequence, so that documents are known wherever
 * they were cut; a rank's rows are at most two runs of it. */
#include "worker/batch.h"

#include "common/mem.h"
#include "common/must.h"

#include <string.h>

int batch_init(struct batch *batch, const struct mesh *mesh, struct mesh_place place,
               int64_t tokens_max, struct arena *arena, struct err *err)
{
    must(tokens_max > 0);
    struct mesh_seq seq = mesh_seq_make(mesh, tokens_max);
    *batch = (struct batch){.mesh = *mesh, .place = place, .tokens_max = seq.padded};
    size_t count = (size_t)seq.padded;
    batch->doc_rows = mem_new(count + 2, sizeof *batch->doc_rows);
    batch->ring_doc_rows = mem_new(count + 2, sizeof *batch->ring_doc_rows);
    batch->host_ids = mem_new(3 * count, sizeof *batch->host_ids);
    batch->host_losses = mem_new((size_t)seq.shard, sizeof *batch->host_losses);
    if (batch->doc_rows == NULL || batch->ring_doc_rows == NULL || batch->host_ids == NULL ||
        batch->host_losses == NULL) {
        batch_done(batch);
        return mem_fail(err, count * 28 + (size_t)seq.shard * sizeof(float), "a batch of tokens");
    }
    batch->host_targets = batch->host_ids + seq.padded;
    batch->host_positions = batch->host_targets + seq.padded;
    int64_t bytes = seq.shard * (int64_t)sizeof(int32_t);
    TRY(arena_reserve(arena, MEM_IDS, 0, &batch->ids, bytes, err));
    TRY(arena_reserve(arena, MEM_TARGETS, 0, &batch->targets, bytes, err));
    return arena_reserve(arena, MEM_POSITIONS, 0, &batch->positions, bytes, err);
}

int batch_want_numbers(struct batch *batch, struct arena *arena, struct err *err)
{
    size_t count = (size_t)batch->tokens_max;
    int64_t shard = mesh_seq_make(&batch->mesh, batch->tokens_max).shard;
    batch->host_numbers = mem_new(count, sizeof *batch->host_numbers);
    if (batch->host_numbers == NULL)
        return mem_fail(err, count * sizeof *batch->host_numbers, "a batch of tokens");
    return arena_reserve(arena, MEM_NUMBERS, 0, &batch->numbers,
                         shard * (int64_t)sizeof *batch->numbers, err);
}

void batch_done(struct batch *batch)
{
    mem_free(batch->host_numbers);
    mem_free(batch->host_losses);
    mem_free(batch->doc_rows);
    mem_free(batch->ring_doc_rows);
    mem_free(batch->host_ids);
    *batch = (struct batch){0};
}

void batch_clear(struct batch *batch)
{
    batch->tokens = batch->trained = batch->documents = 0;
    batch->doc_rows[0] = 0;
}

void batch_append(struct batch *batch, const int32_t *ids, const uint8_t *trained, int64_t count)
{
    must(count > 0 && batch->tokens + count <= batch->tokens_max);
    int64_t at = batch->tokens;
    memcpy(batch->host_ids + at, ids, (size_t)count * sizeof *ids);
    for (int64_t t = 0; t < count; t++) {
        bool target = t + 1 < count && trained[t + 1] != 0;
        batch->host_targets[at + t] = target ? ids[t + 1] : -1;
        batch->host_positions[at + t] = (int32_t)t;
        batch->trained += target;
        if (batch->host_numbers != NULL)
            batch->host_numbers[at + t] = batch->number++;
    }
    batch->tokens += count;
    batch->doc_rows[++batch->documents] = batch->tokens;
}

static void batch_pad(struct batch *batch)
{
    for (int64_t t = batch->tokens; t < batch->seq.padded; t++) {
        batch->host_ids[t] = 0;
        batch->host_targets[t] = -1;
        batch->host_positions[t] = (int32_t)(t - batch->tokens);
        if (batch->host_numbers != NULL)
            batch->host_numbers[t] = 0;
    }
    batch->ring_documents = batch->documents + (batch->seq.padded > batch->tokens);
    batch->doc_rows[batch->ring_documents] = batch->seq.padded;
    for (int64_t s = 0; s <= batch->ring_documents; s++)
        batch->ring_doc_rows[s] =
            mesh_seq_rows_before(&batch->seq, batch->place.ring, batch->doc_rows[s]);
}

int batch_upload(struct batch *batch, struct device *device, struct stream *stream, struct err *err)
{
    batch->seq = mesh_seq_make(&batch->mesh, batch->tokens);
    batch->rows = batch->seq.shard;
    batch_pad(batch);
    struct mesh_span spans[2];
    int count = mesh_seq_spans(&batch->seq, batch->place.ring, batch->place.ulysses, spans);
    for (int i = 0; i < count; i++) {
        const struct mesh_span *span = &spans[i];
        size_t bytes = (size_t)span->count * sizeof(int32_t);
        TRY(device->dev->copy(device, stream, batch->ids + span->row,
                              batch->host_ids + span->position, bytes, err));
        TRY(device->dev->copy(device, stream, batch->targets + span->row,
                              batch->host_targets + span->position, bytes, err));
        TRY(device->dev->copy(device, stream, batch->positions + span->row,
                              batch->host_positions + span->position, bytes, err));
        if (batch->host_numbers != NULL)
            TRY(device->dev->copy(device, stream, batch->numbers + span->row,
                                  batch->host_numbers + span->position,
                                  (size_t)span->count * sizeof *batch->numbers, err));
    }
    return 0;
}

void batch_document(const struct batch *batch, int64_t position, int64_t *ret_first,
                    int64_t *ret_end)
{
    must(position >= 0 && position < batch->seq.padded);
    int64_t low = 0, high = batch->ring_documents; /* doc_rows[low] <= position < doc_rows[high] */
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (batch->doc_rows[middle] <= position)
            low = middle;
        else
            high = middle;
    }
    *ret_first = batch->doc_rows[low];
    *ret_end = batch->doc_rows[high];
}

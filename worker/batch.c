/* batch: see batch.h. */
#include "worker/batch.h"

#include "common/mem.h"
#include "common/must.h"

#include <string.h>

int batch_init(struct batch *batch, int64_t tokens_max, struct arena *arena, struct err *err)
{
    must(tokens_max > 0);
    *batch = (struct batch){.tokens_max = tokens_max};
    size_t count = (size_t)tokens_max;
    batch->doc_rows = mem_new(count + 1, sizeof *batch->doc_rows);
    batch->host_ids = mem_new(3 * count, sizeof *batch->host_ids);
    if (batch->doc_rows == NULL || batch->host_ids == NULL) {
        batch_done(batch);
        return mem_fail(err, count * 20, "a batch of tokens");
    }
    batch->host_targets = batch->host_ids + tokens_max;
    batch->host_positions = batch->host_targets + tokens_max;
    int64_t bytes = tokens_max * (int64_t)sizeof(int32_t);
    TRY(arena_reserve(arena, ARENA_WORKSPACE, &batch->ids, bytes, err));
    TRY(arena_reserve(arena, ARENA_WORKSPACE, &batch->targets, bytes, err));
    return arena_reserve(arena, ARENA_WORKSPACE, &batch->positions, bytes, err);
}

void batch_done(struct batch *batch)
{
    mem_free(batch->doc_rows);
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
    }
    batch->tokens += count;
    batch->doc_rows[++batch->documents] = batch->tokens;
}

int batch_upload(struct batch *batch, struct device *device, struct stream *stream, struct err *err)
{
    size_t bytes = (size_t)batch->tokens * sizeof(int32_t);
    TRY(device->dev->copy(device, stream, batch->ids, batch->host_ids, bytes, err));
    TRY(device->dev->copy(device, stream, batch->targets, batch->host_targets, bytes, err));
    return device->dev->copy(device, stream, batch->positions, batch->host_positions, bytes, err);
}

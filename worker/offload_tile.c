/* offload_tile: rows of tensors that lie on the host, on the device; see offload.h. A pass walks a
 * tensor from its first row: what it reads was written before by other passes, on the stream that
 * goes out, which is waited for at the start. While a tile is worked on the next one is read into
 * another chunk; the third is that of the tile before, on its way back. */
#include "worker/exposed.h"
#include "worker/offload_private.h"

static struct offload_chunk *tile_next(struct offload_ring *ring)
{
    struct offload_chunk *chunk = &ring->chunks[ring->next];
    ring->next = (ring->next + 1) % ring->count;
    return chunk;
}

/* Fills a chunk from [from, from + bytes) of the place, once it is free. */
static int tile_fill(struct offload *offload, struct offload_chunk *chunk,
                     const struct offload_place *place, int64_t from, int64_t bytes,
                     struct err *err)
{
    const struct device_ops *dev = offload->device->dev;
    TRY(dev->event_wait(offload->device, chunk->free, offload->in, err));
    TRY(offload_fetch(offload, place, from, chunk->memory, bytes, err));
    return dev->event_record(offload->device, chunk->full, offload->in, err);
}

/* The span's rows of the place, which may have been read ahead; then ahead the next, of `after`
 * past its last: NULL, or where the next pass of this ring walks. */
static int tile_take(struct offload *offload, struct offload_ring *ring,
                     const struct offload_place *place, const struct offload_place *after,
                     const struct offload_span *span, int64_t row_bytes, struct stream *stream,
                     struct offload_tile *ret, struct err *err)
{
    TRY(exposed_enter(offload->device->exposed, EXPOSED_OFFLOAD_IN, stream, err));
    struct offload_chunk *chunk = ring->ahead;
    if (chunk == NULL) {
        chunk = tile_next(ring);
        TRY(tile_fill(offload, chunk, place, span->row * row_bytes, span->rows * row_bytes, err));
    }
    int64_t next = span->row + span->rows, left = span->all - next;
    if (left == 0) {
        place = after;
        next = 0;
        left = span->all;
    }
    ring->ahead = place != NULL ? tile_next(ring) : NULL;
    if (place != NULL)
        TRY(tile_fill(offload, ring->ahead, place, next * row_bytes,
                      (left < span->tile ? left : span->tile) * row_bytes, err));
    TRY(offload->device->dev->event_wait(offload->device, chunk->full, stream, err));
    *ret = (struct offload_tile){.data = chunk->memory, .chunk = chunk};
    return exposed_leave(offload->device->exposed, stream, err);
}

static void *tile_at(const struct offload *offload, const void *x, int64_t row)
{
    return (char *)(uintptr_t)x + row * offload->options.x_row_bytes;
}

int offload_tile_read(struct offload *offload, enum offload_ring_id ring, const void *x,
                      const struct offload_span *span, struct stream *stream,
                      struct offload_tile *ret, struct err *err)
{
    *ret = (struct offload_tile){.data = tile_at(offload, x, span->row)};
    if (!offload->options.streamed)
        return 0;
    const struct offload_place place = {.away = true, .memory = (void *)(uintptr_t)x};
    if (span->row == 0)
        TRY(offload_follow(offload, offload->out, offload->in, err));
    return tile_take(offload, &offload->rings[ring], &place, NULL, span,
                     offload->options.x_row_bytes, stream, ret, err);
}

int offload_tile_fresh(struct offload *offload, enum offload_ring_id ring, void *x,
                       const struct offload_span *span, struct stream *stream,
                       struct offload_tile *ret, struct err *err)
{
    *ret = (struct offload_tile){.data = tile_at(offload, x, span->row)};
    if (!offload->options.streamed)
        return 0;
    TRY(exposed_enter(offload->device->exposed, EXPOSED_OFFLOAD_OUT, stream, err));
    ret->chunk = tile_next(&offload->rings[ring]);
    ret->data = ret->chunk->memory;
    TRY(offload->device->dev->event_wait(offload->device, ret->chunk->free, stream, err));
    return exposed_leave(offload->device->exposed, stream, err);
}

int offload_tile_write(struct offload *offload, const struct offload_tile *tile, void *x,
                       const struct offload_span *span, struct stream *stream, struct err *err)
{
    if (tile->chunk == NULL)
        return 0;
    TRY(exposed_enter(offload->device->exposed, EXPOSED_OFFLOAD_OUT, stream, err));
    TRY(offload_follow(offload, stream, offload->out, err));
    TRY(offload_copy(offload, offload->out, tile_at(offload, x, span->row), tile->data,
                     span->rows * offload->options.x_row_bytes, err));
    TRY(offload->device->dev->event_record(offload->device, tile->chunk->free, offload->out, err));
    return exposed_leave(offload->device->exposed, stream, err);
}

int offload_tile_done(struct offload *offload, const struct offload_tile *tile,
                      struct stream *stream, struct err *err)
{
    if (tile->chunk == NULL)
        return 0;
    return offload->device->dev->event_record(offload->device, tile->chunk->free, stream, err);
}

int offload_tile_o(struct offload *offload, int64_t layer, bool goes_on,
                   const struct offload_span *span, struct stream *stream, struct offload_tile *ret,
                   struct err *err)
{
    const struct offload_tensor *o = &offload->tensors[OFFLOAD_O];
    bool next = goes_on && offload_is_away(offload, OFFLOAD_O, layer + 1);
    return tile_take(offload, &offload->rings[OFFLOAD_RING_O], &o->places[layer],
                     next ? &o->places[layer + 1] : NULL, span, o->row_bytes, stream, ret, err);
}

/* chunks: see chunks.h. Slots take turns. A slot is filled when it was emptied, worked on when it
 * is filled, emptied when it was worked on: each is an event that the next stage's stream waits
 * for, so that three streams run at once and the host never waits. An event that was never recorded
 * holds nobody up. */
#include "worker/chunks.h"

#include "common/must.h"
#include "worker/exposed.h"

static int chunks_open(struct chunks *chunks, struct err *err)
{
    struct device *device = chunks->device;
    const struct device_ops *dev = device->dev;
    TRY(dev->stream_new(device, &chunks->in, err));
    TRY(dev->stream_new(device, &chunks->out, err));
    TRY(dev->event_new(device, &chunks->begun, err));
    for (int slot = 0; slot < CHUNKS_SLOTS; slot++) {
        TRY(dev->event_new(device, &chunks->filled[slot], err));
        TRY(dev->event_new(device, &chunks->worked[slot], err));
        TRY(dev->event_new(device, &chunks->emptied[slot], err));
    }
    return 0;
}

int chunks_init(struct chunks *chunks, struct device *device, int64_t elements, unsigned kinds,
                struct arena *arena, struct err *err)
{
    must(elements > 0);
    *chunks = (struct chunks){.device = device, .elements = elements};
    for (int kind = 0; kind < CHUNK_KINDS; kind++)
        for (int slot = 0; slot < CHUNKS_SLOTS && (kinds >> kind & 1); slot++)
            TRY(arena_reserve(arena, MEM_STATE_CHUNK, kind * CHUNKS_SLOTS + slot,
                              &chunks->buffers[kind][slot], elements * (int64_t)sizeof(float),
                              err));
    return chunks_open(chunks, err);
}

void chunks_done(struct chunks *chunks)
{
    if (chunks->device == NULL)
        return;
    const struct device_ops *dev = chunks->device->dev;
    for (int slot = 0; slot < CHUNKS_SLOTS; slot++) {
        dev->event_free(chunks->device, chunks->filled[slot]);
        dev->event_free(chunks->device, chunks->worked[slot]);
        dev->event_free(chunks->device, chunks->emptied[slot]);
    }
    dev->event_free(chunks->device, chunks->begun);
    dev->stream_free(chunks->device, chunks->out);
    dev->stream_free(chunks->device, chunks->in);
    *chunks = (struct chunks){0};
}

int chunks_begin(struct chunks *chunks, struct stream *stream, struct err *err)
{
    const struct device_ops *dev = chunks->device->dev;
    TRY(dev->event_record(chunks->device, chunks->begun, stream, err));
    return dev->event_wait(chunks->device, chunks->begun, chunks->in, err);
}

int chunks_in(struct chunks *chunks, struct chunk *chunk, struct stream *stream, struct err *err)
{
    const struct device_ops *dev = chunks->device->dev;
    int slot = chunks->slot;
    must(chunk->count > 0 && chunk->count <= chunks->elements);
    TRY(exposed_enter(chunks->device->exposed, EXPOSED_STATES, stream, err));
    TRY(dev->event_wait(chunks->device, chunks->emptied[slot], chunks->in, err));
    for (int kind = 0; kind < CHUNK_KINDS; kind++) {
        if (chunk->host[kind] == NULL)
            continue;
        float *buffer = chunks->buffers[kind][slot];
        must(buffer != NULL);
        TRY(dev->copy(chunks->device, chunks->in, buffer, chunk->host[kind],
                      (size_t)chunk->count * sizeof(float), err));
        chunk->device[kind] = buffer;
    }
    TRY(dev->event_record(chunks->device, chunks->filled[slot], chunks->in, err));
    TRY(dev->event_wait(chunks->device, chunks->filled[slot], stream, err));
    return exposed_leave(chunks->device->exposed, stream, err);
}

int chunks_out(struct chunks *chunks, const struct chunk *chunk, struct stream *stream,
               struct err *err)
{
    const struct device_ops *dev = chunks->device->dev;
    int slot = chunks->slot;
    TRY(exposed_enter(chunks->device->exposed, EXPOSED_STATES, stream, err));
    TRY(dev->event_record(chunks->device, chunks->worked[slot], stream, err));
    TRY(dev->event_wait(chunks->device, chunks->worked[slot], chunks->out, err));
    for (int kind = 0; kind < CHUNK_KINDS; kind++)
        if (chunk->back >> kind & 1)
            TRY(dev->copy(chunks->device, chunks->out, chunk->host[kind],
                          chunks->buffers[kind][slot], (size_t)chunk->count * sizeof(float), err));
    TRY(dev->event_record(chunks->device, chunks->emptied[slot], chunks->out, err));
    chunks->slot = (slot + 1) % CHUNKS_SLOTS;
    return exposed_leave(chunks->device->exposed, stream, err);
}

int chunks_end(struct chunks *chunks, struct stream *stream, struct err *err)
{
    const struct device_ops *dev = chunks->device->dev;
    TRY(exposed_enter(chunks->device->exposed, EXPOSED_STATES, stream, err));
    for (int slot = 0; slot < CHUNKS_SLOTS; slot++)
        TRY(dev->event_wait(chunks->device, chunks->emptied[slot], stream, err));
    return exposed_leave(chunks->device->exposed, stream, err);
}

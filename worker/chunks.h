/* chunks: what lies in host memory passes through the device in chunks, so that nothing of it is
 * ever whole on the device (ZeRO-Offload, arXiv 2101.06840): the next chunk comes in and the last
 * one goes out while one is worked on.
 *
 *     TRY(chunks_begin(chunks, stream, err));
 *     for (int64_t at = 0; at < count; at += chunks->elements) {
 *         struct chunk chunk = {.count = min(count - at, chunks->elements), .back = 1u << CHUNK_M};
 *         chunk.host[CHUNK_M] = m + at;
 *         TRY(chunks_in(chunks, &chunk, stream, err));
 *         ... work queued on `stream` reads and writes chunk.device[CHUNK_M] ...
 *         TRY(chunks_out(chunks, &chunk, stream, err));
 *     }
 *     TRY(chunks_end(chunks, stream, err));
 *
 * A pass comes after all that `stream` had before its begin, and what comes on `stream` after the
 * end finds host memory written. Every in is followed by its out. The work may run on
 * chunks->in itself, beside `stream`: then a pass has no end, and whoever needs what it made waits
 * for that stream. Passes may follow each other without waiting; two are never open at once.
 *
 * What `stream` waits for in these calls is booked as EXPOSED_STATES (exposed.h), or as what the
 * caller has entered.
 *
 * Two buffers of each kind in use lie in the arena; streams and events are made by chunks_init(),
 * none later. */
#pragma once
#include "common/err.h"
#include "worker/arena.h"
#include "worker/device.h"

#include <stdint.h>

enum chunk_kind { CHUNK_MASTER, CHUNK_M, CHUNK_V, CHUNK_GRAD, CHUNK_KINDS };

struct chunk {
    int64_t count;              /* elements, at most chunks->elements */
    float *host[CHUNK_KINDS];   /* where they lie; NULL: the kind takes no part */
    unsigned back;              /* bit k: kind k is written back */
    float *device[CHUNK_KINDS]; /* chunks_in() fills those that take part */
};

enum { CHUNKS_SLOTS = 2 };

struct chunks {
    struct device *device;                     /* borrowed; NULL: not opened */
    int64_t elements;                          /* of a chunk */
    float *buffers[CHUNK_KINDS][CHUNKS_SLOTS]; /* device (elements) */
    struct stream *in, *out;                   /* copies to the device and back */
    struct event *begun;
    struct event *filled[CHUNKS_SLOTS];  /* on `in`: a slot's chunk is there */
    struct event *worked[CHUNKS_SLOTS];  /* on the stream that works: it is done with it */
    struct event *emptied[CHUNKS_SLOTS]; /* on `out`: it is written back */
    int slot;                            /* the next chunk's */
};

/* kinds: bit k for each kind that will take part. */
int chunks_init(struct chunks *chunks, struct device *device, int64_t elements, unsigned kinds,
                struct arena *arena, struct err *err);
void chunks_done(struct chunks *chunks); /* what is under way must have ended; zeroed: nothing */

int chunks_begin(struct chunks *chunks, struct stream *stream, struct err *err);
int chunks_in(struct chunks *chunks, struct chunk *chunk, struct stream *stream, struct err *err);
int chunks_out(struct chunks *chunks, const struct chunk *chunk, struct stream *stream,
               struct err *err);
int chunks_end(struct chunks *chunks, struct stream *stream, struct err *err);

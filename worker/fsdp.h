/* fsdp: parameters, gradients and optimizer states sharded over all ranks, unit by unit (ZeRO-3,
 * arXiv 1910.02054; FSDP, arXiv 2304.11277).
 *
 * Units are model_shape's: the embedding, each layer, the final norm with the untied head. A unit
 * is a flat buffer, padded so that it divides; shard i holds elements [i * shard, (i + 1) * shard)
 * of it: fp32 master, Adam's m and v, and the fp32 gradient summed over ranks and micro-steps.
 *
 * Forward and backward of a unit:
 *     TRY(fsdp_gather(fsdp, unit, stream, &weights, err));   [act], the whole unit
 *     TRY(fsdp_prefetch(fsdp, next, stream, err));           under way while this one is worked on
 *     TRY(fsdp_grad_begin(fsdp, unit, stream, &grad, err));  fp32, the whole unit, to be += into
 *     ...
 *     TRY(fsdp_grad_end(fsdp, unit, stream, err));           reduce-scatter under way
 *     ... work that needs no gradient ...
 *     TRY(fsdp_grad_settle(fsdp, stream, err));              added to the shard
 * after the last micro-step:
 *     TRY(fsdp_grad_finish(fsdp, stream, err));
 *
 * Two layers stay gathered at once (ping-pong): a gather may overwrite the one before the last, and
 * so a prefetch. The embedding and the last unit have buffers of their own, whose contents last
 * only while they are used (common/mem_plan.h): they are gathered anew each time. A layer's
 * gradient is reduced beside the work up to the next one's begin, which settles it: to let that run
 * on would take a second full gradient. The other units' are settled as they end, for their buffers
 * are others' after that. One gradient is open at a time, and beside it the last unit's when the
 * embeddings are tied (the final norm's, open while the head adds to the embedding's). All ranks
 * make the same calls in the same order, whether or not they have tokens.
 *
 * With one shard (one rank, or `fsdp: false`: every rank holds everything) nothing is gathered: on
 * a device whose [act] is fp32 the weights are the master itself, gradients accumulate in place
 * and fsdp_grad_finish() sums them over ranks once a step.
 *
 * Where the plan has states on the host (`states`: host_optimizer, host) they never lie on the
 * device: master, m and v (and the gradient) are host memory, pass in chunks (chunks.h), and a
 * gather, a reduction or an update works on what is passing. A gather then runs on a stream of its
 * own, and with one shard, too. A unit's gradient has a buffer of its own and is drained to the
 * host as soon as it is reduced. Numbers are those of states on the device, bit for bit on the CPU.
 *
 * Under LoRA there are two of these: the base's, frozen (shards in [act] and nothing beside them;
 * no gradient is begun), and the adapters', a unit for each layer (common/lora.h).
 *
 * Files: fsdp.c (gathers, gradients, walks), fsdp_memory.c (table and buffers). */
#pragma once
#include "common/err.h"
#include "common/model_shape.h"
#include "worker/arena.h"
#include "worker/chunks.h"
#include "worker/coll.h"
#include "worker/device.h"

#include <stdbool.h>
#include <stdint.h>

enum fsdp_kind {
    FSDP_MODEL,   /* a model's units, trained */
    FSDP_FROZEN,  /* the same, not trained */
    FSDP_ADAPTERS /* a unit for each layer and none beside, trained */
};

struct fsdp_unit {
    int64_t shard;     /* elements of a shard, a multiple of MODEL_SHAPE_ALIGN */
    int64_t row_first; /* rows of the shape's table: [row_first, row_last) */
    int64_t row_last;
    float *master;   /* (shard) */
    float *m, *v;    /* (shard) Adam's moments */
    float *grad;     /* (shard) of the step at work */
    void *frozen;    /* [act] (shard) instead of these four */
    bool grad_begun; /* grad holds something of this step; without a buffer of its own, always */
};

enum fsdp_slot { FSDP_LAYER_A, FSDP_LAYER_B, FSDP_EMBED, FSDP_TAIL, FSDP_SLOTS };

struct fsdp {
    const struct model_shape *shape; /* borrowed, as are the next two */
    struct device *device;
    struct coll *coll;
    enum fsdp_kind kind;     /* to be set between fsdp_init and fsdp_reserve */
    int64_t shards;          /* the world, or 1 */
    int64_t index;           /* of this rank's shard */
    struct fsdp_unit *units; /* (unit_count) */
    int64_t unit_count;
    void *gathered[FSDP_SLOTS];        /* [act] (the unit); unused when weights are the master */
    int64_t gathered_unit[FSDP_SLOTS]; /* which unit each holds, -1 none */
    int gathered_last; /* the layers' slot used last: the other is overwritten next */
    bool under_way;    /* a gather is started and not waited for */
    int64_t reducing;  /* the unit whose gradient is not settled; -1: none */
    float *grad_layer, *grad_embed, *grad_tail; /* (the unit) open gradients; unused in place */
    float *unit_f32;       /* (largest unit) what fsdp_gather_master and fsdp_gather_grad return */
    unsigned on_host;      /* bit k: states of chunk_kind k lie on the host */
    struct chunks chunks;  /* through which they pass */
    struct event *fetched; /* on chunks.in: a gather's part of this rank is there */
};

/* A run of a shard's elements that belong to one tensor: padding lies in no piece. */
struct fsdp_piece {
    const struct model_shape_row *row;
    int64_t row_element;   /* first element, within the tensor */
    int64_t shard_element; /* the same, within the shard */
    int64_t count;
};

int fsdp_init(struct fsdp *fsdp, const struct model_shape *shape, struct device *device,
              struct coll *coll, bool sharded, struct err *err);
void fsdp_done(struct fsdp *fsdp);
/* Declares every buffer; moments and gradients are to be zeroed by fsdp_clear() after the commit.
 */
int fsdp_reserve(struct fsdp *fsdp, struct arena *arena, struct err *err);
int fsdp_clear(struct fsdp *fsdp, struct stream *stream, struct err *err);

/* *ret_weights: [act] (unit elements). A layer's: valid until the second gather of a layer from
 * now, or the first prefetch of one after the next gather. The others': for the work at hand. */
int fsdp_gather(struct fsdp *fsdp, int64_t unit, struct stream *stream, const void **ret_weights,
                struct err *err);
/* Starts the gather of a unit that is wanted next; what was gathered last stays. */
int fsdp_prefetch(struct fsdp *fsdp, int64_t unit, struct stream *stream, struct err *err);
int fsdp_grad_begin(struct fsdp *fsdp, int64_t unit, struct stream *stream, float **ret_grad,
                    struct err *err);
int fsdp_grad_end(struct fsdp *fsdp, int64_t unit, struct stream *stream, struct err *err);
/* Waits for what grad_end started; fine when there is nothing. */
int fsdp_grad_settle(struct fsdp *fsdp, struct stream *stream, struct err *err);
int fsdp_grad_finish(struct fsdp *fsdp, struct stream *stream, struct err *err);
/* Of a new step. Gradients that are then not begun are undefined. */
int fsdp_grad_zero(struct fsdp *fsdp, struct stream *stream, struct err *err);
/* The masters changed: what is gathered is stale. Not between prefetch and gather. */
void fsdp_weights_changed(struct fsdp *fsdp);

/* The whole unit's fp32 master, or its gradient, on every rank; for export, checkpoints and tests.
 * Between steps, or after a step's backward: the buffer is another's while layers are at work. With
 * one shard it is the shard, where that lies. */
int fsdp_gather_master(struct fsdp *fsdp, int64_t unit, struct stream *stream,
                       const float **ret_master, struct err *err);
int fsdp_gather_grad(struct fsdp *fsdp, int64_t unit, struct stream *stream, const float **ret_grad,
                     struct err *err);

/* The pieces of this rank's shard of a unit, in order. *row starts at units[unit].row_first;
 * false when there are no more. */
bool fsdp_next_piece(const struct fsdp *fsdp, int64_t unit, int64_t *row,
                     struct fsdp_piece *ret_piece);

/* Work on some of a piece's elements: chunk->count of them, of each kind at chunk->device[kind]. */
typedef int fsdp_work(void *context, const struct fsdp_piece *piece, const struct chunk *chunk,
                      struct stream *stream, struct err *err);
/* Calls `work` for all elements of this rank's shards, piece by piece in order, in chunks that are
 * multiples of MEM_CHUNK_ALIGN but a piece's last; kinds on the host pass through the device.
 * kinds, back: bit k for each kind that is wanted, that is changed. */
int fsdp_each(struct fsdp *fsdp, unsigned kinds, unsigned back, fsdp_work *work, void *context,
              struct stream *stream, struct err *err);

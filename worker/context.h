/* context: attention of a layer over the whole sequence, of which this rank holds a shard: from x
 * to O, and from the gradient of the residual stream to dq, dk, dv.
 *
 * One schedule serves every kind. It goes in stages of u of the query heads that each Ulysses rank
 * owns (common/mesh.h): project them for this rank's tokens, exchange tokens for heads, attention,
 * exchange back. One stage is plain Ulysses, more is Untied Ulysses (arXiv 2602.21196), whose stage
 * buffers are used again and again; with C = 1 nothing is exchanged; with ring ranks attention goes
 * around the ring (ring.h). C = R = 1 in one stage is plain attention.
 *
 * Two views of a stage tensor of n heads a rank:
 *   token side: this rank's T tokens, the heads of all ranks: (C, n, T, d), in the order of
 * sending: what goes to a rank, or came from it, is one piece; head side: this rank's heads, all S'
 * = C*T ring rows: (n, S', d), each head in one piece. One all-to-all takes a tensor from one to
 * the other. With C = 1 both are one buffer, (T, n, d), so that a projection is one product.
 *
 * overlap: what a stage needs is projected and sent before the attention of the stage before it
 * runs, and waited for after it. That takes a second set of stage buffers and buffers of their own
 * for what is on its way; every number stays the same. Without several stages of an exchange it
 * does nothing.
 *
 * Files: context.c (buffers), context_heads.c (projections, exchanges), context_fwd.c,
 * context_bwd.c, ring.c. */
#pragma once
#include "common/err.h"
#include "common/mesh.h"
#include "common/model_config.h"
#include "worker/arena.h"
#include "worker/coll.h"
#include "worker/device.h"

#include <stdbool.h>
#include <stdint.h>

struct layer;

struct context_options {
    struct mesh mesh;
    struct mesh_place place;
    int64_t heads_per_stage; /* u; 0: all of a rank's */
    bool overlap;
    struct coll *ulysses; /* NULL when C is 1 */
    struct coll *ring;    /* NULL when R is 1 */
};

/* What a stage works on, head side; S' = C*T. None of q, k, v where layers keep them. */
struct context_set {
    void *q;      /* [act] (u, S', d) after RoPE */
    void *k, *v;  /* [act] (kv_staged, S', d) */
    void *back;   /* [act] (u, S', d) dO; what came back of O or dq; a ring step's O */
    float *delta; /* (u, S') dO times O; a ring step's LSE */
};
/* The same on its way out, token side. */
struct context_out {
    void *q, *k, *v; /* [act] */
    void *d_o;       /* [act] */
    float *delta;
};

struct context {
    struct device *device; /* borrowed, as are config and the communicators */
    const struct model_config *config;
    struct context_options options;
    struct mesh_heads heads;
    bool overlap;               /* asked for, and of effect */
    struct context_set sets[2]; /* stages and K/V heads in turns under overlap, else the first */
    struct context_out out;     /* C > 1: delta; all of it under overlap, see context_outgoing */
    void *send;                 /* [act] (u, S', d) O and dq going back; C > 1 */
    float *dq;                  /* (u, S', d); under ring O in forward */
    float *dk, *dv;             /* (kv_staged, S', d) sums over the stages of a K/V head */
    /* R > 1: what is passed on */
    void *ring_k[2], *ring_v[2]; /* [act] (kv_staged, S', d); the second where R > 2 */
    float *ring_dk, *ring_dv;    /* (kv_staged, S', d) */
};

/* tokens_max: T. keep_inputs: each layer brings its own q, k, v. */
int context_init(struct context *context, const struct context_options *options,
                 const struct model_config *config, int64_t tokens_max, bool keep_inputs,
                 struct device *device, struct arena *arena, struct err *err);

/* Sends each peer one number, so that a communicator takes now what it takes of the device for its
 * peers. The buffers have memory, and nothing in them yet. */
int context_connect(const struct context *context, struct stream *stream, struct err *err);

/* acts->o and acts->lse from acts->x; acts->q, k, v where the layer keeps them. */
int context_forward(const struct layer *layer, struct err *err);
/* From model->dx (d_mid): dq over acts->o, and model->dk, dv, all before RoPE's inverse. `ready`: a
 * context_forward of this layer was the last thing done. */
int context_backward(const struct layer *layer, bool ready, struct err *err);

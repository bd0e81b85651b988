/* lora: adapters of a layer's projections at work (common/lora_shape.h: what they are). The base's
 * projection is done first; then
 *
 *     forward    u = drop(x) A^T;  y += s u B^T
 *     backward   dB += s dy^T u;  du = s dy B;  dA += du^T drop(x);  dx += drop'(du A)
 *
 * by tiles of tokens, like the projections. Two are not done with a tile. q, k and v: stages of
 * attention take the heads they need of B, so u of all tokens is made once a pass (lora_inputs).
 * o: stages take the heads they need of A, so du of all tokens is made once (lora_bwd_out).
 *
 * Nothing of the base has a gradient: layer->grad is NULL, and only the gradients of adapters are
 * summed. Adapters are sharded, gathered and reduced as the base's layers are, by an fsdp of their
 * own.
 *
 * Dropout draws from (seed, step, layer, module, the token's number in its step, feature): the same
 * under every layout and when a layer is computed again. There is none where the batch has no step
 * (evaluation). */
#pragma once
#include "common/err.h"
#include "common/job_spec.h"
#include "common/model_shape.h"
#include "worker/arena.h"
#include "worker/fsdp.h"
#include "worker/ops.h"

#include <stdbool.h>
#include <stdint.h>

struct layer;

struct lora_module {
    bool adapted;
    int64_t in, out; /* features */
    int64_t a, b;    /* elements from the start of the layer's unit: A (r, in), B (out, r) */
};

struct lora {
    const struct job_spec *spec; /* borrowed */
    struct model_shape shape;    /* of the adapters */
    struct fsdp fsdp;
    float scale; /* s */
    struct lora_module modules[JOB_lora_module_COUNT];
    void *qkv[JOB_lora_module_V + 1]; /* [act] (T, r) u of q, k and v */
    void *o;                          /* [act] (T, r) du of o */
    void *u, *du;                     /* [act] (tile, r) */
    void *x;                          /* [act] (tile, widest input), with dropout */
};

/* base: the model's table. */
int lora_init(struct lora *lora, const struct model_shape *base, const struct job_spec *spec,
              struct device *device, struct coll *coll, struct err *err);
void lora_done(struct lora *lora);
/* tokens: T; tile: tokens of an MLP tile. */
int lora_reserve(struct lora *lora, int64_t tokens, int64_t tile, struct arena *arena,
                 struct err *err);
/* The adapters before the first step. */
int lora_start(struct lora *lora, struct stream *stream, struct err *err);

bool lora_adapts(const struct layer *layer, enum job_lora_module module);
bool lora_drops(const struct layer *layer);
/* Dropout of a module's input, rows [row, row + rows); the caller adds what heads lie where. */
struct ops_dropout lora_dropout(const struct layer *layer, enum job_lora_module module, int64_t row,
                                int64_t rows);
/* A and B of a layer's gathered adapters. */
const void *lora_a(const struct layer *layer, enum job_lora_module module);
const void *lora_b(const struct layer *layer, enum job_lora_module module);

/* For rows [row, row + rows) of the batch; nothing where the module has no adapter. x, y, dy, dx
 * are the projection's, rows dense: y += and dx +=. */
int lora_fwd(const struct layer *layer, enum job_lora_module module, int64_t row, int64_t rows,
             const void *x, void *y, struct err *err);
int lora_bwd(const struct layer *layer, enum job_lora_module module, int64_t row, int64_t rows,
             const void *x, const void *dy, void *dx, struct err *err);
/* u of q, k and v, all tokens, from acts->x. */
int lora_inputs(const struct layer *layer, struct err *err);
/* Gradients of o's adapter from these rows of O and of d_mid, and their du. */
int lora_bwd_out(const struct layer *layer, int64_t row, int64_t rows, const void *o,
                 const void *d_mid, struct err *err);

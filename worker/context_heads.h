/* context_heads: the heads of one stage on their way between tokens and heads (context.h), for
 * context_fwd.c and context_bwd.c. */
#pragma once
#include "common/model_shape.h"
#include "worker/layer.h"
#include "worker/ops.h"

/* The heads of one projection that a stage works on. */
struct context_heads {
    int64_t total;  /* heads of the model: H or K */
    int64_t groups; /* Ulysses ranks with different heads: C, or fewer where ranks share them */
    int64_t first;  /* of each group's own heads */
    int64_t count;  /* of each group */
};
struct context_heads context_heads_q(const struct layer *layer, const struct mesh_stage *stage);
struct context_heads context_heads_kv(const struct layer *layer, const struct mesh_stage *stage);

/* A stage tensor as it lies on the head side, from ring row `row`. */
struct ops_heads context_head_side(const struct layer *layer, const void *data, int64_t heads,
                                   int64_t row);
struct ops_heads context_head_side_f32(const struct layer *layer, const float *data, int64_t heads,
                                       int64_t row);

/* Rows [row, row + rows) of the projection by a module's weight (and bias), and its adapter, after
 * lora_inputs: x is (rows, h); out is token side. */
int context_heads_project(const struct layer *layer, const struct context_heads *heads,
                          enum job_lora_module module, enum model_tensor bias, const void *x,
                          int64_t row, int64_t rows, void *out, struct err *err);
/* Rows [row, row + rows) of dO of the heads from those of d_mid (rows, h), through Wo, and its
 * adapter, after lora_bwd_out; out is token side. */
int context_heads_project_back(const struct layer *layer, const struct context_heads *heads,
                               const void *d_mid, int64_t row, int64_t rows, void *out,
                               struct err *err);
/* delta = rowsum(O * dO): O is (T, H, d), dO and delta are token side. */
int context_heads_delta(const struct layer *layer, const struct context_heads *heads,
                        const void *d_o, float *delta, struct err *err);
/* The norm over each head where the model has it, then RoPE, in place, token side. */
int context_heads_turn(const struct layer *layer, const struct context_heads *heads,
                       enum model_tensor norm, void *x, struct err *err);

/* Token side to head side: `width` elements a row and head; there once context_wait returns. With C
 * = 1 both are one: nothing. */
int context_heads_send(const struct layer *layer, const struct context_heads *heads,
                       const void *send, void *recv, int64_t width, enum dtype dtype,
                       struct err *err);
/* Head side to token side, from every rank: (C, count, T, d), also where ranks share heads. */
int context_heads_return(const struct layer *layer, const struct context_heads *heads,
                         const void *send, void *recv, enum dtype dtype, struct err *err);
/* What returned to its place in out (T, total, d), summed over ranks that share a head. */
int context_heads_unpack(const struct layer *layer, const struct context_heads *heads,
                         const void *in, bool in_f32, void *out, struct err *err);

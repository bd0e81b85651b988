/* layer: one transformer layer over a batch, forward (layer_fwd.c) and backward (layer_bwd.c).
 *
 *     q, k, v = RoPE(qk-norm(norm(x) * Wqkv)); o = attention(q, k, v)        context.h
 *     x_mid = x + o * Wo
 *     y = x_mid + (silu(n * Wgate) * (n * Wup)) * Wdown, n = norm(x_mid) */
#pragma once
#include "worker/model.h"

struct layer {
    struct model *model;
    const struct batch *batch;
    struct stream *stream;
    bool replayed;       /* O is where the layer keeps it */
    bool goes_on;        /* and the next layer is replayed, too */
    int64_t keep_output; /* the input as which y is kept away, tile by tile; 0: it is not */
    const struct model_acts *acts;
    int64_t index;        /* 0 .. L-1 */
    bool backward;        /* in its backward pass */
    const void *weights;  /* [act] the layer's unit */
    float *grad;          /* fp32, the same layout; backward only; NULL where it is frozen */
    const void *adapters; /* [act] the layer's unit of adapters (lora.h), where there are any */
    float *adapter_grad;  /* fp32, the same layout; backward only */
};

/* y from x and o (attention's part is context_forward); x_mid, gate and up are left when kept. y
 * may be x. */
int layer_fwd_mlp(const struct layer *layer, void *y, struct err *err);
/* x_mid of a tile from its rows of x and o, its norm in tile_norm and tile_rstd; may be x. */
int layer_fwd_mid(const struct layer *layer, int64_t row, int64_t rows, const void *x,
                  const void *o, void *x_mid, struct err *err);
/* y = norm of x, with one of the layer's weights; rstd may be NULL. */
int layer_norm(const struct layer *layer, enum model_tensor weight, const void *x, void *y,
               int64_t rows, int64_t width, float *rstd, struct err *err);
/* gate and up of a tile from tile_norm. */
int layer_fwd_gate_up(const struct layer *layer, int64_t row, int64_t rows, void *gate, void *up,
                      struct err *err);
/* model->dx: dy on entry, dx on return; gradients += into layer->grad. acts hold what forward left;
 * x and o at least, of which o is spent. attention_ready: as context_backward's. */
int layer_bwd(const struct layer *layer, bool attention_ready, struct err *err);

/* A linear of this layer over rows of its batch. */
/* The projection by a module's weight, and its adapter: y = (or += when accumulate) of rows [row,
 * row + rows). */
int layer_project(const struct layer *layer, enum job_lora_module module, enum model_tensor bias,
                  int64_t row, int64_t rows, const void *x, void *y, bool accumulate,
                  struct err *err);
struct linear layer_linear(const struct layer *layer, int64_t rows, enum model_tensor weight,
                           enum model_tensor bias);
/* The tile that starts at `row`. */
struct offload_span layer_span(const struct layer *layer, int64_t row);
/* Where gate and up of the tile starting at row lie. */
void layer_gate_up(const struct layer *layer, int64_t row, void **ret_gate, void **ret_up);

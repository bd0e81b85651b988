/* layer: one transformer layer over a batch, forward (layer_fwd.c) and backward (layer_bwd.c).
 *
 *     q, k, v = RoPE(qk-norm(norm(x) * Wqkv)); o = attention(q, k, v); x_mid = x + o * Wo
 *     y = x_mid + (silu(n * Wgate) * (n * Wup)) * Wdown, n = norm(x_mid) */
#pragma once
#include "worker/model.h"

struct layer {
    struct model *model;
    const struct batch *batch;
    struct stream *stream;
    const struct model_acts *acts;
    const void *weights; /* [act] the layer's unit */
    float *grad;         /* fp32, the same layout; backward only */
};

/* q, k, v, o, lse from x. */
int layer_fwd_attention(const struct layer *layer, struct err *err);
/* x_mid from x and o; y from x_mid; gate and up are left when kept. */
int layer_fwd_mlp(const struct layer *layer, void *y, struct err *err);
/* The rows [row, row + rows) of x_mid, their norm in tile_norm and tile_rstd. */
int layer_fwd_mid(const struct layer *layer, int64_t row, int64_t rows, struct err *err);
/* gate and up of a tile from tile_norm; its place in *ret_gate, *ret_up. */
int layer_fwd_gate_up(const struct layer *layer, int64_t rows, void *gate, void *up,
                      struct err *err);
/* model->dx: dy on entry, dx on return; gradients += into layer->grad. acts hold what forward
 * left (recompute: after another layer_fwd_attention). */
int layer_bwd(const struct layer *layer, struct err *err);

/* A linear of this layer over rows of its batch. */
struct linear layer_linear(const struct layer *layer, int64_t rows, enum model_tensor weight,
                           enum model_tensor bias);
/* Rows of the tile that starts at `row`. */
int64_t layer_tile(const struct layer *layer, int64_t row);
/* Where gate and up of the tile starting at row lie. */
void layer_gate_up(const struct layer *layer, int64_t row, void **ret_gate, void **ret_up);

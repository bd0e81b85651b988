/* layer_bwd: see layer.h. model->dx carries the gradient of the residual stream: the MLP half turns
 * dy into d_mid, the attention half d_mid into dx, each adding its branch's part to it. */
#include "worker/layer.h"
#include "worker/linear.h"
#include "worker/ops.h"

#include <math.h>

static int layer_bwd_norm(const struct layer *layer, enum model_tensor weight, const void *x,
                          const float *rstd, const void *dy, void *dx, bool accumulate,
                          int64_t rows, int64_t width, struct err *err)
{
    const struct model *model = layer->model;
    struct ops_rmsnorm_bwd norm = {.rows = rows,
                                   .width = width,
                                   .eps = (float)model->shape->config.rms_norm_eps,
                                   .x = x,
                                   .weight = model_weight(model, layer->weights, weight),
                                   .rstd = rstd,
                                   .dy = dy,
                                   .dx = dx,
                                   .accumulate = accumulate,
                                   .dweight = model_grad(model, layer->grad, weight)};
    return model->device->ops->rmsnorm_bwd(model->device, layer->stream, &norm, err);
}

/* One projection: weight and bias gradients from its input in tile_norm, and the part of the
 * input's gradient. */
static int layer_bwd_linear(const struct layer *layer, int64_t rows, enum model_tensor weight,
                            enum model_tensor bias, const void *x, const void *dy, void *dx,
                            bool accumulate, struct err *err)
{
    const struct model *model = layer->model;
    struct linear linear = layer_linear(layer, rows, weight, MODEL_TENSOR_COUNT);
    float *dbias = bias == MODEL_TENSOR_COUNT ? NULL : model_grad(model, layer->grad, bias);
    TRY(linear_dw(&linear, dy, x, model_grad(model, layer->grad, weight), dbias, err));
    return linear_dx(&linear, dy, dx, accumulate, err);
}

/* x_mid's norm of a tile into tile_norm and tile_rstd; under recompute x_mid itself first. */
static int layer_bwd_mid(const struct layer *layer, int64_t row, int64_t rows, struct err *err)
{
    const struct model *model = layer->model;
    if (model->options.recompute_input)
        return layer_fwd_mid(layer, row, rows, err);
    const struct model_config *c = &model->shape->config;
    struct ops_rmsnorm norm = {.rows = rows,
                               .width = c->hidden_size,
                               .eps = (float)c->rms_norm_eps,
                               .x = model_at(model, layer->acts->x_mid, row * c->hidden_size),
                               .weight = model_weight(model, layer->weights, MODEL_TENSOR_LN2),
                               .y = model->tile_norm,
                               .rstd = model->tile_rstd};
    return model->device->ops->rmsnorm(model->device, layer->stream, &norm, err);
}

static int layer_bwd_mlp_tile(const struct layer *layer, int64_t row, int64_t rows, struct err *err)
{
    struct model *model = layer->model;
    struct device *device = model->device;
    const struct model_config *c = &model->shape->config;
    int64_t count = rows * c->intermediate_size;
    void *dy = model_at(model, model->dx, row * c->hidden_size);
    void *gate, *up;
    layer_gate_up(layer, row, &gate, &up);
    TRY(layer_bwd_mid(layer, row, rows, err));
    if (!model->keep_mlp)
        TRY(layer_fwd_gate_up(layer, rows, gate, up, err));
    struct ops_swiglu swiglu = {.count = count, .gate = gate, .up = up, .out = model->tile_act};
    TRY(device->ops->swiglu(device, layer->stream, &swiglu, err));
    TRY(layer_bwd_linear(layer, rows, MODEL_TENSOR_DOWN, MODEL_TENSOR_COUNT, model->tile_act, dy,
                         model->tile_dact, false, err));
    struct ops_swiglu_bwd swiglu_bwd = {
        .count = count, .gate = gate, .up = up, .dout = model->tile_dact, .dgate = gate, .dup = up};
    TRY(device->ops->swiglu_bwd(device, layer->stream, &swiglu_bwd, err));
    TRY(layer_bwd_linear(layer, rows, MODEL_TENSOR_GATE, MODEL_TENSOR_COUNT, model->tile_norm, gate,
                         model->tile_h, false, err));
    TRY(layer_bwd_linear(layer, rows, MODEL_TENSOR_UP, MODEL_TENSOR_COUNT, model->tile_norm, up,
                         model->tile_h, true, err));
    return layer_bwd_norm(layer, MODEL_TENSOR_LN2,
                          model_at(model, layer->acts->x_mid, row * c->hidden_size),
                          model->tile_rstd, model->tile_h, dy, true, rows, c->hidden_size, err);
}

/* d_o and dWo of all rows from d_mid, then attention's own gradients. */
static int layer_bwd_attention(const struct layer *layer, struct err *err)
{
    struct model *model = layer->model;
    const struct model_acts *acts = layer->acts;
    const struct model_config *c = &model->shape->config;
    int64_t d = c->head_dim, q_row = c->heads * d, kv_row = c->kv_heads * d;
    TRY(layer_bwd_linear(layer, layer->batch->tokens, MODEL_TENSOR_O, MODEL_TENSOR_COUNT, acts->o,
                         model->dx, model->d_o, false, err));
    struct ops_attention_bwd attention = {.q_heads = c->heads,
                                          .kv_heads = c->kv_heads,
                                          .rows = layer->batch->tokens,
                                          .head_dim = d,
                                          .documents = layer->batch->documents,
                                          .doc_rows = layer->batch->doc_rows,
                                          .scale = (float)(1.0 / sqrt((double)d)),
                                          .q = {acts->q, d, q_row},
                                          .k = {acts->k, d, kv_row},
                                          .v = {acts->v, d, kv_row},
                                          .o = {acts->o, d, q_row},
                                          .d_o = {model->d_o, d, q_row},
                                          .lse = acts->lse,
                                          .delta = model->delta,
                                          .dq = {model->dq, d, q_row},
                                          .dk = {model->dk, d, kv_row},
                                          .dv = {model->dv, d, kv_row}};
    return model->device->ops->attention_bwd(model->device, layer->stream, &attention, err);
}

/* Gradient of one of q, k of a tile: back through RoPE and the norm over heads, in place. */
static int layer_bwd_head_input(const struct layer *layer, int64_t row, int64_t rows, bool is_query,
                                struct err *err)
{
    struct model *model = layer->model;
    const struct model_config *c = &model->shape->config;
    int64_t heads = is_query ? c->heads : c->kv_heads;
    int64_t at = row * heads * c->head_dim;
    void *dx = model_at(model, is_query ? model->dq : model->dk, at);
    struct ops_rope rope = {.heads = heads,
                            .tokens = rows,
                            .head_dim = c->head_dim,
                            .head_stride = c->head_dim,
                            .token_stride = heads * c->head_dim,
                            .x = dx,
                            .positions = layer->batch->positions + row,
                            .inv_freq = model->inv_freq,
                            .scale = 1.0f,
                            .inverse = true};
    TRY(model->device->ops->rope(model->device, layer->stream, &rope, err));
    const void *raw = model_at(model, is_query ? layer->acts->q_raw : layer->acts->k_raw, at);
    if (raw == NULL)
        return 0;
    return layer_bwd_norm(layer, is_query ? MODEL_TENSOR_Q_NORM : MODEL_TENSOR_K_NORM, raw, NULL,
                          dx, dx, false, rows * heads, c->head_dim, err);
}

/* A tile of dq, dk, dv back through the projections and the first norm. */
static int layer_bwd_qkv_tile(const struct layer *layer, int64_t row, int64_t rows, struct err *err)
{
    struct model *model = layer->model;
    const struct model_config *c = &model->shape->config;
    int64_t q_at = row * c->heads * c->head_dim, kv_at = row * c->kv_heads * c->head_dim;
    const void *x = model_at(model, layer->acts->x, row * c->hidden_size);
    struct ops_rmsnorm norm = {.rows = rows,
                               .width = c->hidden_size,
                               .eps = (float)c->rms_norm_eps,
                               .x = x,
                               .weight = model_weight(model, layer->weights, MODEL_TENSOR_LN1),
                               .y = model->tile_norm,
                               .rstd = model->tile_rstd};
    TRY(model->device->ops->rmsnorm(model->device, layer->stream, &norm, err));
    TRY(layer_bwd_head_input(layer, row, rows, true, err));
    TRY(layer_bwd_head_input(layer, row, rows, false, err));
    TRY(layer_bwd_linear(layer, rows, MODEL_TENSOR_Q, MODEL_TENSOR_Q_BIAS, model->tile_norm,
                         model_at(model, model->dq, q_at), model->tile_h, false, err));
    TRY(layer_bwd_linear(layer, rows, MODEL_TENSOR_K, MODEL_TENSOR_K_BIAS, model->tile_norm,
                         model_at(model, model->dk, kv_at), model->tile_h, true, err));
    TRY(layer_bwd_linear(layer, rows, MODEL_TENSOR_V, MODEL_TENSOR_V_BIAS, model->tile_norm,
                         model_at(model, model->dv, kv_at), model->tile_h, true, err));
    return layer_bwd_norm(layer, MODEL_TENSOR_LN1, x, model->tile_rstd, model->tile_h,
                          model_at(model, model->dx, row * c->hidden_size), true, rows,
                          c->hidden_size, err);
}

int layer_bwd(const struct layer *layer, struct err *err)
{
    for (int64_t row = 0, rows; row < layer->batch->tokens; row += rows) {
        rows = layer_tile(layer, row);
        TRY(layer_bwd_mlp_tile(layer, row, rows, err));
    }
    TRY(layer_bwd_attention(layer, err));
    for (int64_t row = 0, rows; row < layer->batch->tokens; row += rows) {
        rows = layer_tile(layer, row);
        TRY(layer_bwd_qkv_tile(layer, row, rows, err));
    }
    return 0;
}

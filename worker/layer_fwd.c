/* layer_fwd: see layer.h. Everything but attention runs over tiles of tokens. */
#include "common/must.h"
#include "worker/layer.h"
#include "worker/linear.h"
#include "worker/ops.h"

#include <math.h>

struct linear layer_linear(const struct layer *layer, int64_t rows, enum model_tensor weight,
                           enum model_tensor bias)
{
    const struct model_shape_row *row = model_shape_find(layer->model->shape, weight, 0);
    must(row != NULL && row->dims == 2);
    return (struct linear){.device = layer->model->device,
                           .stream = layer->stream,
                           .rows = rows,
                           .n = row->rows,
                           .k = row->cols,
                           .weight = model_weight(layer->model, layer->weights, weight),
                           .bias = bias == MODEL_TENSOR_COUNT
                                       ? NULL
                                       : model_weight(layer->model, layer->weights, bias)};
}

int64_t layer_tile(const struct layer *layer, int64_t row)
{
    int64_t rows = layer->batch->tokens - row;
    return rows < layer->model->options.tile_mlp ? rows : layer->model->options.tile_mlp;
}

void layer_gate_up(const struct layer *layer, int64_t row, void **ret_gate, void **ret_up)
{
    const struct model *model = layer->model;
    int64_t at = model->keep_mlp ? row * model->shape->config.intermediate_size : 0;
    *ret_gate = model_at(model, layer->acts->gate, at);
    *ret_up = model_at(model, layer->acts->up, at);
}

static int layer_fwd_norm(const struct layer *layer, enum model_tensor weight, const void *x,
                          void *y, int64_t rows, int64_t width, float *rstd, struct err *err)
{
    const struct model *model = layer->model;
    struct ops_rmsnorm norm = {.rows = rows,
                               .width = width,
                               .eps = (float)model->shape->config.rms_norm_eps,
                               .x = x,
                               .weight = model_weight(model, layer->weights, weight),
                               .y = y,
                               .rstd = rstd};
    return model->device->ops->rmsnorm(model->device, layer->stream, &norm, err);
}

static int layer_fwd_rope(const struct layer *layer, void *x, int64_t heads, int64_t row,
                          int64_t rows, struct err *err)
{
    const struct model *model = layer->model;
    int64_t d = model->shape->config.head_dim;
    struct ops_rope rope = {.heads = heads,
                            .tokens = rows,
                            .head_dim = d,
                            .head_stride = d,
                            .token_stride = heads * d,
                            .x = x,
                            .positions = layer->batch->positions + row,
                            .inv_freq = model->inv_freq,
                            .scale = 1.0f};
    return model->device->ops->rope(model->device, layer->stream, &rope, err);
}

/* One of q, k: projection, norm over each head where the model has it, RoPE. */
static int layer_fwd_head_input(const struct layer *layer, int64_t row, int64_t rows, bool is_query,
                                struct err *err)
{
    const struct model *model = layer->model;
    const struct model_config *c = &model->shape->config;
    int64_t heads = is_query ? c->heads : c->kv_heads;
    int64_t at = row * heads * c->head_dim;
    void *y = model_at(model, is_query ? layer->acts->q : layer->acts->k, at);
    void *raw = model_at(model, is_query ? layer->acts->q_raw : layer->acts->k_raw, at);
    struct linear project = layer_linear(layer, rows, is_query ? MODEL_TENSOR_Q : MODEL_TENSOR_K,
                                         is_query ? MODEL_TENSOR_Q_BIAS : MODEL_TENSOR_K_BIAS);
    TRY(linear_forward(&project, model->tile_norm, raw != NULL ? raw : y, false, err));
    if (raw != NULL)
        TRY(layer_fwd_norm(layer, is_query ? MODEL_TENSOR_Q_NORM : MODEL_TENSOR_K_NORM, raw, y,
                           rows * heads, c->head_dim, NULL, err));
    return layer_fwd_rope(layer, y, heads, row, rows, err);
}

int layer_fwd_attention(const struct layer *layer, struct err *err)
{
    const struct model *model = layer->model;
    const struct model_config *c = &model->shape->config;
    const struct model_acts *acts = layer->acts;
    int64_t d = c->head_dim;
    for (int64_t row = 0, rows; row < layer->batch->tokens; row += rows) {
        rows = layer_tile(layer, row);
        TRY(layer_fwd_norm(layer, MODEL_TENSOR_LN1, model_at(model, acts->x, row * c->hidden_size),
                           model->tile_norm, rows, c->hidden_size, NULL, err));
        TRY(layer_fwd_head_input(layer, row, rows, true, err));
        TRY(layer_fwd_head_input(layer, row, rows, false, err));
        struct linear value = layer_linear(layer, rows, MODEL_TENSOR_V, MODEL_TENSOR_V_BIAS);
        TRY(linear_forward(&value, model->tile_norm,
                           model_at(model, acts->v, row * c->kv_heads * d), false, err));
    }
    struct ops_attention attention = {.q_heads = c->heads,
                                      .kv_heads = c->kv_heads,
                                      .rows = layer->batch->tokens,
                                      .head_dim = d,
                                      .documents = layer->batch->documents,
                                      .doc_rows = layer->batch->doc_rows,
                                      .scale = (float)(1.0 / sqrt((double)d)),
                                      .q = {acts->q, d, c->heads * d},
                                      .k = {acts->k, d, c->kv_heads * d},
                                      .v = {acts->v, d, c->kv_heads * d},
                                      .o = {acts->o, d, c->heads * d},
                                      .lse = acts->lse};
    return model->device->ops->attention(model->device, layer->stream, &attention, err);
}

int layer_fwd_mid(const struct layer *layer, int64_t row, int64_t rows, struct err *err)
{
    const struct model *model = layer->model;
    const struct model_config *c = &model->shape->config;
    struct linear out = layer_linear(layer, rows, MODEL_TENSOR_O, MODEL_TENSOR_COUNT);
    TRY(linear_forward(&out, model_at(model, layer->acts->o, row * c->heads * c->head_dim),
                       model->tile_h, false, err));
    struct ops_rmsnorm norm = {.rows = rows,
                               .width = c->hidden_size,
                               .eps = (float)c->rms_norm_eps,
                               .x = model->tile_h,
                               .residual = model_at(model, layer->acts->x, row * c->hidden_size),
                               .sum = model_at(model, layer->acts->x_mid, row * c->hidden_size),
                               .weight = model_weight(model, layer->weights, MODEL_TENSOR_LN2),
                               .y = model->tile_norm,
                               .rstd = model->tile_rstd};
    return model->device->ops->rmsnorm(model->device, layer->stream, &norm, err);
}

int layer_fwd_gate_up(const struct layer *layer, int64_t rows, void *gate, void *up,
                      struct err *err)
{
    struct linear project = layer_linear(layer, rows, MODEL_TENSOR_GATE, MODEL_TENSOR_COUNT);
    TRY(linear_forward(&project, layer->model->tile_norm, gate, false, err));
    project = layer_linear(layer, rows, MODEL_TENSOR_UP, MODEL_TENSOR_COUNT);
    return linear_forward(&project, layer->model->tile_norm, up, false, err);
}

int layer_fwd_mlp(const struct layer *layer, void *y, struct err *err)
{
    const struct model *model = layer->model;
    struct device *device = model->device;
    const struct model_config *c = &model->shape->config;
    for (int64_t row = 0, rows; row < layer->batch->tokens; row += rows) {
        rows = layer_tile(layer, row);
        void *gate, *up;
        layer_gate_up(layer, row, &gate, &up);
        TRY(layer_fwd_mid(layer, row, rows, err));
        TRY(layer_fwd_gate_up(layer, rows, gate, up, err));
        struct ops_swiglu swiglu = {
            .count = rows * c->intermediate_size, .gate = gate, .up = up, .out = model->tile_act};
        TRY(device->ops->swiglu(device, layer->stream, &swiglu, err));
        void *out = model_at(model, y, row * c->hidden_size);
        struct linear down = layer_linear(layer, rows, MODEL_TENSOR_DOWN, MODEL_TENSOR_COUNT);
        TRY(linear_forward(&down, model->tile_act, out, false, err));
        struct ops_add add = {.count = rows * c->hidden_size,
                              .a = out,
                              .b = model_at(model, layer->acts->x_mid, row * c->hidden_size),
                              .out = out};
        TRY(device->ops->add(device, layer->stream, &add, err));
    }
    return 0;
}

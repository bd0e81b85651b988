/* layer_bwd: see layer.h. model->dx carries the gradient of the residual stream: the MLP half turns
 * dy into d_mid, the attention half d_mid into dx, each adding its branch's part to it. dWo is one
 * product over all heads of a tile; dq then takes O's place. x is only read. Where layers use one
 * set in turn, what the next needs comes into the rows of x and O that a tile has been the last to
 * read. */
#include "common/lora_shape.h"
#include "common/rng.h"
#include "worker/layer.h"
#include "worker/linear.h"
#include "worker/lora.h"
#include "worker/ops.h"

/* What the gradient between layers is rounded by in the tile that starts at row, after one of the
 * layer's halves: what a token's attention adds to it is below half of its last place where a
 * sequence is long, and to the nearest it would be lost. */
static uint64_t layer_bwd_dither(const struct layer *layer, enum model_tensor norm, int64_t row)
{
    uint64_t stream = RNG_STREAM_ROUND + (uint64_t)(2 * layer->index + (norm == MODEL_TENSOR_LN2));
    uint64_t key = rng_u64(layer->model->options.seed, stream, (uint64_t)layer->batch->step);
    return rng_u64(key, RNG_STREAM_ROUND, (uint64_t)row) | 1;
}

static int layer_bwd_norm(const struct layer *layer, enum model_tensor weight, const void *x,
                          const float *rstd, const void *dy, void *dx, bool accumulate,
                          uint64_t dither, int64_t rows, int64_t width, struct err *err)
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
                                   .dither = dither,
                                   .dweight = model_grad(model, layer->grad, weight)};
    return model->device->ops->rmsnorm_bwd(model->device, layer->stream, &norm, err);
}

/* One projection of a tile: weight gradients from its input, and the part of the input's gradient.
 */
static int layer_bwd_linear(const struct layer *layer, enum job_lora_module module, int64_t row,
                            int64_t rows, const void *x, const void *dy, void *dx, bool accumulate,
                            struct err *err)
{
    const struct model *model = layer->model;
    enum model_tensor weight = lora_shape_tensor(module);
    struct linear linear = layer_linear(layer, rows, weight, MODEL_TENSOR_COUNT);
    TRY(linear_dw(&linear, dy, x, model_grad(model, layer->grad, weight), NULL, err));
    TRY(linear_dx(&linear, dy, dx, accumulate, err));
    return lora_bwd(layer, module, row, rows, x, dy, dx, err);
}

/* A tile's x_mid, from what is kept: itself, or x to which O is added again; *ret. Its norm in
 * tile_norm and tile_rstd. */
static int layer_bwd_mid(const struct layer *layer, int64_t row, int64_t rows, void *kept,
                         const void *o, void **ret, struct err *err)
{
    const struct model *model = layer->model;
    *ret = layer->acts->x_mid != NULL ? kept : model->tile_mid;
    if (layer->acts->x_mid == NULL)
        return layer_fwd_mid(layer, row, rows, kept, o, *ret, err);
    return layer_norm(layer, MODEL_TENSOR_LN2, *ret, model->tile_norm, rows,
                      model->shape->config.hidden_size, model->tile_rstd, err);
}

/* dy of a tile becomes d_mid, through the MLP. */
static int layer_bwd_mlp_tile(const struct layer *layer, int64_t row, int64_t rows,
                              const void *x_mid, void *dy, struct err *err)
{
    struct model *model = layer->model;
    struct device *device = model->device;
    const struct model_config *c = &model->shape->config;
    int64_t count = rows * c->intermediate_size;
    void *gate, *up;
    layer_gate_up(layer, row, &gate, &up);
    if (!model->keep_mlp)
        TRY(layer_fwd_gate_up(layer, row, rows, gate, up, err));
    struct ops_swiglu swiglu = {.count = count, .gate = gate, .up = up, .out = model->tile_act};
    TRY(device->ops->swiglu(device, layer->stream, &swiglu, err));
    TRY(layer_bwd_linear(layer, JOB_lora_module_DOWN, row, rows, model->tile_act, dy,
                         model->tile_dact, false, err));
    struct ops_swiglu_bwd swiglu_bwd = {
        .count = count, .gate = gate, .up = up, .dout = model->tile_dact, .dgate = gate, .dup = up};
    TRY(device->ops->swiglu_bwd(device, layer->stream, &swiglu_bwd, err));
    TRY(layer_bwd_linear(layer, JOB_lora_module_GATE, row, rows, model->tile_norm, gate,
                         model->tile_h, false, err));
    TRY(layer_bwd_linear(layer, JOB_lora_module_UP, row, rows, model->tile_norm, up, model->tile_h,
                         true, err));
    return layer_bwd_norm(layer, MODEL_TENSOR_LN2, x_mid, model->tile_rstd, model->tile_h, dy, true,
                          layer_bwd_dither(layer, MODEL_TENSOR_LN2, row), rows, c->hidden_size,
                          err);
}

static int layer_bwd_mlp(const struct layer *layer, int64_t row, struct err *err)
{
    struct model *model = layer->model;
    struct offload *offload = &model->offload;
    const struct model_config *c = &model->shape->config;
    const struct model_acts *acts = layer->acts;
    struct offload_span span = layer_span(layer, row);
    struct offload_tile kept, dx;
    TRY(offload_arrive(offload, &span, layer->stream, err));
    TRY(offload_tile_read(offload, OFFLOAD_RING_X, acts->x_mid != NULL ? acts->x_mid : acts->x,
                          &span, layer->stream, &kept, err));
    TRY(offload_tile_read(offload, OFFLOAD_RING_DX, model->dx, &span, layer->stream, &dx, err));
    const void *o = model_at(model, acts->o, row * c->heads * c->head_dim);
    void *x_mid;
    TRY(layer_bwd_mid(layer, row, span.rows, kept.data, o, &x_mid, err));
    TRY(layer_bwd_mlp_tile(layer, row, span.rows, x_mid, dx.data, err));
    TRY(offload_tile_done(offload, &kept, layer->stream, err));
    return offload_tile_write(offload, &dx, model->dx, &span, layer->stream, err);
}

/* dWo of a tile, and what o's adapter needs. */
static int layer_bwd_out(const struct layer *layer, int64_t row, struct err *err)
{
    struct model *model = layer->model;
    const struct model_config *c = &model->shape->config;
    struct offload_span span = layer_span(layer, row);
    struct offload_tile dx;
    TRY(offload_tile_read(&model->offload, OFFLOAD_RING_DX, model->dx, &span, layer->stream, &dx,
                          err));
    const void *o = model_at(model, layer->acts->o, row * c->heads * c->head_dim);
    struct linear out = layer_linear(layer, span.rows, MODEL_TENSOR_O, MODEL_TENSOR_COUNT);
    TRY(linear_dw(&out, dx.data, o, model_grad(model, layer->grad, MODEL_TENSOR_O),
                  model_grad(model, layer->grad, MODEL_TENSOR_O_BIAS), err));
    TRY(lora_bwd_out(layer, row, span.rows, o, dx.data, err));
    return offload_tile_done(&model->offload, &dx, layer->stream, err);
}

/* Gradient of one of q, k of a tile (rows of dq or dk; xn in tile_norm): back through RoPE and the
 * norm over heads, in place. What went into that norm is projected again. */
static int layer_bwd_head_input(const struct layer *layer, int64_t row, int64_t rows, bool is_query,
                                void *dx, struct err *err)
{
    struct model *model = layer->model;
    const struct model_config *c = &model->shape->config;
    int64_t heads = is_query ? c->heads : c->kv_heads;
    struct ops_rope rope = {.heads = heads,
                            .tokens = rows,
                            .head_dim = c->head_dim,
                            .head_stride = c->head_dim,
                            .token_stride = heads * c->head_dim,
                            .x = dx,
                            .positions = layer->batch->positions + row,
                            .inv_freq = model->inv_freq,
                            .scale = model_rope_scale(&c->rope),
                            .inverse = true};
    TRY(model->device->ops->rope(model->device, layer->stream, &rope, err));
    if (!c->qk_norm)
        return 0;
    TRY(layer_project(layer, is_query ? JOB_lora_module_Q : JOB_lora_module_K,
                      is_query ? MODEL_TENSOR_Q_BIAS : MODEL_TENSOR_K_BIAS, row, rows,
                      model->tile_norm, model->tile_raw, false, err));
    return layer_bwd_norm(layer, is_query ? MODEL_TENSOR_Q_NORM : MODEL_TENSOR_K_NORM,
                          model->tile_raw, NULL, dx, dx, false, 0, rows * heads, c->head_dim, err);
}

/* Columns of a tile's [dq dk dv], and the bias gradient. */
static int layer_bwd_gather(const struct layer *layer, int64_t rows, int64_t heads,
                            enum model_tensor bias, void *grad, int64_t column, struct err *err)
{
    struct model *model = layer->model;
    const struct ops *ops = model->device->ops;
    const struct model_config *c = &model->shape->config;
    int64_t d = c->head_dim, width = (c->heads + 2 * c->kv_heads) * d;
    struct ops_unpack unpack = {.heads = heads,
                                .rows = rows,
                                .head_dim = d,
                                .copies = 1,
                                .in = {grad, d, heads * d},
                                .out = {model_at(model, model->tile_qkv, column), d, width}};
    TRY(ops->unpack(model->device, layer->stream, &unpack, err));
    if (!c->qkv_bias || layer->grad == NULL)
        return 0;
    struct ops_colsum colsum = {
        .rows = rows, .width = heads * d, .x = grad, .out = model_grad(model, layer->grad, bias)};
    return ops->colsum(model->device, layer->stream, &colsum, err);
}

/* A tile of dq (which lies in o), dk, dv back through the projections, as one (model_shape.h: their
 * weights are one matrix), and the first norm. */
static int layer_bwd_qkv_tile(const struct layer *layer, const struct offload_span *span,
                              const void *x, void *dx, struct err *err)
{
    struct model *model = layer->model;
    int64_t row = span->row, rows = span->rows;
    const struct model_config *c = &model->shape->config;
    int64_t q_width = c->heads * c->head_dim, kv_width = c->kv_heads * c->head_dim;
    void *dq = model_at(model, layer->acts->o, row * q_width);
    void *dk = model_at(model, model->dk, row * kv_width);
    void *dv = model_at(model, model->dv, row * kv_width);
    TRY(layer_norm(layer, MODEL_TENSOR_LN1, x, model->tile_norm, rows, c->hidden_size,
                   model->tile_rstd, err));
    TRY(layer_bwd_head_input(layer, row, rows, true, dq, err));
    TRY(layer_bwd_head_input(layer, row, rows, false, dk, err));
    TRY(layer_bwd_gather(layer, rows, c->heads, MODEL_TENSOR_Q_BIAS, dq, 0, err));
    TRY(layer_bwd_gather(layer, rows, c->kv_heads, MODEL_TENSOR_K_BIAS, dk, q_width, err));
    TRY(layer_bwd_gather(layer, rows, c->kv_heads, MODEL_TENSOR_V_BIAS, dv, q_width + kv_width,
                         err));
    struct linear qkv = layer_linear(layer, rows, MODEL_TENSOR_Q, MODEL_TENSOR_COUNT);
    qkv.n = q_width + 2 * kv_width;
    TRY(linear_dx(&qkv, model->tile_qkv, model->tile_h, false, err));
    void *const grads[] = {dq, dk, dv};
    for (int m = JOB_lora_module_Q; m <= JOB_lora_module_V; m++)
        TRY(lora_bwd(layer, (enum job_lora_module)m, row, rows, model->tile_norm, grads[m],
                     model->tile_h, err));
    TRY(model_bring(model, layer->index - 1, OFFLOAD_ATTENTION, span, layer->stream, err));
    TRY(linear_dw(&qkv, model->tile_qkv, model->tile_norm,
                  model_grad(model, layer->grad, MODEL_TENSOR_Q), NULL, err));
    return layer_bwd_norm(layer, MODEL_TENSOR_LN1, x, model->tile_rstd, model->tile_h, dx, true,
                          layer_bwd_dither(layer, MODEL_TENSOR_LN1, row), rows, c->hidden_size,
                          err);
}

static int layer_bwd_qkv(const struct layer *layer, int64_t row, struct err *err)
{
    struct model *model = layer->model;
    struct offload *offload = &model->offload;
    struct offload_span span = layer_span(layer, row);
    struct offload_tile x, dx;
    TRY(offload_tile_read(offload, OFFLOAD_RING_X, layer->acts->x, &span, layer->stream, &x, err));
    TRY(offload_tile_read(offload, OFFLOAD_RING_DX, model->dx, &span, layer->stream, &dx, err));
    TRY(layer_bwd_qkv_tile(layer, &span, x.data, dx.data, err));
    TRY(offload_tile_done(offload, &x, layer->stream, err));
    TRY(offload_tile_write(offload, &dx, model->dx, &span, layer->stream, err));
    TRY(model_bring(model, layer->index - 1, OFFLOAD_INPUT, &span, layer->stream, err));
    return model_bring(model, layer->index - 1, OFFLOAD_MLP, &span, layer->stream, err);
}

int layer_bwd(const struct layer *layer, bool attention_ready, struct err *err)
{
    struct model *model = layer->model;
    arena_enter(model->arena, MEM_PHASE_BWD_MLP);
    for (int64_t row = 0; row < layer->batch->rows; row += model->options.tile_mlp)
        TRY(layer_bwd_mlp(layer, row, err));
    arena_enter(model->arena, MEM_PHASE_BWD_OUT);
    for (int64_t row = 0; row < layer->batch->rows; row += model->options.tile_mlp)
        TRY(layer_bwd_out(layer, row, err));
    TRY(context_backward(layer, attention_ready, err));
    arena_enter(model->arena, MEM_PHASE_BWD_QKV);
    for (int64_t row = 0; row < layer->batch->rows; row += model->options.tile_mlp)
        TRY(layer_bwd_qkv(layer, row, err));
    return 0;
}

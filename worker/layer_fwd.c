/* layer_fwd: see layer.h. Everything runs over tiles of tokens. x_mid that is not kept lies where y
 * will be, and the MLP's last product is added to it there. */
#include "common/lora_shape.h"
#include "common/must.h"
#include "worker/layer.h"
#include "worker/linear.h"
#include "worker/lora.h"
#include "worker/ops.h"

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

int layer_project(const struct layer *layer, enum job_lora_module module, enum model_tensor bias,
                  int64_t row, int64_t rows, const void *x, void *y, bool accumulate,
                  struct err *err)
{
    struct linear linear = layer_linear(layer, rows, lora_shape_tensor(module), bias);
    linear.accumulate = accumulate;
    TRY(linear_forward(&linear, x, y, false, err));
    return lora_fwd(layer, module, row, rows, x, y, err);
}

struct offload_span layer_span(const struct layer *layer, int64_t row)
{
    return model_span(layer->batch, row, layer->model->options.tile_mlp);
}

void layer_gate_up(const struct layer *layer, int64_t row, void **ret_gate, void **ret_up)
{
    const struct model *model = layer->model;
    int64_t at = model->keep_mlp ? row * model->shape->config.intermediate_size : 0;
    *ret_gate = model_at(model, layer->acts->gate, at);
    *ret_up = model_at(model, layer->acts->up, at);
}

int layer_norm(const struct layer *layer, enum model_tensor weight, const void *x, void *y,
               int64_t rows, int64_t width, float *rstd, struct err *err)
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

int layer_fwd_mid(const struct layer *layer, int64_t row, int64_t rows, const void *x,
                  const void *o, void *x_mid, struct err *err)
{
    const struct model *model = layer->model;
    const struct model_config *c = &model->shape->config;
    TRY(layer_project(layer, JOB_lora_module_O, MODEL_TENSOR_O_BIAS, row, rows, o, model->tile_h,
                      false, err));
    struct ops_rmsnorm norm = {.rows = rows,
                               .width = c->hidden_size,
                               .eps = (float)c->rms_norm_eps,
                               .x = model->tile_h,
                               .residual = x,
                               .sum = x_mid,
                               .weight = model_weight(model, layer->weights, MODEL_TENSOR_LN2),
                               .y = model->tile_norm,
                               .rstd = model->tile_rstd};
    return model->device->ops->rmsnorm(model->device, layer->stream, &norm, err);
}

int layer_fwd_gate_up(const struct layer *layer, int64_t row, int64_t rows, void *gate, void *up,
                      struct err *err)
{
    const void *x = layer->model->tile_norm;
    TRY(layer_project(layer, JOB_lora_module_GATE, MODEL_TENSOR_COUNT, row, rows, x, gate, false,
                      err));
    return layer_project(layer, JOB_lora_module_UP, MODEL_TENSOR_COUNT, row, rows, x, up, false,
                         err);
}

/* y += MLP(x_mid) of a tile, whose norm is in tile_norm. */
static int layer_fwd_mlp_tile(const struct layer *layer, int64_t row, int64_t rows, void *y,
                              struct err *err)
{
    const struct model *model = layer->model;
    struct device *device = model->device;
    void *gate, *up;
    layer_gate_up(layer, row, &gate, &up);
    TRY(layer_fwd_gate_up(layer, row, rows, gate, up, err));
    struct ops_swiglu swiglu = {.count = rows * model->shape->config.intermediate_size,
                                .gate = gate,
                                .up = up,
                                .out = model->tile_act};
    TRY(device->ops->swiglu(device, layer->stream, &swiglu, err));
    return layer_project(layer, JOB_lora_module_DOWN, MODEL_TENSOR_COUNT, row, rows,
                         model->tile_act, y, true, err);
}

/* O of a tile, from where it is. */
static int layer_fwd_o(const struct layer *layer, const struct offload_span *span,
                       struct offload_tile *ret, struct err *err)
{
    struct model *model = layer->model;
    const struct model_config *c = &model->shape->config;
    if (layer->replayed && offload_is_away(&model->offload, OFFLOAD_O, layer->index))
        return offload_tile_o(&model->offload, layer->index, layer->goes_on, span, layer->stream,
                              ret, err);
    *ret = (struct offload_tile){
        .data = model_at(model, layer->acts->o, span->row * c->heads * c->head_dim)};
    return 0;
}

/* The tile's x_mid into `at`, and where it is kept, there. */
static int layer_fwd_keep_mid(const struct layer *layer, const struct offload_span *span,
                              const void *x, void *at, struct err *err)
{
    struct model *model = layer->model;
    struct offload *offload = &model->offload;
    const struct device_ops *dev = model->device->dev;
    struct offload_tile o, mid = {.data = at};
    void *kept = layer->acts->x_mid;
    if (kept != NULL)
        TRY(offload_tile_fresh(offload, OFFLOAD_RING_DX, kept, span, layer->stream, &mid, err));
    TRY(layer_fwd_o(layer, span, &o, err));
    TRY(layer_fwd_mid(layer, span->row, span->rows, x, o.data, mid.data, err));
    TRY(offload_tile_done(offload, &o, layer->stream, err));
    if (kept == NULL)
        return 0;
    TRY(dev->copy(model->device, layer->stream, at, mid.data,
                  (size_t)(span->rows * offload->options.x_row_bytes), err));
    return offload_tile_write(offload, &mid, kept, span, layer->stream, err);
}

/* A tile of y is complete. */
static int layer_fwd_keep_output(const struct layer *layer, const struct offload_span *span,
                                 struct err *err)
{
    struct offload *offload = &layer->model->offload;
    if (layer->keep_output == 0)
        return 0;
    TRY(offload_ready(offload, OFFLOAD_INPUT, layer->stream, err));
    return offload_out(offload, OFFLOAD_INPUT, layer->keep_output, span, layer->stream, err);
}

int layer_fwd_mlp(const struct layer *layer, void *y, struct err *err)
{
    struct model *model = layer->model;
    int64_t width = model->shape->config.hidden_size;
    for (int64_t row = 0; row < layer->batch->rows; row += model->options.tile_mlp) {
        struct offload_span span = layer_span(layer, row);
        struct offload_tile x;
        TRY(offload_arrive(&model->offload, &span, layer->stream, err));
        TRY(offload_tile_read(&model->offload, OFFLOAD_RING_X, layer->acts->x, &span, layer->stream,
                              &x, err));
        void *at = x.chunk != NULL ? x.data : model_at(model, y, row * width);
        TRY(layer_fwd_keep_mid(layer, &span, x.data, at, err));
        TRY(layer_fwd_mlp_tile(layer, row, span.rows, at, err));
        TRY(offload_tile_write(&model->offload, &x, y, &span, layer->stream, err));
        TRY(layer_fwd_keep_output(layer, &span, err));
    }
    return 0;
}

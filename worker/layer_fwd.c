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

int64_t layer_tile(const struct layer *layer, int64_t row)
{
    int64_t rows = layer->batch->rows - row;
    return rows < layer->model->options.tile_mlp ? rows : layer->model->options.tile_mlp;
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

int layer_fwd_mid(const struct layer *layer, int64_t row, int64_t rows, void *x_mid,
                  struct err *err)
{
    const struct model *model = layer->model;
    const struct model_config *c = &model->shape->config;
    TRY(layer_project(layer, JOB_lora_module_O, MODEL_TENSOR_O_BIAS, row, rows,
                      model_at(model, layer->acts->o, row * c->heads * c->head_dim), model->tile_h,
                      false, err));
    struct ops_rmsnorm norm = {.rows = rows,
                               .width = c->hidden_size,
                               .eps = (float)c->rms_norm_eps,
                               .x = model->tile_h,
                               .residual = model_at(model, layer->acts->x, row * c->hidden_size),
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

int layer_fwd_mlp(const struct layer *layer, void *y, struct err *err)
{
    const struct model *model = layer->model;
    const struct device_ops *dev = model->device->dev;
    int64_t width = model->shape->config.hidden_size;
    for (int64_t row = 0, rows; row < layer->batch->rows; row += rows) {
        rows = layer_tile(layer, row);
        void *y_tile = model_at(model, y, row * width);
        void *kept = model_at(model, layer->acts->x_mid, row * width);
        TRY(layer_fwd_mid(layer, row, rows, kept != NULL ? kept : y_tile, err));
        if (kept != NULL)
            TRY(dev->copy(model->device, layer->stream, y_tile, kept,
                          (size_t)(rows * width) * dtype_bytes(dev->act_dtype), err));
        TRY(layer_fwd_mlp_tile(layer, row, rows, y_tile, err));
    }
    return 0;
}

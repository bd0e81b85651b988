/* head: see head.h. */
#include "worker/head.h"

#include "worker/linear.h"
#include "worker/ops.h"

static int head_tile(const struct head *head, int64_t row, int64_t rows, struct err *err)
{
    struct model *model = head->model;
    struct device *device = model->device;
    const struct model_config *c = &model->shape->config;
    bool train = head->train;
    const void *x = model_at(model, model->x_out, row * c->hidden_size);
    struct ops_rmsnorm norm = {.rows = rows,
                               .width = c->hidden_size,
                               .eps = (float)c->rms_norm_eps,
                               .x = x,
                               .weight = head->norm_weight,
                               .y = model->tile_norm,
                               .rstd = model->tile_rstd};
    TRY(device->ops->rmsnorm(device, head->stream, &norm, err));
    struct linear logits = {.device = device,
                            .stream = head->stream,
                            .rows = rows,
                            .n = c->vocab_size,
                            .k = c->hidden_size,
                            .weight = head->weight};
    TRY(linear_forward(&logits, model->tile_norm, model->tile_logits, true, err));
    struct ops_cross_entropy loss = {.rows = rows,
                                     .vocab = c->vocab_size,
                                     .logits = model->tile_logits,
                                     .targets = head->batch->targets + row,
                                     .scale = head->scale,
                                     .dlogits = train ? model->tile_dlogits : NULL,
                                     .loss_sum = model->loss_sum,
                                     .correct = model->correct,
                                     .row_loss = train ? NULL : model->row_loss + row};
    TRY(device->ops->cross_entropy(device, head->stream, &loss, err));
    if (!train)
        return 0;
    TRY(linear_dw(&logits, model->tile_dlogits, model->tile_norm, head->weight_grad, NULL, err));
    TRY(linear_dx(&logits, model->tile_dlogits, model->tile_h, false, err));
    struct ops_rmsnorm_bwd norm_bwd = {.rows = rows,
                                       .width = c->hidden_size,
                                       .eps = (float)c->rms_norm_eps,
                                       .x = x,
                                       .weight = head->norm_weight,
                                       .rstd = model->tile_rstd,
                                       .dy = model->tile_h,
                                       .dx = model_at(model, model->dx, row * c->hidden_size),
                                       .dweight = head->norm_grad};
    return device->ops->rmsnorm_bwd(device, head->stream, &norm_bwd, err);
}

int head_run(const struct head *head, struct err *err)
{
    int64_t tile = head->model->options.tile_loss;
    for (int64_t row = 0; row < head->batch->rows; row += tile) {
        int64_t left = head->batch->rows - row;
        TRY(head_tile(head, row, left < tile ? left : tile, err));
    }
    return 0;
}

/* head: see head.h. */
#include "worker/head.h"

#include "worker/linear.h"
#include "worker/ops.h"

/* x are the tile's rows of the last layer's output; dx, where it trains, of its gradient. */
static int head_tile(const struct head *head, int64_t row, int64_t rows, const void *x, void *dx,
                     struct err *err)
{
    struct model *model = head->model;
    struct device *device = model->device;
    const struct model_config *c = &model->shape->config;
    bool train = head->train;
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
                                     .row_loss = model->row_loss + row};
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
                                       .dx = dx,
                                       .dweight = head->norm_grad};
    return device->ops->rmsnorm_bwd(device, head->stream, &norm_bwd, err);
}

int head_run(const struct head *head, struct err *err)
{
    struct model *model = head->model;
    struct offload *offload = &model->offload;
    void *out = model_layer_output(model, model->shape->config.layers - 1);
    for (int64_t row = 0; row < head->batch->rows; row += model->options.tile_loss) {
        struct offload_span span = model_span(head->batch, row, model->options.tile_loss);
        struct offload_tile x, dx;
        TRY(offload_tile_read(offload, OFFLOAD_RING_X, out, &span, head->stream, &x, err));
        TRY(offload_tile_fresh(offload, OFFLOAD_RING_DX, model->dx, &span, head->stream, &dx, err));
        TRY(head_tile(head, row, span.rows, x.data, dx.data, err));
        TRY(offload_tile_done(offload, &x, head->stream, err));
        if (head->train)
            TRY(offload_tile_write(offload, &dx, model->dx, &span, head->stream, err));
    }
    return 0;
}

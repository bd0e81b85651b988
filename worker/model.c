/* model: see model.h. Buffers are declared in the arena by what they hold; the order of work is
 * embedding, layers, head, layers backwards, embedding. A unit is gathered just before its use. */
#include "worker/model.h"

#include "common/mem.h"
#include "common/must.h"
#include "worker/head.h"
#include "worker/layer.h"
#include "worker/ops.h"

void *model_at(const struct model *model, const void *base, int64_t elements)
{
    if (base == NULL)
        return NULL;
    return (char *)(uintptr_t)base + elements * (int64_t)dtype_bytes(model->device->dev->act_dtype);
}

const void *model_weight(const struct model *model, const void *unit, enum model_tensor kind)
{
    return model->offset[kind] < 0 ? NULL : model_at(model, unit, model->offset[kind]);
}

float *model_grad(const struct model *model, float *unit_grad, enum model_tensor kind)
{
    return model->offset[kind] < 0 ? NULL : unit_grad + model->offset[kind];
}

/* Tensors lie at the same place in every layer's unit. */
static void model_find_offsets(struct model *model)
{
    for (int kind = 0; kind < MODEL_TENSOR_COUNT; kind++)
        model->offset[kind] = -1;
    for (int64_t i = 0; i < model->shape->row_count; i++) {
        const struct model_shape_row *row = &model->shape->rows[i];
        must(row->layer <= 0 || model->offset[row->kind] == row->offset);
        model->offset[row->kind] = row->offset;
    }
}

static int model_reserve_act(struct model *model, struct arena *arena, enum arena_kind kind,
                             void *slot, int64_t elements, struct err *err)
{
    int64_t bytes = elements * (int64_t)dtype_bytes(model->device->dev->act_dtype);
    return arena_reserve(arena, kind, slot, bytes, err);
}

/* What a layer's backward reads beside x. */
static int model_reserve_kept(struct model *model, struct arena *arena, struct model_acts *acts,
                              struct err *err)
{
    const struct model_config *c = &model->shape->config;
    int64_t tokens = model->options.tokens_max;
    int64_t q = tokens * c->heads * c->head_dim, kv = tokens * c->kv_heads * c->head_dim;
    if (c->qk_norm) {
        TRY(model_reserve_act(model, arena, ARENA_ATTENTION, &acts->q_raw, q, err));
        TRY(model_reserve_act(model, arena, ARENA_ATTENTION, &acts->k_raw, kv, err));
    }
    TRY(model_reserve_act(model, arena, ARENA_ATTENTION, &acts->q, q, err));
    TRY(model_reserve_act(model, arena, ARENA_ATTENTION, &acts->k, kv, err));
    TRY(model_reserve_act(model, arena, ARENA_ATTENTION, &acts->v, kv, err));
    TRY(model_reserve_act(model, arena, ARENA_ATTENTION, &acts->o, q, err));
    TRY(arena_reserve(arena, ARENA_ATTENTION, &acts->lse,
                      tokens * c->heads * (int64_t)sizeof(float), err));
    return model_reserve_act(model, arena, ARENA_RESIDUAL, &acts->x_mid, tokens * c->hidden_size,
                             err);
}

static int model_reserve_layers(struct model *model, struct arena *arena, struct err *err)
{
    const struct model_config *c = &model->shape->config;
    int64_t residual = model->options.tokens_max * c->hidden_size;
    int64_t mlp = model->options.tile_mlp * c->intermediate_size;
    for (int64_t l = 0; l < c->layers; l++) {
        struct model_acts *acts = &model->acts[l];
        TRY(model_reserve_act(model, arena, ARENA_RESIDUAL, &acts->x, residual, err));
        if (!model->options.recompute_input)
            TRY(model_reserve_kept(model, arena, acts, err));
        if (model->keep_mlp) {
            TRY(model_reserve_act(model, arena, ARENA_TILES, &acts->gate, mlp, err));
            TRY(model_reserve_act(model, arena, ARENA_TILES, &acts->up, mlp, err));
        }
    }
    if (model->options.recompute_input)
        TRY(model_reserve_kept(model, arena, &model->shared, err));
    if (!model->keep_mlp) {
        TRY(model_reserve_act(model, arena, ARENA_TILES, &model->shared.gate, mlp, err));
        TRY(model_reserve_act(model, arena, ARENA_TILES, &model->shared.up, mlp, err));
    }
    return model_reserve_act(model, arena, ARENA_RESIDUAL, &model->x_out, residual, err);
}

static int model_reserve_backward(struct model *model, struct arena *arena, struct err *err)
{
    const struct model_config *c = &model->shape->config;
    int64_t tokens = model->options.tokens_max;
    int64_t q = tokens * c->heads * c->head_dim, kv = tokens * c->kv_heads * c->head_dim;
    TRY(model_reserve_act(model, arena, ARENA_RESIDUAL, &model->dx, tokens * c->hidden_size, err));
    TRY(model_reserve_act(model, arena, ARENA_ATTENTION, &model->d_o, q, err));
    TRY(model_reserve_act(model, arena, ARENA_ATTENTION, &model->dq, q, err));
    TRY(model_reserve_act(model, arena, ARENA_ATTENTION, &model->dk, kv, err));
    TRY(model_reserve_act(model, arena, ARENA_ATTENTION, &model->dv, kv, err));
    return arena_reserve(arena, ARENA_ATTENTION, &model->delta,
                         tokens * c->heads * (int64_t)sizeof(float), err);
}

static int model_reserve_tiles(struct model *model, struct arena *arena, struct err *err)
{
    const struct model_config *c = &model->shape->config;
    int64_t mlp = model->options.tile_mlp, loss = model->options.tile_loss;
    int64_t tile = mlp > loss ? mlp : loss;
    int64_t f32 = (int64_t)sizeof(float);
    TRY(model_reserve_act(model, arena, ARENA_TILES, &model->tile_norm, tile * c->hidden_size,
                          err));
    TRY(model_reserve_act(model, arena, ARENA_TILES, &model->tile_h, tile * c->hidden_size, err));
    TRY(arena_reserve(arena, ARENA_TILES, &model->tile_rstd, tile * f32, err));
    TRY(model_reserve_act(model, arena, ARENA_TILES, &model->tile_act, mlp * c->intermediate_size,
                          err));
    TRY(model_reserve_act(model, arena, ARENA_TILES, &model->tile_dact, mlp * c->intermediate_size,
                          err));
    TRY(arena_reserve(arena, ARENA_TILES, &model->tile_logits, loss * c->vocab_size * f32, err));
    if (model->device->dev->act_dtype != DTYPE_F32)
        TRY(model_reserve_act(model, arena, ARENA_TILES, &model->tile_dlogits, loss * c->vocab_size,
                              err));
    TRY(arena_reserve(arena, ARENA_WORKSPACE, &model->inv_freq, c->head_dim / 2 * f32, err));
    TRY(arena_reserve(arena, ARENA_WORKSPACE, &model->row_loss,
                      model->options.tokens_max * (int64_t)sizeof(float), err));
    TRY(arena_reserve(arena, ARENA_WORKSPACE, &model->loss_sum, (int64_t)sizeof(double), err));
    return arena_reserve(arena, ARENA_WORKSPACE, &model->correct, (int64_t)sizeof(int64_t), err);
}

static int64_t model_tile(int64_t wanted, int64_t otherwise, int64_t tokens_max)
{
    int64_t tile = wanted > 0 ? wanted : otherwise;
    return tile < tokens_max ? tile : tokens_max;
}

int model_init(struct model *model, const struct model_options *options, struct fsdp *fsdp,
               struct arena *arena, struct err *err)
{
    must(options->tokens_max > 0);
    *model = (struct model){
        .device = fsdp->device, .fsdp = fsdp, .shape = fsdp->shape, .options = *options};
    int64_t tokens = options->tokens_max;
    model->options.tile_mlp = model_tile(options->tile_mlp, tokens, tokens);
    model->options.tile_loss = model_tile(options->tile_loss, MODEL_TILE_LOSS_TOKENS, tokens);
    model->keep_mlp = !options->recompute_input && model->options.tile_mlp == tokens;
    model_find_offsets(model);
    size_t layers = (size_t)model->shape->config.layers;
    model->acts = mem_new(layers, sizeof *model->acts);
    if (model->acts == NULL)
        return mem_fail(err, layers * sizeof *model->acts, "a model's buffers");
    TRY(model_reserve_layers(model, arena, err));
    TRY(model_reserve_backward(model, arena, err));
    return model_reserve_tiles(model, arena, err);
}

void model_done(struct model *model)
{
    mem_free(model->acts);
    *model = (struct model){0};
}

int model_load_constants(struct model *model, struct stream *stream, struct err *err)
{
    if (model->device->dev->act_dtype == DTYPE_F32)
        model->tile_dlogits = model->tile_logits;
    size_t bytes = (size_t)(model->shape->config.head_dim / 2) * sizeof(float);
    CLEANUP(mem_free_ptr) float *inv_freq = mem_new(1, bytes);
    if (inv_freq == NULL)
        return mem_fail(err, bytes, "rotary frequencies");
    model_config_inv_freq(&model->shape->config, inv_freq);
    TRY(model->device->dev->copy(model->device, stream, model->inv_freq, inv_freq, bytes, err));
    TRY(model->device->dev->sync(model->device, stream, err));
    return model_totals_zero(model, stream, err);
}

/* A layer's buffers: its own, and the shared ones for what it does not keep. */
static struct model_acts model_layer_acts(const struct model *model, int64_t l)
{
    struct model_acts acts = model->options.recompute_input ? model->shared : model->acts[l];
    acts.x = model->acts[l].x;
    if (!model->keep_mlp) {
        acts.gate = model->shared.gate;
        acts.up = model->shared.up;
    }
    return acts;
}

int model_forward(struct model *model, const struct batch *batch, struct stream *stream,
                  struct err *err)
{
    const struct model_config *c = &model->shape->config;
    must(batch->tokens <= model->options.tokens_max);
    const void *weights = NULL;
    TRY(fsdp_gather(model->fsdp, 0, stream, &weights, err));
    struct ops_embed embed = {.tokens = batch->tokens,
                              .vocab = c->vocab_size,
                              .width = c->hidden_size,
                              .ids = batch->ids,
                              .table = model_weight(model, weights, MODEL_TENSOR_EMBED),
                              .out = model->acts[0].x};
    TRY(model->device->ops->embed(model->device, stream, &embed, err));
    for (int64_t l = 0; l < c->layers; l++) {
        TRY(fsdp_gather(model->fsdp, l + 1, stream, &weights, err));
        struct model_acts acts = model_layer_acts(model, l);
        struct layer layer = {
            .model = model, .batch = batch, .stream = stream, .acts = &acts, .weights = weights};
        TRY(layer_fwd_attention(&layer, err));
        void *y = l + 1 < c->layers ? model->acts[l + 1].x : model->x_out;
        TRY(layer_fwd_mlp(&layer, y, err));
    }
    return 0;
}

/* The head's weights: the last unit, and the embedding's where they are tied. */
static int model_head_gather(struct model *model, struct stream *stream, struct head *head,
                             struct err *err)
{
    bool tied = model->shape->config.tie_embeddings;
    const void *last = NULL, *unit = NULL;
    TRY(fsdp_gather(model->fsdp, model->fsdp->unit_count - 1, stream, &last, err));
    unit = last;
    if (tied)
        TRY(fsdp_gather(model->fsdp, 0, stream, &unit, err));
    head->norm_weight = model_weight(model, last, MODEL_TENSOR_LNF);
    head->weight = model_weight(model, unit, tied ? MODEL_TENSOR_EMBED : MODEL_TENSOR_HEAD);
    return 0;
}

int model_head_train(struct model *model, const struct batch *batch, float scale,
                     struct stream *stream, struct err *err)
{
    bool tied = model->shape->config.tie_embeddings;
    int64_t last_unit = model->fsdp->unit_count - 1;
    struct head head = {.model = model, .batch = batch, .stream = stream, .scale = scale};
    TRY(model_head_gather(model, stream, &head, err));
    float *last = NULL, *unit = NULL;
    TRY(fsdp_grad_begin(model->fsdp, last_unit, stream, &last, err));
    unit = last;
    if (tied)
        TRY(fsdp_grad_begin(model->fsdp, 0, stream, &unit, err));
    head.norm_grad = model_grad(model, last, MODEL_TENSOR_LNF);
    head.weight_grad = model_grad(model, unit, tied ? MODEL_TENSOR_EMBED : MODEL_TENSOR_HEAD);
    TRY(head_run(&head, err));
    TRY(fsdp_grad_end(model->fsdp, last_unit, stream, err));
    return tied ? fsdp_grad_end(model->fsdp, 0, stream, err) : 0;
}

int model_head_evaluate(struct model *model, const struct batch *batch, struct stream *stream,
                        struct err *err)
{
    struct head head = {.model = model, .batch = batch, .stream = stream};
    TRY(model_head_gather(model, stream, &head, err));
    return head_run(&head, err);
}

int model_backward(struct model *model, const struct batch *batch, struct stream *stream,
                   struct err *err)
{
    const struct model_config *c = &model->shape->config;
    const void *weights = NULL;
    float *grad = NULL;
    for (int64_t l = c->layers - 1; l >= 0; l--) {
        TRY(fsdp_gather(model->fsdp, l + 1, stream, &weights, err));
        TRY(fsdp_grad_begin(model->fsdp, l + 1, stream, &grad, err));
        struct model_acts acts = model_layer_acts(model, l);
        struct layer layer = {.model = model,
                              .batch = batch,
                              .stream = stream,
                              .acts = &acts,
                              .weights = weights,
                              .grad = grad};
        if (model->options.recompute_input)
            TRY(layer_fwd_attention(&layer, err));
        TRY(layer_bwd(&layer, err));
        TRY(fsdp_grad_end(model->fsdp, l + 1, stream, err));
    }
    TRY(fsdp_grad_begin(model->fsdp, 0, stream, &grad, err));
    struct ops_embed_bwd embed = {.tokens = batch->tokens,
                                  .vocab = c->vocab_size,
                                  .width = c->hidden_size,
                                  .ids = batch->ids,
                                  .dout = model->dx,
                                  .dtable = model_grad(model, grad, MODEL_TENSOR_EMBED)};
    TRY(model->device->ops->embed_bwd(model->device, stream, &embed, err));
    return fsdp_grad_end(model->fsdp, 0, stream, err);
}

int model_totals_zero(struct model *model, struct stream *stream, struct err *err)
{
    const struct device_ops *dev = model->device->dev;
    TRY(dev->zero(model->device, stream, model->loss_sum, sizeof *model->loss_sum, err));
    return dev->zero(model->device, stream, model->correct, sizeof *model->correct, err);
}

int model_totals(struct model *model, struct stream *stream, double *ret_loss_sum,
                 int64_t *ret_correct, struct err *err)
{
    struct coll *coll = model->fsdp->coll;
    const struct device_ops *dev = model->device->dev;
    double loss_sum = 0;
    int64_t correct = 0;
    TRY(coll->ops->all_reduce(coll, stream, model->loss_sum, 1, DTYPE_F64, err));
    TRY(coll->ops->all_reduce(coll, stream, model->correct, 1, DTYPE_I64, err));
    TRY(dev->copy(model->device, stream, &loss_sum, model->loss_sum, sizeof loss_sum, err));
    TRY(dev->copy(model->device, stream, &correct, model->correct, sizeof correct, err));
    TRY(dev->sync(model->device, stream, err));
    *ret_loss_sum = loss_sum;
    *ret_correct = correct;
    return 0;
}

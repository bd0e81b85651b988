/* model: see model.h. The order of work is embedding, layers, head, layers backwards, embedding. A
 * unit is gathered just before its use, and the next one's gather started then. */
#include "worker/model.h"

#include "common/clock.h"
#include "common/mem.h"
#include "common/must.h"
#include "worker/head.h"
#include "worker/layer.h"
#include "worker/ops.h"
#include "worker/profile.h"

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
    return model->offset[kind] < 0 || unit_grad == NULL ? NULL : unit_grad + model->offset[kind];
}

/* Tensors lie at the same place in every layer's unit; q, k and v are one matrix. */
static void model_find_offsets(struct model *model)
{
    for (int kind = 0; kind < MODEL_TENSOR_COUNT; kind++)
        model->offset[kind] = -1;
    for (int64_t i = 0; i < model->shape->row_count; i++) {
        const struct model_shape_row *row = &model->shape->rows[i];
        must(row->layer <= 0 || model->offset[row->kind] == row->offset);
        model->offset[row->kind] = row->offset;
    }
    const struct model_config *c = &model->shape->config;
    int64_t q = c->heads * c->head_dim * c->hidden_size;
    int64_t k = c->kv_heads * c->head_dim * c->hidden_size;
    must(model->offset[MODEL_TENSOR_K] == model->offset[MODEL_TENSOR_Q] + q);
    must(model->offset[MODEL_TENSOR_V] == model->offset[MODEL_TENSOR_K] + k);
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
    *model = (struct model){.device = fsdp->device,
                            .fsdp = fsdp,
                            .arena = arena,
                            .lora = options->lora,
                            .shape = fsdp->shape,
                            .options = *options};
    int64_t tokens = options->tokens_max;
    model->options.tile_mlp = model_tile(options->tile_mlp, tokens, tokens);
    model->options.tile_loss = model_tile(options->tile_loss, MODEL_TILE_LOSS_TOKENS, tokens);
    if (model->options.recompute == JOB_recompute_AUTO)
        model->options.recompute = JOB_recompute_NONE;
    if (model->options.recompute != JOB_recompute_ATTENTION || options->keep_input_every == 0)
        model->options.keep_input_every = 1;
    bool keep_all = model->options.recompute == JOB_recompute_NONE;
    model->keep_mlp = keep_all && model->options.tile_mlp == tokens;
    model_find_offsets(model);
    size_t layers = (size_t)model->shape->config.layers;
    model->acts = mem_new(layers, sizeof *model->acts);
    model->segment = mem_new((size_t)model->options.keep_input_every, sizeof *model->segment);
    if (model->acts == NULL || model->segment == NULL)
        return mem_fail(err, layers * sizeof *model->acts, "a model's buffers");
    const struct offload_options offload = {.layers = model->shape->config.layers,
                                            .segment = model->options.keep_input_every - 1,
                                            .tokens_max = tokens,
                                            .x_row_bytes =
                                                model->shape->config.hidden_size *
                                                (int64_t)dtype_bytes(model->device->dev->act_dtype),
                                            .away = model->options.layers_away > 0,
                                            .streamed = model->options.streamed};
    TRY(offload_init(&model->offload, &offload, model->device, err));
    TRY(context_init(&model->context, &options->context, &model->shape->config, tokens, keep_all,
                     model->device, arena, err));
    return model_reserve(model, arena, err);
}

void model_done(struct model *model)
{
    offload_done(&model->offload);
    mem_free(model->acts);
    mem_free(model->segment);
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
    model_config_inv_freq(&model->shape->config, model->options.seq_len, inv_freq);
    TRY(model->device->dev->copy(model->device, stream, model->inv_freq, inv_freq, bytes, err));
    TRY(model->device->dev->sync(model->device, stream, err));
    return model_totals_zero(model, stream, err);
}

/* Weights of layer l for the work at hand, those of layer `next` under way. */
static int model_gather_layer(struct model *model, struct layer *layer, int64_t next,
                              struct err *err)
{
    int64_t l = layer->index, layers = model->shape->config.layers;
    TRY(fsdp_gather(model->fsdp, l + 1, layer->stream, &layer->weights, err));
    if (model->lora != NULL)
        TRY(fsdp_gather(&model->lora->fsdp, l, layer->stream, &layer->adapters, err));
    if (next >= 0)
        TRY(fsdp_prefetch(model->fsdp, next + 1, layer->stream, err)); /* layers: the head */
    if (next >= 0 && next < layers && model->lora != NULL)
        TRY(fsdp_prefetch(&model->lora->fsdp, next, layer->stream, err));
    return 0;
}

struct offload_span model_span(const struct batch *batch, int64_t row, int64_t tile)
{
    int64_t left = batch->rows - row;
    return (struct offload_span){
        .row = row, .rows = left < tile ? left : tile, .all = batch->rows, .tile = tile};
}

static int model_embed(struct model *model, const struct batch *batch, const void *weights,
                       struct stream *stream, struct err *err)
{
    const struct model_config *c = &model->shape->config;
    void *x = model_layer_acts(model, model->options.first_layer).x;
    TRY(offload_vacate(&model->offload, OFFLOAD_INPUT, stream, err));
    for (int64_t row = 0; row < batch->rows; row += model->options.tile_mlp) {
        struct offload_span span = model_span(batch, row, model->options.tile_mlp);
        struct offload_tile tile;
        TRY(offload_tile_fresh(&model->offload, OFFLOAD_RING_X, x, &span, stream, &tile, err));
        struct ops_embed embed = {.tokens = span.rows,
                                  .vocab = c->vocab_size,
                                  .width = c->hidden_size,
                                  .ids = batch->ids + row,
                                  .table = model_weight(model, weights, MODEL_TENSOR_EMBED),
                                  .out = tile.data};
        TRY(model->device->ops->embed(model->device, stream, &embed, err));
        TRY(offload_tile_write(&model->offload, &tile, x, &span, stream, err));
    }
    return 0;
}

/* At both ends of what is timed. */
static int model_clock(const struct model *model, int64_t *ns, bool begins, struct stream *stream,
                       struct err *err)
{
    if (!model->options.time_layers)
        return 0;
    TRY(model->device->dev->sync(model->device, stream, err));
    *ns += begins ? -clock_monotonic_ns() : clock_monotonic_ns();
    return 0;
}

/* x to the layer's output; timed in the first layer of a pass. */
static int model_layer_mlp(const struct layer *layer, struct err *err)
{
    struct model *model = layer->model;
    bool first = layer->index == model->options.first_layer;
    arena_enter(model->arena, MEM_PHASE_FWD_MLP);
    TRY(first ? model_clock(model, &model->mlp_ns, true, layer->stream, err) : 0);
    TRY(layer_fwd_mlp(layer, model_layer_output(model, layer->index), err));
    return first ? model_clock(model, &model->mlp_ns, false, layer->stream, err) : 0;
}

/* A layer forward; what it keeps leaves under the work that follows. */
static int model_layer_forward(const struct layer *layer, bool keep, struct err *err)
{
    struct model *model = layer->model;
    struct offload *offload = &model->offload;
    struct offload_span all = model_span(layer->batch, 0, layer->batch->rows);
    int64_t l = layer->index;
    TRY(offload_ready(offload, OFFLOAD_INPUT, layer->stream, err));
    TRY(offload_vacate(offload, OFFLOAD_ATTENTION, layer->stream, err));
    TRY(context_forward(layer, err));
    TRY(offload_ready(offload, OFFLOAD_ATTENTION, layer->stream, err));
    if (keep && l % model->options.keep_input_every == 0)
        TRY(offload_out(offload, OFFLOAD_INPUT, l, &all, layer->stream, err));
    TRY(offload_vacate(offload, OFFLOAD_INPUT, layer->stream, err));
    TRY(offload_vacate(offload, OFFLOAD_MLP, layer->stream, err));
    TRY(model_layer_mlp(layer, err));
    TRY(offload_ready(offload, OFFLOAD_MLP, layer->stream, err));
    if (!keep)
        return 0;
    TRY(offload_out(offload, OFFLOAD_ATTENTION, l, &all, layer->stream, err));
    return offload_out(offload, OFFLOAD_MLP, l, &all, layer->stream, err);
}

/* What is at work from here on, for a profile: a layer, or another part; NULL: neither. */
static void model_note(const struct model *model, const char *name, int64_t layer)
{
    profile_enter(model->device->profile, PROFILE_LAYER, name, layer);
}

int model_forward(struct model *model, const struct batch *batch, bool keep, struct stream *stream,
                  struct err *err)
{
    must(batch->rows <= model->options.tokens_max);
    const void *weights = NULL;
    model_note(model, "embedding", -1);
    arena_enter(model->arena, MEM_PHASE_EMBED);
    TRY(fsdp_gather(model->fsdp, 0, stream, &weights, err));
    TRY(fsdp_prefetch(model->fsdp, model->options.first_layer + 1, stream, err));
    TRY(model_embed(model, batch, weights, stream, err));
    TRY(model_clock(model, &model->layers_ns, true, stream, err));
    for (int64_t l = model->options.first_layer; l < model->shape->config.layers; l++) {
        struct model_acts acts = model_layer_acts(model, l);
        struct layer layer = {
            .model = model, .batch = batch, .stream = stream, .acts = &acts, .index = l};
        model_note(model, "layer", l);
        TRY(model_gather_layer(model, &layer, l + 1, err));
        TRY(model_layer_forward(&layer, keep, err));
    }
    model_note(model, NULL, -1);
    return model_clock(model, &model->layers_ns, false, stream, err);
}

/* The head's weights: the last unit, and the embedding's where they are tied. */
static int model_head_gather(struct model *model, struct stream *stream, struct head *head,
                             struct err *err)
{
    bool tied = model->shape->config.tie_embeddings;
    const void *last = NULL, *unit = NULL;
    model_note(model, "head", -1);
    arena_enter(model->arena, MEM_PHASE_HEAD);
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
    struct head head = {
        .model = model, .batch = batch, .stream = stream, .train = true, .scale = scale};
    TRY(model_head_gather(model, stream, &head, err));
    if (model->lora != NULL)
        return head_run(&head, err);
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

/* The first layer to be replayed for layer l's input, when backward gets there; l: it is there, as
 * forward left it or an earlier replay, or kept. */
static int64_t model_replay_from(const struct model *model, int64_t l)
{
    int64_t every = model->options.keep_input_every, within = l % every;
    bool last = l == model->shape->config.layers - 1, anew = model->options.replay_anew;
    if (last && within > 0 && model->segment[anew ? 0 : within - 1] != NULL)
        return l;
    return within == every - 1 || anew || last ? l - within : l;
}

int model_bring(struct model *model, int64_t l, enum offload_group group,
                const struct offload_span *span, struct stream *stream, struct err *err)
{
    if (l < model->options.first_layer)
        return 0;
    if (group == OFFLOAD_INPUT)
        l = model_input_index(model, model_replay_from(model, l));
    return offload_in(&model->offload, group, l, span, stream, err);
}

/* Inputs of the layers up to l from the last that is kept, and each O. */
static int model_replay(struct model *model, const struct batch *batch, int64_t l,
                        struct stream *stream, struct err *err)
{
    struct offload *offload = &model->offload;
    for (int64_t from = model_replay_from(model, l); from < l; from++) {
        struct model_acts acts = model_layer_acts(model, from);
        struct layer layer = {.model = model,
                              .batch = batch,
                              .stream = stream,
                              .acts = &acts,
                              .index = from,
                              .replayed = true,
                              .goes_on = from + 1 < l};
        if (layer.goes_on && !model->options.replay_anew)
            layer.keep_output = model_input_index(model, from + 1);
        arena_enter(model->arena, MEM_PHASE_REPLAY);
        TRY(model_gather_layer(model, &layer, from + 1, err));
        TRY(offload_vacate(offload, OFFLOAD_INPUT, stream, err));
        TRY(layer_fwd_mlp(&layer, model_layer_acts(model, from + 1).x, err));
    }
    return 0;
}

static int model_layer_backward(struct model *model, const struct batch *batch, int64_t l,
                                struct stream *stream, struct err *err)
{
    struct fsdp *trained = model->lora != NULL ? &model->lora->fsdp : model->fsdp;
    bool again = model->options.recompute == JOB_recompute_INPUT;
    bool last = l == model->options.first_layer; /* of this pass */
    model_note(model, "layer", l);
    if (!again && model_replay_from(model, l) == l) /* nothing to reduce the layer before beside */
        TRY(fsdp_grad_settle(trained, stream, err));
    TRY(model_replay(model, batch, l, stream, err));
    struct model_acts acts = model_layer_acts(model, l);
    struct layer layer = {.model = model,
                          .batch = batch,
                          .stream = stream,
                          .acts = &acts,
                          .index = l,
                          .backward = true};
    TRY(model_gather_layer(model, &layer, last ? -1 : model_replay_from(model, l - 1), err));
    if (again)
        TRY(context_forward(&layer, err));
    int64_t unit = model->lora != NULL ? l : l + 1;
    TRY(fsdp_grad_begin(trained, unit, stream,
                        model->lora != NULL ? &layer.adapter_grad : &layer.grad, err));
    TRY(layer_bwd(&layer, again, err));
    TRY(fsdp_grad_end(trained, unit, stream, err));
    return last ? fsdp_grad_settle(trained, stream, err) : 0;
}

static int model_embed_backward(struct model *model, const struct batch *batch,
                                struct stream *stream, struct err *err)
{
    const struct model_config *c = &model->shape->config;
    float *grad = NULL;
    model_note(model, "embedding", -1);
    arena_enter(model->arena, MEM_PHASE_EMBED_BWD);
    TRY(fsdp_grad_begin(model->fsdp, 0, stream, &grad, err));
    for (int64_t row = 0; row < batch->rows; row += model->options.tile_mlp) {
        struct offload_span span = model_span(batch, row, model->options.tile_mlp);
        struct offload_tile dx;
        TRY(offload_tile_read(&model->offload, OFFLOAD_RING_DX, model->dx, &span, stream, &dx,
                              err));
        struct ops_embed_bwd embed = {.tokens = span.rows,
                                      .vocab = c->vocab_size,
                                      .width = c->hidden_size,
                                      .ids = batch->ids + row,
                                      .dout = dx.data,
                                      .dtable = model_grad(model, grad, MODEL_TENSOR_EMBED)};
        TRY(model->device->ops->embed_bwd(model->device, stream, &embed, err));
        TRY(offload_tile_done(&model->offload, &dx, stream, err));
    }
    return fsdp_grad_end(model->fsdp, 0, stream, err);
}

int model_backward(struct model *model, const struct batch *batch, struct stream *stream,
                   struct err *err)
{
    struct offload_span all = model_span(batch, 0, batch->rows);
    int64_t last = model->shape->config.layers - 1;
    TRY(model_clock(model, &model->layers_ns, true, stream, err));
    for (int group = 0; group < OFFLOAD_GROUPS; group++)
        TRY(model_bring(model, last, (enum offload_group)group, &all, stream, err));
    for (int64_t l = last; l >= model->options.first_layer; l--)
        TRY(model_layer_backward(model, batch, l, stream, err));
    TRY(model_clock(model, &model->layers_ns, false, stream, err));
    TRY(model->lora != NULL ? 0 : model_embed_backward(model, batch, stream, err));
    model_note(model, NULL, -1);
    return 0;
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
    TRY(coll_all_reduce(coll, stream, model->loss_sum, 1, DTYPE_F64, err));
    TRY(coll_all_reduce(coll, stream, model->correct, 1, DTYPE_I64, err));
    TRY(dev->copy(model->device, stream, &loss_sum, model->loss_sum, sizeof loss_sum, err));
    TRY(dev->copy(model->device, stream, &correct, model->correct, sizeof correct, err));
    TRY(dev->sync(model->device, stream, err));
    *ret_loss_sum = loss_sum;
    *ret_correct = correct;
    return 0;
}

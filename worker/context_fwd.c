/* context_fwd: see context.h. K and V of a stage are projected, sent and kept in place for all
 * stages that read them. */
#include "worker/context_private.h"
#include "worker/lora.h"
#include "worker/ring.h"

#include <math.h>

struct context_stage context_stage_make(const struct layer *layer, int64_t stage)
{
    const struct context *context = &layer->model->context;
    const struct model_acts *acts = layer->acts;
    int64_t rows = layer->batch->seq.rows, d = context->config->head_dim;
    const struct context_set *set = &context->sets[context->overlap ? stage % 2 : 0];
    int64_t turn = stage / context->heads.kv_stages; /* K/V heads take turns as they change */
    const struct context_set *kv_set = &context->sets[context->overlap ? turn % 2 : 0];
    struct context_stage ret = {.layer = layer,
                                .at = mesh_stage_at(&context->heads, stage),
                                .q = set->q,
                                .k = kv_set->k,
                                .v = kv_set->v,
                                .back = set->back,
                                .delta = set->delta,
                                .scale = (float)(1.0 / sqrt((double)d))};
    ret.q_heads = context_heads_q(layer, &ret.at);
    ret.kv_heads = context_heads_kv(layer, &ret.at);
    ret.lse = acts->lse + ret.at.head * rows;
    if (acts->q != NULL) {
        ret.q = model_at(layer->model, acts->q, ret.at.head * rows * d);
        ret.k = model_at(layer->model, acts->k, ret.at.kv * rows * d);
        ret.v = model_at(layer->model, acts->v, ret.at.kv * rows * d);
    }
    return ret;
}

_Static_assert(MEM_PHASE_FWD_RETURN == MEM_PHASE_FWD_KV + CONTEXT_RETURN &&
                   MEM_PHASE_AGAIN_RETURN == MEM_PHASE_AGAIN_KV + CONTEXT_RETURN &&
                   MEM_PHASE_BWD_Q == MEM_PHASE_BWD_KV + CONTEXT_Q,
               "phases of a stage stand in order");
void context_enter(const struct context_stage *stage, enum context_step step)
{
    enum mem_phase first = stage->backward          ? MEM_PHASE_BWD_KV
                           : stage->layer->backward ? MEM_PHASE_AGAIN_KV
                                                    : MEM_PHASE_FWD_KV;
    arena_enter(stage->layer->model->arena, (enum mem_phase)((int)first + (int)step));
}

/* Norm and projections of a tile, to token side; NULL for what is not wanted, k and v together. */
static int stage_project_tile(const struct context_stage *stage, const struct offload_span *span,
                              const void *x, void *q, void *k, void *v, struct err *err)
{
    const struct layer *layer = stage->layer;
    const struct model *model = layer->model;
    int64_t row = span->row, rows = span->rows;
    TRY(layer_norm(layer, MODEL_TENSOR_LN1, x, model->tile_norm, rows,
                   model->shape->config.hidden_size, NULL, err));
    if (q != NULL)
        TRY(context_heads_project(layer, &stage->q_heads, JOB_lora_module_Q, MODEL_TENSOR_Q_BIAS,
                                  model->tile_norm, row, rows, q, err));
    if (k == NULL)
        return 0;
    TRY(context_heads_project(layer, &stage->kv_heads, JOB_lora_module_K, MODEL_TENSOR_K_BIAS,
                              model->tile_norm, row, rows, k, err));
    return context_heads_project(layer, &stage->kv_heads, JOB_lora_module_V, MODEL_TENSOR_V_BIAS,
                                 model->tile_norm, row, rows, v, err);
}

static int stage_project(const struct context_stage *stage, void *q, void *k, void *v,
                         struct err *err)
{
    const struct layer *layer = stage->layer;
    struct model *model = layer->model;
    for (int64_t row = 0; row < layer->batch->rows; row += model->options.tile_mlp) {
        struct offload_span span = layer_span(layer, row);
        struct offload_tile x;
        TRY(offload_arrive(&model->offload, &span, layer->stream, err));
        TRY(offload_tile_read(&model->offload, OFFLOAD_RING_X, layer->acts->x, &span, layer->stream,
                              &x, err));
        TRY(stage_project_tile(stage, &span, x.data, q, k, v, err));
        TRY(offload_tile_done(&model->offload, &x, layer->stream, err));
    }
    if (q != NULL)
        TRY(context_heads_turn(layer, &stage->q_heads, MODEL_TENSOR_Q_NORM, q, err));
    return k == NULL ? 0 : context_heads_turn(layer, &stage->kv_heads, MODEL_TENSOR_K_NORM, k, err);
}

struct context_out context_outgoing(const struct context_stage *stage)
{
    const struct context *context = &stage->layer->model->context;
    if (context->overlap)
        return context->out;
    return (struct context_out){.q = context->send,
                                .k = context->send,
                                .v = stage->back,
                                .d_o = context->send,
                                .delta = context->out.delta};
}

int context_wait(const struct layer *layer, struct err *err)
{
    struct coll *coll = layer->model->context.options.ulysses;
    return coll == NULL ? 0 : coll_wait(coll, layer->stream, err);
}

int context_stage_inputs(const struct context_stage *stage, struct err *err)
{
    const struct layer *layer = stage->layer;
    const struct context *context = &layer->model->context;
    enum dtype act = context->device->dev->act_dtype;
    int64_t d = context->config->head_dim;
    bool kv = stage->at.kv_first;
    context_enter(stage, kv ? CONTEXT_KV : CONTEXT_Q);
    if (stage->at.head == 0) /* the first of a pass */
        TRY(lora_inputs(layer, err));
    if (context->options.mesh.ulysses == 1)
        return stage_project(stage, stage->q, kv ? stage->k : NULL, stage->v, err);
    struct context_out out = context_outgoing(stage);
    if (kv) {
        TRY(stage_project(stage, NULL, out.k, out.v, err));
        TRY(context_heads_send(layer, &stage->kv_heads, out.k, stage->k, d, act, err));
        TRY(context_heads_send(layer, &stage->kv_heads, out.v, stage->v, d, act, err));
        TRY(context->overlap ? 0 : context_wait(layer, err));
        context_enter(stage, CONTEXT_Q);
    }
    TRY(stage_project(stage, out.q, NULL, NULL, err));
    return context_heads_send(layer, &stage->q_heads, out.q, stage->q, d, act, err);
}

static int stage_attention(const struct context_stage *stage, struct ops_heads o, struct err *err)
{
    const struct layer *layer = stage->layer;
    const struct context *context = &layer->model->context;
    if (context->options.mesh.ring > 1)
        return ring_attention(stage, o, err);
    int64_t heads = context->heads.per_stage, kv_heads = context->heads.kv_staged;
    struct ops_attention args = {.q_heads = heads,
                                 .kv_heads = kv_heads,
                                 .rows = layer->batch->seq.rows,
                                 .head_dim = context->config->head_dim,
                                 .documents = layer->batch->ring_documents,
                                 .doc_rows = layer->batch->ring_doc_rows,
                                 .scale = stage->scale,
                                 .q = context_head_side(layer, stage->q, heads, 0),
                                 .k = context_head_side(layer, stage->k, kv_heads, 0),
                                 .v = context_head_side(layer, stage->v, kv_heads, 0),
                                 .o = o,
                                 .lse = stage->lse};
    return context->device->ops->attention(context->device, layer->stream, &args, err);
}

int context_forward(const struct layer *layer, struct err *err)
{
    const struct context *context = &layer->model->context;
    int64_t d = context->config->head_dim;
    struct context_stage next = context_stage_make(layer, 0);
    TRY(context_stage_inputs(&next, err));
    for (int64_t s = 0; s < context->heads.stages; s++) {
        struct context_stage stage = next;
        bool more = s + 1 < context->heads.stages;
        TRY(context_wait(layer, err));
        if (more)
            next = context_stage_make(layer, s + 1);
        if (more && context->overlap)
            TRY(context_stage_inputs(&next, err));
        context_enter(&stage, CONTEXT_ATTENTION);
        if (context->options.mesh.ulysses == 1) { /* O's slice itself */
            struct ops_heads o = {model_at(layer->model, layer->acts->o, stage.at.head * d), d,
                                  context->heads.heads * d};
            TRY(stage_attention(&stage, o, err));
        } else {
            TRY(stage_attention(
                &stage, context_head_side(layer, context->send, context->heads.per_stage, 0), err));
            context_enter(&stage, CONTEXT_RETURN);
            TRY(context_heads_return(layer, &stage.q_heads, context->send, stage.back,
                                     context->device->dev->act_dtype, err));
            TRY(context_heads_unpack(layer, &stage.q_heads, stage.back, false, layer->acts->o,
                                     err));
        }
        if (more && !context->overlap)
            TRY(context_stage_inputs(&next, err));
    }
    return 0;
}

/* context_bwd: see context.h. A stage of the backward pass: dO through Wo, delta on the token side,
 * both sent; q, k, v again unless they are there; gradients in fp32; dq returned over O's slice,
 * which nobody reads any more, dk and dv once for each K/V head. */
#include "common/must.h"
#include "worker/context_private.h"
#include "worker/ring.h"

/* dO of the stage, tile by tile, to token side. */
static int stage_project_back(const struct context_stage *stage, void *d_o, struct err *err)
{
    const struct layer *layer = stage->layer;
    struct model *model = layer->model;
    for (int64_t row = 0; row < layer->batch->rows; row += model->options.tile_mlp) {
        struct offload_span span = layer_span(layer, row);
        struct offload_tile dx;
        TRY(offload_tile_read(&model->offload, OFFLOAD_RING_DX, model->dx, &span, layer->stream,
                              &dx, err));
        TRY(context_heads_project_back(layer, &stage->q_heads, dx.data, row, span.rows, d_o, err));
        TRY(offload_tile_done(&model->offload, &dx, layer->stream, err));
    }
    return 0;
}

/* dO of the stage to `back`, delta to `delta`, head side. */
static int stage_output_gradient(const struct context_stage *stage, struct err *err)
{
    const struct layer *layer = stage->layer;
    struct model *model = layer->model;
    const struct context *context = &model->context;
    struct context_out out = {.d_o = stage->back, .delta = stage->delta};
    if (context->options.mesh.ulysses > 1)
        out = context_outgoing(stage);
    TRY(context->overlap ? 0 : context_wait(layer, err));
    arena_enter(model->arena, MEM_PHASE_BWD_DO);
    TRY(stage_project_back(stage, out.d_o, err));
    TRY(context_heads_delta(layer, &stage->q_heads, out.d_o, out.delta, err));
    TRY(context_heads_send(layer, &stage->q_heads, out.d_o, stage->back, context->config->head_dim,
                           context->device->dev->act_dtype, err));
    return context_heads_send(layer, &stage->q_heads, out.delta, stage->delta, 1, DTYPE_F32, err);
}

/* What attention of the stage reads: q, k, v unless they are there, dO, delta. */
static int stage_start(struct context_stage *stage, bool there, struct err *err)
{
    stage->backward = true;
    TRY(there ? 0 : context_stage_inputs(stage, err));
    return stage_output_gradient(stage, err);
}

static int stage_zero(const struct context_stage *stage, float *x, int64_t heads, struct err *err)
{
    const struct context *context = &stage->layer->model->context;
    int64_t count = heads * stage->layer->batch->seq.rows * context->config->head_dim;
    return context->device->dev->zero(context->device, stage->layer->stream, x,
                                      (size_t)count * sizeof *x, err);
}

static int stage_attention_bwd(const struct context_stage *stage, struct err *err)
{
    const struct layer *layer = stage->layer;
    const struct context *context = &layer->model->context;
    int64_t heads = context->heads.per_stage, kv_heads = context->heads.kv_staged;
    TRY(stage_zero(stage, context->dq, heads, err));
    if (stage->at.kv_first) {
        TRY(stage_zero(stage, context->dk, kv_heads, err));
        TRY(stage_zero(stage, context->dv, kv_heads, err));
    }
    if (context->options.mesh.ring > 1)
        return ring_attention_bwd(stage, err);
    struct ops_attention_bwd args = {.q_heads = heads,
                                     .kv_heads = kv_heads,
                                     .rows = layer->batch->seq.rows,
                                     .head_dim = context->config->head_dim,
                                     .documents = layer->batch->ring_documents,
                                     .doc_rows = layer->batch->ring_doc_rows,
                                     .scale = stage->scale,
                                     .q = context_head_side(layer, stage->q, heads, 0),
                                     .k = context_head_side(layer, stage->k, kv_heads, 0),
                                     .v = context_head_side(layer, stage->v, kv_heads, 0),
                                     .d_o = context_head_side(layer, stage->back, heads, 0),
                                     .lse = stage->lse,
                                     .delta = stage->delta};
    args.dq = context_head_side_f32(layer, context->dq, heads, 0);
    args.dk = context_head_side_f32(layer, context->dk, kv_heads, 0);
    args.dv = context_head_side_f32(layer, context->dv, kv_heads, 0);
    return context->device->ops->attention_bwd(context->device, layer->stream, &args, err);
}

/* dq to its tokens, in the activations' type. */
static int stage_return_dq(const struct context_stage *stage, struct err *err)
{
    const struct layer *layer = stage->layer;
    const struct context *context = &layer->model->context;
    if (context->options.mesh.ulysses == 1)
        return context_heads_unpack(layer, &stage->q_heads, context->dq, true, layer->acts->o, err);
    struct ops_cast cast = {.count = context->heads.per_stage * layer->batch->seq.rows *
                                     context->config->head_dim,
                            .in = context->dq,
                            .out = context->send,
                            .to_act = true};
    TRY(context->device->ops->cast(context->device, layer->stream, &cast, err));
    TRY(context_heads_return(layer, &stage->q_heads, context->send, stage->back,
                             context->device->dev->act_dtype, err));
    return context_heads_unpack(layer, &stage->q_heads, stage->back, false, layer->acts->o, err);
}

/* dk or dv to its tokens. They travel in fp32: a K/V head's are sums over its stages, and where
 * ranks share the head their parts are yet to be added, so that rounding to the activations' type
 * comes once, after the last sum; twice the bytes, of tensors sent once for all stages of the head.
 * dq is free by now and takes what arrives. */
static int stage_return_kv(const struct context_stage *stage, const float *grad, void *out,
                           struct err *err)
{
    const struct layer *layer = stage->layer;
    const struct context *context = &layer->model->context;
    if (context->options.mesh.ulysses > 1) {
        TRY(context_heads_return(layer, &stage->kv_heads, grad, context->dq, DTYPE_F32, err));
        grad = context->dq;
    }
    return context_heads_unpack(layer, &stage->kv_heads, grad, true, out, err);
}

int context_backward(const struct layer *layer, bool ready, struct err *err)
{
    const struct model *model = layer->model;
    const struct context *context = &model->context;
    must(context->heads.kv_staged <= context->heads.per_stage);
    bool there = layer->acts->q != NULL || (ready && context->heads.stages == 1);
    struct context_stage next = context_stage_make(layer, 0);
    TRY(stage_start(&next, there, err));
    for (int64_t s = 0; s < context->heads.stages; s++) {
        struct context_stage stage = next;
        bool more = s + 1 < context->heads.stages;
        TRY(context_wait(layer, err));
        if (more)
            next = context_stage_make(layer, s + 1);
        if (more && context->overlap)
            TRY(stage_start(&next, there, err));
        arena_enter(model->arena, MEM_PHASE_BWD_ATTENTION);
        TRY(stage_attention_bwd(&stage, err));
        arena_enter(model->arena, MEM_PHASE_BWD_DQ);
        TRY(stage_return_dq(&stage, err));
        if (stage.at.kv_last) {
            arena_enter(model->arena, MEM_PHASE_BWD_DKV);
            TRY(stage_return_kv(&stage, context->dk, model->dk, err));
            TRY(stage_return_kv(&stage, context->dv, model->dv, err));
        }
        if (more && !context->overlap)
            TRY(stage_start(&next, there, err));
    }
    return 0;
}

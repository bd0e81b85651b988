/* ring: see ring.h. In forward the stage's fp32 dq holds O, `back` a step's O and `delta` its LSE.
 */
#include "worker/ring.h"

struct ring_step {
    struct mesh_ring_step at; /* who holds the keys; which rows see which, documents included */
    const void *k, *v;        /* [act] (kv_staged, S', d) */
    bool any;                 /* there are such rows */
};

static const struct context *ring_context(const struct context_stage *stage)
{
    return &stage->layer->model->context;
}

static int64_t ring_kv_count(const struct context_stage *stage)
{
    return ring_context(stage)->heads.kv_staged * stage->layer->batch->seq.rows *
           ring_context(stage)->config->head_dim;
}

/* Step `number` with the K and V given. */
static struct ring_step ring_step_make(const struct context_stage *stage, int number, const void *k,
                                       const void *v)
{
    const struct batch *batch = stage->layer->batch;
    int me = batch->place.ring;
    struct ring_step step = {.at = mesh_ring_step(&batch->seq, me, number), .k = k, .v = v};
    if (number == 0 || batch->seq.rows == 0)
        return step;
    int64_t first, end;
    batch_document(batch, mesh_seq_position(&batch->seq, me, step.at.q_row), &first, &end);
    step.any = mesh_ring_clip(&batch->seq, me, first, end, &step.at);
    return step;
}

/* To the next rank, from the one before. */
static int ring_hop(const struct context *context, struct stream *stream, const void *send,
                    void *recv, int64_t count, enum dtype dtype, struct err *err)
{
    struct coll *coll = context->options.ring;
    int to = (coll->rank + 1) % coll->world, from = (coll->rank + coll->world - 1) % coll->world;
    return coll_send_recv(coll, stream, send, to, recv, from, count, dtype, err);
}

int ring_connect(const struct context *context, struct stream *stream, struct err *err)
{
    return ring_hop(context, stream, context->ring_dk, context->ring_dv, 1, DTYPE_F32, err);
}

static int ring_pass(const struct context_stage *stage, const void *send, void *recv,
                     enum dtype dtype, struct err *err)
{
    return ring_hop(ring_context(stage), stage->layer->stream, send, recv, ring_kv_count(stage),
                    dtype, err);
}

/* From the step before `number` to it; the rank's own K and V stay where they are. */
static int ring_advance(const struct context_stage *stage, int number, struct ring_step *step,
                        struct err *err)
{
    const struct context *context = ring_context(stage);
    enum dtype act = context->device->dev->act_dtype;
    void *k = context->ring_k[(number - 1) % 2], *v = context->ring_v[(number - 1) % 2];
    TRY(ring_pass(stage, step->k, k, act, err));
    TRY(ring_pass(stage, step->v, v, act, err));
    *step = ring_step_make(stage, number, k, v);
    return 0;
}

/* Attention into `back` and the given LSE: causal over own keys, or the step's rectangle. */
static int ring_part(const struct context_stage *stage, const struct ring_step *step, float *lse,
                     struct err *err)
{
    const struct layer *layer = stage->layer;
    const struct context *context = ring_context(stage);
    int64_t heads = context->heads.per_stage, kv_heads = context->heads.kv_staged;
    struct ops_attention args = {.q_heads = heads,
                                 .kv_heads = kv_heads,
                                 .rows = step->at.q_rows,
                                 .kv_rows = step->at.causal ? 0 : step->at.k_rows,
                                 .head_dim = context->config->head_dim,
                                 .documents = layer->batch->ring_documents,
                                 .doc_rows = layer->batch->ring_doc_rows,
                                 .scale = stage->scale,
                                 .q = context_head_side(layer, stage->q, heads, step->at.q_row),
                                 .k = context_head_side(layer, step->k, kv_heads, step->at.k_row),
                                 .v = context_head_side(layer, step->v, kv_heads, step->at.k_row),
                                 .o = context_head_side(layer, stage->back, heads, step->at.q_row),
                                 .lse = lse + step->at.q_row,
                                 .lse_stride = layer->batch->seq.rows};
    return context->device->ops->attention(context->device, layer->stream, &args, err);
}

static int ring_merge(const struct context_stage *stage, const struct ring_step *step,
                      struct err *err)
{
    const struct layer *layer = stage->layer;
    const struct context *context = ring_context(stage);
    int64_t heads = context->heads.per_stage;
    struct ops_attention_merge args = {
        .heads = heads,
        .rows = step->at.q_rows,
        .head_dim = context->config->head_dim,
        .part = context_head_side(layer, stage->back, heads, step->at.q_row),
        .lse_part = stage->delta + step->at.q_row,
        .lse_part_stride = layer->batch->seq.rows,
        .o = context_head_side_f32(layer, context->dq, heads, step->at.q_row),
        .lse = stage->lse + step->at.q_row,
        .lse_stride = layer->batch->seq.rows};
    return context->device->ops->attention_merge(context->device, layer->stream, &args, err);
}

int ring_attention(const struct context_stage *stage, struct ops_heads o, struct err *err)
{
    const struct layer *layer = stage->layer;
    const struct context *context = ring_context(stage);
    struct device *device = context->device;
    int64_t heads = context->heads.per_stage, d = context->config->head_dim;
    struct ring_step step = ring_step_make(stage, 0, stage->k, stage->v);
    TRY(ring_part(stage, &step, stage->lse, err));
    struct ops_cast cast = {
        .count = heads * layer->batch->seq.rows * d, .in = stage->back, .out = context->dq};
    TRY(device->ops->cast(device, layer->stream, &cast, err));
    for (int number = 1; number < context->options.mesh.ring; number++) {
        TRY(ring_advance(stage, number, &step, err));
        if (!step.any)
            continue;
        TRY(ring_part(stage, &step, stage->delta, err));
        TRY(ring_merge(stage, &step, err));
    }
    struct ops_unpack unpack = {.heads = heads,
                                .rows = layer->batch->seq.rows,
                                .head_dim = d,
                                .copies = 1,
                                .in = context_head_side_f32(layer, context->dq, heads, 0),
                                .in_f32 = true,
                                .out = o};
    return device->ops->unpack(device, layer->stream, &unpack, err);
}

static int ring_part_bwd(const struct context_stage *stage, const struct ring_step *step,
                         const float *dk, const float *dv, struct err *err)
{
    const struct layer *layer = stage->layer;
    const struct context *context = ring_context(stage);
    int64_t heads = context->heads.per_stage, kv_heads = context->heads.kv_staged;
    struct ops_attention_bwd args = {
        .q_heads = heads,
        .kv_heads = kv_heads,
        .rows = step->at.q_rows,
        .kv_rows = step->at.causal ? 0 : step->at.k_rows,
        .head_dim = context->config->head_dim,
        .documents = layer->batch->ring_documents,
        .doc_rows = layer->batch->ring_doc_rows,
        .scale = stage->scale,
        .q = context_head_side(layer, stage->q, heads, step->at.q_row),
        .k = context_head_side(layer, step->k, kv_heads, step->at.k_row),
        .v = context_head_side(layer, step->v, kv_heads, step->at.k_row),
        .d_o = context_head_side(layer, stage->back, heads, step->at.q_row),
        .lse = stage->lse + step->at.q_row,
        .delta = stage->delta + step->at.q_row,
        .lse_stride = layer->batch->seq.rows,
        .dq = context_head_side_f32(layer, context->dq, heads, step->at.q_row),
        .dk = context_head_side_f32(layer, dk, kv_heads, step->at.k_row),
        .dv = context_head_side_f32(layer, dv, kv_heads, step->at.k_row)};
    return context->device->ops->attention_bwd(context->device, layer->stream, &args, err);
}

/* dk and dv one hop on, into the pair of buffers that they are not in. */
static int ring_pass_gradients(const struct context_stage *stage, float *dk[2], float *dv[2],
                               int to, struct err *err)
{
    TRY(ring_pass(stage, dk[1 - to], dk[to], DTYPE_F32, err));
    return ring_pass(stage, dv[1 - to], dv[to], DTYPE_F32, err);
}

int ring_attention_bwd(const struct context_stage *stage, struct err *err)
{
    const struct context *context = ring_context(stage);
    const struct device_ops *dev = context->device->dev;
    float *dk[2] = {context->dk, context->ring_dk}, *dv[2] = {context->dv, context->ring_dv};
    int ring = context->options.mesh.ring;
    struct ring_step step = ring_step_make(stage, 0, stage->k, stage->v);
    TRY(ring_part_bwd(stage, &step, dk[0], dv[0], err));
    for (int number = 1; number < ring; number++) {
        TRY(ring_advance(stage, number, &step, err));
        TRY(ring_pass_gradients(stage, dk, dv, number % 2, err));
        if (step.any)
            TRY(ring_part_bwd(stage, &step, dk[number % 2], dv[number % 2], err));
    }
    TRY(ring_pass_gradients(stage, dk, dv, ring % 2, err));
    if (ring % 2 == 0)
        return 0;
    size_t bytes = (size_t)ring_kv_count(stage) * sizeof(float);
    TRY(dev->copy(context->device, stage->layer->stream, dk[0], dk[1], bytes, err));
    return dev->copy(context->device, stage->layer->stream, dv[0], dv[1], bytes, err);
}

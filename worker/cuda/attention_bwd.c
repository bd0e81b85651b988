/* attention_bwd: cuDNN's fused engines, backward. Results come to scratch in bf16 (cuDNN 9.19's
 * fp32 results are infinite) and are added from there to the caller's fp32; dQ is summed in fp32 by
 * atomics before, so its last bits vary from run to run. Delta comes with the call, cuDNN wants O:
 * attention_delta.cu makes one that fits. Packed documents are right in one form only, (rows,
 * heads, d) with LSE (rows, heads): others are copied to that first; so is, as in forward, what has
 * strides of the batch's. One head is of that form wherever it lies in one piece. Long documents go
 * in parts, so that scratch does not grow with them (worker/attention_split.h).
 *
 * Causal FLOPs, d 128, stand-in and delivery included: 128K rows, 4 heads on 1, 536 TF/s, 80% of
 * cuBLAS in the same run; in 16 documents of 8K 436; 16K rows 501 (bench_cuda_ops 131072 and 16384,
 * one H200, driver 580.159.04, 2026-11-29). Scratch of a call, bytes: rows * q_heads * (8 d + 4)
 * + key rows * kv_heads * 4 d, for packed documents of grouped heads 4 d more a query head's key
 * row, and copies (common/mem_plan_attention.c plans with these). */
#include "common/must.h"
#include "worker/attention_split.h"
#include "worker/cuda/attention_delta.h"
#include "worker/cuda/attention_plan.h"
#include "worker/cuda/attention_small.h"
#include "worker/cuda/ops_cuda.h"
#include "worker/cuda/unpack.h"

#include <string.h>

/* Where backward's tensors lie in scratch, bytes from its start. */
struct attention_scratch {
    size_t o;                  /* bf16, in place of O */
    size_t delta;              /* cuDNN's own */
    size_t dq_sum, dq, dk, dv; /* fp32, then bf16 */
    size_t dk_heads, dv_heads; /* packed documents with grouped heads */
    size_t q, k, v, d_o, lse;  /* copies in the plan's layout */
    size_t workspace, total;
};

/* Whether LSE lies otherwise than in the plan. */
static bool attention_bwd_lse_moves(const struct attention_shape *shape, int64_t lse_stride)
{
    return shape->q_heads > 1 && (shape->slots > 0 || lse_stride != shape->lse_head_stride);
}

static struct attention_scratch attention_scratch_of(const struct attention_shape *shape,
                                                     const struct ops_attention_bwd *args,
                                                     int64_t kv_rows, int64_t lse_stride,
                                                     const struct graph *graph)
{
    struct attention_scratch at = {0};
    int64_t rows = args->rows, q = shape->q_heads * rows * shape->head_dim;
    int64_t kv = shape->kv_heads * kv_rows * shape->head_dim;
    int64_t packed = shape->slots > 0, grouped = packed && shape->q_heads > shape->kv_heads;
    at.o = attention_scratch_next(&at.total, q, 2);
    at.delta = attention_scratch_next(&at.total, shape->q_heads * rows, 4);
    at.dq_sum = attention_scratch_next(&at.total, q, 4);
    at.dq = attention_scratch_next(&at.total, q, 2);
    at.dk = attention_scratch_next(&at.total, kv, 2);
    at.dv = attention_scratch_next(&at.total, kv, 2);
    at.dk_heads =
        attention_scratch_next(&at.total, grouped * shape->q_heads * kv_rows * shape->head_dim, 2);
    at.dv_heads =
        attention_scratch_next(&at.total, grouped * shape->q_heads * kv_rows * shape->head_dim, 2);
    at.q = attention_scratch_next(
        &at.total, attention_shape_alike(shape->q_heads, &args->q, &shape->q) ? 0 : q, 2);
    at.k = attention_scratch_next(
        &at.total, attention_shape_alike(shape->kv_heads, &args->k, &shape->k) ? 0 : kv, 2);
    at.v = attention_scratch_next(
        &at.total, attention_shape_alike(shape->kv_heads, &args->v, &shape->v) ? 0 : kv, 2);
    at.d_o = attention_scratch_next(
        &at.total, attention_shape_alike(shape->q_heads, &args->d_o, &shape->d_o) ? 0 : q, 2);
    at.lse = attention_scratch_next(
        &at.total, attention_bwd_lse_moves(shape, lse_stride) ? shape->q_heads * rows : 0, 4);
    at.workspace = attention_scratch_next(&at.total, graph_workspace_bytes(graph) + 256, 1);
    return at;
}

/* Layouts of what lies in scratch: (heads, rows, d), or (rows, heads, d) for packed documents. */
static struct ops_heads scratch_heads(const struct attention_shape *shape, void *data,
                                      int64_t heads, int64_t rows)
{
    const struct attention_layout own = attention_shape_own(shape, heads, rows);
    return (struct ops_heads){data, own.head_stride, own.row_stride};
}

static int attention_bwd_check(const struct ops_attention_bwd *args, int64_t kv_rows,
                               struct err *err)
{
    int64_t d = args->head_dim;
    struct ops_heads own = {NULL, args->rows * d, d};
    TRY(attention_plan_check_dims(args->q_heads, args->kv_heads, d, err));
    TRY(attention_plan_check(&args->q, args->q_heads, args->rows, d, "q", err));
    TRY(attention_plan_check(&args->k, args->kv_heads, kv_rows, d, "k", err));
    TRY(attention_plan_check(&args->v, args->kv_heads, kv_rows, d, "v", err));
    TRY(attention_plan_check(&args->d_o, args->q_heads, args->rows, d, "d_o", err));
    return attention_plan_check(&own, args->q_heads, args->rows, d, "dq", err);
}

/* A backward call on its way. */
struct attention_call {
    struct device_cuda *cuda;
    struct stream *stream;
    const struct ops_attention_bwd *args;
    int64_t rows, kv_rows, lse_stride;
    struct attention_shape shape;
    struct attention_scratch at;
    char *scratch;
    struct ops_heads q, k, v, d_o; /* what cuDNN reads */
    const float *lse;
};

/* The same heads in the plan's layout: where they are, or copied to scratch. */
static int attention_bwd_bring(struct attention_call *call, size_t at, int64_t heads, int64_t rows,
                               const struct attention_layout *layout,
                               struct ops_heads *heads_in_out, struct err *err)
{
    const struct ops_heads in = *heads_in_out;
    const struct ops_heads out = {call->scratch + at, layout->head_stride, layout->row_stride};
    if (attention_shape_alike(heads, &in, layout))
        return 0;
    *heads_in_out = out;
    return heads_copy(call->stream, heads, rows, call->shape.head_dim, &in, &out, err);
}

/* To where the plan wants them. Packed documents are right in one form only: (rows, heads, d), LSE
 * (rows, heads). */
static int attention_bwd_pack(struct attention_call *call, struct err *err)
{
    const struct ops_attention_bwd *args = call->args;
    const struct attention_shape *shape = &call->shape;
    const struct attention_scratch *at = &call->at;
    float *lse = (float *)(call->scratch + at->lse);
    struct heads_move move = {.heads = args->q_heads,
                              .rows = call->rows,
                              .head_dim = 1,
                              .in = {(void *)args->lse, call->lse_stride, 1},
                              .out = {lse, shape->lse_head_stride, shape->lse_row_stride},
                              .copies = 1,
                              .in_f32 = true,
                              .out_f32 = true};
    if (attention_bwd_lse_moves(shape, call->lse_stride)) {
        call->lse = lse;
        TRY(heads_move(call->stream, &move, err));
    }
    TRY(attention_bwd_bring(call, at->q, args->q_heads, call->rows, &shape->q, &call->q, err));
    TRY(attention_bwd_bring(call, at->k, args->kv_heads, call->kv_rows, &shape->k, &call->k, err));
    TRY(attention_bwd_bring(call, at->v, args->kv_heads, call->kv_rows, &shape->v, &call->v, err));
    return attention_bwd_bring(call, at->d_o, args->q_heads, call->rows, &shape->d_o, &call->d_o,
                               err);
}

static int attention_bwd_run(struct attention_call *call, const struct attention_plan *plan,
                             struct err *err)
{
    const struct ops_attention_bwd *args = call->args;
    const struct attention_scratch *at = &call->at;
    char *scratch = call->scratch;
    void *pointers[GRAPH_TENSORS_MAX] = {[ATTENTION_Q] = call->q.data,
                                         [ATTENTION_K] = call->k.data,
                                         [ATTENTION_V] = call->v.data,
                                         [ATTENTION_O] = scratch + at->o,
                                         [ATTENTION_LSE] = (void *)call->lse,
                                         [ATTENTION_DO] = call->d_o.data,
                                         [ATTENTION_DELTA] = scratch + at->delta,
                                         [ATTENTION_DQ_SUM] = scratch + at->dq_sum,
                                         [ATTENTION_DQ] = scratch + at->dq,
                                         [ATTENTION_DK] = scratch + at->dk,
                                         [ATTENTION_DV] = scratch + at->dv,
                                         [ATTENTION_DK_HEADS] = scratch + at->dk_heads,
                                         [ATTENTION_DV_HEADS] = scratch + at->dv_heads};
    TRY(attention_plan_bind(call->cuda, call->stream, &plan->shape, args->documents, args->doc_rows,
                            pointers, err));
    return attention_plan_run(call->cuda, call->stream, plan->graph, args->scale, pointers,
                              scratch + at->workspace, err);
}

/* *to += a result in scratch. */
static int attention_bwd_deliver(struct attention_call *call, size_t at, int64_t heads,
                                 int64_t rows, const struct ops_heads *to, struct err *err)
{
    struct heads_move move = {.heads = heads,
                              .rows = rows,
                              .head_dim = call->shape.head_dim,
                              .in = scratch_heads(&call->shape, call->scratch + at, heads, rows),
                              .out = *to,
                              .copies = 1,
                              .out_f32 = true,
                              .accumulate = true};
    return heads_move(call->stream, &move, err);
}

int cuda_attention_bwd(struct device *device, struct stream *stream,
                       const struct ops_attention_bwd *args, struct err *err)
{
    struct attention_call call = {.cuda = device_cuda_of(device),
                                  .stream = device_cuda_stream(device, stream),
                                  .args = args,
                                  .rows = args->rows,
                                  .kv_rows = args->kv_rows > 0 ? args->kv_rows : args->rows,
                                  .lse_stride =
                                      args->lse_stride > 0 ? args->lse_stride : args->rows,
                                  .q = args->q,
                                  .k = args->k,
                                  .v = args->v,
                                  .d_o = args->d_o,
                                  .lse = args->lse};
    const struct attention_plan *plan = NULL;
    const struct mem_split sizes = mem_split_backward();
    if (args->rows == 0 || args->q_heads == 0)
        return 0;
    if (attention_split_wants(&sizes, args->rows, args->kv_rows))
        return attention_split_bwd(device, stream, args, &sizes, err); /* parts come back here */
    TRY(attention_bwd_check(args, call.kv_rows, err));
    attention_shape_backward(&call.shape, args);
    if (call.shape.slots == 0 && attention_shape_is_small(call.rows, call.kv_rows))
        return attention_small_bwd(call.stream, args, err);
    TRY(attention_plan_find(call.cuda, call.stream, &call.shape, &plan, err));
    call.at = attention_scratch_of(&call.shape, args, call.kv_rows, call.lse_stride, plan->graph);
    call.scratch = device_cuda_scratch(call.cuda, call.stream, DEVICE_SCRATCH_ATTENTION_BWD,
                                       call.at.total, err);
    if (call.scratch == NULL)
        return -(int)err->code;
    struct ops_heads stand_in =
        scratch_heads(&call.shape, call.scratch + call.at.o, args->q_heads, call.rows);
    TRY(attention_stand_in(call.stream, args, &stand_in, err));
    TRY(attention_bwd_pack(&call, err));
    TRY(attention_bwd_run(&call, plan, err));
    TRY(attention_bwd_deliver(&call, call.at.dq, args->q_heads, call.rows, &args->dq, err));
    TRY(attention_bwd_deliver(&call, call.at.dk, args->kv_heads, call.kv_rows, &args->dk, err));
    return attention_bwd_deliver(&call, call.at.dv, args->kv_heads, call.kv_rows, &args->dv, err);
}

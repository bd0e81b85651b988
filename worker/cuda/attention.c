/* attention: cuDNN's fused engines, forward: any layout of heads, documents packed or not. Long
 * documents go in parts whose keys stay in the L2 cache (worker/attention_split.h). A plan serves
 * batches of any number of rows (worker/attention_shape.h), so what has strides of the batch's
 * comes from and to scratch: LSE of several heads, and heads in pieces of their own.
 *
 * Causal FLOPs, d 128: 128K rows, 4 heads on 1, 560 TF/s, 84% of cuBLAS in the same run; in 16
 * documents of 8K 535; 16K rows 506 (bench_cuda_ops 131072 and 16384, one H200, driver 580.159.04,
 * 2026-11-29). */
#include "worker/attention_split.h"
#include "worker/cuda/attention_plan.h"
#include "worker/cuda/attention_small.h"
#include "worker/cuda/ops_cuda.h"
#include "worker/cuda/unpack.h"

#include <string.h>

enum { BF16 = 2 };

static int attention_check(const struct ops_attention *args, int64_t kv_rows, struct err *err)
{
    TRY(attention_plan_check_dims(args->q_heads, args->kv_heads, args->head_dim, err));
    TRY(attention_plan_check(&args->q, args->q_heads, args->rows, args->head_dim, "q", err));
    TRY(attention_plan_check(&args->k, args->kv_heads, kv_rows, args->head_dim, "k", err));
    TRY(attention_plan_check(&args->v, args->kv_heads, kv_rows, args->head_dim, "v", err));
    return attention_plan_check(&args->o, args->q_heads, args->rows, args->head_dim, "o", err);
}

/* In parts, which come back to cuda_attention(). */
static int attention_in_parts(struct device_cuda *cuda, struct stream *stream,
                              const struct ops_attention *args, const struct mem_split *sizes,
                              struct err *err)
{
    int64_t bytes = mem_split_bytes(sizes, args->q_heads, args->head_dim, BF16);
    void *scratch =
        device_cuda_scratch(cuda, stream, DEVICE_SCRATCH_ATTENTION_PARTS, (size_t)bytes, err);
    if (scratch == NULL)
        return -(int)err->code;
    return attention_split(&cuda->device, stream, args, sizes, scratch, err);
}

/* A call on its way; where its tensors lie in scratch, bytes from its start. */
struct attention_call {
    struct stream *stream;
    const struct ops_attention *args;
    struct attention_shape shape;
    int64_t kv_rows, lse_stride;
    struct ops_heads q, k, v, o; /* what cuDNN reads and writes */
    float *lse;
    struct {
        size_t q, k, v, o, lse, workspace, total;
    } at;
};

/* Whether LSE lies otherwise than in the plan. */
static bool attention_lse_moves(const struct attention_call *call)
{
    return call->args->q_heads > 1 && call->lse_stride != call->shape.lse_head_stride;
}

/* Heads that lie otherwise than in the plan get a place in scratch. */
static size_t attention_place(struct attention_call *call, int64_t heads, int64_t rows,
                              const struct ops_heads *given, const struct attention_layout *layout)
{
    bool there = attention_shape_alike(heads, given, layout);
    return attention_scratch_next(&call->at.total, there ? 0 : heads * rows * call->args->head_dim,
                                  BF16);
}

static void attention_places(struct attention_call *call, const struct graph *graph)
{
    const struct attention_shape *shape = &call->shape;
    int64_t rows = call->args->rows;
    int64_t lse = attention_lse_moves(call) ? shape->q_heads * shape->lse_head_stride : 0;
    call->at.q = attention_place(call, shape->q_heads, rows, &call->q, &shape->q);
    call->at.k = attention_place(call, shape->kv_heads, call->kv_rows, &call->k, &shape->k);
    call->at.v = attention_place(call, shape->kv_heads, call->kv_rows, &call->v, &shape->v);
    call->at.o = attention_place(call, shape->q_heads, rows, &call->o, &shape->o);
    call->at.lse = attention_scratch_next(&call->at.total, lse, sizeof(float));
    call->at.workspace =
        attention_scratch_next(&call->at.total, graph_workspace_bytes(graph) + 256, 1);
}

/* The place of these heads in scratch, where they lie otherwise; whether that is so. */
static bool attention_redirect(int64_t heads, const struct attention_layout *layout, void *scratch,
                               struct ops_heads *given)
{
    if (attention_shape_alike(heads, given, layout))
        return false;
    *given = (struct ops_heads){scratch, layout->head_stride, layout->row_stride};
    return true;
}

static int attention_bring(struct attention_call *call, int64_t heads, int64_t rows,
                           const struct attention_layout *layout, void *scratch,
                           struct ops_heads *given, struct err *err)
{
    const struct ops_heads from = *given;
    if (!attention_redirect(heads, layout, scratch, given))
        return 0;
    return heads_copy(call->stream, heads, rows, call->args->head_dim, &from, given, err);
}

/* To where the plan wants them. */
static int attention_pack(struct attention_call *call, char *scratch, struct err *err)
{
    const struct attention_shape *shape = &call->shape;
    TRY(attention_bring(call, shape->q_heads, call->args->rows, &shape->q, scratch + call->at.q,
                        &call->q, err));
    TRY(attention_bring(call, shape->kv_heads, call->kv_rows, &shape->k, scratch + call->at.k,
                        &call->k, err));
    TRY(attention_bring(call, shape->kv_heads, call->kv_rows, &shape->v, scratch + call->at.v,
                        &call->v, err));
    (void)attention_redirect(shape->q_heads, &shape->o, scratch + call->at.o, &call->o);
    if (attention_lse_moves(call))
        call->lse = (float *)(scratch + call->at.lse);
    return 0;
}

/* And what came to scratch to where the caller wants it. */
static int attention_unpack(struct attention_call *call, struct err *err)
{
    const struct ops_attention *args = call->args;
    struct heads_move lse = {.heads = args->q_heads,
                             .rows = args->rows,
                             .head_dim = 1,
                             .in = {call->lse, call->shape.lse_head_stride, 1},
                             .out = {args->lse, call->lse_stride, 1},
                             .copies = 1,
                             .in_f32 = true,
                             .out_f32 = true};
    if (call->lse != args->lse)
        TRY(heads_move(call->stream, &lse, err));
    if (call->o.data == args->o.data)
        return 0;
    return heads_copy(call->stream, args->q_heads, args->rows, args->head_dim, &call->o, &args->o,
                      err);
}

static int attention_forward(struct device_cuda *cuda, struct attention_call *call, struct err *err)
{
    const struct ops_attention *args = call->args;
    const struct attention_plan *plan = NULL;
    TRY(attention_plan_find(cuda, call->stream, &call->shape, &plan, err));
    attention_places(call, plan->graph);
    char *scratch =
        device_cuda_scratch(cuda, call->stream, DEVICE_SCRATCH_ATTENTION, call->at.total, err);
    if (scratch == NULL)
        return -(int)err->code;
    TRY(attention_pack(call, scratch, err));
    void *pointers[GRAPH_TENSORS_MAX] = {[ATTENTION_Q] = call->q.data,
                                         [ATTENTION_K] = call->k.data,
                                         [ATTENTION_V] = call->v.data,
                                         [ATTENTION_O] = call->o.data,
                                         [ATTENTION_LSE] = call->lse};
    TRY(attention_plan_bind(cuda, call->stream, &plan->shape, args->documents, args->doc_rows,
                            pointers, err));
    TRY(attention_plan_run(cuda, call->stream, plan->graph, args->scale, pointers,
                           scratch + call->at.workspace, err));
    return attention_unpack(call, err);
}

int cuda_attention(struct device *device, struct stream *stream, const struct ops_attention *args,
                   struct err *err)
{
    struct device_cuda *cuda = device_cuda_of(device);
    struct attention_call call = {.stream = device_cuda_stream(device, stream),
                                  .args = args,
                                  .kv_rows = args->kv_rows > 0 ? args->kv_rows : args->rows,
                                  .lse_stride =
                                      args->lse_stride > 0 ? args->lse_stride : args->rows,
                                  .q = args->q,
                                  .k = args->k,
                                  .v = args->v,
                                  .o = args->o,
                                  .lse = args->lse};
    const struct mem_split sizes = mem_split_forward();
    if (args->rows == 0 || args->q_heads == 0)
        return 0;
    if (attention_split_wants(&sizes, args->rows, args->kv_rows))
        return attention_in_parts(cuda, call.stream, args, &sizes, err);
    TRY(attention_check(args, call.kv_rows, err));
    attention_shape_forward(&call.shape, args);
    if (call.shape.slots == 0 && attention_shape_is_small(args->rows, call.kv_rows))
        return attention_small(call.stream, args, err);
    return attention_forward(cuda, &call, err);
}

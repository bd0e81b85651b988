/* attention: cuDNN's fused engines, forward: any layout of heads, documents packed or not. Long
 * documents go in parts whose keys stay in the L2 cache (worker/attention_split.h).
 *
 * Causal FLOPs, d 128: 128K rows, 4 heads on 1, 560 TF/s, 84% of cuBLAS in the same run; in 16
 * documents of 8K 535; 16K rows 506 (bench_cuda_ops 131072 and 16384, one H200, driver 580.159.04,
 * 2026-11-29). */
#include "worker/attention_split.h"
#include "worker/cuda/attention_plan.h"
#include "worker/cuda/attention_small.h"
#include "worker/cuda/ops_cuda.h"

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

int cuda_attention(struct device *device, struct stream *stream, const struct ops_attention *args,
                   struct err *err)
{
    struct device_cuda *cuda = device_cuda_of(device);
    struct attention_shape shape;
    const struct attention_plan *plan = NULL;
    stream = device_cuda_stream(device, stream);
    if (args->rows == 0 || args->q_heads == 0)
        return 0;
    const struct mem_split sizes = mem_split_forward();
    if (attention_split_wants(&sizes, args->rows, args->kv_rows))
        return attention_in_parts(cuda, stream, args, &sizes, err);
    memset(&shape, 0, sizeof shape);
    shape.q_heads = args->q_heads, shape.kv_heads = args->kv_heads;
    shape.head_dim = args->head_dim;
    shape.q = attention_layout_of(&args->q), shape.k = attention_layout_of(&args->k);
    shape.v = attention_layout_of(&args->v), shape.o = attention_layout_of(&args->o);
    shape.lse_head_stride = args->lse_stride > 0 ? args->lse_stride : args->rows;
    shape.lse_row_stride = 1;
    attention_plan_rows(&shape, args->rows, args->kv_rows, args->documents, args->doc_rows);
    TRY(attention_check(args, args->kv_rows > 0 ? args->kv_rows : args->rows, err));
    if (shape.slots == 0 && attention_is_small(shape.q_rows, shape.kv_rows))
        return attention_small(stream, args, err);
    TRY(attention_plan_find(cuda, &shape, &plan, err));
    size_t bytes = (size_t)graph_workspace_bytes(plan->graph) + 256;
    void *workspace = device_cuda_scratch(cuda, stream, DEVICE_SCRATCH_ATTENTION, bytes, err);
    if (workspace == NULL)
        return -(int)err->code;
    void *pointers[GRAPH_TENSORS_MAX] = {[ATTENTION_Q] = args->q.data,
                                         [ATTENTION_K] = args->k.data,
                                         [ATTENTION_V] = args->v.data,
                                         [ATTENTION_O] = args->o.data,
                                         [ATTENTION_LSE] = args->lse};
    TRY(attention_plan_bind(cuda, stream, &plan->shape, args->documents, args->doc_rows, pointers,
                            err));
    return attention_plan_run(cuda, stream, plan->graph, args->scale, pointers, workspace, err);
}

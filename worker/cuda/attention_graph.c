/* attention_graph: see attention_graph.h. Forward is 14 operations, backward 22 (fewer without
 * masks). K enters the first product transposed, V too in backward: the same memory, two axes
 * swapped. The causal mask comes after the subtraction of LSE in backward, before the maximum in
 * forward; that of packed documents before both. */
#include "worker/cuda/attention_graph.h"

#include "common/must.h"

#include <string.h>

struct attention_builder {
    struct graph *graph;
    struct attention_shape *shape;
    bool packed;
    int64_t batch; /* slots, or 1 */
    int64_t score_dims[4], score_strides[4], row_dims[4], row_strides[4];
    struct graph_tensor scale, minus_inf, lengths;
    struct graph_tensor offsets[ATTENTION_UNITS_MAX];
    const struct graph_tensor *m; /* lengths where packed, else NULL */
};

/* The offsets of tensors with this row stride; NULL where not packed. */
static const struct graph_tensor *offsets_of(struct attention_builder *b, int64_t unit)
{
    struct attention_shape *shape = b->shape;
    if (!b->packed)
        return NULL;
    for (int64_t i = 0; i < shape->unit_count; i++)
        if (shape->units[i] == unit)
            return &b->offsets[i];
    const int64_t dims[4] = {b->batch + 1, 1, 1, 1}, strides[4] = {1, 1, 1, 1};
    int64_t i = shape->unit_count++;
    must(i < ATTENTION_UNITS_MAX);
    shape->units[i] = unit;
    b->offsets[i] =
        graph_real(b->graph, ATTENTION_OFFSETS + (int)i, CUDNN_DATA_INT64, dims, strides, NULL);
    return &b->offsets[i];
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* (batch, heads, rows, d) with this layout. */
static struct graph_tensor heads_tensor(struct attention_builder *b, enum attention_tensor number,
                                        cudnnDataType_t type, bool of_queries,
                                        const struct attention_layout *layout)
{
    const struct attention_shape *shape = b->shape;
    int64_t heads = of_queries ? shape->q_heads : shape->kv_heads;
    int64_t rows = of_queries ? shape->q_rows : shape->kv_rows;
    const int64_t dims[4] = {b->batch, heads, rows, shape->head_dim};
    const int64_t strides[4] = {larger(heads * layout->head_stride, rows * layout->row_stride),
                                layout->head_stride, layout->row_stride, 1};
    return graph_real(b->graph, (int)number, type, dims, strides,
                      offsets_of(b, layout->row_stride));
}

/* The same memory with rows and columns swapped. */
static struct graph_tensor heads_transposed(struct attention_builder *b,
                                            enum attention_tensor number,
                                            const struct attention_layout *layout)
{
    const struct attention_shape *shape = b->shape;
    const int64_t dims[4] = {b->batch, shape->kv_heads, shape->head_dim, shape->kv_rows};
    const int64_t strides[4] = {
        larger(shape->kv_heads * layout->head_stride, shape->kv_rows * layout->row_stride),
        layout->head_stride, 1, layout->row_stride};
    return graph_real(b->graph, (int)number, CUDNN_DATA_BFLOAT16, dims, strides,
                      offsets_of(b, layout->row_stride));
}

/* fp32 (batch, q_heads, rows, 1): LSE and delta. */
static struct graph_tensor rows_tensor(struct attention_builder *b, enum attention_tensor number)
{
    const struct attention_shape *shape = b->shape;
    const int64_t strides[4] = {
        larger(shape->q_heads * shape->lse_head_stride, shape->q_rows * shape->lse_row_stride),
        shape->lse_head_stride, shape->lse_row_stride, 1};
    return graph_real(b->graph, (int)number, CUDNN_DATA_FLOAT, b->row_dims, strides,
                      offsets_of(b, shape->lse_row_stride));
}

static struct graph_tensor scores(struct attention_builder *b)
{
    return graph_virtual(b->graph, CUDNN_DATA_FLOAT, b->score_dims, b->score_strides);
}

static void builder_begin(struct attention_builder *b)
{
    const struct attention_shape *shape = b->shape;
    const int64_t h = shape->q_heads, q = shape->q_rows, k = shape->kv_rows;
    const int64_t lengths_dims[4] = {b->batch, 1, 1, 1}, ones[4] = {1, 1, 1, 1};
    memcpy(b->score_dims, (int64_t[4]){b->batch, h, q, k}, sizeof b->score_dims);
    memcpy(b->score_strides, (int64_t[4]){h * q * k, q * k, k, 1}, sizeof b->score_strides);
    memcpy(b->row_dims, (int64_t[4]){b->batch, h, q, 1}, sizeof b->row_dims);
    memcpy(b->row_strides, (int64_t[4]){h * q, q, 1, 1}, sizeof b->row_strides);
    b->scale = graph_scalar(b->graph, ATTENTION_SCALE);
    if (shape->causal || b->packed)
        b->minus_inf = graph_scalar(b->graph, ATTENTION_MINUS_INF);
    if (!b->packed)
        return;
    b->lengths =
        graph_real(b->graph, ATTENTION_LENGTHS, CUDNN_DATA_INT32, lengths_dims, ones, NULL);
    b->m = &b->lengths;
}

/* ---- masks ---- */

static struct graph_tensor mask_index(struct graph *graph, const struct graph_tensor *like,
                                      int64_t axis, cudnnDataType_t compute)
{
    struct graph_tensor y = graph_like(graph, like, CUDNN_DATA_INT32);
    graph_pointwise(graph, CUDNN_POINTWISE_GEN_INDEX, compute, axis, like, NULL, NULL, &y);
    return y;
}

static struct graph_tensor mask_compare(struct graph *graph, cudnnPointwiseMode_t mode,
                                        const struct graph_tensor *a, const struct graph_tensor *b)
{
    struct graph_tensor y = graph_like(graph, a, CUDNN_DATA_BOOLEAN);
    graph_pointwise(graph, mode, CUDNN_DATA_BOOLEAN, -1, a, b, NULL, &y);
    return y;
}

static struct graph_tensor mask_apply(struct attention_builder *b, const struct graph_tensor *x,
                                      const struct graph_tensor *keep)
{
    struct graph_tensor y = graph_like(b->graph, x, CUDNN_DATA_FLOAT);
    graph_pointwise(b->graph, CUDNN_POINTWISE_BINARY_SELECT, CUDNN_DATA_FLOAT, -1, x, &b->minus_inf,
                    keep, &y);
    return y;
}

/* Rows and columns beyond the document's length. */
static struct graph_tensor mask_padding(struct attention_builder *b, struct graph_tensor x)
{
    if (!b->packed)
        return x;
    struct graph_tensor row = mask_index(b->graph, &x, 2, CUDNN_DATA_INT32);
    struct graph_tensor column = mask_index(b->graph, &x, 3, CUDNN_DATA_INT32);
    struct graph_tensor row_in = mask_compare(b->graph, CUDNN_POINTWISE_CMP_LT, &row, &b->lengths);
    struct graph_tensor column_in =
        mask_compare(b->graph, CUDNN_POINTWISE_CMP_LT, &column, &b->lengths);
    struct graph_tensor keep =
        mask_compare(b->graph, CUDNN_POINTWISE_LOGICAL_AND, &row_in, &column_in);
    return mask_apply(b, &x, &keep);
}

static struct graph_tensor mask_causal(struct attention_builder *b, struct graph_tensor x)
{
    if (!b->shape->causal)
        return x;
    struct graph_tensor row = mask_index(b->graph, &x, 2, CUDNN_DATA_FLOAT);
    struct graph_tensor column = mask_index(b->graph, &x, 3, CUDNN_DATA_FLOAT);
    struct graph_tensor keep = mask_compare(b->graph, CUDNN_POINTWISE_CMP_GE, &row, &column);
    return mask_apply(b, &x, &keep);
}

/* ---- forward ---- */

static void build_forward(struct attention_builder *b)
{
    struct graph *graph = b->graph;
    const struct attention_shape *shape = b->shape;
    struct graph_tensor q = heads_tensor(b, ATTENTION_Q, CUDNN_DATA_BFLOAT16, true, &shape->q);
    struct graph_tensor kt = heads_transposed(b, ATTENTION_K, &shape->k);
    struct graph_tensor v = heads_tensor(b, ATTENTION_V, CUDNN_DATA_BFLOAT16, false, &shape->v);
    struct graph_tensor o = heads_tensor(b, ATTENTION_O, CUDNN_DATA_BFLOAT16, true, &shape->o);
    struct graph_tensor lse = rows_tensor(b, ATTENTION_LSE);
    struct graph_tensor s = scores(b);
    graph_matmul(graph, &(struct graph_matmul){
                            .a = &q, .b = &kt, .c = &s, .m = b->m, .n = b->m, .pad = b->packed});
    s = graph_map(graph, CUDNN_POINTWISE_MUL, &s, &b->scale);
    s = mask_causal(b, mask_padding(b, s));
    struct graph_tensor largest =
        graph_virtual(graph, CUDNN_DATA_FLOAT, b->row_dims, b->row_strides);
    graph_reduce(graph, CUDNN_REDUCE_TENSOR_MAX, &s, &largest);
    s = graph_map(graph, CUDNN_POINTWISE_SUB, &s, &largest);
    s = graph_map(graph, CUDNN_POINTWISE_EXP, &s, NULL);
    struct graph_tensor sum = graph_virtual(graph, CUDNN_DATA_FLOAT, b->row_dims, b->row_strides);
    graph_reduce(graph, CUDNN_REDUCE_TENSOR_ADD, &s, &sum);
    struct graph_tensor log = graph_map(graph, CUDNN_POINTWISE_LOG, &sum, NULL);
    graph_pointwise(graph, CUDNN_POINTWISE_ADD, CUDNN_DATA_FLOAT, -1, &largest, &log, NULL, &lse);
    struct graph_tensor p = graph_like(graph, &s, CUDNN_DATA_BFLOAT16);
    graph_pointwise(graph, CUDNN_POINTWISE_DIV, CUDNN_DATA_FLOAT, -1, &s, &sum, NULL, &p);
    graph_matmul(graph, &(struct graph_matmul){.a = &p, .b = &v, .c = &o, .m = b->m, .k = b->m});
}

/* ---- backward ---- */

/* delta = rowsum(dO * O) */
static struct graph_tensor build_delta(struct attention_builder *b, const struct graph_tensor *d_o)
{
    struct graph *graph = b->graph;
    const struct attention_shape *shape = b->shape;
    struct graph_tensor o = heads_tensor(b, ATTENTION_O, CUDNN_DATA_BFLOAT16, true, &shape->o);
    struct graph_tensor one = graph_scalar(graph, ATTENTION_ONE);
    const int64_t h = shape->q_heads, q = shape->q_rows, d = shape->head_dim;
    const int64_t dims[4] = {b->batch, h, q, d}, strides[4] = {h * q * d, q * d, h * d, 1};
    struct graph_tensor product = graph_virtual(graph, CUDNN_DATA_FLOAT, dims, strides);
    graph_pointwise(graph, CUDNN_POINTWISE_MUL, CUDNN_DATA_FLOAT, -1, d_o, &o, NULL, &product);
    struct graph_tensor sum = graph_virtual(graph, CUDNN_DATA_FLOAT, b->row_dims, b->row_strides);
    graph_reduce(graph, CUDNN_REDUCE_TENSOR_ADD, &product, &sum);
    struct graph_tensor delta = rows_tensor(b, ATTENTION_DELTA);
    graph_pointwise(graph, CUDNN_POINTWISE_MUL, CUDNN_DATA_FLOAT, -1, &sum, &one, NULL, &delta);
    return delta;
}

/* dK or dV = left * right; with fewer key/value than query heads by query head first, then summed.
 * Packed documents want that larger tensor in memory, laid out as the result but g times as wide:
 * cuDNN scales the result's offsets by g. */
static void build_kv_gradient(struct attention_builder *b, const struct graph_tensor *left,
                              const struct graph_tensor *right, enum attention_tensor number,
                              const struct attention_layout *layout)
{
    struct graph *graph = b->graph;
    const struct attention_shape *shape = b->shape;
    const int64_t g = shape->q_heads / shape->kv_heads;
    const int64_t h = shape->q_heads, k = shape->kv_rows, d = shape->head_dim;
    struct graph_matmul product = {.a = left, .b = right, .m = b->m, .k = b->m};
    struct graph_tensor out = heads_tensor(b, number, CUDNN_DATA_BFLOAT16, false, layout);
    struct graph_tensor heads;
    if (g == 1) {
        product.c = &out;
        graph_matmul(graph, &product);
        return;
    }
    const int64_t dims[4] = {b->batch, h, k, d}, plain[4] = {h * k * d, k * d, d, 1};
    if (b->packed) {
        const int64_t wide[4] = {out.strides[0] * g, out.strides[1], out.strides[2] * g, 1};
        heads = graph_real(graph, number == ATTENTION_DK ? ATTENTION_DK_HEADS : ATTENTION_DV_HEADS,
                           CUDNN_DATA_BFLOAT16, dims, wide, offsets_of(b, layout->row_stride));
    } else {
        heads = graph_virtual(graph, CUDNN_DATA_BFLOAT16, dims, plain);
    }
    product.c = &heads;
    graph_matmul(graph, &product);
    graph_reduce(graph, CUDNN_REDUCE_TENSOR_ADD, &heads, &out);
}

/* x as bf16 with rows and columns swapped. */
static struct graph_tensor build_transposed(struct attention_builder *b,
                                            const struct graph_tensor *x)
{
    const int64_t h = b->shape->q_heads, q = b->shape->q_rows, k = b->shape->kv_rows;
    const int64_t dims[4] = {b->batch, h, k, q}, strides[4] = {h * q * k, q * k, 1, k};
    struct graph_tensor y = graph_virtual(b->graph, CUDNN_DATA_BFLOAT16, dims, strides);
    graph_reshape(b->graph, x, &y);
    return y;
}

static void build_dq(struct attention_builder *b, const struct graph_tensor *ds,
                     const struct graph_tensor *kt)
{
    struct graph *graph = b->graph;
    const struct attention_shape *shape = b->shape;
    const int64_t dims[4] = {b->batch, shape->kv_heads, shape->kv_rows, shape->head_dim};
    const int64_t strides[4] = {kt->strides[0], kt->strides[1], kt->strides[3], 1};
    struct graph_tensor k = graph_virtual(graph, CUDNN_DATA_BFLOAT16, dims, strides);
    graph_reshape(graph, kt, &k);
    struct graph_tensor sum = heads_tensor(b, ATTENTION_DQ_SUM, CUDNN_DATA_FLOAT, true, &shape->dq);
    struct graph_tensor dq = heads_tensor(b, ATTENTION_DQ, CUDNN_DATA_BFLOAT16, true, &shape->dq);
    graph_matmul(graph, &(struct graph_matmul){.a = ds, .b = &k, .c = &sum, .m = b->m, .k = b->m});
    graph_pointwise(graph, CUDNN_POINTWISE_IDENTITY, CUDNN_DATA_FLOAT, -1, &sum, NULL, NULL, &dq);
}

static void build_backward(struct attention_builder *b)
{
    struct graph *graph = b->graph;
    const struct attention_shape *shape = b->shape;
    struct graph_tensor q = heads_tensor(b, ATTENTION_Q, CUDNN_DATA_BFLOAT16, true, &shape->q);
    struct graph_tensor kt = heads_transposed(b, ATTENTION_K, &shape->k);
    struct graph_tensor vt = heads_transposed(b, ATTENTION_V, &shape->v);
    struct graph_tensor d_o = heads_tensor(b, ATTENTION_DO, CUDNN_DATA_BFLOAT16, true, &shape->d_o);
    struct graph_tensor lse = rows_tensor(b, ATTENTION_LSE);
    struct graph_tensor delta = build_delta(b, &d_o);
    /* P = exp(scale * Q K^T - LSE) */
    struct graph_tensor p = scores(b);
    graph_matmul(graph, &(struct graph_matmul){.a = &q, .b = &kt, .c = &p, .m = b->m, .n = b->m});
    p = graph_map(graph, CUDNN_POINTWISE_MUL, &p, &b->scale);
    p = mask_padding(b, p);
    p = graph_map(graph, CUDNN_POINTWISE_SUB, &p, &lse);
    p = mask_causal(b, p);
    p = graph_map(graph, CUDNN_POINTWISE_EXP, &p, NULL);
    /* dV = P^T dO */
    struct graph_tensor pt = build_transposed(b, &p);
    build_kv_gradient(b, &pt, &d_o, ATTENTION_DV, &shape->dv);
    /* dS = scale * P * (dO V^T - delta) */
    struct graph_tensor ds = scores(b);
    graph_matmul(graph,
                 &(struct graph_matmul){.a = &d_o, .b = &vt, .c = &ds, .m = b->m, .n = b->m});
    ds = graph_map(graph, CUDNN_POINTWISE_SUB, &ds, &delta);
    ds = graph_map(graph, CUDNN_POINTWISE_MUL, &ds, &p);
    ds = graph_map(graph, CUDNN_POINTWISE_MUL, &ds, &b->scale);
    /* dK = dS^T Q, dQ = dS K */
    struct graph_tensor dst = build_transposed(b, &ds);
    build_kv_gradient(b, &dst, &q, ATTENTION_DK, &shape->dk);
    build_dq(b, &ds, &kt);
}

int attention_graph_build(struct graph *graph, struct attention_shape *shape, struct err *err)
{
    struct attention_builder builder = {.graph = graph,
                                        .shape = shape,
                                        .packed = shape->slots > 0,
                                        .batch = shape->slots > 0 ? shape->slots : 1};
    shape->unit_count = 0;
    builder_begin(&builder);
    if (shape->backward)
        build_backward(&builder);
    else
        build_forward(&builder);
    return graph_plan(graph, err);
}

/* attention_shape: see attention_shape.h. */
#include "worker/attention_shape.h"

#include "common/must.h"

#include <string.h>

enum {
    PACKED_ROWS_MIN = 128,    /* longest document a packed shape is for, at least */
    PACKED_SLOTS_MIN = 2,     /* and documents */
    ALONE_ROWS_STEP = 256,    /* a document alone is not packed at multiples of this, */
    ALONE_ROWS_MIN = 64 << 10 /* nor from here on */
};

static int64_t shape_power_of_two(int64_t value, int64_t least)
{
    while (least < value)
        least *= 2;
    return least;
}

/* ---- rows ---- */

/* Whether a document that is alone has a shape of its own length: also where one for more rows
 * would span too much. */
static bool shape_stands_alone(int64_t rows, int64_t row_stride)
{
    return rows % ALONE_ROWS_STEP == 0 || rows >= ALONE_ROWS_MIN ||
           attention_shape_is_small(rows, rows) || 2 * rows * row_stride >= ATTENTION_SPAN_MAX;
}

/* Rows of a shape for packed documents: not where so many would span too much. */
static int64_t shape_packed_rows(int64_t longest, int64_t row_stride)
{
    int64_t rows = shape_power_of_two(longest, PACKED_ROWS_MIN);
    return rows * row_stride < ATTENTION_SPAN_MAX ? rows : longest;
}

/* Of a causal call; row_stride: the largest in it. */
static void shape_documents(struct attention_shape *shape, int64_t documents,
                            const int64_t *doc_rows, int64_t row_stride)
{
    int64_t rows = shape->q_rows, longest = 0;
    int64_t filled = 0; /* a ring's documents are not all on each rank */
    for (int64_t s = 0; s < documents; s++) {
        int64_t length = doc_rows[s + 1] - doc_rows[s];
        must(length >= 0);
        longest = length > longest ? length : longest;
        filled += length > 0;
    }
    must(doc_rows[0] == 0 && doc_rows[documents] == rows);
    if (longest == rows && shape_stands_alone(rows, row_stride))
        return;
    shape->slots = shape_power_of_two(filled, PACKED_SLOTS_MIN);
    shape->q_rows = shape->kv_rows = shape_packed_rows(longest, row_stride);
}

static int64_t shape_stride(const struct attention_shape *shape, const struct ops_heads *const of[],
                            int count)
{
    int64_t largest = shape->q_heads * shape->head_dim; /* of what is copied */
    for (int i = 0; i < count; i++)
        largest = of[i]->row_stride > largest ? of[i]->row_stride : largest;
    return largest;
}

/* ---- layouts ---- */

/* For `count` heads of `rows` rows. */
static struct attention_layout shape_layout(const struct attention_shape *shape,
                                            const struct ops_heads *heads, int64_t count,
                                            int64_t rows)
{
    int64_t d = shape->head_dim, dense = rows * heads->row_stride;
    if (count == 1) /* which has no next one */
        return (struct attention_layout){shape->slots > 0 ? d : dense, heads->row_stride};
    if (heads->head_stride < heads->row_stride ||
        (shape->slots == 0 && heads->head_stride == dense))
        return (struct attention_layout){heads->head_stride, heads->row_stride};
    return attention_shape_own(shape, count, rows);
}

struct attention_layout attention_shape_own(const struct attention_shape *shape, int64_t heads,
                                            int64_t rows)
{
    int64_t d = shape->head_dim;
    return shape->slots > 0 ? (struct attention_layout){d, heads * d}
                            : (struct attention_layout){rows * d, d};
}

/* ---- both directions ---- */

void attention_shape_forward(struct attention_shape *ret, const struct ops_attention *args)
{
    const struct ops_heads *const tensors[] = {&args->q, &args->k, &args->v, &args->o};
    int64_t rows = args->rows, kv_rows = args->kv_rows > 0 ? args->kv_rows : rows;
    memset(ret, 0, sizeof *ret);
    ret->q_heads = args->q_heads, ret->kv_heads = args->kv_heads;
    ret->q_rows = rows, ret->kv_rows = kv_rows;
    ret->head_dim = args->head_dim;
    ret->causal = args->kv_rows == 0;
    if (ret->causal)
        shape_documents(ret, args->documents, args->doc_rows, shape_stride(ret, tensors, 4));
    ret->q = shape_layout(ret, &args->q, args->q_heads, rows);
    ret->k = shape_layout(ret, &args->k, args->kv_heads, kv_rows);
    ret->v = shape_layout(ret, &args->v, args->kv_heads, kv_rows);
    ret->o = shape_layout(ret, &args->o, args->q_heads, rows);
    ret->lse_row_stride = 1;
    ret->lse_head_stride = rows;
    if (ret->slots > 0)
        ret->lse_head_stride = args->q_heads > 1 ? shape_power_of_two(rows, 1) : 1;
}

void attention_shape_backward(struct attention_shape *ret, const struct ops_attention_bwd *args)
{
    const struct ops_heads *const tensors[] = {&args->q, &args->k, &args->v, &args->d_o};
    int64_t rows = args->rows, kv_rows = args->kv_rows > 0 ? args->kv_rows : rows;
    memset(ret, 0, sizeof *ret);
    ret->q_heads = args->q_heads, ret->kv_heads = args->kv_heads;
    ret->q_rows = rows, ret->kv_rows = kv_rows;
    ret->head_dim = args->head_dim;
    ret->causal = args->kv_rows == 0, ret->backward = 1;
    if (ret->causal)
        shape_documents(ret, args->documents, args->doc_rows, shape_stride(ret, tensors, 4));
    ret->o = ret->dq = attention_shape_own(ret, args->q_heads, rows);
    ret->dk = ret->dv = attention_shape_own(ret, args->kv_heads, kv_rows);
    ret->q = ret->d_o = ret->dq, ret->k = ret->v = ret->dk;
    ret->lse_head_stride = 1, ret->lse_row_stride = args->q_heads;
    if (ret->slots > 0)
        return;
    ret->q = shape_layout(ret, &args->q, args->q_heads, rows);
    ret->k = shape_layout(ret, &args->k, args->kv_heads, kv_rows);
    ret->v = shape_layout(ret, &args->v, args->kv_heads, kv_rows);
    ret->d_o = shape_layout(ret, &args->d_o, args->q_heads, rows);
    ret->lse_head_stride = rows, ret->lse_row_stride = 1;
}

/* attention_shape: what cuDNN's plan of an attention call depends on, chosen so that calls of other
 * lengths share it. Pure: worker/cuda/attention_plan.c makes and keeps the plans.
 *
 * Lengths of documents change from batch to batch, and a plan takes cuDNN so long (60 ms; the first
 * of a kind half a second to one) that the device has nothing to do meanwhile. So shapes of packed
 * documents depend on powers of two only, strides included: a thousand batches of 8K or 32K tokens
 * make some ten of each direction. A document alone gets a shape of its own length, which runs
 * somewhat faster, where the length is likely to come again or attention takes much longer than the
 * plan; else it goes packed. Rectangles (a ring's, the ends of documents in parts) are of their own
 * size always: of batches of 128K tokens in documents of 40K about, two in three have one that is
 * new.
 *
 *     struct attention_shape shape;
 *     attention_shape_forward(&shape, args);
 *     shape.q is where q is to lie: attention_shape_alike(shape.q_heads, &args->q, &shape.q) */
#pragma once
#include "worker/ops.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    ATTENTION_UNITS_MAX = 10,
    ATTENTION_SMALL_ROWS = 8 /* fewer rows or keys are a kernel's of ours (attention_small.h) */
};
#define ATTENTION_SPAN_MAX ((int64_t)1 << 31) /* elements of a tensor in a call, exclusive */

struct attention_layout {
    int64_t head_stride, row_stride;
};

/* Compared by bytes, up to `units`. */
struct attention_shape {
    int64_t q_heads, kv_heads, q_rows, kv_rows, head_dim;
    int64_t slots;            /* documents; 0: not packed */
    int64_t backward, causal; /* booleans */
    struct attention_layout q, k, v, o, d_o, dq, dk, dv;
    int64_t lse_head_stride, lse_row_stride; /* of LSE and delta */
    int64_t units[ATTENTION_UNITS_MAX];      /* row strides in use, each once; packed only; by
                                              * attention_graph.c, as is their count */
    int64_t unit_count;
};

/* Layouts in it are as the caller's, unless a stride between heads comes from a batch of which the
 * call's rows are a part; then heads lie one behind the other, or, packed, beside each other. In
 * backward packed documents are (rows, heads, d), LSE (rows, heads); what comes out lies alike. */
void attention_shape_forward(struct attention_shape *ret, const struct ops_attention *args);
void attention_shape_backward(struct attention_shape *ret, const struct ops_attention_bwd *args);

/* Of what backward makes. */
struct attention_layout attention_shape_own(const struct attention_shape *shape, int64_t heads,
                                            int64_t rows);

/* In one document or a rectangle; packed documents go to cuDNN at any length. */
static inline bool attention_shape_is_small(int64_t rows, int64_t kv_rows)
{
    return rows < ATTENTION_SMALL_ROWS || kv_rows < ATTENTION_SMALL_ROWS;
}

/* Whether heads lie as a layout has them. */
static inline bool attention_shape_alike(int64_t heads, const struct ops_heads *a,
                                         const struct attention_layout *b)
{
    return a->row_stride == b->row_stride && (heads == 1 || a->head_stride == b->head_stride);
}

#ifdef __cplusplus
}
#endif

/* unpack: heads from one layout to another, for attention and its operations. */
#pragma once
#include "worker/cuda/device_cuda.h"
#include "worker/ops.h"

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* out = or += the sum over `copies` of in, added in fp32 in their order. (heads, rows, d) */
struct heads_move {
    int64_t heads, rows, head_dim;
    struct ops_heads in, out;
    int64_t copies, copy_stride; /* of in, between copies of a head */
    bool in_f32, out_f32;        /* else bf16 */
    bool accumulate;
};
int heads_move(struct stream *stream, const struct heads_move *args, struct err *err);

/* bf16 as it is. */
static inline int heads_copy(struct stream *stream, int64_t heads, int64_t rows, int64_t head_dim,
                             const struct ops_heads *in, const struct ops_heads *out,
                             struct err *err)
{
    struct heads_move move = {};
    move.heads = heads, move.rows = rows, move.head_dim = head_dim;
    move.in = *in, move.out = *out, move.copies = 1;
    return heads_move(stream, &move, err);
}

#ifdef __cplusplus
}
#endif

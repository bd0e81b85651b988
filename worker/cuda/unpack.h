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

#ifdef __cplusplus
}
#endif

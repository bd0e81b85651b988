/* attention_delta: what stands in for O in cuDNN's backward. */
#pragma once
#include "worker/cuda/device_cuda.h"
#include "worker/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* out = d_o * delta / sum(d_o^2), row by row: rowsum(out * d_o) is delta. bf16, laid as given. */
int attention_stand_in(struct stream *stream, const struct ops_attention_bwd *args,
                       const struct ops_heads *out, struct err *err);

#ifdef __cplusplus
}
#endif

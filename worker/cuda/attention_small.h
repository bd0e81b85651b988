/* attention_small: attention of a few rows or of a few keys, which cuDNN gets wrong: with one row
 * of grouped heads its dq is NaN (9.19, 2026-11-29). A ring of short documents is full of them.
 * Which those are: attention_shape_is_small(). */
#pragma once
#include "worker/cuda/device_cuda.h"
#include "worker/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

int attention_small(struct stream *stream, const struct ops_attention *args, struct err *err);
int attention_small_bwd(struct stream *stream, const struct ops_attention_bwd *args,
                        struct err *err);

#ifdef __cplusplus
}
#endif

/* attention_small: attention of a few rows or of a few keys, which cuDNN gets wrong: with one row
 * of grouped heads its dq is NaN (9.19, 2026-11-29). A ring of short documents is full of them. */
#pragma once
#include "worker/cuda/device_cuda.h"
#include "worker/ops.h"

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* In one document or a rectangle; packed documents go to cuDNN at any length. */
bool attention_is_small(int64_t rows, int64_t kv_rows);

int attention_small(struct stream *stream, const struct ops_attention *args, struct err *err);
int attention_small_bwd(struct stream *stream, const struct ops_attention_bwd *args,
                        struct err *err);

#ifdef __cplusplus
}
#endif

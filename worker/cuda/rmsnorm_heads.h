/* rmsnorm_heads: norms of short rows, a head each (qk-norm): rows so short that a lane has one
 * vector of a row work on several rows at once instead. */
#pragma once
#include "worker/ops.h"

#include <cuda_runtime_api.h>

/* Rows of up to 32 vectors of `vector` (8 or 1) elements. */
void rmsnorm_heads(const struct ops_rmsnorm *args, int vector, cudaStream_t stream);
/* parts: (blocks, width) sums for dweight, or NULL. */
void rmsnorm_heads_bwd(const struct ops_rmsnorm_bwd *args, int vector, int64_t blocks, float *parts,
                       cudaStream_t stream);
/* Blocks that the rows fill, at most `most`. */
int64_t rmsnorm_heads_blocks(int64_t rows, int64_t width, int vector, int64_t most);

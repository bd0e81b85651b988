/* rmsnorm_heads: norms of short rows, a head each (qk-norm): rows so short that a lane has one
 * vector of a row work on several rows at once instead. */
#pragma once
#include "worker/ops.h"

#include <cuda_runtime_api.h>

/* Rows of up to 32 vectors of `vector` (8 or 1) elements. */
void rmsnorm_heads(const struct ops_rmsnorm *args, int vector, cudaStream_t stream);

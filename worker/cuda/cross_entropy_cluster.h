/* cross_entropy_cluster: rows of vocabularies that no block holds, with their gradient. For .cu
 * files only. */
#pragma once
#include "worker/ops.h"

#include <cuda_runtime_api.h>

/* What is found in each row that is trained on goes to states (rows), by softmax_pack(). vector: 4
 * where rows and pointers allow 16-byte accesses, else 1. ERR_UNSUPPORTED: larger still. */
int cross_entropy_cluster(const struct ops_cross_entropy *args, int vector, float4 *states,
                          cudaStream_t stream, struct err *err);

/* peer_memory: device memory that other processes of the machine can map, so that NCCL moves from
 * and into it without copies of its own: what cudaMalloc gives cannot be lent by it. The driver's
 * calls are looked up at run time; the plug-in loads without a driver. */
#pragma once
#include <cuda_runtime_api.h>

/* As cudaMalloc(), in whole pages of the GPU (2 MiB). cudaErrorNotSupported: there is no such
 * memory here. */
cudaError_t peer_memory_take(int ordinal, size_t bytes, void **ret);
/* Waits for the device, as cudaFree() does. */
void peer_memory_give(int ordinal, void *memory, size_t bytes);

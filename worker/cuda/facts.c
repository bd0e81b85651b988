/* facts: asked of the libraries themselves. A GPU is started to learn its free memory: one that
 * does not start, because it is sick or given to others alone, says why. */
#include "worker/cuda/facts.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn_graph.h>
#include <dlfcn.h>
#include <nccl.h>
#include <stdio.h>
#include <string.h>

static cudaError_t facts_start(int ordinal, struct device_cuda_gpu *gpu)
{
    struct cudaDeviceProp properties;
    size_t free_bytes = 0, total = 0;
    cudaError_t status = cudaGetDeviceProperties(&properties, ordinal);
    if (status != cudaSuccess)
        return status;
    (void)snprintf(gpu->name, sizeof gpu->name, "%s", properties.name);
    gpu->major = properties.major;
    gpu->minor = properties.minor;
    gpu->bytes = (int64_t)properties.totalGlobalMem;
    status = cudaSetDevice(ordinal);
    if (status == cudaSuccess)
        status = cudaMemGetInfo(&free_bytes, &total);
    gpu->free_bytes = (int64_t)free_bytes;
    return status;
}

bool facts_nvrtc(void)
{
    char name[32];
    (void)snprintf(name, sizeof name, "libnvrtc.so.%d", CUDART_VERSION / 1000);
    return dlopen(name, RTLD_NOW | RTLD_LOCAL) != NULL; /* it stays: cuDNN wants it anyway */
}

void facts_describe(struct device_cuda_facts *ret)
{
    memset(ret, 0, sizeof *ret);
    ret->runtime = CUDART_VERSION;
    ret->cudnn = cudnnGetVersion();
    ret->cudnn_needed = CUDNN_VERSION;
    ret->nvrtc = facts_nvrtc();
    ret->blas = cublasLtGetVersion();
    (void)ncclGetVersion(&ret->nccl);
    (void)cudaDriverGetVersion(&ret->driver);
    if (ret->driver < CUDART_VERSION || cudaGetDeviceCount(&ret->gpu_count) != cudaSuccess)
        ret->gpu_count = 0;
    for (int i = 0; i < ret->gpu_count && i < DEVICE_CUDA_GPUS_MAX; i++) {
        cudaError_t status = facts_start(i, &ret->gpus[i]);
        if (status != cudaSuccess)
            (void)snprintf(ret->gpus[i].trouble, sizeof ret->gpus[i].trouble, "%s",
                           cudaGetErrorString(status));
        (void)cudaDeviceReset();
    }
    (void)cudaGetLastError();
}

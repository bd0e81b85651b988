/* peer_memory: see peer_memory.h. */
#include "worker/cuda/peer_memory.h"

#include <cuda.h>
#include <stdbool.h>
#include <string.h>

#define PEER_CALLS(X)                                                                            \
    X(cuMemGetAllocationGranularity,                                                             \
      (size_t *, const CUmemAllocationProp *, CUmemAllocationGranularity_flags))                 \
    X(cuMemCreate,                                                                               \
      (CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *, unsigned long long)) \
    X(cuMemAddressReserve, (CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long))     \
    X(cuMemMap, (CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long)) \
    X(cuMemSetAccess, (CUdeviceptr, size_t, const CUmemAccessDesc *, size_t))                    \
    X(cuMemRelease, (CUmemGenericAllocationHandle))                                              \
    X(cuMemUnmap, (CUdeviceptr, size_t))                                                         \
    X(cuMemAddressFree, (CUdeviceptr, size_t))

struct peer_calls {
#define X(name, arguments) CUresult(CUDAAPI *name) arguments;
    PEER_CALLS(X)
#undef X
};

static bool peer_call(const char *name, void *ret)
{
    void *symbol = NULL;
    enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
    cudaError_t status =
        cudaGetDriverEntryPointByVersion(name, &symbol, 12000, cudaEnableDefault, &found);
#else
    cudaError_t status = cudaGetDriverEntryPoint(name, &symbol, cudaEnableDefault, &found);
#endif
    memcpy(ret, &symbol, sizeof symbol);
    return status == cudaSuccess && found == cudaDriverEntryPointSuccess;
}

static bool peer_calls_find(struct peer_calls *calls)
{
    bool whole = true;
#define X(name, arguments) whole = peer_call(#name, &calls->name) && whole;
    PEER_CALLS(X)
#undef X
    return whole;
}

static CUmemAllocationProp peer_kind(int ordinal)
{
    CUmemAllocationProp kind = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR};
    kind.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    kind.location.id = ordinal;
    return kind;
}

/* bytes, in whole pages. */
static CUresult peer_round(const struct peer_calls *calls, int ordinal, size_t *bytes)
{
    CUmemAllocationProp kind = peer_kind(ordinal);
    size_t page = 0;
    CUresult result =
        calls->cuMemGetAllocationGranularity(&page, &kind, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
    if (result == CUDA_SUCCESS)
        *bytes = (*bytes + page - 1) / page * page;
    return result;
}

cudaError_t peer_memory_take(int ordinal, size_t bytes, void **ret)
{
    struct peer_calls calls;
    CUmemAllocationProp kind = peer_kind(ordinal);
    CUmemAccessDesc access = {.location = kind.location,
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr at = 0;
    if (!peer_calls_find(&calls) || peer_round(&calls, ordinal, &bytes) != CUDA_SUCCESS)
        return cudaErrorNotSupported;
    CUresult result = calls.cuMemCreate(&handle, bytes, &kind, 0);
    if (result != CUDA_SUCCESS)
        return result == CUDA_ERROR_OUT_OF_MEMORY ? cudaErrorMemoryAllocation
                                                  : cudaErrorNotSupported;
    result = calls.cuMemAddressReserve(&at, bytes, 0, 0, 0);
    if (result == CUDA_SUCCESS) {
        result = calls.cuMemMap(at, bytes, 0, handle, 0);
        if (result == CUDA_SUCCESS) {
            result = calls.cuMemSetAccess(at, bytes, &access, 1);
            if (result != CUDA_SUCCESS)
                (void)calls.cuMemUnmap(at, bytes);
        }
        if (result != CUDA_SUCCESS)
            (void)calls.cuMemAddressFree(at, bytes);
    }
    (void)calls.cuMemRelease(handle); /* the mapping keeps it */
    if (result != CUDA_SUCCESS)
        return cudaErrorNotSupported;
    *ret = (void *)at;
    return cudaSuccess;
}

void peer_memory_give(int ordinal, void *memory, size_t bytes)
{
    struct peer_calls calls;
    CUdeviceptr at = (CUdeviceptr)memory;
    (void)cudaDeviceSynchronize(); /* a failure is an earlier one's */
    if (!peer_calls_find(&calls) || peer_round(&calls, ordinal, &bytes) != CUDA_SUCCESS)
        return; /* it was there when the memory was taken */
    (void)calls.cuMemUnmap(at, bytes);
    (void)calls.cuMemAddressFree(at, bytes);
}

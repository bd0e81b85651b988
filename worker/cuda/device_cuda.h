/* device_cuda: the CUDA device's inside, for the files of cuda/ only. Compiles as C and as C++.
 *
 * One thread at a time calls a device's operations. A stream carries scratch memory of its own, so
 * that operations of different streams never share any; an operation gets what it needs with
 * device_cuda_scratch(): of what was lent, or, on a device that nothing was lent to, by taking a
 * larger piece when more is asked for than ever before on that stream (which waits for the stream
 * then). What is taken counts in bytes_in_use. */
#pragma once
#include "worker/device.h"

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

struct cublasLtContext;
struct cudnnContext;
struct gemm_cache;
struct attention_cache;

struct stream {
    cudaStream_t cuda;
    struct {
        void *memory;
        size_t bytes;
        int lent; /* it is the caller's */
    } scratch[DEVICE_SCRATCH_COUNT];
};

struct device_cuda_block {
    void *memory;
    size_t bytes;
    int shared; /* of peer_memory.h */
};

struct device_cuda_blocks {
    struct device_cuda_block *list; /* (count) not yet freed */
    int64_t count, capacity;
};

struct device_cuda {
    struct device device; /* first: a struct device * of this backend points at one of these */
    int ordinal;
    struct stream main;               /* the default stream, not CUDA's: it blocks no other */
    struct device_cuda_blocks blocks; /* device memory given out */
    struct device_cuda_blocks pinned; /* host memory given out */
    int64_t bytes_in_use;             /* blocks and scratch */
    int64_t host_bytes_in_use;        /* of pinned, as asked for */
    int has_peers;     /* collectives among GPUs were opened: blocks are taken from peer_memory.h */
    int lent_to;       /* lend_scratch was called: no scratch is taken */
    int broken;        /* set after `reason`, by another thread: syncs fail */
    struct err reason; /* why */
    struct cublasLtContext *blas;
    struct cudnnContext *dnn;
    struct gemm_cache *gemm;           /* by gemm.c */
    struct attention_cache *attention; /* by attention_plan.c */
};

static inline struct device_cuda *device_cuda_of(struct device *device)
{
    return (struct device_cuda *)device;
}
static inline struct stream *device_cuda_stream(struct device *device, struct stream *stream)
{
    return stream != NULL ? stream : &device_cuda_of(device)->main;
}

/* At least `bytes` of memory, 256-byte aligned, valid for operations issued to this stream until
 * the next device_cuda_scratch() of the same kind. NULL with err filled. */
void *device_cuda_scratch(struct device_cuda *cuda, struct stream *stream, enum device_scratch kind,
                          size_t bytes, struct err *err);

/* What is on the streams can no longer be relied on (a collective was given up): every sync from
 * now on fails with `reason`. From any thread, once. */
void device_cuda_break(struct device_cuda *cuda, const struct err *reason);

/* Pinned host memory (host_pin.c): huge pages, touched and registered in parallel. */
void *host_pin(size_t bytes, struct err *err);
/* A block of `bytes` is registered in pieces of so many: no copy of CUDA's may cross from one into
 * the next. */
size_t host_pin_piece(size_t bytes);
void host_unpin(void *memory, size_t bytes);

/* -ERR_X for a failed call of CUDA's; 0 for cudaSuccess. */
int cuda_check(cudaError_t status, const char *call, struct err *err);
#define CUDA_TRY(call) TRY(cuda_check(call, #call, err))
/* Where a library's call failed: an earlier kernel's fault, with which every call fails from then
 * on, as an error; 0: there is none, and the library says what is wrong. */
int cuda_faulted(const char *call, struct err *err);

#ifdef __cplusplus
}
#endif

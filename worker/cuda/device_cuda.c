/* device_cuda: memory, streams and events of one GPU through CUDA's runtime.
 *
 * Opening checks, in order, what a user can mend: a driver, its version, a visible GPU, its kind,
 * cuDNN's version. The runtime is linked statically and answers without a driver.
 *
 * The default stream is a stream of our own, created non-blocking: CUDA's own default stream would
 * wait for every other one. Copies from and to pageable host memory are staged by the runtime
 * before the call returns, so callers may reuse such memory at once, as on the CPU. */
#include "worker/cuda/device_cuda.h"

#include "common/mem.h"
#include "common/must.h"
#include "worker/cuda/attention_plan.h"
#include "worker/cuda/gemm.h"
#include "worker/cuda/ops_cuda.h"
#include "worker/cuda/peer_memory.h"
#include "worker/cuda/trace.h"

#include <cublasLt.h>
#include <cudnn_graph.h>
#include <inttypes.h>
#include <string.h>

struct event {
    cudaEvent_t cuda;
};

int cuda_check(cudaError_t status, const char *call, struct err *err)
{
    if (status == cudaSuccess)
        return 0;
    (void)cudaGetLastError(); /* launch errors stay otherwise */
    enum err_code code = status == cudaErrorMemoryAllocation ? ERR_NOMEM : ERR_DEVICE;
    return err_set(err, code, "GPU: %s (%s)", cudaGetErrorString(status), call);
}

int cuda_faulted(const char *call, struct err *err)
{
    cudaError_t status = cudaStreamQuery(cudaStreamLegacy); /* where nothing runs */
    if (status != cudaErrorNotReady)
        return cuda_check(status, call, err);
    (void)cudaGetLastError();
    return 0;
}

/* ---- memory ---- */

static int blocks_add(struct device_cuda_blocks *blocks, const struct device_cuda_block *block,
                      struct err *err)
{
    if (blocks->count == blocks->capacity) {
        int64_t capacity = blocks->capacity == 0 ? 16 : 2 * blocks->capacity;
        void *list = mem_grow(blocks->list, (size_t)capacity, sizeof *blocks->list);
        if (list == NULL)
            return mem_fail(err, (size_t)capacity * sizeof *blocks->list, "a list of GPU blocks");
        blocks->list = list;
        blocks->capacity = capacity;
    }
    blocks->list[blocks->count++] = *block;
    return 0;
}

/* Takes the block off the list. */
static struct device_cuda_block blocks_take(struct device_cuda_blocks *blocks, const void *memory)
{
    int64_t i = 0;
    while (i < blocks->count && blocks->list[i].memory != memory)
        i++;
    must(i < blocks->count); /* given out by this device, not yet freed */
    struct device_cuda_block block = blocks->list[i];
    blocks->list[i] = blocks->list[--blocks->count];
    return block;
}

/* shared: where it can be, of peer_memory.h; told whether it is. */
static void *device_cuda_take(struct device_cuda *cuda, size_t bytes, int *shared, struct err *err)
{
    void *memory = NULL;
    cudaError_t status = cudaErrorNotSupported;
    if (*shared)
        status = peer_memory_take(cuda->ordinal, bytes, &memory);
    *shared = status == cudaSuccess;
    if (status == cudaErrorNotSupported)
        status = cudaMalloc(&memory, bytes > 0 ? bytes : 1);
    if (status == cudaErrorMemoryAllocation) {
        size_t free_bytes = 0, total = 0;
        (void)cudaGetLastError();
        (void)cudaMemGetInfo(&free_bytes, &total); /* zeros say unknown */
        (void)err_set(err, ERR_NOMEM,
                      "out of GPU memory: %zu bytes asked for, %zu free of %zu; this process holds "
                      "%" PRId64,
                      bytes, free_bytes, total, cuda->bytes_in_use);
        return NULL;
    }
    if (cuda_check(status, "cudaMalloc", err) != 0)
        return NULL;
    cuda->bytes_in_use += (int64_t)bytes;
    return memory;
}

static void device_cuda_give(struct device_cuda *cuda, const struct device_cuda_block *block)
{
    cuda->bytes_in_use -= (int64_t)block->bytes;
    if (block->shared)
        peer_memory_give(cuda->ordinal, block->memory, block->bytes);
    else
        (void)cudaFree(block->memory);
}

static void *device_cuda_alloc(struct device *device, size_t bytes, struct err *err)
{
    struct device_cuda *cuda = device_cuda_of(device);
    struct device_cuda_block block = {NULL, bytes, cuda->has_peers && bytes > 0};
    block.memory = device_cuda_take(cuda, bytes, &block.shared, err);
    if (block.memory != NULL && blocks_add(&cuda->blocks, &block, err) != 0) {
        device_cuda_give(cuda, &block);
        return NULL;
    }
    return block.memory;
}

static void device_cuda_free(struct device *device, void *memory)
{
    struct device_cuda *cuda = device_cuda_of(device);
    if (memory == NULL)
        return;
    struct device_cuda_block block = blocks_take(&cuda->blocks, memory);
    device_cuda_give(cuda, &block);
}

static void *device_cuda_host_alloc(struct device *device, size_t bytes, struct err *err)
{
    struct device_cuda *cuda = device_cuda_of(device);
    void *memory = host_pin(bytes, err);
    const struct device_cuda_block block = {memory, bytes, 0};
    if (memory != NULL && blocks_add(&cuda->pinned, &block, err) != 0) {
        host_unpin(memory, bytes);
        return NULL;
    }
    if (memory != NULL)
        cuda->host_bytes_in_use += (int64_t)bytes;
    return memory;
}

static void device_cuda_host_free(struct device *device, void *memory)
{
    struct device_cuda *cuda = device_cuda_of(device);
    if (memory == NULL)
        return;
    size_t bytes = blocks_take(&cuda->pinned, memory).bytes;
    cuda->host_bytes_in_use -= (int64_t)bytes;
    host_unpin(memory, bytes);
}

void *device_cuda_scratch(struct device_cuda *cuda, struct stream *stream, enum device_scratch kind,
                          size_t bytes, struct err *err)
{
    static const char *const names[DEVICE_SCRATCH_COUNT] = {
        [DEVICE_SCRATCH_GEMM] = "matrix products",
        [DEVICE_SCRATCH_ATTENTION] = "attention",
        [DEVICE_SCRATCH_ATTENTION_BWD] = "attention backward",
        [DEVICE_SCRATCH_ATTENTION_PARTS] = "attention in parts",
        [DEVICE_SCRATCH_OP] = "kernels"};
    if (stream->scratch[kind].bytes >= bytes)
        return stream->scratch[kind].memory;
    if (cuda->lent_to) {
        (void)err_set(err, ERR_INTERNAL, "scratch of %s: planned with %zu bytes, needed with %zu",
                      names[kind], stream->scratch[kind].bytes, bytes);
        return NULL;
    }
    if (cuda_check(cudaStreamSynchronize(stream->cuda), "cudaStreamSynchronize", err) != 0)
        return NULL;
    if (stream->scratch[kind].memory != NULL)
        (void)cudaFree(stream->scratch[kind].memory);
    cuda->bytes_in_use -= (int64_t)stream->scratch[kind].bytes;
    stream->scratch[kind].bytes = 0;
    int shared = 0;
    stream->scratch[kind].memory = device_cuda_take(cuda, bytes, &shared, err);
    if (stream->scratch[kind].memory != NULL)
        stream->scratch[kind].bytes = bytes;
    return stream->scratch[kind].memory;
}

static void device_cuda_lend_scratch(struct device *device, enum device_scratch kind, void *memory,
                                     size_t bytes)
{
    struct device_cuda *cuda = device_cuda_of(device);
    must(cuda->main.scratch[kind].memory == NULL); /* before the first operation */
    cuda->main.scratch[kind].memory = memory;
    cuda->main.scratch[kind].bytes = bytes;
    cuda->main.scratch[kind].lent = 1;
    cuda->lent_to = 1;
}

/* ---- copies, streams, events ---- */

/* How many of the bytes from an address on lie in one piece of pinned memory; all where it is none
 * of ours. */
static size_t copy_within(const struct device_cuda *cuda, const void *address, size_t bytes)
{
    for (int64_t i = 0; i < cuda->pinned.count; i++) {
        const struct device_cuda_block *block = &cuda->pinned.list[i];
        size_t at = (size_t)((uintptr_t)address - (uintptr_t)block->memory);
        if (at >= block->bytes) /* before it, too */
            continue;
        size_t piece = host_pin_piece(block->bytes), left = piece - at % piece;
        return left < bytes ? left : bytes;
    }
    return bytes;
}

static int device_cuda_copy(struct device *device, struct stream *stream, void *to,
                            const void *from, size_t bytes, struct err *err)
{
    const struct device_cuda *cuda = device_cuda_of(device);
    cudaStream_t on = device_cuda_stream(device, stream)->cuda;
    for (size_t part = 0; bytes > 0; bytes -= part) {
        part = copy_within(cuda, from, copy_within(cuda, to, bytes));
        CUDA_TRY(cudaMemcpyAsync(to, from, part, cudaMemcpyDefault, on));
        to = (char *)to + part;
        from = (const char *)from + part;
    }
    return 0;
}

static int device_cuda_zero(struct device *device, struct stream *stream, void *memory,
                            size_t bytes, struct err *err)
{
    cudaStream_t on = device_cuda_stream(device, stream)->cuda;
    if (bytes > 0)
        CUDA_TRY(cudaMemsetAsync(memory, 0, bytes, on));
    return 0;
}

static int device_cuda_stream_new(struct device *device, struct stream **ret, struct err *err)
{
    (void)device;
    struct stream *stream = mem_new(1, sizeof *stream);
    if (stream == NULL)
        return mem_fail(err, sizeof *stream, "a stream");
    int rc = cuda_check(cudaStreamCreateWithFlags(&stream->cuda, cudaStreamNonBlocking),
                        "cudaStreamCreate", err);
    if (rc != 0) {
        mem_free(stream);
        return rc;
    }
    *ret = stream;
    return 0;
}

static void stream_done(struct device_cuda *cuda, struct stream *stream)
{
    if (stream->cuda != NULL)
        (void)cudaStreamDestroy(stream->cuda); /* its work still runs to the end */
    for (int kind = 0; kind < DEVICE_SCRATCH_COUNT; kind++) {
        if (stream->scratch[kind].lent)
            continue;
        if (stream->scratch[kind].memory != NULL)
            (void)cudaFree(stream->scratch[kind].memory); /* waits for the device */
        cuda->bytes_in_use -= (int64_t)stream->scratch[kind].bytes;
    }
}

static void device_cuda_stream_free(struct device *device, struct stream *stream)
{
    if (stream == NULL)
        return;
    stream_done(device_cuda_of(device), stream);
    mem_free(stream);
}

static int device_cuda_event_new(struct device *device, struct event **ret, struct err *err)
{
    (void)device;
    struct event *event = mem_new(1, sizeof *event);
    if (event == NULL)
        return mem_fail(err, sizeof *event, "an event");
    int rc = cuda_check(cudaEventCreate(&event->cuda), "cudaEventCreate", err);
    if (rc != 0) {
        mem_free(event);
        return rc;
    }
    *ret = event;
    return 0;
}

static void device_cuda_event_free(struct device *device, struct event *event)
{
    (void)device;
    if (event == NULL)
        return;
    (void)cudaEventDestroy(event->cuda);
    mem_free(event);
}

static int device_cuda_event_record(struct device *device, struct event *event,
                                    struct stream *stream, struct err *err)
{
    CUDA_TRY(cudaEventRecord(event->cuda, device_cuda_stream(device, stream)->cuda));
    return 0;
}

static int device_cuda_event_wait(struct device *device, struct event *event, struct stream *stream,
                                  struct err *err)
{
    CUDA_TRY(cudaStreamWaitEvent(device_cuda_stream(device, stream)->cuda, event->cuda, 0));
    return 0;
}

static int device_cuda_event_elapsed(struct device *device, struct event *from, struct event *to,
                                     int64_t *ret_ns, struct err *err)
{
    (void)device;
    float ms = 0;
    CUDA_TRY(cudaEventSynchronize(to->cuda));
    CUDA_TRY(cudaEventElapsedTime(&ms, from->cuda, to->cuda));
    *ret_ns = (int64_t)((double)ms * 1e6);
    return 0;
}

static int device_cuda_sync(struct device *device, struct stream *stream, struct err *err)
{
    struct device_cuda *cuda = device_cuda_of(device);
    CUDA_TRY(cudaStreamSynchronize(device_cuda_stream(device, stream)->cuda));
    if (__atomic_load_n(&cuda->broken, __ATOMIC_ACQUIRE) == 0)
        return 0;
    *err = cuda->reason;
    return -(int)err->code;
}

void device_cuda_break(struct device_cuda *cuda, const struct err *reason)
{
    cuda->reason = *reason;
    __atomic_store_n(&cuda->broken, 1, __ATOMIC_RELEASE);
}

static int64_t device_cuda_bytes_in_use(struct device *device)
{
    return device_cuda_of(device)->bytes_in_use;
}

static int64_t device_cuda_bytes_taken(struct device *device)
{
    (void)device; /* the thread's current one */
    size_t free_bytes = 0, total = 0;
    return cudaMemGetInfo(&free_bytes, &total) == cudaSuccess ? (int64_t)(total - free_bytes) : 0;
}

static int64_t device_cuda_plan_ns(struct device *device)
{
    const struct device_cuda *cuda = device_cuda_of(device);
    return attention_cache_made_ns(cuda->attention) + gemm_cache_made_ns(cuda->gemm);
}

static int64_t device_cuda_host_bytes_in_use(struct device *device)
{
    return device_cuda_of(device)->host_bytes_in_use;
}

static void device_cuda_close(struct device *device)
{
    if (device == NULL)
        return;
    struct device_cuda *cuda = device_cuda_of(device);
    attention_cache_free(cuda->attention);
    gemm_cache_free(cuda->gemm);
    if (cuda->dnn != NULL)
        (void)cudnnDestroy(cuda->dnn);
    if (cuda->blas != NULL)
        (void)cublasLtDestroy(cuda->blas);
    stream_done(cuda, &cuda->main);
    must(cuda->blocks.count == 0 && cuda->pinned.count == 0); /* arenas are freed first */
    mem_free(cuda->blocks.list);
    mem_free(cuda->pinned.list);
    mem_free(cuda);
}

static const struct device_ops device_cuda_ops = {
    .name = "cuda",
    .act_dtype = DTYPE_BF16,
    .alloc = device_cuda_alloc,
    .free = device_cuda_free,
    .host_alloc = device_cuda_host_alloc,
    .host_free = device_cuda_host_free,
    .copy = device_cuda_copy,
    .zero = device_cuda_zero,
    .stream_new = device_cuda_stream_new,
    .stream_free = device_cuda_stream_free,
    .event_new = device_cuda_event_new,
    .event_free = device_cuda_event_free,
    .event_record = device_cuda_event_record,
    .event_wait = device_cuda_event_wait,
    .event_elapsed = device_cuda_event_elapsed,
    .sync = device_cuda_sync,
    .lend_scratch = device_cuda_lend_scratch,
    .trace = device_cuda_trace,
    .traces_collectives = true,
    .bytes_in_use = device_cuda_bytes_in_use,
    .host_bytes_in_use = device_cuda_host_bytes_in_use,
    .bytes_taken = device_cuda_bytes_taken,
    .plan_ns = device_cuda_plan_ns,
    .close = device_cuda_close,
};

/* ---- opening ---- */

static int device_cuda_find(int ordinal, struct err *err)
{
    int driver = 0, count = 0;
    struct cudaDeviceProp properties;
    (void)cudaDriverGetVersion(&driver); /* 0: none */
    if (driver == 0)
        return err_set(err, ERR_UNSUPPORTED, "no NVIDIA driver on this machine");
    if (driver < CUDART_VERSION)
        return err_set(err, ERR_UNSUPPORTED,
                       "the NVIDIA driver is too old: it serves CUDA %d.%d, needed %d.%d",
                       driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000,
                       CUDART_VERSION % 1000 / 10);
    cudaError_t status = cudaGetDeviceCount(&count);
    if (status == cudaErrorNoDevice || (status == cudaSuccess && ordinal >= count))
        return err_set(err, ERR_UNSUPPORTED,
                       "GPU %d is not there: %d visible (CUDA_VISIBLE_DEVICES may hide some)",
                       ordinal, count);
    CUDA_TRY(status);
    CUDA_TRY(cudaGetDeviceProperties(&properties, ordinal));
    if (properties.major != 9)
        return err_set(err, ERR_UNSUPPORTED,
                       "GPU %d (%s) has compute capability %d.%d; this build is for 9.0 (Hopper)",
                       ordinal, properties.name, properties.major, properties.minor);
    return 0;
}

static int device_cuda_open_libraries(struct device_cuda *cuda, struct err *err)
{
    if (cublasLtCreate(&cuda->blas) != CUBLAS_STATUS_SUCCESS)
        return err_set(err, ERR_DEVICE, "cuBLASLt cannot be started");
    if (cudnnGetVersion() < CUDNN_VERSION)
        return err_set(err, ERR_UNSUPPORTED, "cuDNN is too old: found %zu, needed %d",
                       cudnnGetVersion(), CUDNN_VERSION);
    cudnnStatus_t status = cudnnCreate(&cuda->dnn);
    if (status != CUDNN_STATUS_SUCCESS)
        return err_set(err, ERR_DEVICE, "cuDNN cannot be started: %s", cudnnGetErrorString(status));
    TRY(gemm_cache_new(&cuda->gemm, err));
    return attention_cache_new(&cuda->attention, err);
}

int device_cuda_open_plugin(int ordinal, struct device **ret, struct err *err)
{
    TRY(device_cuda_find(ordinal, err));
    CUDA_TRY(cudaSetDevice(ordinal));
    struct device_cuda *cuda = mem_new(1, sizeof *cuda);
    if (cuda == NULL)
        return mem_fail(err, sizeof *cuda, "the CUDA device");
    cuda->ordinal = ordinal;
    cuda->device.dev = &device_cuda_ops;
    cuda->device.ops = &ops_cuda;
    int rc = cuda_check(cudaStreamCreateWithFlags(&cuda->main.cuda, cudaStreamNonBlocking),
                        "cudaStreamCreate", err);
    if (rc == 0)
        rc = device_cuda_open_libraries(cuda, err);
    if (rc != 0) {
        device_cuda_close(&cuda->device);
        return rc;
    }
    *ret = &cuda->device;
    return 0;
}

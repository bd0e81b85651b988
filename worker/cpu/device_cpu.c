/* device_cpu: memory from mem.h with the size kept in front of each block; streams are
 * empty objects and events moments, because every call has finished when it returns. Opening checks
 * that OpenBLAS computes right: kernels forced upon a CPU, or chosen by an old library for a new
 * one, have been seen to return garbage, and a worker must not train on it. */
#include "worker/cpu/device_cpu.h"

#include "common/clock.h"
#include "common/host_memory.h"
#include "common/mem.h"
#include "common/must.h"
#include "worker/cpu/gemm.h"
#include "worker/cpu/ops_cpu.h"

#include <string.h>

enum { HEADER_BYTES = 64 }; /* keeps the block behind it on a cache line */

struct stream {
    int unused; /* a stream has no state */
};
struct event {
    int64_t ns; /* when it was recorded */
};

/* A block with its size in front, which counts in `in_use`. */
static void *block_new(atomic_int_least64_t *in_use, size_t bytes, struct err *err)
{
    size_t total = 0;
    if (__builtin_add_overflow(bytes, (size_t)HEADER_BYTES, &total))
        total = SIZE_MAX; /* refused below, with a message */
    unsigned char *block = mem_aligned(HEADER_BYTES, total);
    if (block == NULL) {
        (void)err_set(err, ERR_NOMEM, "out of host memory: %zu bytes asked for, %lld available",
                      bytes, (long long)host_memory_read().available);
        return NULL;
    }
    memcpy(block, &bytes, sizeof bytes);
    atomic_fetch_add(in_use, (int64_t)bytes);
    return block + HEADER_BYTES;
}

static void block_free(atomic_int_least64_t *in_use, void *memory)
{
    if (memory == NULL)
        return;
    unsigned char *block = (unsigned char *)memory - HEADER_BYTES;
    size_t bytes;
    memcpy(&bytes, block, sizeof bytes);
    int64_t before = atomic_fetch_sub(in_use, (int64_t)bytes);
    must(before >= (int64_t)bytes);
    mem_free(block);
}

static void *device_cpu_alloc(struct device *device, size_t bytes, struct err *err)
{
    return block_new(&((struct device_cpu *)device)->bytes_in_use, bytes, err);
}

static void device_cpu_free(struct device *device, void *memory)
{
    block_free(&((struct device_cpu *)device)->bytes_in_use, memory);
}

static void *device_cpu_host_alloc(struct device *device, size_t bytes, struct err *err)
{
    return block_new(&((struct device_cpu *)device)->host_bytes_in_use, bytes, err);
}

static void device_cpu_host_free(struct device *device, void *memory)
{
    block_free(&((struct device_cpu *)device)->host_bytes_in_use, memory);
}

static int device_cpu_copy(struct device *device, struct stream *stream, void *to, const void *from,
                           size_t bytes, struct err *err)
{
    (void)device, (void)stream, (void)err;
    if (bytes > 0)
        memcpy(to, from, bytes);
    return 0;
}

static int device_cpu_zero(struct device *device, struct stream *stream, void *memory, size_t bytes,
                           struct err *err)
{
    (void)device, (void)stream, (void)err;
    if (bytes > 0)
        memset(memory, 0, bytes);
    return 0;
}

static int device_cpu_stream_new(struct device *device, struct stream **ret, struct err *err)
{
    (void)device;
    struct stream *stream = mem_new(1, sizeof *stream);
    if (stream == NULL)
        return mem_fail(err, sizeof *stream, "a stream");
    *ret = stream;
    return 0;
}

static void device_cpu_stream_free(struct device *device, struct stream *stream)
{
    (void)device;
    mem_free(stream);
}

static int device_cpu_event_new(struct device *device, struct event **ret, struct err *err)
{
    (void)device;
    struct event *event = mem_new(1, sizeof *event);
    if (event == NULL)
        return mem_fail(err, sizeof *event, "an event");
    *ret = event;
    return 0;
}

static void device_cpu_event_free(struct device *device, struct event *event)
{
    (void)device;
    mem_free(event);
}

static int device_cpu_event_record(struct device *device, struct event *event,
                                   struct stream *stream, struct err *err)
{
    (void)device, (void)stream, (void)err;
    event->ns = clock_monotonic_ns();
    return 0;
}

static int device_cpu_event_wait(struct device *device, struct event *event, struct stream *stream,
                                 struct err *err)
{
    (void)device, (void)event, (void)stream, (void)err;
    return 0;
}

static int device_cpu_event_elapsed(struct device *device, struct event *from, struct event *to,
                                    int64_t *ret_ns, struct err *err)
{
    (void)device, (void)err;
    *ret_ns = to->ns - from->ns;
    return 0;
}

static int device_cpu_sync(struct device *device, struct stream *stream, struct err *err)
{
    (void)device, (void)stream, (void)err;
    return 0;
}

static int64_t device_cpu_bytes_taken(struct device *device)
{
    (void)device;
    return 0;
}

static int64_t device_cpu_plan_ns(struct device *device)
{
    (void)device;
    return 0;
}

static void device_cpu_lend_scratch(struct device *device, enum device_scratch kind, void *memory,
                                    size_t bytes)
{
    (void)device, (void)kind, (void)memory, (void)bytes;
}

static int64_t device_cpu_bytes_in_use(struct device *device)
{
    return atomic_load(&((struct device_cpu *)device)->bytes_in_use);
}

static int64_t device_cpu_host_bytes_in_use(struct device *device)
{
    return atomic_load(&((struct device_cpu *)device)->host_bytes_in_use);
}

static void device_cpu_close(struct device *device)
{
    if (device == NULL)
        return;
    struct device_cpu *cpu = (struct device_cpu *)device;
    mem_free(cpu->scratch);
    mem_free(cpu);
}

static const struct device_ops device_cpu_ops = {
    .name = "cpu",
    .act_dtype = DTYPE_F32,
    .alloc = device_cpu_alloc,
    .free = device_cpu_free,
    .host_alloc = device_cpu_host_alloc,
    .host_free = device_cpu_host_free,
    .copy = device_cpu_copy,
    .zero = device_cpu_zero,
    .stream_new = device_cpu_stream_new,
    .stream_free = device_cpu_stream_free,
    .event_new = device_cpu_event_new,
    .event_free = device_cpu_event_free,
    .event_record = device_cpu_event_record,
    .event_wait = device_cpu_event_wait,
    .event_elapsed = device_cpu_event_elapsed,
    .sync = device_cpu_sync,
    .lend_scratch = device_cpu_lend_scratch,
    .trace = device_cpu_trace,
    .bytes_in_use = device_cpu_bytes_in_use,
    .host_bytes_in_use = device_cpu_host_bytes_in_use,
    .bytes_taken = device_cpu_bytes_taken,
    .plan_ns = device_cpu_plan_ns,
    .close = device_cpu_close,
};

int device_cpu_open(int threads, struct device **ret, struct err *err)
{
    must(threads >= 1);
    struct device_cpu *cpu = mem_new(1, sizeof *cpu);
    if (cpu == NULL)
        return mem_fail(err, sizeof *cpu, "the CPU device");
    size_t bytes = (size_t)threads * DEVICE_CPU_SCRATCH * sizeof(float);
    cpu->scratch = mem_aligned(HEADER_BYTES, bytes);
    if (cpu->scratch == NULL) {
        device_cpu_close(&cpu->device);
        return mem_fail(err, bytes, "the CPU device's scratch memory");
    }
    cpu->threads = threads;
    cpu->device.dev = &device_cpu_ops;
    cpu->device.ops = &ops_cpu;
    int rc = cpu_gemm_check(&cpu->device, err);
    if (rc != 0) {
        device_cpu_close(&cpu->device);
        return rc;
    }
    *ret = &cpu->device;
    return 0;
}

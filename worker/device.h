/* device: the first of the four seams: memory, streams and events of the machine that computes.
 *
 * Two implementations: cpu/ (fp32; the reference and the product's default without a GPU) and cuda/
 * (bf16 activations, fp32 accumulation). A device gives out memory, orders work on streams, and
 * carries the operation table of ops.h.
 *
 * Rules: memory is taken by the arenas once, before `ready`; afterwards device_alloc is a bug
 * (arena.h checks). Every pointer handed to an op is device memory of this device. Calls on one
 * stream run in order; different streams run at once and meet only through events. A CPU device's
 * streams all run at the call. */
#pragma once
#include "common/dtype.h"
#include "common/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct device;
struct stream; /* NULL: the default stream */
struct event;
struct ops;
struct exposed;
struct profile;

/* What a device did, told while it is traced. */
enum trace_kind { TRACE_KERNEL, TRACE_COPY, TRACE_COLLECTIVE };
struct trace_work {
    enum trace_kind kind;
    const char *name;         /* "gemm", or a kernel's symbol; copied by who is told */
    uint32_t lane;            /* number of the stream */
    int64_t begin_ns, end_ns; /* of the monotonic clock */
    int64_t bytes;            /* of a copy; else 0 */
};
/* Who is told; from any thread, one at a time. */
struct trace_sink {
    void (*add)(struct trace_sink *sink, const struct trace_work *work);
    void (*lost)(struct trace_sink *sink, int64_t count); /* so much work cannot be told */
};

/* What operations need for themselves, of each kind one piece. */
enum device_scratch {
    DEVICE_SCRATCH_GEMM,            /* cuBLASLt's workspace */
    DEVICE_SCRATCH_ATTENTION,       /* cuDNN's workspace, forward */
    DEVICE_SCRATCH_ATTENTION_BWD,   /* and backward, with accumulators */
    DEVICE_SCRATCH_ATTENTION_PARTS, /* forward in parts: their sums (common/mem_split.h) */
    DEVICE_SCRATCH_OP,              /* partial sums of our own kernels, sorted keys */
    DEVICE_SCRATCH_COUNT
};

struct device_ops {
    const char *name;     /* "cpu", "cuda" */
    enum dtype act_dtype; /* of activations and gathered weights: F32 on the CPU, BF16 on CUDA */
    /* 64-byte aligned (256 on CUDA) device memory; contents undefined. NULL with err filled (bytes
     * asked and free). */
    void *(*alloc)(struct device *device, size_t bytes, struct err *err);
    void (*free)(struct device *device, void *memory);
    /* Host memory that copies at full speed (pinned on CUDA), zeroed. NULL likewise. */
    void *(*host_alloc)(struct device *device, size_t bytes, struct err *err);
    void (*host_free)(struct device *device, void *memory);
    /* Between any two of device and host memory of this device; ranges do not overlap; ordered on
     * the stream. */
    int (*copy)(struct device *device, struct stream *stream, void *to, const void *from,
                size_t bytes, struct err *err);
    int (*zero)(struct device *device, struct stream *stream, void *memory, size_t bytes,
                struct err *err);
    int (*stream_new)(struct device *device, struct stream **ret, struct err *err);
    void (*stream_free)(struct device *device, struct stream *stream);
    int (*event_new)(struct device *device, struct event **ret, struct err *err);
    void (*event_free)(struct device *device, struct event *event);
    int (*event_record)(struct device *device, struct event *event, struct stream *stream,
                        struct err *err);
    int (*event_wait)(struct device *device, struct event *event, struct stream *stream,
                      struct err *err);
    /* Nanoseconds from one recorded event to a later one; waits for that. */
    int (*event_elapsed)(struct device *device, struct event *from, struct event *to,
                         int64_t *ret_ns, struct err *err);
    int (*sync)(struct device *device, struct stream *stream,
                struct err *err); /* waits for the stream */
    /* Memory of the caller's for the default stream's operations; it stays until the device is
     * closed, and its contents last for one operation. Once lent to, a device takes no scratch of
     * its own: an operation that needs more is ERR_INTERNAL. Without a loan CUDA's operations take
     * what they need when they first need it. The CPU needs none. */
    void (*lend_scratch)(struct device *device, enum device_scratch kind, void *memory,
                         size_t bytes);
    /* From now on what the device does is told to `sink`, until the next call, with NULL: then all
     * that was done has been told. ERR_UNSUPPORTED where the library for it is missing. Not traced,
     * a device does nothing for it. */
    int (*trace)(struct device *device, struct trace_sink *sink, struct err *err);
    bool traces_collectives; /* as kernels of its own; else the record of them tells */
    int64_t (*bytes_in_use)(struct device *device);      /* by alloc, and taken as scratch */
    int64_t (*host_bytes_in_use)(struct device *device); /* by host_alloc */
    /* Of the whole device, by all its users, the driver included; 0: it has no memory of its own.
     */
    int64_t (*bytes_taken)(struct device *device);
    /* Time of the host since the device was opened in which it made plans of operations for new
     * shapes (cuDNN's, cuBLASLt's); 0 where there are none. */
    int64_t (*plan_ns)(struct device *device);
    void (*close)(struct device *device);
};

struct device {
    const struct device_ops *dev; /* every member set */
    const struct ops *ops;        /* worker/ops.h; every member set */
    struct exposed *exposed; /* what its stream of work waits for is booked; borrowed, or NULL */
    struct profile *profile; /* of the step at work; borrowed; NULL: it is not profiled */
};

/* The CPU backend; `threads` OpenMP threads. OpenBLAS must already run with the core type chosen by
 * cpu_blas_env() (worker/cpu/blas_env.h), set before the process was executed. */
int device_cpu_open(int threads, struct device **ret, struct err *err);

#ifdef __cplusplus
}
#endif

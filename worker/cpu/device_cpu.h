/* device_cpu: the CPU device's inside, for the files of cpu/ only.
 *
 * One thread at a time calls a device's operations; each operation uses `threads` OpenMP threads.
 * Every thread has a scratch block of its own, taken when the device is opened, so that operations
 * allocate nothing. */
#pragma once
#include "worker/device.h"

#include <omp.h>
#include <stdatomic.h>

/* Floats of scratch a thread: attention's tiles need 64 * 256 and RMSNorm's backward one row,
 * the widest of which (hidden sizes of published models) is under 32768. */
enum { DEVICE_CPU_SCRATCH = 65536 };

struct device_cpu {
    struct device device; /* first: a struct device * of this backend points at one of these */
    int threads;          /* OpenMP threads of an operation */
    float *scratch;       /* (threads, DEVICE_CPU_SCRATCH) */
    atomic_int_least64_t bytes_in_use;      /* by alloc */
    atomic_int_least64_t host_bytes_in_use; /* by host_alloc */
    struct device_cpu_traced {              /* while it is traced (trace.c) */
        struct trace_sink *sink;            /* who is told; NULL: it is not */
        const struct device_ops *dev;       /* the tables it had before */
        const struct ops *ops;
        struct device_ops told_dev; /* those it has meanwhile */
    } traced;
};

/* device_ops.trace: operations and copies are timed by tables that stand before those of the device
 * while it is traced. */
int device_cpu_trace(struct device *device, struct trace_sink *sink, struct err *err);

static inline int device_cpu_threads(const struct device *device)
{
    return ((const struct device_cpu *)device)->threads;
}

/* The calling OpenMP thread's block. */
static inline float *device_cpu_scratch(const struct device *device)
{
    return ((const struct device_cpu *)device)->scratch +
           (int64_t)omp_get_thread_num() * DEVICE_CPU_SCRATCH;
}

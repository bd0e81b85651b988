/* trace: what the GPU does, told through CUPTI (CUDA's profiling library): kernels, copies, sets of
 * memory, and NCCL's kernels as collectives. Times are those of the monotonic clock: CUPTI converts
 * its own by asking for it.
 *
 * libcupti is loaded when a trace is first asked for, so that a machine without it runs all the
 * same; then, and in a build without its headers, tracing is ERR_UNSUPPORTED. Records come from a
 * thread of CUPTI's; stopping waits for the GPU and for all of them. One device a process. */
#pragma once
#include "worker/device.h"

/* device_ops.trace */
int device_cuda_trace(struct device *device, struct trace_sink *sink, struct err *err);

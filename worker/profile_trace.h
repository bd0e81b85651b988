/* profile_trace: a job's profile as one file of Chrome's trace format, which Perfetto
 * (https://ui.perfetto.dev) and chrome://tracing open:
 * https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
 *
 * A process is a rank; its threads are steps with their phases and layers, phases of the memory
 * plan, waits, and kernels, copies and collectives by stream. Slices of a thread lie in each other
 * or apart, and come in the order of time. A counter shows the planned bytes on the device; the
 * life of each planned buffer in rank 0's first step is an asynchronous slice (the largest
 * PROFILE_TRACE_BUFFERS). Times are microseconds from the first step's begin. */
#pragma once
#include "worker/profile_job.h"

enum { PROFILE_TRACE_BUFFERS = 500 };

int profile_trace_write(const struct profile_job *job, const char *path, struct err *err);

/* gpu_nvml: looks at the GPUs through NVML, the library that comes with NVIDIA's driver. It is
 * loaded when asked for, so that the daemon starts on machines without one.
 *
 * Any call may hang (a GPU that fell off the bus, a driver in trouble): gpu_watch.h calls from a
 * thread of its own. Only GPUs that the CUDA backend computes on count (Hopper, compute capability
 * 9.0), and only whole ones (MIG off). Which there are is settled by gpu_nvml_open(): one that does
 * not answer later is missing from the report. */
#pragma once
#include "common/err.h"
#include "daemon/gpu_report.h"

struct gpu_nvml;

/* ERR_UNSUPPORTED, with a sentence why, when there is no GPU to use. */
int gpu_nvml_open(struct gpu_nvml **ret, struct err *err);
/* Waits for an XID, at most wait_ms, then looks. */
void gpu_nvml_look(struct gpu_nvml *nvml, int64_t wait_ms, struct gpu_report *ret);
void gpu_nvml_close(struct gpu_nvml *nvml); /* NULL is fine */

/* gpu_report: what one look at the GPUs of this machine found. Two sources fill it: NVML
 * (daemon/gpu_nvml.h) and, for tests, a file (daemon/gpu_file.h); daemon/gpu_watch.h looks again
 * and again. -1 stands for what a GPU or its driver does not tell. */
#pragma once
#include "common/limits.h"

#include <stdint.h>

enum {
    GPU_NAME_BYTES = 96,   /* NVML's own limit */
    GPU_PROCESSES_MAX = 8, /* told of; others are not seen */
    GPU_XIDS_MAX = 16,     /* newest kept: between two looks there are one or two */
};

struct gpu_process {
    int32_t pid;   /* the host's: means nothing in a container's own pid namespace */
    int64_t bytes; /* of GPU memory; -1 */
};

struct gpu_sample {
    uint32_t number;            /* on the bus, as NVML and nvidia-smi count */
    char uuid[LIMIT_GPU_BYTES]; /* "GPU-..." */
    char name[GPU_NAME_BYTES];  /* "NVIDIA H200" */
    int64_t bytes;              /* of memory, all of it */
    int64_t used_bytes;         /* without what driver and firmware keep for themselves */
    int64_t temperature_c;
    int64_t power_mw;
    int64_t busy_percent;  /* of the time in which a kernel ran */
    int64_t links;         /* NVLinks that are up */
    int64_t ecc_corrected; /* since the driver was loaded */
    int64_t ecc_uncorrected;
    int64_t process_count; /* with a compute context */
    struct gpu_process processes[GPU_PROCESSES_MAX];
    int64_t xid_count;           /* XIDs since the watch began */
    uint32_t xids[GPU_XIDS_MAX]; /* the newest: number n, from 0, is at n % GPU_XIDS_MAX */
};

struct gpu_report {
    int64_t taken_ms; /* when the look was over (monotonic) */
    int64_t count;
    struct gpu_sample gpus[LIMIT_RANKS]; /* (count) in the order of the bus */
};

/* One more XID of a GPU. */
static inline void gpu_sample_xid(struct gpu_sample *gpu, uint32_t xid)
{
    gpu->xids[gpu->xid_count++ % GPU_XIDS_MAX] = xid;
}

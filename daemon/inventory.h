/* inventory: what ranks run on: the GPUs of this machine, one a rank, or slots of its CPU.
 *
 * CPU: by default a slot a core that the process may use, but at least two: a job of two ranks is
 * the smallest that shows the whole road, and two ranks on one core are slow, not wrong.
 * GPUs: those that NVML finds (daemon/inventory_nvml.h); a rank has one for itself. */
#pragma once
#include "common/limits.h"

#include <stdbool.h>
#include <stdint.h>

struct inventory_gpu {
    uint32_t number; /* on the bus, as NVML and CUDA_DEVICE_ORDER=PCI_BUS_ID count */
    char name[96];   /* "NVIDIA H200" */
    char uuid[96];   /* "GPU-..." */
    int64_t bytes;   /* of memory */
    bool taken;
};

struct inventory {
    int64_t cores;                          /* cores the process may use */
    int64_t slots;                          /* ranks that may run at once */
    int64_t taken;                          /* slots of jobs that have processes, or are about to */
    int64_t gpu_count;                      /* 0: the slots are the CPU's; else slots */
    struct inventory_gpu gpus[LIMIT_RANKS]; /* (gpu_count) */
};

/* slots 0: the default. */
void inventory_cpu_init(struct inventory *inventory, int64_t slots);
int64_t inventory_free_slots(const struct inventory *inventory);
/* Must fit. ret_gpus: (ranks) the numbers of the GPUs taken, lowest first; untouched on the CPU. */
void inventory_take(struct inventory *inventory, int64_t ranks, uint32_t *ret_gpus);
/* Those of a job that runs already; false when they are not there or not free. CPU: gpus unused. */
bool inventory_take_again(struct inventory *inventory, int64_t ranks, const uint32_t *gpus);
void inventory_give(struct inventory *inventory, int64_t ranks, const uint32_t *gpus);
/* OpenMP threads of each rank of a job: cores / ranks, at least 1. */
int64_t inventory_threads(const struct inventory *inventory, int64_t ranks);

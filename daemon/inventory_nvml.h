/* inventory_nvml: finds the GPUs through NVML, the library that comes with NVIDIA's driver. It is
 * loaded when asked for, so that the daemon starts on machines without one.
 *
 * Only GPUs that the CUDA backend computes on (Hopper, compute capability 9.0) are taken. `visible`
 * is what CUDA_VISIBLE_DEVICES holds, or NULL: a list of numbers or of UUIDs or their beginnings,
 * of which those before the first that names no GPU count, as in CUDA. */
#pragma once
#include "common/err.h"
#include "daemon/inventory.h"

/* Fills inventory->gpus, gpu_count and slots after inventory_cpu_init(). ERR_UNSUPPORTED, with a
 * sentence why, when there is no GPU to use. */
int inventory_nvml_find(struct inventory *inventory, const char *visible, struct err *err);

/* Keeps those of inventory->gpus that `visible` names, in its order; for tests. */
void inventory_nvml_select(struct inventory *inventory, const char *visible);

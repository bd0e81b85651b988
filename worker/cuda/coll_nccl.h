/* coll_nccl: opens the collectives of GPUs; see coll_nccl.c and worker/coll.h. */
#pragma once
#include "worker/coll.h"
#include "worker/cuda/device_cuda.h"

/* `control`: a communicator on the host of the same ranks, each with a device of its own; on
 * success it belongs to *ret and is closed with it. Collective: all ranks call. timeout_ms: of
 * joining and of each call, once its turn on the GPU has come. ERR_DEVICE, ERR_COLL_TIMEOUT. */
int coll_nccl_open(struct device *device, struct coll *control, int64_t timeout_ms,
                   struct coll **ret, struct err *err);

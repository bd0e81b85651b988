/* device_cuda: opens a GPU through ithaca-cuda.so, the CUDA backend, loaded when first asked for.
 *
 * The worker is one program for machines with and without GPUs, so it links no CUDA. The plug-in
 * lies beside the program, or where ITHACA_CUDA_PLUGIN says. It loads on a machine without a
 * driver; only opening a device fails there. What a user can
 * mend is ERR_UNSUPPORTED with one sentence that names the cause: the plug-in is missing, cuBLASLt
 * or cuDNN is missing, there is no driver, it is too old (found and needed), no GPU is visible, or
 * it is not a Hopper. A plug-in of another build is ERR_INTERNAL.
 *
 *     TRY(device_cuda_open(0, &device, err));      device->dev and device->ops as everywhere
 *
 * The plug-in is never unloaded: the libraries under it do not take that well. */
#pragma once
#include "worker/coll.h"
#include "worker/device.h"

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* `ordinal`: which of the GPUs that CUDA_VISIBLE_DEVICES leaves, from 0. */
int device_cuda_open(int ordinal, struct device **ret, struct err *err);

/* The collectives of this rank's GPU with those of others, through NCCL. `control`: a communicator
 * on the host of the same ranks, each of which has opened a GPU of its own; on success it belongs
 * to *ret and is closed with it. Collective. timeout_ms: of joining, and of each call once its turn
 * on the GPU has come. ERR_DEVICE, ERR_COLL_TIMEOUT. */
int device_cuda_coll_open(struct device *device, struct coll *control, int64_t timeout_ms,
                          struct coll **ret, struct err *err);

/* What there is for the CUDA backend, versions as the libraries write them as numbers. */
enum { DEVICE_CUDA_GPUS_MAX = 16 };
struct device_cuda_facts {
    int driver;          /* CUDA version that the driver serves, 13000 for 13.0; 0: no driver */
    int runtime;         /* that this build needs */
    size_t cudnn;        /* 91900 for 9.19.0 */
    size_t cudnn_needed; /* by this build, at least */
    bool nvrtc;          /* cuDNN's compiler of attention's kernels is on the library path */
    size_t blas;         /* cuBLASLt, 130001 for 13.0.1 */
    int nccl;            /* 22803 for 2.28.3 */
    int gpu_count;       /* visible, at most DEVICE_CUDA_GPUS_MAX of them below */
    struct device_cuda_gpu {
        char name[256];            /* "NVIDIA H200" */
        int major, minor;          /* compute capability */
        int64_t bytes, free_bytes; /* of memory; before this process took any */
        char trouble[160];         /* why it cannot be used, or "" */
    } gpus[DEVICE_CUDA_GPUS_MAX];
};
/* Fails where the plug-in cannot be loaded; no driver and no GPU are facts. Starts each GPU. */
int device_cuda_describe(struct device_cuda_facts *ret, struct err *err);

/* What the plug-in exports, as the symbol `ithaca_cuda_plugin`. */
enum { DEVICE_CUDA_ABI = 11 }; /* raised whenever device.h, coll.h, ops.h or this struct change */
struct device_cuda_plugin {
    int abi;                                        /* DEVICE_CUDA_ABI it was built with */
    int op_count;                                   /* rows of OPS_TABLE it was built with */
    void (**must_last_words)(const char *sentence); /* its hook of common/must.h */
    int (*open)(int ordinal, struct device **ret, struct err *err);
    int (*coll_open)(struct device *device, struct coll *control, int64_t timeout_ms,
                     struct coll **ret, struct err *err);
    void (*describe)(struct device_cuda_facts *ret);
};

#ifdef __cplusplus
}
#endif

/* ops_cuda: CUDA's operation table and the functions in it, cuda_<op> in the file named as on the
 * CPU. Activations are bf16, sums fp32 or wider; contracts are those of worker/ops.h. */
#pragma once
#include "worker/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const struct ops ops_cuda;

#define X(name)                                                                                  \
    int cuda_##name(struct device *device, struct stream *stream, const struct ops_##name *args, \
                    struct err *err);
OPS_TABLE(X)
#undef X

int device_cuda_open_plugin(int ordinal, struct device **ret, struct err *err);

#ifdef __cplusplus
}
#endif

/* bias: rows of C laid with a bias, or with zeros, for the products that cuBLASLt does not do so.
 */
#pragma once
#include "worker/cuda/device_cuda.h"
#include "worker/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* C (+)= bias on every row of every matrix of the batch; zeros where there is no bias. */
int bias_lay(struct stream *stream, const struct ops_gemm *args, struct err *err);

#ifdef __cplusplus
}
#endif

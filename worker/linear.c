/* linear: see linear.h. Row-major products for ops' gemm. */
#include "worker/linear.h"

#include "worker/ops.h"

int linear_forward(const struct linear *linear, const void *x, void *y, bool y_f32, struct err *err)
{
    struct ops_gemm gemm = {.m = linear->rows,
                            .n = linear->n,
                            .k = linear->k,
                            .a = x,
                            .lda = linear->k,
                            .b = linear->weight,
                            .ldb = linear->k,
                            .trans_b = true,
                            .c = y,
                            .ldc = linear->n,
                            .c_f32 = y_f32,
                            .accumulate = linear->accumulate,
                            .alpha = 1.0f,
                            .bias = linear->bias,
                            .batch = 1};
    return linear->device->ops->gemm(linear->device, linear->stream, &gemm, err);
}

int linear_dx(const struct linear *linear, const void *dy, void *dx, bool accumulate,
              struct err *err)
{
    struct ops_gemm gemm = {.m = linear->rows,
                            .n = linear->k,
                            .k = linear->n,
                            .a = dy,
                            .lda = linear->n,
                            .b = linear->weight,
                            .ldb = linear->k,
                            .c = dx,
                            .ldc = linear->k,
                            .accumulate = accumulate,
                            .alpha = 1.0f,
                            .batch = 1};
    return linear->device->ops->gemm(linear->device, linear->stream, &gemm, err);
}

int linear_dw(const struct linear *linear, const void *dy, const void *x, float *dweight,
              float *dbias, struct err *err)
{
    if (dweight == NULL)
        return 0;
    struct ops_gemm gemm = {.m = linear->n,
                            .n = linear->k,
                            .k = linear->rows,
                            .a = dy,
                            .lda = linear->n,
                            .trans_a = true,
                            .b = x,
                            .ldb = linear->k,
                            .c = dweight,
                            .ldc = linear->k,
                            .c_f32 = true,
                            .accumulate = true,
                            .alpha = 1.0f,
                            .batch = 1};
    TRY(linear->device->ops->gemm(linear->device, linear->stream, &gemm, err));
    if (dbias == NULL)
        return 0;
    struct ops_colsum colsum = {.rows = linear->rows, .width = linear->n, .x = dy, .out = dbias};
    return linear->device->ops->colsum(linear->device, linear->stream, &colsum, err);
}

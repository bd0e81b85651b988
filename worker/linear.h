/* linear: the three products of a linear layer with weight [n, k] (out, in), over `rows` tokens.
 * x is [rows, k], y and dy are [rows, n], all [act], rows dense. */
#pragma once
#include "common/err.h"
#include "worker/device.h"

#include <stdbool.h>
#include <stdint.h>

struct linear {
    struct device *device;
    struct stream *stream;
    int64_t rows;       /* tokens */
    int64_t n, k;       /* out and in features */
    const void *weight; /* [act] (n, k) */
    const void *bias;   /* [act] (n), or NULL */
    bool accumulate;    /* linear_forward: y += */
};

/* y = x * weight^T + bias; y is fp32 when y_f32, else [act] */
int linear_forward(const struct linear *linear, const void *x, void *y, bool y_f32,
                   struct err *err);
/* dx = (or += when accumulate) dy * weight */
int linear_dx(const struct linear *linear, const void *dy, void *dx, bool accumulate,
              struct err *err);
/* dweight += dy^T * x; dbias += column sums of dy (NULL: no bias); nothing where dweight is NULL
 * (the weight is frozen) */
int linear_dw(const struct linear *linear, const void *dy, const void *x, float *dweight,
              float *dbias, struct err *err);

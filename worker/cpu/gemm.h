/* gemm: OpenBLAS's sgemm with 64-bit extents, for the files of cpu/. */
#pragma once
#include "common/err.h"

#include <stdbool.h>
#include <stdint.h>

struct device;

/* C [m, n] = alpha * op(A) [m, k] * op(B) [k, n] + beta * C, row-major. With beta 0, C is not read.
 * Inside an OpenMP parallel region it runs on the calling thread alone. Extents and leading
 * dimensions are at most 2^31 - 1. */
struct cpu_sgemm {
    int64_t m, n, k;
    float alpha;
    const float *a; /* (m, k), or (k, m) with trans_a */
    int64_t lda;    /* row length of the stored matrix, elements */
    bool trans_a;
    const float *b; /* (k, n), or (n, k) with trans_b */
    int64_t ldb;
    bool trans_b;
    float beta;
    float *c; /* (m, n) */
    int64_t ldc;
};
void cpu_sgemm(const struct cpu_sgemm *args);

/* Multiplies a few small odd-shaped matrices and holds them against plain loops: an error names the
 * kernel in use and the setting to change. About 1 ms. */
int cpu_gemm_check(struct device *device, struct err *err);

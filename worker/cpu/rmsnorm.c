/* rmsnorm: rows are independent and shared out in blocks of 64.
 *
 * Backward makes dx and the block's part of dweight in one walk, the part in the thread's scratch;
 * parts are added in the order of blocks (OpenMP `ordered`), so that dweight has the same bits for
 * any thread count. Forward 104 GB/s, backward 64 (bench_ops, tiny-llama, one core of an
 * EPYC of family 26, 2026-11). */
#include "common/must.h"
#include "worker/cpu/device_cpu.h"
#include "worker/cpu/ops_cpu.h"
#include "worker/cpu/simd.h"

#include <math.h>
#include <string.h>

enum { BLOCK_ROWS = 64 };

CPU_CLONES static void rmsnorm_block(const struct ops_rmsnorm *args, int64_t first, int64_t end)
{
    int64_t width = args->width;
    const float *weight = args->weight;
    for (int64_t row = first; row < end; row++) {
        const float *x = (const float *)args->x + row * width;
        float *y = (float *)args->y + row * width;
        float squares = 0;
        if (args->residual != NULL) {
            const float *residual = (const float *)args->residual + row * width;
            float *sum = (float *)args->sum + row * width;
#pragma omp simd reduction(+ : squares)
            for (int64_t i = 0; i < width; i++) {
                float value = x[i] + residual[i];
                sum[i] = value;
                squares += value * value;
            }
            x = sum;
        } else {
#pragma omp simd reduction(+ : squares)
            for (int64_t i = 0; i < width; i++)
                squares += x[i] * x[i];
        }
        float rstd = 1.0f / sqrtf(squares / (float)width + args->eps);
#pragma omp simd
        for (int64_t i = 0; i < width; i++)
            y[i] = x[i] * rstd * weight[i];
        if (args->rstd != NULL)
            args->rstd[row] = rstd;
    }
}

int cpu_rmsnorm(struct device *device, struct stream *stream, const struct ops_rmsnorm *args,
                struct err *err)
{
    (void)stream, (void)err;
    must(args->residual == NULL || (args->sum != NULL && args->y != args->sum));
    if (args->width == 0)
        return 0;
#pragma omp parallel for num_threads(device_cpu_threads(device)) schedule(static)
    for (int64_t first = 0; first < args->rows; first += BLOCK_ROWS) {
        int64_t end = first + BLOCK_ROWS;
        rmsnorm_block(args, first, end < args->rows ? end : args->rows);
    }
    return 0;
}

/* dx of the rows, and their sum of dy*x*rstd into part (width). */
CPU_CLONES static void rmsnorm_bwd_block(const struct ops_rmsnorm_bwd *args, int64_t first,
                                         int64_t end, float *part)
{
    int64_t width = args->width;
    const float *weight = args->weight;
    for (int64_t row = first; row < end; row++) {
        const float *x = (const float *)args->x + row * width;
        const float *dy = (const float *)args->dy + row * width;
        float *dx = (float *)args->dx + row * width;
        float squares = 0, dot = 0;
#pragma omp simd reduction(+ : squares, dot)
        for (int64_t i = 0; i < width; i++) {
            squares += x[i] * x[i];
            dot += x[i] * weight[i] * dy[i];
        }
        float rstd =
            args->rstd != NULL ? args->rstd[row] : 1.0f / sqrtf(squares / (float)width + args->eps);
        float pull = rstd * rstd * rstd * (dot / (float)width);
        if (args->dweight != NULL) {
#pragma omp simd
            for (int64_t i = 0; i < width; i++)
                part[i] += dy[i] * x[i] * rstd;
        }
        if (args->accumulate) { /* not a clone: += and =. NOLINT(bugprone-branch-clone) */
#pragma omp simd
            for (int64_t i = 0; i < width; i++)
                dx[i] += rstd * weight[i] * dy[i] - x[i] * pull;
        } else {
#pragma omp simd
            for (int64_t i = 0; i < width; i++)
                dx[i] = rstd * weight[i] * dy[i] - x[i] * pull;
        }
    }
}

int cpu_rmsnorm_bwd(struct device *device, struct stream *stream,
                    const struct ops_rmsnorm_bwd *args, struct err *err)
{
    (void)stream, (void)err;
    int64_t width = args->width;
    must(width <= DEVICE_CPU_SCRATCH);
    must(!(args->accumulate && args->dx == args->dy));
    if (width == 0)
        return 0;
#pragma omp parallel for ordered num_threads(device_cpu_threads(device)) schedule(static, 1)
    for (int64_t first = 0; first < args->rows; first += BLOCK_ROWS) {
        int64_t end = first + BLOCK_ROWS < args->rows ? first + BLOCK_ROWS : args->rows;
        float *part = device_cpu_scratch(device);
        if (args->dweight != NULL)
            memset(part, 0, (size_t)width * sizeof *part);
        rmsnorm_bwd_block(args, first, end, part);
#pragma omp ordered
        for (int64_t i = 0; args->dweight != NULL && i < width; i++)
            args->dweight[i] += part[i];
    }
    return 0;
}

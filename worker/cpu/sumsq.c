/* sumsq: blocks of 4096 elements are summed in fp64 by any thread and added in order (OpenMP
 * `ordered`), so that the sum has the same bits for any thread count. 58 GB/s
 * (bench_ops, tiny-llama, one core of an
 * EPYC of family 26, 2026-11). */
#include "worker/cpu/device_cpu.h"
#include "worker/cpu/ops_cpu.h"
#include "worker/cpu/simd.h"

enum { BLOCK = 4096 };

CPU_CLONES static double sumsq_block(const float *x, int64_t count)
{
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < count; i++)
        sum += (double)x[i] * (double)x[i];
    return sum;
}

int cpu_sumsq(struct device *device, struct stream *stream, const struct ops_sumsq *args,
              struct err *err)
{
    (void)stream, (void)err;
#pragma omp parallel for ordered num_threads(device_cpu_threads(device)) schedule(static, 1)
    for (int64_t i = 0; i < args->count; i += BLOCK) {
        double sum = sumsq_block(args->x + i, args->count - i < BLOCK ? args->count - i : BLOCK);
#pragma omp ordered
        *args->out += sum;
    }
    return 0;
}

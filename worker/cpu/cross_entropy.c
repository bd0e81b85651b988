/* cross_entropy: a row is read three times (largest logit; exponentials and their sum; scaling),
 * the second and third from cache. Exponentials are summed in fp32 over 1024 logits at a time, in
 * fp64 over these. Losses of 16 rows are kept by the thread that made them and added in order of
 * rows (OpenMP `ordered`): the same bits for any thread count. 14 GB/s at 264
 * logits, 19 at 32000 (bench_ops, tiny-llama, one core of an
 * EPYC of family 26, 2026-11). */
#include "common/must.h"
#include "worker/cpu/device_cpu.h"
#include "worker/cpu/ops_cpu.h"
#include "worker/cpu/simd.h"

#include <math.h>
#include <string.h>

enum { BLOCK_ROWS = 16, CHUNK = 1024 };

CPU_CLONES static float cross_entropy_max(const float *logits, int64_t count)
{
    return cpu_max(logits, count, -INFINITY);
}

/* Sum of exp(logits - largest); the exponentials go to `out` when it is not NULL. */
CPU_CLONES static double cross_entropy_exp(const float *logits, int64_t count, float largest,
                                           float *out)
{
    double total = 0;
    for (int64_t first = 0; first < count; first += CHUNK) {
        int64_t end = count - first < CHUNK ? count : first + CHUNK;
        float sum = 0;
        if (out == NULL) {
#pragma omp simd reduction(+ : sum)
            for (int64_t i = first; i < end; i++)
                sum += cpu_exp(logits[i] - largest);
        } else {
#pragma omp simd reduction(+ : sum)
            for (int64_t i = first; i < end; i++) {
                float value = cpu_exp(logits[i] - largest);
                out[i] = value;
                sum += value;
            }
        }
        total += (double)sum;
    }
    return total;
}

CPU_CLONES static void cross_entropy_scale(float *out, int64_t count, float factor)
{
#pragma omp simd
    for (int64_t i = 0; i < count; i++)
        out[i] *= factor;
}

static bool cross_entropy_first_at(const float *logits, int64_t target, float largest)
{
    if (logits[target] != largest)
        return false;
    for (int64_t i = 0; i < target; i++)
        if (logits[i] == largest)
            return false;
    return true;
}

/* Loss of a trained row; writes its gradient where one is asked for. */
static double cross_entropy_row(const struct ops_cross_entropy *args, int64_t row,
                                int64_t *ret_correct)
{
    int64_t vocab = args->vocab, target = args->targets[row];
    must(target < vocab);
    const float *logits = args->logits + row * vocab;
    float *dlogits = args->dlogits != NULL ? (float *)args->dlogits + row * vocab : NULL;
    float largest = cross_entropy_max(logits, vocab);
    float at_target = logits[target];
    *ret_correct += cross_entropy_first_at(logits, target, largest);
    double sum = cross_entropy_exp(logits, vocab, largest, dlogits);
    if (dlogits != NULL) {
        cross_entropy_scale(dlogits, vocab, (float)((double)args->scale / sum));
        dlogits[target] -= args->scale;
    }
    return log(sum) + ((double)largest - (double)at_target);
}

int cpu_cross_entropy(struct device *device, struct stream *stream,
                      const struct ops_cross_entropy *args, struct err *err)
{
    (void)stream, (void)err;
#pragma omp parallel for ordered num_threads(device_cpu_threads(device)) schedule(static, 1)
    for (int64_t first = 0; first < args->rows; first += BLOCK_ROWS) {
        int64_t count = args->rows - first < BLOCK_ROWS ? args->rows - first : BLOCK_ROWS;
        double losses[BLOCK_ROWS];
        int64_t correct = 0;
        for (int64_t i = 0; i < count; i++) {
            losses[i] = 0;
            if (args->targets[first + i] >= 0)
                losses[i] = cross_entropy_row(args, first + i, &correct);
            else if (args->dlogits != NULL)
                memset((float *)args->dlogits + (first + i) * args->vocab, 0,
                       (size_t)args->vocab * sizeof(float));
            if (args->row_loss != NULL)
                args->row_loss[first + i] = (float)losses[i];
        }
#pragma omp ordered
        {
            for (int64_t i = 0; i < count; i++)
                *args->loss_sum += losses[i];
            *args->correct += correct;
        }
    }
    return 0;
}

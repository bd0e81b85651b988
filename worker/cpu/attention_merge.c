/* attention_merge: row by row, around the larger of the two LSE, so that neither exponential
 * overflows. */
#include "worker/cpu/attention_rows.h"
#include "worker/cpu/device_cpu.h"
#include "worker/cpu/ops_cpu.h"
#include "worker/cpu/simd.h"

#include <math.h>

CPU_CLONES static void merge_row(float *o, const float *part, int64_t count, float keep, float take)
{
#pragma omp simd
    for (int64_t c = 0; c < count; c++)
        o[c] = o[c] * keep + part[c] * take;
}

int cpu_attention_merge(struct device *device, struct stream *stream,
                        const struct ops_attention_merge *args, struct err *err)
{
    (void)stream, (void)err;
    int64_t stride = args->lse_stride > 0 ? args->lse_stride : args->rows;
    int64_t part_stride = args->lse_part_stride > 0 ? args->lse_part_stride : args->rows;
#pragma omp parallel for collapse(2) num_threads(device_cpu_threads(device)) schedule(static)
    for (int64_t head = 0; head < args->heads; head++)
        for (int64_t row = 0; row < args->rows; row++) {
            float *lse = args->lse + head * stride + row;
            float part = args->lse_part[head * part_stride + row];
            if (part == -INFINITY)
                continue;
            float largest = *lse > part ? *lse : part;
            float sum = expf(*lse - largest) + expf(part - largest);
            float merged = largest + logf(sum);
            merge_row(attention_at(&args->o, head, row), attention_at(&args->part, head, row),
                      args->head_dim, expf(*lse - largest) / sum, expf(part - largest) / sum);
            *lse = merged;
        }
    return 0;
}

/* attention_delta: a dot product a row. */
#include "worker/cpu/attention_rows.h"
#include "worker/cpu/device_cpu.h"
#include "worker/cpu/ops_cpu.h"
#include "worker/cpu/simd.h"

enum { ROWS = 64 }; /* rows of a thread's turn */

CPU_CLONES static void delta_rows(const struct ops_attention_delta *args, int64_t head, int64_t row,
                                  int64_t end)
{
    int64_t stride = args->delta_stride > 0 ? args->delta_stride : args->rows;
    for (; row < end; row++) {
        const float *o = attention_at(&args->o, head, row);
        const float *d_o = attention_at(&args->d_o, head, row);
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t c = 0; c < args->head_dim; c++)
            sum += o[c] * d_o[c];
        args->delta[head * stride + row] = sum;
    }
}

int cpu_attention_delta(struct device *device, struct stream *stream,
                        const struct ops_attention_delta *args, struct err *err)
{
    (void)stream, (void)err;
#pragma omp parallel for collapse(2) num_threads(device_cpu_threads(device)) schedule(static)
    for (int64_t head = 0; head < args->heads; head++)
        for (int64_t row = 0; row < args->rows; row += ROWS)
            delta_rows(args, head, row, args->rows - row < ROWS ? args->rows : row + ROWS);
    return 0;
}

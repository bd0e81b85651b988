/* unpack: row by row; the rows of one token run along its heads, so that the side with heads next
 * to each other is walked in order. */
#include "worker/cpu/attention_rows.h"
#include "worker/cpu/device_cpu.h"
#include "worker/cpu/ops_cpu.h"
#include "worker/cpu/simd.h"

#include <string.h>

CPU_CLONES static void unpack_add(float *out, const float *in, int64_t count)
{
#pragma omp simd
    for (int64_t c = 0; c < count; c++)
        out[c] += in[c];
}

int cpu_unpack(struct device *device, struct stream *stream, const struct ops_unpack *args,
               struct err *err)
{
    (void)stream, (void)err;
#pragma omp parallel for num_threads(device_cpu_threads(device)) schedule(static)
    for (int64_t row = 0; row < args->rows; row++)
        for (int64_t head = 0; head < args->heads; head++) {
            const float *in = attention_at(&args->in, head, row);
            float *out = attention_at(&args->out, head, row);
            memcpy(out, in, (size_t)args->head_dim * sizeof *out);
            for (int64_t copy = 1; copy < args->copies; copy++)
                unpack_add(out, in + copy * args->copy_stride, args->head_dim);
        }
    return 0;
}

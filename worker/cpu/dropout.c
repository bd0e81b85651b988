/* dropout: row by row; a block of random words serves four neighbouring features. */
#include "common/must.h"
#include "common/rng_philox.h"
#include "worker/cpu/attention_rows.h"
#include "worker/cpu/device_cpu.h"
#include "worker/cpu/ops_cpu.h"

static void dropout_row(const struct ops_dropout *args, int64_t head, int64_t row, uint32_t below)
{
    const float *in = attention_at(&args->in, head, row);
    float *out = attention_at(&args->out, head, row), gain = 1.0f / (1.0f - args->rate);
    int64_t first = args->feature + head * args->feature_stride;
    uint64_t base = (uint64_t)args->numbers[row] * (uint64_t)((args->width + 3) / 4);
    uint32_t words[4];
    for (int64_t i = 0; i < args->head_dim; i++) {
        uint64_t feature = (uint64_t)(first + i);
        if (i == 0 || feature % 4 == 0)
            rng_philox(args->key, 0, base + feature / 4, words);
        float kept = words[feature % 4] < below ? 0.0f : in[i] * gain;
        out[i] = args->accumulate ? out[i] + kept : kept;
    }
}

int cpu_dropout(struct device *device, struct stream *stream, const struct ops_dropout *args,
                struct err *err)
{
    (void)stream, (void)err;
    must(args->rate > 0 && args->rate < 1);
    uint32_t below = (uint32_t)((double)args->rate * 0x1p32);
#pragma omp parallel for num_threads(device_cpu_threads(device)) schedule(static)
    for (int64_t row = 0; row < args->rows; row++)
        for (int64_t head = 0; head < args->heads; head++)
            dropout_row(args, head, row, below);
    return 0;
}

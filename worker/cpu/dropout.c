/* dropout: row by row, in spans of features whose random words are drawn together, a block a lane.
 * 0.7 ns an element, 12 GB/s (one core of an EPYC of family 26, 2026-11-30, beside other work). */
#include "common/must.h"
#include "common/rng_philox.h"
#include "worker/cpu/attention_rows.h"
#include "worker/cpu/device_cpu.h"
#include "worker/cpu/ops_cpu.h"
#include "worker/cpu/simd.h"

enum { LANES = 16, SPAN = OPS_DROPOUT_FEATURES * LANES }; /* blocks, and the features they serve */

/* Halves of words of the blocks from `counter` on, in the order of features. */
CPU_CLONES static void dropout_draw(uint64_t key, uint64_t counter, uint16_t halves[SPAN])
{
    uint32_t c0[LANES], c1[LANES], c2[LANES] = {0}, c3[LANES] = {0};
    uint32_t key0 = (uint32_t)key, key1 = (uint32_t)(key >> 32);
    for (int lane = 0; lane < LANES; lane++) {
        c0[lane] = (uint32_t)(counter + (uint64_t)lane);
        c1[lane] = (uint32_t)((counter + (uint64_t)lane) >> 32);
    }
    for (int round = 0; round < RNG_PHILOX_ROUNDS; round++) {
#pragma omp simd
        for (int lane = 0; lane < LANES; lane++)
            rng_philox_round(&c0[lane], &c1[lane], &c2[lane], &c3[lane], key0, key1);
        key0 += RNG_PHILOX_STEP0;
        key1 += RNG_PHILOX_STEP1;
    }
    for (size_t lane = 0; lane < LANES; lane++) {
        const uint32_t words[] = {c0[lane], c1[lane], c2[lane], c3[lane]};
        for (size_t i = 0; i < OPS_DROPOUT_FEATURES; i++)
            halves[lane * OPS_DROPOUT_FEATURES + i] = (uint16_t)(words[i / 2] >> (i % 2 * 16));
    }
}

/* out = (or +=) what is kept of in, by its halves. */
CPU_CLONES static void dropout_span(const float *in, const uint16_t *halves, uint32_t below,
                                    float gain, bool accumulate, float *out, int64_t count)
{
#pragma omp simd
    for (int64_t i = 0; i < count; i++) {
        float kept = halves[i] < below ? 0.0f : in[i] * gain;
        out[i] = accumulate ? out[i] + kept : kept;
    }
}

static void dropout_row(const struct ops_dropout *args, int64_t head, int64_t row)
{
    enum { EACH = OPS_DROPOUT_FEATURES };
    const float *in = attention_at(&args->in, head, row);
    float *out = attention_at(&args->out, head, row), gain = ops_dropout_gain(args->rate);
    int64_t first = args->feature + head * args->feature_stride, at = 0;
    uint64_t base = (uint64_t)args->numbers[row] * (uint64_t)((args->width + EACH - 1) / EACH);
    uint32_t below = ops_dropout_below(args->rate);
    uint16_t halves[SPAN];
    while (at < args->head_dim) {
        int64_t feature = first + at, skip = feature % EACH;
        int64_t left = args->head_dim - at, count = SPAN - skip < left ? SPAN - skip : left;
        dropout_draw(args->key, base + (uint64_t)(feature / EACH), halves);
        dropout_span(in + at, halves + skip, below, gain, args->accumulate, out + at, count);
        at += count;
    }
}

int cpu_dropout(struct device *device, struct stream *stream, const struct ops_dropout *args,
                struct err *err)
{
    (void)stream, (void)err;
    must(args->rate > 0 && args->rate < 1);
#pragma omp parallel for num_threads(device_cpu_threads(device)) schedule(static)
    for (int64_t row = 0; row < args->rows; row++)
        for (int64_t head = 0; head < args->heads; head++)
            dropout_row(args, head, row);
    return 0;
}

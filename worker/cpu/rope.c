/* rope: cosines and sines of a token are made once and turn all its heads.
 *
 * Angles are position * inv_freq in fp64, reduced there by multiples of pi/2 in two parts (the
 * first has 33 bits, so that its product with a 20-bit quotient is exact; at 2^31 radians the error
 * is still below 1e-6), then fp32 polynomials on [-pi/4, pi/4]. libm's fp64 sincos costs ten times
 * as much: more than the rotation itself. 58 GB/s (bench_ops, tiny-llama, one core of an
 * EPYC of family 26, 2026-11). */
#include "common/must.h"
#include "worker/cpu/device_cpu.h"
#include "worker/cpu/ops_cpu.h"
#include "worker/cpu/simd.h"

enum { PAIRS = 256 }; /* of a head handled at a time */

struct rope_turn {
    float cosine[PAIRS]; /* scaled */
    float sine[PAIRS];
};

/* The turn of pairs 0..count-1 with these frequencies. */
CPU_CLONES static void rope_make_turn(double position, const float *inv_freq, int64_t count,
                                      float scale, float sine_scale, struct rope_turn *ret)
{
    const double quarter_hi = 1.57079632673412561417, quarter_lo = 6.07710050650619224932e-11;
    const double round = 6755399441055744.0; /* 1.5 * 2^52 */
#pragma omp simd
    for (int64_t i = 0; i < count; i++) {
        double angle = position * (double)inv_freq[i];
        double shifted = angle * 0.63661977236758134308 + round;
        uint64_t bits;
        memcpy(&bits, &shifted, sizeof bits);
        uint32_t quadrant = (uint32_t)bits;
        double n = shifted - round;
        float r = (float)((angle - n * quarter_hi) - n * quarter_lo);
        float r2 = r * r;
        float s = 2.7557314e-6f;
        s = s * r2 - 1.9841270e-4f;
        s = s * r2 + 8.3333333e-3f;
        s = s * r2 - 1.6666667e-1f;
        s = s * (r2 * r) + r;
        float c = 2.4801587e-5f;
        c = c * r2 - 1.3888889e-3f;
        c = c * r2 + 4.1666667e-2f;
        c = c * r2 - 5.0e-1f;
        c = c * r2 + 1.0f;
        float cosine = (quadrant & 1u) != 0 ? s : c;
        float sine = (quadrant & 1u) != 0 ? c : s;
        cosine = ((quadrant + 1u) & 2u) != 0 ? -cosine : cosine;
        sine = (quadrant & 2u) != 0 ? -sine : sine;
        ret->cosine[i] = cosine * scale;
        ret->sine[i] = sine * sine_scale;
    }
}

CPU_CLONES static void rope_turn_heads(const struct rope_turn *turn, float *low, int64_t half,
                                       int64_t count, int64_t heads, int64_t head_stride)
{
    for (int64_t head = 0; head < heads; head++) {
        float *a = low + head * head_stride, *b = a + half;
#pragma omp simd
        for (int64_t i = 0; i < count; i++) {
            float x = a[i], y = b[i];
            a[i] = x * turn->cosine[i] - y * turn->sine[i];
            b[i] = y * turn->cosine[i] + x * turn->sine[i];
        }
    }
}

int cpu_rope(struct device *device, struct stream *stream, const struct ops_rope *args,
             struct err *err)
{
    (void)stream, (void)err;
    must(args->head_dim % 2 == 0);
    int64_t half = args->head_dim / 2;
    float sine_scale = args->inverse ? -args->scale : args->scale;
#pragma omp parallel for num_threads(device_cpu_threads(device)) schedule(static)
    for (int64_t t = 0; t < args->tokens; t++) {
        struct rope_turn turn;
        float *row = (float *)args->x + t * args->token_stride;
        for (int64_t first = 0; first < half; first += PAIRS) {
            int64_t count = half - first < PAIRS ? half - first : PAIRS;
            rope_make_turn((double)args->positions[t], args->inv_freq + first, count, args->scale,
                           sine_scale, &turn);
            rope_turn_heads(&turn, row + first, half, count, args->heads, args->head_stride);
        }
    }
    return 0;
}

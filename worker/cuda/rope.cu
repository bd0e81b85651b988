/* rope: a thread makes the cosines and sines of 8 pairs of one token and turns these pairs of up to
 * 8 heads with them: one turn a pair where there is one head (a stage tensor), an eighth of one
 * where there are many.
 *
 * Angles are position * inv_freq in fp64, reduced there by multiples of pi/2 in two parts (the
 * first has 33 bits, so that its product with a 20-bit quotient is exact; at 2^31 radians the error
 * is still below 1e-6), then fp32 polynomials on [-pi/4, pi/4], as on the CPU.
 *
 * Bytes moved: 2 units. Share of a device copy: (128K, 32 heads, 128) 85%, one head of 4M rows 77%
 * (bench_cuda_ops 131072, one H200, driver 580.159.04, 2026-11-29). Turns in shared memory, made by
 * the whole block first: 88% and 24%. */
#include "common/must.h"
#include "worker/cuda/kernel.h"

enum { THREADS = 128, HEADS_EACH = 8 };

static __device__ __forceinline__ void rope_turn(double position, float inv_freq, float *ret_cosine,
                                                 float *ret_sine)
{
    const double quarter_hi = 1.57079632673412561417, quarter_lo = 6.07710050650619224932e-11;
    const double round = 6755399441055744.0; /* 1.5 * 2^52 */
    const double angle = position * (double)inv_freq;
    const double shifted = angle * 0.63661977236758134308 + round;
    const unsigned quadrant = (unsigned)__double2loint(shifted);
    const double n = shifted - round;
    const float r = (float)((angle - n * quarter_hi) - n * quarter_lo);
    const float r2 = r * r;
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
    const float cosine = (quadrant & 1u) != 0 ? s : c, sine = (quadrant & 1u) != 0 ? c : s;
    *ret_cosine = ((quadrant + 1u) & 2u) != 0 ? -cosine : cosine;
    *ret_sine = (quadrant & 2u) != 0 ? -sine : sine;
}

template <int N> __global__ void __launch_bounds__(THREADS, 10) rope_kernel(struct ops_rope args)
{
    const unsigned half = (unsigned)(args.head_dim / 2), vectors = half / N;
    const unsigned index = blockIdx.x * THREADS + threadIdx.x;
    const int64_t token = index / vectors;
    const unsigned column = index % vectors * N;
    if (token >= args.tokens)
        return;
    const int64_t first = (int64_t)blockIdx.y * HEADS_EACH;
    const int64_t end = first + HEADS_EACH < args.heads ? first + HEADS_EACH : args.heads;
    bf16 *low = (bf16 *)args.x + first * args.head_stride + token * args.token_stride + column;
    typedef typename span<N>::raw raw;
    raw next_a = *(const raw *)low, next_b = *(const raw *)(low + half); /* under the turns */
    span<N> a, b, cosine, sine, x;
    const double position = (double)args.positions[token];
    const float sine_scale = args.inverse ? -args.scale : args.scale;
#pragma unroll
    for (int i = 0; i < N; i++) {
        rope_turn(position, args.inv_freq[column + i], &cosine.at[i], &sine.at[i]);
        cosine.at[i] *= args.scale;
        sine.at[i] *= sine_scale;
    }
    for (int64_t head = first; head < end; head++) {
        a.unpack(next_a), b.unpack(next_b);
        if (head + 1 < end) {
            next_a = *(const raw *)(low + args.head_stride);
            next_b = *(const raw *)(low + args.head_stride + half);
        }
#pragma unroll
        for (int i = 0; i < N; i++)
            x.at[i] = a.at[i] * cosine.at[i] - b.at[i] * sine.at[i];
        x.store(low);
#pragma unroll
        for (int i = 0; i < N; i++)
            x.at[i] = b.at[i] * cosine.at[i] + a.at[i] * sine.at[i];
        x.store(low + half);
        low += args.head_stride;
    }
}

int cuda_rope(struct device *device, struct stream *stream, const struct ops_rope *args,
              struct err *err)
{
    must(args->head_dim % 2 == 0 && args->tokens * args->head_dim < (int64_t)1 << 32);
    if (args->tokens == 0 || args->heads == 0 || args->head_dim == 0)
        return 0;
    cudaStream_t on = device_cuda_stream(device, stream)->cuda;
    int64_t half = args->head_dim / 2;
    bool wide = half % 8 == 0 && args->head_stride % 8 == 0 && args->token_stride % 8 == 0 &&
                aligned16(args->x);
    dim3 grid((unsigned)ceil_div(args->tokens * (half / (wide ? 8 : 1)), THREADS),
              (unsigned)ceil_div(args->heads, HEADS_EACH));
    if (wide)
        rope_kernel<8><<<grid, THREADS, 0, on>>>(*args);
    else
        rope_kernel<1><<<grid, THREADS, 0, on>>>(*args);
    return KERNEL_CHECK("rope");
}

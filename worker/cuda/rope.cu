/* rope: a thread holds ITEMS vectors of 8 pairs, all loaded before the first is used: of one token
 * of as many heads, or, where there is one head (a stage tensor), of as many tokens.
 *
 * A turn is position * inv_freq / (2 pi) in fp64, of which only the fraction counts; its sine and
 * cosine are the special function unit's. At 2^31 radians the fraction is still right to 1e-6
 * radians, and the unit to 5e-7: a thousandth of what bf16 resolves.
 *
 * Products are rounded where it is written, not where a compiler fuses: one head or many, the same
 * bits.
 *
 * Bytes moved: 2 units. Share of a device copy: (128K, 32 heads, 128) 93%, one head of 4M rows 95%,
 * 4 heads of 512K rows of 64 95% (one H200, driver 580.159.04, 2026-11-30). Tried and lost: angles
 * reduced in fp64 and polynomials, 85% and, with one head, 77%; four items, 91, 93 and 83%; a bound
 * of 64 registers with those, 86 and 71%. */
#include "common/must.h"
#include "worker/cuda/kernel.h"

enum { THREADS = 128, ITEMS = 8 };

/* The angle that a position turns a pair by, less whole turns: within pi of 0. */
static __device__ __forceinline__ float rope_angle(double position, float inv_freq)
{
    const double round = 6755399441055744.0; /* 1.5 * 2^52: what is added to it becomes whole */
    const double turns = __dmul_rn(position, (double)inv_freq * 0.15915494309189533577);
    return (float)(turns - ((turns + round) - round)) * 6.28318530717958647693f;
}

template <int N, int TOKENS, int HEADS>
__global__ void __launch_bounds__(THREADS) rope_kernel(struct ops_rope args)
{
    typedef typename span<N>::raw raw;
    const unsigned half = (unsigned)(args.head_dim / 2), vectors = half / N;
    const int64_t first_head = (int64_t)blockIdx.y * HEADS;
    const float sine_scale = args.inverse ? -args.scale : args.scale;
    raw low[TOKENS][HEADS], high[TOKENS][HEADS];
    bf16 *at[TOKENS];
    double position[TOKENS];
#pragma unroll
    for (int t = 0; t < TOKENS; t++) {
        const unsigned index = (blockIdx.x * TOKENS + (unsigned)t) * THREADS + threadIdx.x;
        const int64_t token = index / vectors;
        at[t] = (bf16 *)args.x + first_head * args.head_stride + token * args.token_stride +
                index % vectors * N;
        position[t] = token < args.tokens ? (double)args.positions[token] : -1;
#pragma unroll
        for (int h = 0; h < HEADS; h++)
            if (token < args.tokens && first_head + h < args.heads) {
                low[t][h] = *(const raw *)(at[t] + h * args.head_stride);
                high[t][h] = *(const raw *)(at[t] + h * args.head_stride + half);
            }
    }
#pragma unroll
    for (int t = 0; t < TOKENS; t++) {
        const unsigned index = (blockIdx.x * TOKENS + (unsigned)t) * THREADS + threadIdx.x;
        if (index / vectors >= args.tokens)
            break;
        span<N> cosine, sine, a, b, x;
#pragma unroll
        for (int i = 0; i < N; i++) {
            const float angle = rope_angle(position[t], args.inv_freq[index % vectors * N + i]);
            cosine.at[i] = args.scale * __cosf(angle);
            sine.at[i] = sine_scale * __sinf(angle);
        }
#pragma unroll
        for (int h = 0; h < HEADS; h++) {
            if (first_head + h >= args.heads)
                break;
            a.unpack(low[t][h]), b.unpack(high[t][h]);
#pragma unroll
            for (int i = 0; i < N; i++)
                x.at[i] = fmaf(a.at[i], cosine.at[i], -__fmul_rn(b.at[i], sine.at[i]));
            x.store(at[t] + h * args.head_stride);
#pragma unroll
            for (int i = 0; i < N; i++)
                x.at[i] = fmaf(b.at[i], cosine.at[i], __fmul_rn(a.at[i], sine.at[i]));
            x.store(at[t] + h * args.head_stride + half);
        }
    }
}

template <int N, int TOKENS, int HEADS>
static void rope_launch(const struct ops_rope *args, cudaStream_t stream)
{
    dim3 grid((unsigned)ceil_div(args->tokens * (args->head_dim / 2 / N), THREADS * TOKENS),
              (unsigned)ceil_div(args->heads, HEADS));
    rope_kernel<N, TOKENS, HEADS><<<grid, THREADS, 0, stream>>>(*args);
}

int cuda_rope(struct device *device, struct stream *stream, const struct ops_rope *args,
              struct err *err)
{
    must(args->head_dim % 2 == 0 && args->tokens * args->head_dim < (int64_t)1 << 32);
    if (args->tokens == 0 || args->heads == 0 || args->head_dim == 0)
        return 0;
    cudaStream_t on = device_cuda_stream(device, stream)->cuda;
    bool wide = args->head_dim % 16 == 0 && args->head_stride % 8 == 0 &&
                args->token_stride % 8 == 0 && aligned16(args->x);
    if (!wide)
        rope_launch<1, 1, ITEMS>(args, on);
    else if (args->heads == 1)
        rope_launch<8, ITEMS, 1>(args, on);
    else
        rope_launch<8, 1, ITEMS>(args, on);
    return KERNEL_CHECK("rope");
}

/* dropout: a block a row; a thread for each block of random words, eight neighbouring features of a
 * head, at once where they are whole vectors of 16 bytes.
 *
 * Bytes moved: 2 units, 3 where it accumulates; the ten rounds of Philox are 20 products of 32 bits
 * for eight elements. Share of a device copy, 128K rows of 4096: 94%, += of 32 heads 99%
 * (bench_cuda_ops 131072, one H200, driver 580.159.04, 2026-11-30). Tried: two or four vectors a
 * thread, no different; blocks of 512 threads, 5% to 10% slower; a word of 32 bits an element, four
 * to a thread, 61%. */
#include "common/must.h"
#include "common/rng_philox.h"
#include "worker/cuda/kernel.h"

enum { THREADS = 256, EACH = OPS_DROPOUT_FEATURES };

struct dropout_shape {
    unsigned heads, groups; /* groups: threads of a row and head */
    int64_t head_dim, in_head, in_row, out_head, out_row;
    int64_t feature, feature_stride, blocks; /* blocks: of random words a row */
    uint64_t key;
    uint32_t below;
    float gain;
};

/* Feature i of a block of random words: x, or 0 where its bits say so, added to what was there. */
template <bool ACCUMULATE>
static __device__ __forceinline__ float
dropout_one(const struct dropout_shape &shape, const uint32_t words[4], int i, float x, float old)
{
    const uint32_t half = words[i / 2] >> (i % 2 * 16) & 0xffffu;
    const float kept = half < shape.below ? 0.0f : x * shape.gain;
    return ACCUMULATE ? old + kept : kept;
}

template <bool ACCUMULATE, bool WIDE>
static __global__ void dropout_kernel(const bf16 *in, bf16 *out, const int64_t *numbers,
                                      struct dropout_shape shape)
{
    const int64_t row = blockIdx.x;
    const uint64_t blocks = (uint64_t)numbers[row] * (uint64_t)shape.blocks; /* before the row's */
    in += row * shape.in_row, out += row * shape.out_row;
    for (unsigned index = threadIdx.x; index < shape.heads * shape.groups; index += THREADS) {
        const unsigned head = shape.heads == 1 ? 0 : index / shape.groups;
        const int64_t first = shape.feature + head * shape.feature_stride;
        const int64_t block = first / EACH + (index - head * shape.groups);
        const int64_t skip = block * EACH - first; /* within the head; negative: words before it */
        const bf16 *from = in + head * shape.in_head + skip;
        bf16 *to = out + head * shape.out_head + skip;
        span<8> x, old;
        if (WIDE)
            x.load(from);
        if (WIDE && ACCUMULATE)
            old.load(to);
        uint32_t words[4];
        rng_philox(shape.key, 0, blocks + (uint64_t)block, words);
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            if (!WIDE && (skip + i < 0 || skip + i >= shape.head_dim))
                continue;
            if (!WIDE)
                x.at[i] = bf16_wide(from[i]), old.at[i] = ACCUMULATE ? bf16_wide(to[i]) : 0.0f;
            x.at[i] = dropout_one<ACCUMULATE>(shape, words, i, x.at[i], old.at[i]);
            if (!WIDE)
                to[i] = (bf16)bf16_pair(x.at[i], 0);
        }
        if (WIDE)
            x.store(to);
    }
}

/* Whether every thread's features are whole vectors. */
static bool dropout_is_wide(const struct ops_dropout *args)
{
    const int64_t steps = args->feature | args->feature_stride | args->head_dim |
                          args->in.head_stride | args->in.row_stride | args->out.head_stride |
                          args->out.row_stride;
    return steps % EACH == 0 && aligned16(args->in.data, args->out.data);
}

int cuda_dropout(struct device *device, struct stream *stream, const struct ops_dropout *args,
                 struct err *err)
{
    must(args->rate > 0 && args->rate < 1);
    const bool wide = dropout_is_wide(args);
    /* A head may begin and end within a block of words. */
    const int64_t groups = wide ? args->head_dim / EACH : args->head_dim / EACH + 2;
    must(args->rows < (int64_t)1 << 31 && args->heads * groups < (int64_t)1 << 31);
    if (args->rows == 0 || args->heads == 0 || args->head_dim == 0)
        return 0;
    struct dropout_shape shape = {};
    shape.heads = (unsigned)args->heads, shape.groups = (unsigned)groups;
    shape.head_dim = args->head_dim;
    shape.in_head = args->in.head_stride, shape.in_row = args->in.row_stride;
    shape.out_head = args->out.head_stride, shape.out_row = args->out.row_stride;
    shape.feature = args->feature, shape.feature_stride = args->feature_stride;
    shape.blocks = ceil_div(args->width, EACH);
    shape.key = args->key;
    shape.below = ops_dropout_below(args->rate);
    shape.gain = ops_dropout_gain(args->rate);
    auto *kernel = args->accumulate
                       ? (wide ? dropout_kernel<true, true> : dropout_kernel<true, false>)
                       : (wide ? dropout_kernel<false, true> : dropout_kernel<false, false>);
    kernel<<<(unsigned)args->rows, THREADS, 0, device_cuda_stream(device, stream)->cuda>>>(
        (const bf16 *)args->in.data, (bf16 *)args->out.data, args->numbers, shape);
    return KERNEL_CHECK("dropout");
}

/* dropout: a block a row; a thread for each block of random words, four neighbouring features of a
 * head, at once where they are whole words of 8 bytes.
 *
 * Bytes moved: 2 units, 3 where it accumulates; the ten rounds of Philox are 20 products of 32 bits
 * for four elements. Share of a device copy: not measured since rows have a block each. */
#include "common/must.h"
#include "common/rng_philox.h"
#include "worker/cuda/kernel.h"

enum { THREADS = 256 };

struct dropout_shape {
    unsigned heads, groups; /* groups: threads of a row and head */
    int64_t head_dim, in_head, in_row, out_head, out_row;
    int64_t feature, feature_stride, blocks; /* blocks: of random words a row */
    uint64_t key;
    uint32_t below;
    float gain;
};

/* x, or 0 where its word says so, added to what was there. */
static __device__ __forceinline__ float dropout_one(const struct dropout_shape &shape,
                                                    uint32_t word, float x, float old)
{
    return word < shape.below ? old : old + x * shape.gain;
}

/* Four features, which lie in one word of 8 bytes. */
template <bool ACCUMULATE>
static __device__ __forceinline__ void
dropout_four(const struct dropout_shape &shape, const uint32_t words[4], const bf16 *in, bf16 *out)
{
    const uint2 x = *(const uint2 *)in, old = ACCUMULATE ? *(const uint2 *)out : make_uint2(0, 0);
    float at[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const uint32_t from = i < 2 ? x.x : x.y, had = i < 2 ? old.x : old.y;
        const int skip = 16 - i % 2 * 16; /* the first is the lower half */
        at[i] = dropout_one(shape, words[i], __uint_as_float(from << skip & 0xffff0000u),
                            __uint_as_float(had << skip & 0xffff0000u));
    }
    *(uint2 *)out = make_uint2(bf16_pair(at[0], at[1]), bf16_pair(at[2], at[3]));
}

template <bool ACCUMULATE, bool WIDE>
static __global__ void dropout_kernel(const bf16 *in, bf16 *out, const int64_t *numbers,
                                      struct dropout_shape shape)
{
    const int64_t row = blockIdx.x;
    const uint64_t blocks = (uint64_t)numbers[row] * (uint64_t)shape.blocks; /* before the row's */
    in += row * shape.in_row, out += row * shape.out_row;
    for (unsigned index = threadIdx.x; index < shape.heads * shape.groups; index += THREADS) {
        const int64_t head = index / shape.groups, group = index % shape.groups;
        const int64_t first = shape.feature + head * shape.feature_stride,
                      block = first / 4 + group;
        const bf16 *from = in + head * shape.in_head + block * 4 - first;
        bf16 *to = out + head * shape.out_head + block * 4 - first;
        uint32_t words[4];
        rng_philox(shape.key, 0, blocks + (uint64_t)block, words);
        if (WIDE)
            dropout_four<ACCUMULATE>(shape, words, from, to);
#pragma unroll
        for (int i = 0; !WIDE && i < 4; i++) {
            const int64_t column = block * 4 + i - first;
            if (column < 0 || column >= shape.head_dim)
                continue;
            const float old = ACCUMULATE ? bf16_wide(to[i]) : 0.0f;
            to[i] = (bf16)bf16_pair(dropout_one(shape, words[i], bf16_wide(from[i]), old), 0);
        }
    }
}

/* Whether every thread's features are whole words of 8 bytes. */
static bool dropout_is_wide(const struct ops_dropout *args)
{
    const int64_t steps = args->feature | args->feature_stride | args->head_dim |
                          args->in.head_stride | args->in.row_stride | args->out.head_stride |
                          args->out.row_stride;
    return steps % 4 == 0 && (((uintptr_t)args->in.data | (uintptr_t)args->out.data) & 7) == 0;
}

int cuda_dropout(struct device *device, struct stream *stream, const struct ops_dropout *args,
                 struct err *err)
{
    must(args->rate > 0 && args->rate < 1);
    const bool wide = dropout_is_wide(args);
    /* A head may begin and end within a block of words. */
    const int64_t groups = wide ? args->head_dim / 4 : args->head_dim / 4 + 2;
    must(args->rows < (int64_t)1 << 31 && args->heads * groups < (int64_t)1 << 31);
    if (args->rows == 0 || args->heads == 0 || args->head_dim == 0)
        return 0;
    struct dropout_shape shape = {};
    shape.heads = (unsigned)args->heads, shape.groups = (unsigned)groups;
    shape.head_dim = args->head_dim;
    shape.in_head = args->in.head_stride, shape.in_row = args->in.row_stride;
    shape.out_head = args->out.head_stride, shape.out_row = args->out.row_stride;
    shape.feature = args->feature, shape.feature_stride = args->feature_stride;
    shape.blocks = (args->width + 3) / 4;
    shape.key = args->key;
    shape.below = (uint32_t)((double)args->rate * 4294967296.0);
    shape.gain = 1.0f / (1.0f - args->rate);
    auto *kernel = args->accumulate
                       ? (wide ? dropout_kernel<true, true> : dropout_kernel<true, false>)
                       : (wide ? dropout_kernel<false, true> : dropout_kernel<false, false>);
    kernel<<<(unsigned)args->rows, THREADS, 0, device_cuda_stream(device, stream)->cuda>>>(
        (const bf16 *)args->in.data, (bf16 *)args->out.data, args->numbers, shape);
    return KERNEL_CHECK("dropout");
}

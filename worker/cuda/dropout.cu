/* dropout: a thread for each block of random words, four neighbouring features of a row and head.
 *
 * Moves 4 bytes an element (6 when it accumulates); the ten rounds of Philox are 20 products of 32
 * bits for four elements. Not measured yet. */
#include "common/must.h"
#include "common/rng_philox.h"
#include "worker/cuda/kernel.h"

enum { THREADS = 256 };

struct dropout_shape {
    int64_t heads, rows, head_dim, groups; /* groups: threads of a row and head */
    int64_t in_head, in_row, out_head, out_row;
    int64_t feature, feature_stride, blocks; /* blocks: of random words a row */
    uint64_t key;
    uint32_t below;
    float gain;
};

template <bool accumulate>
static __global__ void dropout_kernel(const bf16 *in, bf16 *out, const int64_t *numbers,
                                      struct dropout_shape shape)
{
    const int64_t thread = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    const int64_t group = thread % shape.groups, at = thread / shape.groups;
    const int64_t head = at % shape.heads, row = at / shape.heads;
    if (row >= shape.rows)
        return;
    const int64_t first = shape.feature + head * shape.feature_stride, block = first / 4 + group;
    uint32_t words[4];
    rng_philox(shape.key, 0, (uint64_t)numbers[row] * (uint64_t)shape.blocks + (uint64_t)block,
               words);
    in += head * shape.in_head + row * shape.in_row;
    out += head * shape.out_head + row * shape.out_row;
#pragma unroll
    for (int word = 0; word < 4; word++) {
        const int64_t i = block * 4 + word - first;
        if (i < 0 || i >= shape.head_dim)
            continue;
        const float kept = words[word] < shape.below ? 0.0f : bf16_wide(in[i]) * shape.gain;
        out[i] = (bf16)bf16_pair(accumulate ? bf16_wide(out[i]) + kept : kept, 0);
    }
}

int cuda_dropout(struct device *device, struct stream *stream, const struct ops_dropout *args,
                 struct err *err)
{
    must(args->rate > 0 && args->rate < 1);
    stream = device_cuda_stream(device, stream);
    struct dropout_shape shape = {};
    shape.heads = args->heads, shape.rows = args->rows, shape.head_dim = args->head_dim;
    shape.groups = args->head_dim / 4 + 2; /* a head may begin and end within a block */
    shape.in_head = args->in.head_stride, shape.in_row = args->in.row_stride;
    shape.out_head = args->out.head_stride, shape.out_row = args->out.row_stride;
    shape.feature = args->feature, shape.feature_stride = args->feature_stride;
    shape.blocks = (args->width + 3) / 4;
    shape.key = args->key;
    shape.below = (uint32_t)((double)args->rate * 4294967296.0);
    shape.gain = 1.0f / (1.0f - args->rate);
    if (args->feature % 4 == 0 && args->feature_stride % 4 == 0)
        shape.groups = ceil_div(args->head_dim, 4);
    const int64_t threads = args->rows * args->heads * shape.groups;
    if (threads == 0)
        return 0;
    const unsigned grid = (unsigned)ceil_div(threads, THREADS);
    const bf16 *in = (const bf16 *)args->in.data;
    bf16 *out = (bf16 *)args->out.data;
    if (args->accumulate)
        dropout_kernel<true><<<grid, THREADS, 0, stream->cuda>>>(in, out, args->numbers, shape);
    else
        dropout_kernel<false><<<grid, THREADS, 0, stream->cuda>>>(in, out, args->numbers, shape);
    return KERNEL_CHECK("dropout");
}

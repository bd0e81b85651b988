/* attention_delta: rows of heads, a group of 16 lanes each: delta, the vector that stands in for O,
 * and the merge of two softmaxes.
 *
 * cuDNN's backward makes delta from O and takes no other. Ours comes with delta (16 bits of O are
 * not sent over the network for it), so it gets O' = dO * delta / |dO|^2 in O's place: rowsum(O' *
 * dO) is delta but for O's rounding to bf16, which the product averages over the head: 2e-4 of
 * delta.
 *
 * Bytes moved: delta 2 units. 92% of a device copy (bench_cuda_ops 131072, one H200, driver
 * 580.159.04, 2026-11-29). */
#include "worker/cuda/attention_delta.h"

#include "worker/cuda/kernel.h"

enum { LANES = 16, THREADS = 256 };

struct heads_row {
    int64_t head, row;
    int lane;
    bool here;
};

/* The row that this thread's group works on; rows of a head follow each other. */
static __device__ __forceinline__ struct heads_row heads_row_of(int64_t heads, int64_t rows)
{
    const int64_t group = (int64_t)blockIdx.x * (THREADS / LANES) + threadIdx.x / LANES;
    return {group / rows, group % rows, (int)threadIdx.x % LANES, group < heads * rows};
}

static __device__ __forceinline__ int64_t heads_at(const struct ops_heads &heads,
                                                   const struct heads_row &at)
{
    return at.head * heads.head_stride + at.row * heads.row_stride;
}

template <int N> __global__ void delta_kernel(struct ops_attention_delta args)
{
    const int64_t stride = args.delta_stride > 0 ? args.delta_stride : args.rows;
    const struct heads_row at = heads_row_of(args.heads, args.rows);
    const bf16 *o = (const bf16 *)args.o.data + heads_at(args.o, at);
    const bf16 *d_o = (const bf16 *)args.d_o.data + heads_at(args.d_o, at);
    span<N> x, y;
    float dot = 0;
    for (int64_t column = at.lane * N; at.here && column < args.head_dim; column += LANES * N) {
        x.load(o + column);
        y.load(d_o + column);
#pragma unroll
        for (int i = 0; i < N; i++)
            dot += x.at[i] * y.at[i];
    }
    dot = group_sum(dot, LANES);
    if (at.here && at.lane == 0)
        args.delta[at.head * stride + at.row] = dot;
}

template <int N>
__global__ void stand_in_kernel(struct ops_attention_bwd args, struct ops_heads out,
                                int64_t delta_stride)
{
    const struct heads_row at = heads_row_of(args.q_heads, args.rows);
    const bf16 *d_o = (const bf16 *)args.d_o.data + heads_at(args.d_o, at);
    bf16 *to = (bf16 *)out.data + heads_at(out, at);
    span<N> y;
    float squares = 0;
    for (int64_t column = at.lane * N; at.here && column < args.head_dim; column += LANES * N) {
        y.load(d_o + column);
#pragma unroll
        for (int i = 0; i < N; i++)
            squares += y.at[i] * y.at[i];
    }
    squares = group_sum(squares, LANES);
    float factor = 0; /* dO is zero: so is delta */
    if (at.here && squares > 0)
        factor = args.delta[at.head * delta_stride + at.row] / squares;
    for (int64_t column = at.lane * N; at.here && column < args.head_dim; column += LANES * N) {
        y.load(d_o + column);
#pragma unroll
        for (int i = 0; i < N; i++)
            y.at[i] *= factor;
        y.store(to + column);
    }
}

template <int N> __global__ void merge_kernel(struct ops_attention_merge args)
{
    const struct heads_row at = heads_row_of(args.heads, args.rows);
    if (!at.here)
        return;
    const int64_t stride = args.lse_stride > 0 ? args.lse_stride : args.rows;
    const int64_t part_stride = args.lse_part_stride > 0 ? args.lse_part_stride : args.rows;
    float *lse = args.lse + at.head * stride + at.row;
    const float mine = *lse, part = args.lse_part[at.head * part_stride + at.row];
    if (part == -INFINITY)
        return;
    const float largest = fmaxf(mine, part);
    const float keep = expf(mine - largest), take = expf(part - largest), sum = keep + take;
    float *o = (float *)args.o.data + heads_at(args.o, at);
    const bf16 *from = (const bf16 *)args.part.data + heads_at(args.part, at);
    span<N> x, y;
    for (int64_t column = at.lane * N; column < args.head_dim; column += LANES * N) {
        x.load(o + column);
        y.load(from + column);
#pragma unroll
        for (int i = 0; i < N; i++)
            x.at[i] = x.at[i] * (keep / sum) + y.at[i] * (take / sum);
        x.store(o + column);
    }
    __syncwarp(0xffffu << (threadIdx.x % 32 / LANES * LANES)); /* all have read lse */
    if (at.lane == 0)
        *lse = largest + logf(sum);
}

static bool heads_wide(int64_t head_dim, const struct ops_heads *a, const struct ops_heads *b)
{
    return head_dim % 8 == 0 && aligned16(a->data, b->data) &&
           (a->head_stride | a->row_stride | b->head_stride | b->row_stride) % 8 == 0;
}

static unsigned heads_blocks(int64_t heads, int64_t rows)
{
    return (unsigned)ceil_div(heads * rows, THREADS / LANES);
}

int cuda_attention_delta(struct device *device, struct stream *stream,
                         const struct ops_attention_delta *args, struct err *err)
{
    cudaStream_t on = device_cuda_stream(device, stream)->cuda;
    unsigned blocks = heads_blocks(args->heads, args->rows);
    if (blocks == 0)
        return 0;
    if (heads_wide(args->head_dim, &args->o, &args->d_o))
        delta_kernel<8><<<blocks, THREADS, 0, on>>>(*args);
    else
        delta_kernel<1><<<blocks, THREADS, 0, on>>>(*args);
    return KERNEL_CHECK("attention_delta");
}

int attention_stand_in(struct stream *stream, const struct ops_attention_bwd *args,
                       const struct ops_heads *out, struct err *err)
{
    int64_t stride = args->lse_stride > 0 ? args->lse_stride : args->rows;
    unsigned blocks = heads_blocks(args->q_heads, args->rows);
    if (heads_wide(args->head_dim, &args->d_o, out))
        stand_in_kernel<8><<<blocks, THREADS, 0, stream->cuda>>>(*args, *out, stride);
    else
        stand_in_kernel<1><<<blocks, THREADS, 0, stream->cuda>>>(*args, *out, stride);
    return KERNEL_CHECK("attention_stand_in");
}

int cuda_attention_merge(struct device *device, struct stream *stream,
                         const struct ops_attention_merge *args, struct err *err)
{
    cudaStream_t on = device_cuda_stream(device, stream)->cuda;
    unsigned blocks = heads_blocks(args->heads, args->rows);
    if (blocks == 0)
        return 0;
    if (heads_wide(args->head_dim, &args->part, &args->o))
        merge_kernel<8><<<blocks, THREADS, 0, on>>>(*args);
    else
        merge_kernel<1><<<blocks, THREADS, 0, on>>>(*args);
    return KERNEL_CHECK("attention_merge");
}

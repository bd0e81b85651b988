/* unpack: a thread moves 8 elements of one head's row; a row's vectors follow each other, then the
 * heads of a row where the result is (rows, heads, d), else the rows of a head: writes are whole
 * lines either way.
 *
 * Bytes moved: 2 units for a copy of bf16. 95% of a device copy (bench_cuda_ops 131072, one H200,
 * driver 580.159.04, 2026-11-29). */
#include "worker/cuda/unpack.h"

#include "worker/cuda/kernel.h"

enum { THREADS = 256 };

template <int N, typename In, typename Out>
__global__ void heads_move_kernel(struct heads_move args, bool heads_first)
{
    const int64_t vectors = args.head_dim / N;
    int64_t index = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (index >= args.heads * args.rows * vectors)
        return;
    const int64_t column = index % vectors * N;
    index /= vectors;
    const int64_t head = heads_first ? index % args.heads : index / args.rows;
    const int64_t row = heads_first ? index / args.heads : index % args.rows;
    const In *in =
        (const In *)args.in.data + head * args.in.head_stride + row * args.in.row_stride + column;
    Out *out =
        (Out *)args.out.data + head * args.out.head_stride + row * args.out.row_stride + column;
    span<N> sum, more;
    sum.load(in);
    for (int64_t copy = 1; copy < args.copies; copy++) {
        more.load(in + copy * args.copy_stride);
#pragma unroll
        for (int i = 0; i < N; i++)
            sum.at[i] += more.at[i];
    }
    if (args.accumulate) {
        more.load(out);
#pragma unroll
        for (int i = 0; i < N; i++)
            sum.at[i] += more.at[i];
    }
    sum.store(out);
}

template <typename In, typename Out>
static void heads_move_launch(cudaStream_t stream, const struct heads_move *args, bool wide)
{
    bool heads_first = args->out.head_stride < args->out.row_stride;
    int64_t count = args->heads * args->rows * (args->head_dim / (wide ? 8 : 1));
    unsigned blocks = (unsigned)ceil_div(count, THREADS);
    if (wide)
        heads_move_kernel<8, In, Out><<<blocks, THREADS, 0, stream>>>(*args, heads_first);
    else
        heads_move_kernel<1, In, Out><<<blocks, THREADS, 0, stream>>>(*args, heads_first);
}

int heads_move(struct stream *stream, const struct heads_move *args, struct err *err)
{
    const struct ops_heads *in = &args->in, *out = &args->out;
    if (args->heads == 0 || args->rows == 0 || args->head_dim == 0)
        return 0;
    bool wide = args->head_dim % 8 == 0 && aligned16(in->data, out->data) &&
                (in->head_stride | in->row_stride | out->head_stride | out->row_stride |
                 args->copy_stride) %
                        8 ==
                    0;
    if (args->in_f32 && args->out_f32)
        heads_move_launch<float, float>(stream->cuda, args, wide);
    else if (args->in_f32)
        heads_move_launch<float, bf16>(stream->cuda, args, wide);
    else if (args->out_f32)
        heads_move_launch<bf16, float>(stream->cuda, args, wide);
    else
        heads_move_launch<bf16, bf16>(stream->cuda, args, wide);
    return KERNEL_CHECK("unpack");
}

int cuda_unpack(struct device *device, struct stream *stream, const struct ops_unpack *args,
                struct err *err)
{
    struct heads_move move = {args->heads,  args->rows,        args->head_dim, args->in, args->out,
                              args->copies, args->copy_stride, args->in_f32,   false,    false};
    return heads_move(device_cuda_stream(device, stream), &move, err);
}

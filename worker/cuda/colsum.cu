/* colsum: a warp's 32 lanes take 8 columns each; a block of 8 warps sums its share of the rows,
 * row by row a warp, warps in order; parts_add() adds the blocks' sums in order. The shares depend
 * on the shape alone: the same bits each time.
 *
 * Bytes moved: 1 unit. Share of a device copy, width 4096: 101% at 128K rows, 78% at 16K, where the
 * two launches weigh (bench_cuda_ops 131072 and 16384, one H200, driver 580.159.04, 2026-11-29). */
#include "worker/cuda/kernel.h"

enum { WARPS = 8, BLOCKS_WANTED = 132 * 8 };

template <int N> __global__ void colsum_kernel(struct ops_colsum args, int64_t share, float *parts)
{
    __shared__ float sums[WARPS][32 * N];
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const int64_t column = ((int64_t)blockIdx.x * 32 + lane) * N;
    const int64_t first = (int64_t)blockIdx.y * share;
    const int64_t end = first + share < args.rows ? first + share : args.rows;
    float sum[N];
    for (int i = 0; i < N; i++)
        sum[i] = 0;
    if (column < args.width) {
#pragma unroll 8
        for (int64_t row = first + warp; row < end; row += WARPS) {
            span<N> x;
            x.load((const bf16 *)args.x + row * args.width + column);
#pragma unroll
            for (int i = 0; i < N; i++)
                sum[i] += x.at[i];
        }
    }
#pragma unroll
    for (int i = 0; i < N; i++)
        sums[warp][lane * N + i] = sum[i];
    __syncthreads();
    for (int i = (int)threadIdx.x; i < 32 * N; i += WARPS * 32) {
        int64_t at = (int64_t)blockIdx.x * 32 * N + i;
        float total = 0;
        for (int w = 0; w < WARPS; w++)
            total += sums[w][i];
        if (at < args.width)
            parts[blockIdx.y * args.width + at] = total;
    }
}

/* 32 columns a block; 32 rows of threads each sum a 32nd of the parts. */
static __global__ void parts_kernel(const float *parts, int64_t count, int64_t width, float *out)
{
    __shared__ float sums[32][33];
    const int lane = (int)threadIdx.x % 32, turn = (int)threadIdx.x / 32;
    const int64_t column = (int64_t)blockIdx.x * 32 + lane;
    float sum = 0;
    if (column < width) {
#pragma unroll 8
        for (int64_t p = turn; p < count; p += 32)
            sum += parts[p * width + column];
    }
    sums[turn][lane] = sum;
    __syncthreads();
    if (turn != 0 || column >= width)
        return;
    sum = 0;
    for (int i = 0; i < 32; i++)
        sum += sums[i][lane];
    out[column] += sum;
}

void parts_add(const float *parts, int64_t count, int64_t width, float *out, cudaStream_t stream)
{
    parts_kernel<<<(unsigned)ceil_div(width, 32), 1024, 0, stream>>>(parts, count, width, out);
}

int cuda_colsum(struct device *device, struct stream *stream, const struct ops_colsum *args,
                struct err *err)
{
    if (args->rows == 0 || args->width == 0)
        return 0;
    stream = device_cuda_stream(device, stream);
    bool wide = args->width % 8 == 0 && aligned16(args->x);
    int64_t across = ceil_div(args->width, wide ? 256 : 32);
    int64_t down = ceil_div(BLOCKS_WANTED, across), most = ceil_div(args->rows, WARPS);
    down = down < most ? down : most;
    int64_t share = ceil_div(args->rows, down);
    float *parts = (float *)device_cuda_scratch(device_cuda_of(device), stream, DEVICE_SCRATCH_OP,
                                                (size_t)(down * args->width) * sizeof(float), err);
    if (parts == nullptr)
        return -(int)err->code;
    dim3 grid((unsigned)across, (unsigned)down);
    if (wide)
        colsum_kernel<8><<<grid, WARPS * 32, 0, stream->cuda>>>(*args, share, parts);
    else
        colsum_kernel<1><<<grid, WARPS * 32, 0, stream->cuda>>>(*args, share, parts);
    parts_add(parts, down, args->width, args->out, stream->cuda);
    return KERNEL_CHECK("colsum");
}

/* rmsnorm_heads: 8, 16 or 32 lanes a row, one vector a lane, ROWS rows at once so that enough loads
 * are on their way; sums go through shuffles alone.
 *
 * Bytes moved: as rmsnorm.cu. Share of a device copy, 4M heads of 128: 80% (bench_cuda_ops 131072,
 * one H200, driver 580.159.04, 2026-11-29). One row at a time: 57%. */
#include "worker/cuda/rmsnorm_heads.h"

#include "worker/cuda/kernel.h"

enum { THREADS = 128, ROWS = 4 };

static int heads_lanes(int64_t width, int vector)
{
    int lanes = 8;
    while (lanes * vector < width)
        lanes *= 2;
    return lanes;
}

template <int N> __global__ void rmsnorm_heads_kernel(struct ops_rmsnorm args, int lanes)
{
    const int lane = (int)threadIdx.x % lanes, column = lane * N;
    const int64_t group = (int64_t)blockIdx.x * (THREADS / lanes) + (int)threadIdx.x / lanes;
    const int64_t first = group * ROWS;
    const bool mine = column < args.width;
    span<N> x[ROWS], weight, other;
    float squares[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++)
        if (mine && first + r < args.rows)
            x[r].load((const bf16 *)args.x + (first + r) * args.width + column);
    if (mine)
        weight.load((const bf16 *)args.weight + column);
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        const int64_t at = (first + r) * args.width + column;
        squares[r] = 0;
        if (!mine || first + r >= args.rows)
            continue;
        if (args.residual != nullptr) {
            other.load((const bf16 *)args.residual + at);
#pragma unroll
            for (int i = 0; i < N; i++)
                x[r].at[i] += other.at[i];
            x[r].round();
            x[r].store((bf16 *)args.sum + at);
        }
#pragma unroll
        for (int i = 0; i < N; i++)
            squares[r] += x[r].at[i] * x[r].at[i];
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        const float rstd = rsqrtf(group_sum(squares[r], lanes) / (float)args.width + args.eps);
        if (!mine || first + r >= args.rows)
            continue;
        if (lane == 0 && args.rstd != nullptr)
            args.rstd[first + r] = rstd;
#pragma unroll
        for (int i = 0; i < N; i++)
            x[r].at[i] *= rstd * weight.at[i];
        x[r].store((bf16 *)args.y + (first + r) * args.width + column);
    }
}

void rmsnorm_heads(const struct ops_rmsnorm *args, int vector, cudaStream_t stream)
{
    int lanes = heads_lanes(args->width, vector);
    unsigned blocks = (unsigned)ceil_div(args->rows, THREADS / lanes * ROWS);
    if (vector == 8)
        rmsnorm_heads_kernel<8><<<blocks, THREADS, 0, stream>>>(*args, lanes);
    else
        rmsnorm_heads_kernel<1><<<blocks, THREADS, 0, stream>>>(*args, lanes);
}

/* rmsnorm_heads: 8, 16 or 32 lanes a row, one vector a lane, ROWS rows at once so that enough loads
 * are on their way; sums go through shuffles alone.
 *
 * Bytes moved: as rmsnorm.cu. Share of a device copy, 4M heads of 128: forward 80%, backward 53%
 * (bench_cuda_ops 131072, one H200, driver 580.159.04, 2026-11-29). One row at a time: 57% and 18%.
 * Backward with fp32 instead of raw rows held, 128 registers: 55% at 16K tokens; seven blocks a
 * multiprocessor asked for: 51%. NEEDSWORK: backward is short of 80%. */
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

int64_t rmsnorm_heads_blocks(int64_t rows, int64_t width, int vector, int64_t most)
{
    int64_t blocks = ceil_div(rows, THREADS / heads_lanes(width, vector) * ROWS);
    return blocks < most ? blocks : most;
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
    unsigned blocks = (unsigned)rmsnorm_heads_blocks(args->rows, args->width, vector, INT64_MAX);
    if (vector == 8)
        rmsnorm_heads_kernel<8><<<blocks, THREADS, 0, stream>>>(*args, lanes);
    else
        rmsnorm_heads_kernel<1><<<blocks, THREADS, 0, stream>>>(*args, lanes);
}

/* dx of ROWS rows; their share of dweight is added to part. */
template <int N>
static __device__ __forceinline__ void rmsnorm_heads_rows(const struct ops_rmsnorm_bwd &args,
                                                          int64_t first, int lanes, int column,
                                                          const span<N> &weight, float part[N])
{
    const bool mine = column < args.width;
    typename span<N>::raw xs[ROWS], dys[ROWS];
    span<N> x, dy, dx;
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        const int64_t at = (first + r) * args.width + column;
        if (!mine || first + r >= args.rows)
            continue;
        xs[r] = *(const typename span<N>::raw *)((const bf16 *)args.x + at);
        dys[r] = *(const typename span<N>::raw *)((const bf16 *)args.dy + at);
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        const bool here = mine && first + r < args.rows;
        const int64_t at = (first + r) * args.width + column;
        float2 sums = make_float2(0, 0); /* of x * weight * dy; of squares */
        if (here) {
            x.unpack(xs[r]), dy.unpack(dys[r]);
            if (args.accumulate)
                dx.load((const bf16 *)args.dx + at);
#pragma unroll
            for (int i = 0; i < N; i++) {
                sums.x += x.at[i] * weight.at[i] * dy.at[i];
                sums.y += x.at[i] * x.at[i];
            }
        }
        sums = group_sums(sums, lanes, 0);
        if (!here)
            continue;
        const float rstd = args.rstd != nullptr ? args.rstd[first + r]
                                                : rsqrtf(sums.y / (float)args.width + args.eps);
        const float pull = rstd * rstd * rstd * (sums.x / (float)args.width);
#pragma unroll
        for (int i = 0; i < N; i++) {
            const float value = rstd * weight.at[i] * dy.at[i] - x.at[i] * pull;
            part[i] += dy.at[i] * x.at[i] * rstd;
            dx.at[i] = args.accumulate ? dx.at[i] + value : value;
        }
        dx.store((bf16 *)args.dx + at);
    }
}

template <int N>
__global__ void __launch_bounds__(THREADS, 7)
    rmsnorm_heads_bwd_kernel(struct ops_rmsnorm_bwd args, int lanes, float *parts)
{
    __shared__ float columns[THREADS * N]; /* (groups, lanes * N) */
    const int groups = THREADS / lanes, group = (int)threadIdx.x / lanes;
    const int column = (int)threadIdx.x % lanes * N;
    span<N> weight;
    float part[N];
    for (int i = 0; i < N; i++)
        part[i] = 0;
    if (column < args.width)
        weight.load((const bf16 *)args.weight + column);
    for (int64_t first = (int64_t)blockIdx.x * groups * ROWS; first < args.rows;
         first += (int64_t)gridDim.x * groups * ROWS)
        rmsnorm_heads_rows<N>(args, first + group * ROWS, lanes, column, weight, part);
    if (parts == nullptr)
        return;
    for (int i = 0; i < N; i++)
        columns[group * lanes * N + column + i] = part[i];
    __syncthreads();
    for (int64_t at = threadIdx.x; at < args.width; at += THREADS) {
        float sum = 0;
        for (int g = 0; g < groups; g++)
            sum += columns[g * lanes * N + at];
        parts[blockIdx.x * args.width + at] = sum;
    }
}

void rmsnorm_heads_bwd(const struct ops_rmsnorm_bwd *args, int vector, int64_t blocks, float *parts,
                       cudaStream_t stream)
{
    int lanes = heads_lanes(args->width, vector);
    if (vector == 8)
        rmsnorm_heads_bwd_kernel<8><<<(unsigned)blocks, THREADS, 0, stream>>>(*args, lanes, parts);
    else
        rmsnorm_heads_bwd_kernel<1><<<(unsigned)blocks, THREADS, 0, stream>>>(*args, lanes, parts);
}

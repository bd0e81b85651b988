/* rmsnorm_heads: 8, 16 or 32 lanes a row, one vector a lane, ROWS rows at once so that enough loads
 * are on their way; they stay as they came, in bf16, until their sums are there. Sums go through
 * shuffles alone.
 *
 * Bytes moved: as rmsnorm.cu. Share of a device copy: 4M heads of 128 96%, of 96 96%, of 64 94%, 2M
 * of 256 96% (one H200, driver 580.159.04, 2026-11-30). Tried and lost, heads of 128: rows widened
 * to fp32 at once and lanes counted at run time, 82%; two rows at once and twice the blocks (32
 * registers, which spills), 72%; eight rows, 93%; two vectors a lane, 96%, heads of 64 then 64%;
 * blocks that stay, with the next rows on their way, 90%. */
#include "worker/cuda/rmsnorm_heads.h"

#include "worker/cuda/kernel.h"

enum { THREADS = 128, ROWS = 4, BLOCKS = 8 /* of a multiprocessor: 64 registers a thread */ };

template <int LANES> static __device__ __forceinline__ float heads_sum(float value)
{
#pragma unroll
    for (int offset = LANES / 2; offset > 0; offset /= 2)
        value += __shfl_xor_sync(~0u, value, offset);
    return value;
}

template <int N, int LANES>
__global__ void __launch_bounds__(THREADS, BLOCKS) rmsnorm_heads_kernel(struct ops_rmsnorm args)
{
    typedef typename span<N>::raw raw;
    const int column = (int)threadIdx.x % LANES * N, width = (int)args.width;
    const int64_t group = (int64_t)blockIdx.x * (THREADS / LANES) + (int)threadIdx.x / LANES;
    const int64_t first = group * ROWS, at = first * width + column;
    const int rows = column < width ? (int)min(args.rows - first, (int64_t)ROWS) : 0; /* mine */
    raw held[ROWS] = {}, weight = {};
    span<N> x, other;
    float rstd[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++)
        if (r < rows)
            held[r] = *(const raw *)((const bf16 *)args.x + at + r * width);
    if (column < width)
        weight = *(const raw *)((const bf16 *)args.weight + column);
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        x.unpack(held[r]);
        if (r < rows && args.residual != nullptr) {
            other.load((const bf16 *)args.residual + at + r * width);
#pragma unroll
            for (int i = 0; i < N; i++)
                x.at[i] += other.at[i];
            held[r] = x.pack(); /* the norm is of what is stored */
            x.unpack(held[r]);
            x.store((bf16 *)args.sum + at + r * width);
        }
        float squares = 0;
#pragma unroll
        for (int i = 0; i < N; i++)
            squares += x.at[i] * x.at[i];
        rstd[r] = rsqrtf(heads_sum<LANES>(squares) / (float)width + args.eps);
    }
    other.unpack(weight);
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        if (r >= rows)
            continue;
        if (column == 0 && args.rstd != nullptr)
            args.rstd[first + r] = rstd[r];
        x.unpack(held[r]);
#pragma unroll
        for (int i = 0; i < N; i++)
            x.at[i] *= rstd[r] * other.at[i];
        x.store((bf16 *)args.y + at + r * width);
    }
}

template <int N, int LANES>
static void rmsnorm_heads_launch(const struct ops_rmsnorm *args, cudaStream_t stream)
{
    const unsigned blocks = (unsigned)ceil_div(args->rows, THREADS / LANES * ROWS);
    rmsnorm_heads_kernel<N, LANES><<<blocks, THREADS, 0, stream>>>(*args);
}

void rmsnorm_heads(const struct ops_rmsnorm *args, int vector, cudaStream_t stream)
{
    const int64_t lanes = ceil_div(args->width, vector);
    void (*launch)(const struct ops_rmsnorm *, cudaStream_t);
    if (vector == 8)
        launch = lanes <= 8    ? rmsnorm_heads_launch<8, 8>
                 : lanes <= 16 ? rmsnorm_heads_launch<8, 16>
                               : rmsnorm_heads_launch<8, 32>;
    else
        launch = lanes <= 8    ? rmsnorm_heads_launch<1, 8>
                 : lanes <= 16 ? rmsnorm_heads_launch<1, 16>
                               : rmsnorm_heads_launch<1, 32>;
    launch(args, stream);
}

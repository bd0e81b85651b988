/* rmsnorm: a group of threads a row: 8 to 1024 lanes, each holding up to 32 elements of it in
 * registers between the sum of squares and the result (a row of 4096 takes 128 lanes with four
 * 16-byte vectors each). Rows of at most 32 vectors, heads, are rmsnorm_heads.cu's.
 *
 * Bytes moved: 2 units of (rows, width) bf16, 4 with a residual. Share of a device copy: 97% and
 * 91% at 128K rows of 4096, 92% and 88% at 16K (bench_cuda_ops 131072 and 16384, one H200, driver
 * 580.159.04, 2026-11-29). */
#include "worker/cuda/rmsnorm.h"

#include "common/must.h"
#include "worker/cuda/kernel.h"
#include "worker/cuda/rmsnorm_heads.h"

enum { HELD = 32 }; /* elements of a row that a lane holds, 32 / N vectors */

/* Lanes of a row: a warp as long as it holds it, then as few as do. */
static int rmsnorm_lanes(int64_t width, int vector)
{
    int64_t wanted = ceil_div(width, vector);
    if (wanted > 32)
        wanted = width > 32 * HELD ? ceil_div(width, HELD) : 32;
    int lanes = 8;
    while (lanes < wanted)
        lanes *= 2;
    return lanes;
}

int rmsnorm_check(int64_t width, struct err *err)
{
    if (width > RMSNORM_WIDTH_MAX)
        return err_set(err, ERR_UNSUPPORTED, "a norm of %lld columns; the CUDA backend goes to %d",
                       (long long)width, (int)RMSNORM_WIDTH_MAX);
    return 0;
}

template <int N> __global__ void rmsnorm_kernel(struct ops_rmsnorm args, int lanes)
{
    const int64_t row = (int64_t)blockIdx.x * (blockDim.x / lanes) + threadIdx.x / (unsigned)lanes;
    const int lane = (int)(threadIdx.x % (unsigned)lanes);
    const int64_t width = row < args.rows ? args.width : 0; /* an absent row has no columns */
    const bf16 *x = (const bf16 *)args.x + row * args.width;
    const bf16 *residual = (const bf16 *)args.residual + row * args.width;
    span<N> held[HELD / N], other;
    float squares = 0;
#pragma unroll
    for (int k = 0; k < HELD / N; k++) {
        int64_t column = ((int64_t)k * lanes + lane) * N;
        if (column < width)
            held[k].load(x + column);
    }
#pragma unroll
    for (int k = 0; k < HELD / N; k++) {
        int64_t column = ((int64_t)k * lanes + lane) * N;
        if (column >= width)
            continue;
        if (args.residual != nullptr) {
            other.load(residual + column);
#pragma unroll
            for (int i = 0; i < N; i++)
                held[k].at[i] += other.at[i];
            held[k].round(); /* the norm is of what is stored */
            held[k].store((bf16 *)args.sum + row * args.width + column);
        }
#pragma unroll
        for (int i = 0; i < N; i++)
            squares += held[k].at[i] * held[k].at[i];
    }
    const float rstd = rsqrtf(group_sum(squares, lanes) / (float)args.width + args.eps);
    if (lane == 0 && width > 0 && args.rstd != nullptr)
        args.rstd[row] = rstd;
#pragma unroll
    for (int k = 0; k < HELD / N; k++) {
        int64_t column = ((int64_t)k * lanes + lane) * N;
        if (column >= width)
            continue;
        other.load((const bf16 *)args.weight + column);
#pragma unroll
        for (int i = 0; i < N; i++)
            other.at[i] *= held[k].at[i] * rstd;
        other.store((bf16 *)args.y + row * args.width + column);
    }
}

int cuda_rmsnorm(struct device *device, struct stream *stream, const struct ops_rmsnorm *args,
                 struct err *err)
{
    must(args->residual == nullptr || (args->sum != nullptr && args->y != args->sum));
    if (args->rows == 0 || args->width == 0)
        return 0;
    TRY(rmsnorm_check(args->width, err));
    cudaStream_t on = device_cuda_stream(device, stream)->cuda;
    bool wide = args->width % 8 == 0 &&
                aligned16(args->x, args->residual, args->sum, args->weight, args->y);
    int lanes = rmsnorm_lanes(args->width, wide ? 8 : 1), threads = lanes < 128 ? 128 : lanes;
    unsigned blocks = (unsigned)ceil_div(args->rows, threads / lanes);
    if (args->width <= (wide ? 256 : 32))
        rmsnorm_heads(args, wide ? 8 : 1, on);
    else if (wide)
        rmsnorm_kernel<8><<<blocks, threads, 0, on>>>(*args, lanes);
    else
        rmsnorm_kernel<1><<<blocks, threads, 0, on>>>(*args, lanes);
    return KERNEL_CHECK("rmsnorm");
}

/* rmsnorm: a group of threads a row: 8 to 1024 lanes, each holding up to 32 elements of it in
 * registers between the sum of squares and the result (a row of 4096 takes 128 lanes with four
 * 16-byte vectors each). Rows of at most 32 vectors, heads, are rmsnorm_heads.cu's.
 *
 * Backward walks rows with a fixed number of groups and keeps each column's sum of dy*x*rstd in
 * registers; groups of a block are added in shared memory, blocks by parts_add(): the order depends
 * on the shape alone, so dweight has the same bits each time.
 *
 * Bytes moved: 2 units of (rows, width) bf16 forward (4 with a residual), 3 backward (4 where dx is
 * added to). Share of a device copy at 128K rows of 4096: forward 97%, with residual 91%, backward
 * 65%, += 73%; at 16K rows 92, 88, 55, 64 (bench_cuda_ops 131072 and 16384, one H200, driver
 * 580.159.04, 2026-11-29). Tried and lost: 32 elements a lane in backward, 49% at 16K (172
 * registers, two blocks a multiprocessor); a bound of 64 registers, 15% (spills). NEEDSWORK:
 * backward is short of 80%. */
#include "common/must.h"
#include "worker/cuda/kernel.h"
#include "worker/cuda/rmsnorm_heads.h"

enum {
    HELD = 32,             /* elements of a row that a lane holds in forward, 32 / N vectors */
    BWD_HELD = 16,         /* and in backward, where it holds sums and the next row too */
    WIDTH_MAX = 16 * 1024, /* the widest row: the widest published hidden size */
    PARTS_MAX = 132 * 6    /* blocks of backward: partial sums of dweight */
};

/* Lanes of a row: a warp as long as it holds it, then as few as do. */
static int rmsnorm_lanes(int64_t width, int vector, int held)
{
    int64_t wanted = ceil_div(width, vector);
    if (wanted > 32)
        wanted = width > 32 * held ? ceil_div(width, held) : 32;
    int lanes = 8;
    while (lanes < wanted)
        lanes *= 2;
    return lanes;
}

static int rmsnorm_check(int64_t width, struct err *err)
{
    if (width > WIDTH_MAX)
        return err_set(err, ERR_UNSUPPORTED, "a norm of %lld columns; the CUDA backend goes to %d",
                       (long long)width, (int)WIDTH_MAX);
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
    int lanes = rmsnorm_lanes(args->width, wide ? 8 : 1, HELD), threads = lanes < 128 ? 128 : lanes;
    unsigned blocks = (unsigned)ceil_div(args->rows, threads / lanes);
    if (args->width <= (wide ? 256 : 32))
        rmsnorm_heads(args, wide ? 8 : 1, on);
    else if (wide)
        rmsnorm_kernel<8><<<blocks, threads, 0, on>>>(*args, lanes);
    else
        rmsnorm_kernel<1><<<blocks, threads, 0, on>>>(*args, lanes);
    return KERNEL_CHECK("rmsnorm");
}

/* What backward reads of one row, as it lies in memory. */
template <int N> struct rmsnorm_row {
    typename span<N>::raw x[BWD_HELD / N], dy[BWD_HELD / N];
    __device__ __forceinline__ void fetch(const struct ops_rmsnorm_bwd &args, int64_t row,
                                          int lanes, int lane)
    {
#pragma unroll
        for (int k = 0; k < BWD_HELD / N; k++) {
            const int64_t column = ((int64_t)k * lanes + lane) * N;
            const int64_t at = row * args.width + column;
            if (row >= args.rows || column >= args.width)
                continue;
            x[k] = *(const typename span<N>::raw *)((const bf16 *)args.x + at);
            dy[k] = *(const typename span<N>::raw *)((const bf16 *)args.dy + at);
        }
    }
};

/* dx of one row, and its share of dweight into `part`; the next row is fetched before this one's
 * sums are known. All threads of the block call it. */
template <int N>
static __device__ __forceinline__ void
rmsnorm_bwd_row(const struct ops_rmsnorm_bwd &args, int64_t row, int64_t next, int lanes, int lane,
                int turn, struct rmsnorm_row<N> *held, float part[BWD_HELD])
{
    const int64_t width = row < args.rows ? args.width : 0; /* an absent row has no columns */
    const struct rmsnorm_row<N> now = *held;
    typename span<N>::raw before[BWD_HELD / N]; /* dx where it is added to */
    span<N> x, dy, weight, dx;
    float2 sums = make_float2(0, 0); /* of x * weight * dy; of squares */
    held->fetch(args, next, lanes, lane);
#pragma unroll
    for (int k = 0; k < BWD_HELD / N; k++) {
        const int64_t column = ((int64_t)k * lanes + lane) * N;
        if (column >= width)
            continue;
        if (args.accumulate)
            before[k] =
                *(const typename span<N>::raw *)((bf16 *)args.dx + row * args.width + column);
        x.unpack(now.x[k]), dy.unpack(now.dy[k]);
        weight.load((const bf16 *)args.weight + column);
#pragma unroll
        for (int i = 0; i < N; i++) {
            sums.x += x.at[i] * weight.at[i] * dy.at[i];
            sums.y += x.at[i] * x.at[i];
        }
    }
    sums = group_sums(sums, lanes, turn);
    float rstd = rsqrtf(sums.y / (float)args.width + args.eps);
    if (args.rstd != nullptr)
        rstd = width > 0 ? args.rstd[row] : 0.0f;
    const float pull = rstd * rstd * rstd * (sums.x / (float)args.width);
#pragma unroll
    for (int k = 0; k < BWD_HELD / N; k++) {
        const int64_t column = ((int64_t)k * lanes + lane) * N;
        if (column >= width)
            continue;
        x.unpack(now.x[k]), dy.unpack(now.dy[k]);
        weight.load((const bf16 *)args.weight + column);
        if (args.accumulate)
            dx.unpack(before[k]);
#pragma unroll
        for (int i = 0; i < N; i++) {
            const float value = rstd * weight.at[i] * dy.at[i] - x.at[i] * pull;
            dx.at[i] = args.accumulate ? dx.at[i] + value : value;
            part[k * N + i] += dy.at[i] * x.at[i] * rstd;
        }
        dx.store((bf16 *)args.dx + row * args.width + column);
    }
}

/* parts: (gridDim, width), or NULL where dweight is not asked for. THREADS: the most of a block. */
template <int N, int THREADS>
__global__ void __launch_bounds__(THREADS, THREADS <= 256 ? 768 / THREADS : 1)
    rmsnorm_bwd_kernel(struct ops_rmsnorm_bwd args, int lanes, float *parts)
{
    extern __shared__ float columns[]; /* (width) sums of the block, with several groups */
    const int groups = (int)blockDim.x / lanes, group = (int)threadIdx.x / lanes;
    const int lane = (int)threadIdx.x % lanes;
    const int64_t step = (int64_t)gridDim.x * groups;
    struct rmsnorm_row<N> held;
    float part[BWD_HELD];
#pragma unroll
    for (int i = 0; i < BWD_HELD; i++)
        part[i] = 0;
    int64_t row = (int64_t)blockIdx.x * groups + group;
    held.fetch(args, row, lanes, lane);
    for (int turn = 0; row - group < args.rows; row += step, turn ^= 1)
        rmsnorm_bwd_row<N>(args, row, row + step, lanes, lane, turn, &held, part);
    if (parts == nullptr)
        return;
    float *out = parts + (int64_t)blockIdx.x * args.width;
    for (int turn = 0; turn < groups; turn++) {
        if (turn == group) {
#pragma unroll
            for (int i = 0; i < BWD_HELD; i++) {
                int64_t column = ((int64_t)(i / N) * lanes + lane) * N + i % N;
                if (column >= args.width)
                    continue;
                float sum = turn == 0 ? part[i] : columns[column] + part[i];
                if (turn == groups - 1)
                    out[column] = sum;
                else
                    columns[column] = sum;
            }
        }
        __syncthreads();
    }
}

template <int N>
static void rmsnorm_bwd_launch(const struct ops_rmsnorm_bwd *args, int64_t blocks, float *parts,
                               cudaStream_t stream)
{
    int lanes = rmsnorm_lanes(args->width, N, BWD_HELD), threads = lanes < 128 ? 128 : lanes;
    /* One group needs no shared memory; several share rows of at most 1024 columns. */
    size_t shared = threads == lanes ? 0 : (size_t)args->width * sizeof(float);
    if (threads <= 256)
        rmsnorm_bwd_kernel<N, 256>
            <<<(unsigned)blocks, threads, shared, stream>>>(*args, lanes, parts);
    else
        rmsnorm_bwd_kernel<N, 1024>
            <<<(unsigned)blocks, threads, shared, stream>>>(*args, lanes, parts);
}

int cuda_rmsnorm_bwd(struct device *device, struct stream *stream,
                     const struct ops_rmsnorm_bwd *args, struct err *err)
{
    must(!(args->accumulate && args->dx == args->dy));
    if (args->rows == 0 || args->width == 0)
        return 0;
    TRY(rmsnorm_check(args->width, err));
    stream = device_cuda_stream(device, stream);
    bool wide = args->width % 8 == 0 && aligned16(args->x, args->weight, args->dy, args->dx);
    int vector = wide ? 8 : 1, lanes = rmsnorm_lanes(args->width, vector, BWD_HELD);
    bool heads = args->width <= 32 * vector;
    int64_t blocks = ceil_div(args->rows, lanes < 128 ? 128 / lanes : 1);
    blocks = blocks < PARTS_MAX ? blocks : (int64_t)PARTS_MAX;
    if (heads)
        blocks = rmsnorm_heads_blocks(args->rows, args->width, vector, PARTS_MAX);
    float *parts = nullptr;
    if (args->dweight != nullptr) {
        parts = (float *)device_cuda_scratch(device_cuda_of(device), stream, DEVICE_SCRATCH_OP,
                                             (size_t)(blocks * args->width) * sizeof *parts, err);
        if (parts == nullptr)
            return -(int)err->code;
    }
    if (heads)
        rmsnorm_heads_bwd(args, vector, blocks, parts, stream->cuda);
    else if (wide)
        rmsnorm_bwd_launch<8>(args, blocks, parts, stream->cuda);
    else
        rmsnorm_bwd_launch<1>(args, blocks, parts, stream->cuda);
    if (parts != nullptr)
        parts_add(parts, blocks, args->width, args->dweight, stream->cuda);
    return KERNEL_CHECK("rmsnorm_bwd");
}

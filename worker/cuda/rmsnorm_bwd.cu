/* rmsnorm_bwd: rows travel through a ring of stages in shared memory. A stage is `groups`
 * consecutive rows of x and dy (and of dx, where it is added to), brought by the copy engine while
 * earlier stages are worked on; 16 elements of a row are a lane's. A row's sums need one barrier of
 * the block; it also tells that all are done with the stage before, which is then filled again.
 *
 * Each lane keeps its columns' sums of dy*x*rstd in registers; groups of a block are added in
 * shared memory, blocks by parts_add(): the order depends on the shape alone, so dweight has the
 * same bits each time. rstd is made again from x rather than read: the row is there anyway.
 *
 * Rows that the copy engine cannot take (an odd width, a pointer off 16 bytes) are put into the
 * ring's one stage by the threads.
 *
 * Bytes moved: 3 units of (rows, width) bf16, 4 where dx is added to. Share of a device copy at
 * 128K rows of 4096: 92%, += 98%, rounded at random 86%; 16K rows, += 88%; 4M heads of 128: 93%, +=
 * 98% (one H200, driver 580.159.04, 2026-11-30). Tried and lost: the next row in registers instead
 * of a ring, 65% and 73% (heads: 53%); blocks of 512 threads with two rows of 4096, 4% slower; six
 * stages of 8192 columns instead of three, 6%. */
#include "common/bf16_dither.h"
#include "common/must.h"
#include "worker/cuda/bulk.h"
#include "worker/cuda/kernel.h"
#include "worker/cuda/rmsnorm.h"

enum {
    HELD = 16, /* elements of a row that a lane has, two vectors */
    VECTORS = HELD / 8,
    THREADS = 256,       /* of a block, where a row does not take more */
    THREADS_SMALL = 384, /* up to these, registers for 768 threads a multiprocessor */
    THREADS_MOST = 1024,
    STAGES_MAX = 3,
    MULTIPROCESSORS = 132,
    SHARED = 228 * 1024,    /* of a multiprocessor */
    SHARED_APART = 2 * 1024 /* of a block besides the ring: the driver's, barriers, sums */
};

/* How a launch lays out rows. */
struct rmsnorm_bwd_shape {
    int lanes;  /* threads of a row */
    int groups; /* rows of a stage, one a group of lanes */
    int stages; /* of the ring */
    int pitch;  /* elements from row to row in a stage */
};

/* Rows from `first` on to a stage. The copy engine: called by one thread. */
template <bool BULK>
static __device__ __forceinline__ void rmsnorm_bwd_fetch(const struct ops_rmsnorm_bwd &args,
                                                         const struct rmsnorm_bwd_shape &shape,
                                                         int64_t first, bf16 *stage, uint64_t *full)
{
    const bf16 *from[3] = {(const bf16 *)args.x, (const bf16 *)args.dy, (const bf16 *)args.dx};
    const int tensors = args.accumulate ? 3 : 2;
    const int64_t left = args.rows - first, rows = left < shape.groups ? left : shape.groups;
    if (BULK && rows > 0) {
        const uint32_t bytes = (uint32_t)(rows * args.width * (int64_t)sizeof(bf16));
        bulk_expect(full, (uint32_t)tensors * bytes);
        for (int t = 0; t < tensors; t++)
            bulk_copy(full, stage + (int64_t)t * shape.groups * shape.pitch,
                      from[t] + first * args.width, bytes);
    }
    for (int t = 0; !BULK && t < tensors; t++)
        for (int64_t at = threadIdx.x; at < rows * shape.pitch; at += blockDim.x) {
            const int64_t row = at / shape.pitch, column = at % shape.pitch;
            stage[(int64_t)t * shape.groups * shape.pitch + at] =
                column < args.width ? from[t][(first + row) * args.width + column] : (bf16)0;
        }
}

/* A vector of a row in global memory, where it may end within it and lie off 16 bytes. */
template <bool BULK>
static __device__ __forceinline__ void rmsnorm_bwd_load(span<8> *x, const bf16 *row, int column,
                                                        int width)
{
    if (BULK && column < width)
        x->load(row + column);
    for (int i = 0; !BULK && i < 8; i++)
        x->at[i] = column + i < width ? bf16_wide(row[column + i]) : 0.0f;
}
template <bool BULK>
static __device__ __forceinline__ void rmsnorm_bwd_store(const span<8> &x, bf16 *row, int column,
                                                         int width)
{
    if (BULK)
        x.store(row + column);
    for (int i = 0; !BULK && i < 8; i++)
        if (column + i < width)
            row[column + i] = (bf16)bf16_pair(x.at[i], 0);
}

/* What a lane keeps of its columns. */
struct rmsnorm_bwd_lane {
    int lane, group;
    uint4 weights[VECTORS];
    float part[HELD]; /* sums of dy * x * rstd */
};

/* This lane's share of the row's sums: of x * weight * dy, and of squares. */
static __device__ __forceinline__ float2 rmsnorm_bwd_sums(const struct rmsnorm_bwd_lane &my,
                                                          const bf16 *row, int tensor, int lanes,
                                                          int width)
{
    float2 sums = make_float2(0, 0);
    span<8> x, dy, weight;
#pragma unroll
    for (int k = 0; k < VECTORS; k++) {
        const int column = (k * lanes + my.lane) * 8;
        if (column >= width)
            continue;
        x.load(row + column), dy.load(row + tensor + column), weight.unpack(my.weights[k]);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            sums.x += x.at[i] * weight.at[i] * dy.at[i];
            sums.y += x.at[i] * x.at[i];
        }
    }
    return sums;
}

/* Eight elements from `at` on to values that bf16 holds. Where `at` is odd neighbours share noise.
 */
static __device__ __forceinline__ void rmsnorm_bwd_dither(span<8> *x, uint64_t key, int64_t at)
{
#pragma unroll
    for (int i = 0; i < 8; i += 2) {
        const uint32_t noise = bf16_dither(key, (uint64_t)(at + i) / 2);
        x->at[i] = __uint_as_float(bf16_dithered(__float_as_uint(x->at[i]), noise & 0xffffu));
        x->at[i + 1] = __uint_as_float(bf16_dithered(__float_as_uint(x->at[i + 1]), noise >> 16));
    }
}

/* dx of this lane's columns, which are added to its parts of dweight. */
template <bool BULK>
static __device__ __forceinline__ void
rmsnorm_bwd_apply(struct rmsnorm_bwd_lane *my, float2 sums, const struct ops_rmsnorm_bwd &args,
                  const bf16 *row, int tensor, int lanes, int width, bf16 *out)
{
    const float rstd = rsqrtf(sums.y / (float)(int)args.width + args.eps);
    const float pull = rstd * rstd * rstd * (sums.x / (float)(int)args.width);
    span<8> x, dy, weight, dx;
#pragma unroll
    for (int k = 0; k < VECTORS; k++) {
        const int column = (k * lanes + my->lane) * 8;
        if (column >= width)
            continue;
        x.load(row + column), dy.load(row + tensor + column), weight.unpack(my->weights[k]);
        if (args.accumulate)
            dx.load(row + 2 * tensor + column);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const float value = rstd * weight.at[i] * dy.at[i] - x.at[i] * pull;
            dx.at[i] = args.accumulate ? dx.at[i] + value : value;
            my->part[8 * k + i] += dy.at[i] * x.at[i] * rstd;
        }
        if (args.dither != 0)
            rmsnorm_bwd_dither(&dx, args.dither, out - (bf16 *)args.dx + column);
        rmsnorm_bwd_store<BULK>(dx, out, column, width);
    }
}

/* Sums of the groups' columns to `out`, in the groups' order. columns: (groups, lanes * HELD). */
static __device__ __forceinline__ void rmsnorm_bwd_finish(const struct rmsnorm_bwd_lane &my,
                                                          const struct rmsnorm_bwd_shape &shape,
                                                          int width, float *columns, float *out)
{
    const int line = shape.lanes * HELD;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < HELD; i++)
        columns[my.group * line + (i / 8 * shape.lanes + my.lane) * 8 + i % 8] = my.part[i];
    __syncthreads();
    for (int column = (int)threadIdx.x; column < width; column += (int)blockDim.x) {
        float sum = 0;
        for (int g = 0; g < shape.groups; g++)
            sum += columns[g * line + column];
        out[column] = sum;
    }
}

template <bool BULK>
static __device__ __forceinline__ void
rmsnorm_bwd_lane_start(struct rmsnorm_bwd_lane *my, const bf16 *weight, int lanes, int width)
{
    my->lane = (int)threadIdx.x % lanes;
    my->group = (int)threadIdx.x / lanes;
#pragma unroll
    for (int k = 0; k < VECTORS; k++) {
        span<8> vector;
        rmsnorm_bwd_load<BULK>(&vector, weight, (k * lanes + my->lane) * 8, width);
        my->weights[k] = vector.pack();
#pragma unroll
        for (int i = 0; i < 8; i++)
            my->part[8 * k + i] = 0;
    }
}

/* parts: (gridDim, width), or NULL where dweight is not asked for. */
template <bool BULK, int THREADS_MAX, int BLOCKS>
__global__ void __launch_bounds__(THREADS_MAX, BLOCKS)
    rmsnorm_bwd_kernel(struct ops_rmsnorm_bwd args, struct rmsnorm_bwd_shape shape, float *parts)
{
    extern __shared__ __align__(128) unsigned char ring[];
    __shared__ uint64_t full[STAGES_MAX];
    const int width = (int)args.width, step = (int)gridDim.x * shape.groups;
    const int tensor = shape.groups * shape.pitch, size = (args.accumulate ? 3 : 2) * tensor;
    bf16 *const stages = (bf16 *)ring;
    int64_t first = (int64_t)blockIdx.x * shape.groups;
    if (BULK && threadIdx.x == 0)
        for (int s = 0; s < shape.stages; s++) {
            bulk_init(&full[s]);
            rmsnorm_bwd_fetch<BULK>(args, shape, first + s * step, stages + s * size, &full[s]);
        }
    __syncthreads();
    struct rmsnorm_bwd_lane my;
    rmsnorm_bwd_lane_start<BULK>(&my, (const bf16 *)args.weight, shape.lanes, width);
    int at = 0; /* the stage */
    uint32_t phase = 0;
    for (int turn = 0; first < args.rows; first += step, turn++) {
        const int columns = first + my.group < args.rows ? width : 0; /* an absent row has none */
        if (BULK) {
            bulk_wait(&full[at], phase);
        } else {
            __syncthreads();
            rmsnorm_bwd_fetch<BULK>(args, shape, first, stages, nullptr);
            __syncthreads();
        }
        const bf16 *row = stages + at * size + my.group * shape.pitch;
        float2 sums = rmsnorm_bwd_sums(my, row, tensor, shape.lanes, columns);
        if (shape.lanes <= 32)
            __syncthreads(); /* else group_sums() has one */
        sums = group_sums(sums, shape.lanes, turn & 1);
        if (BULK && threadIdx.x == 0 && turn > 0) {
            const int before = (at == 0 ? shape.stages : at) - 1;
            rmsnorm_bwd_fetch<BULK>(args, shape, first + (int64_t)(shape.stages - 1) * step,
                                    stages + before * size, &full[before]);
        }
        rmsnorm_bwd_apply<BULK>(&my, sums, args, row, tensor, shape.lanes, columns,
                                (bf16 *)args.dx + (first + my.group) * width);
        if (++at == shape.stages)
            at = 0, phase ^= 1;
    }
    if (parts != nullptr)
        rmsnorm_bwd_finish(my, shape, width, (float *)ring, parts + (int64_t)blockIdx.x * width);
}

template <bool BULK, int THREADS_MAX, int BLOCKS>
static int rmsnorm_bwd_launch(const struct ops_rmsnorm_bwd *args, struct rmsnorm_bwd_shape shape,
                              int64_t blocks, float *parts, cudaStream_t stream, struct err *err)
{
    const int tensors = args->accumulate ? 3 : 2, threads = shape.groups * shape.lanes;
    const int ring = shape.stages * tensors * shape.groups * shape.pitch * (int)sizeof(bf16);
    const int columns = threads * HELD * (int)sizeof(float); /* in the ring's place, at the end */
    const int bytes = ring > columns ? ring : columns;
    CUDA_TRY(cudaFuncSetAttribute(rmsnorm_bwd_kernel<BULK, THREADS_MAX, BLOCKS>,
                                  cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    rmsnorm_bwd_kernel<BULK, THREADS_MAX, BLOCKS>
        <<<(unsigned)blocks, threads, (size_t)bytes, stream>>>(*args, shape, parts);
    if (parts != nullptr)
        parts_add(parts, blocks, args->width, args->dweight, stream);
    return KERNEL_CHECK("rmsnorm_bwd");
}

/* *ret_resident: blocks of a multiprocessor. */
static struct rmsnorm_bwd_shape rmsnorm_bwd_shape_of(const struct ops_rmsnorm_bwd *args, bool bulk,
                                                     int *ret_resident)
{
    struct rmsnorm_bwd_shape shape;
    const int wanted = (int)ceil_div(args->width, HELD);
    shape.lanes = wanted > 32 ? (int)ceil_div(wanted, 32) * 32 : 1;
    while (shape.lanes < wanted)
        shape.lanes *= 2;
    shape.groups = shape.lanes < THREADS ? THREADS / shape.lanes : 1;
    shape.pitch = (int)ceil_div(args->width, 8) * 8;
    const int threads = shape.groups * shape.lanes;
    *ret_resident = (threads <= THREADS_SMALL ? 2 * THREADS_SMALL : THREADS_MOST) / threads;
    const int row = (args->accumulate ? 3 : 2) * shape.pitch * (int)sizeof(bf16);
    const int stages = (SHARED / *ret_resident - SHARED_APART) / (shape.groups * row);
    shape.stages = !bulk ? 1 : stages < STAGES_MAX ? stages : (int)STAGES_MAX;
    must(shape.stages >= (bulk ? 2 : 1));
    return shape;
}

int cuda_rmsnorm_bwd(struct device *device, struct stream *stream,
                     const struct ops_rmsnorm_bwd *args, struct err *err)
{
    must(!(args->accumulate && args->dx == args->dy));
    if (args->rows == 0 || args->width == 0)
        return 0;
    TRY(rmsnorm_check(args->width, err));
    stream = device_cuda_stream(device, stream);
    bool bulk = args->width % 8 == 0 && aligned16(args->x, args->weight, args->dy, args->dx);
    int resident = 0;
    struct rmsnorm_bwd_shape shape = rmsnorm_bwd_shape_of(args, bulk, &resident);
    int64_t blocks = ceil_div(args->rows, shape.groups), most = MULTIPROCESSORS * resident;
    blocks = blocks < most ? blocks : most;
    float *parts = nullptr;
    if (args->dweight != nullptr) {
        parts = (float *)device_cuda_scratch(device_cuda_of(device), stream, DEVICE_SCRATCH_OP,
                                             (size_t)(blocks * args->width) * sizeof *parts, err);
        if (parts == nullptr)
            return -(int)err->code;
    }
    cudaStream_t on = stream->cuda;
    if (!bulk)
        return rmsnorm_bwd_launch<false, THREADS_MOST, 1>(args, shape, blocks, parts, on, err);
    if (shape.groups * shape.lanes > THREADS_SMALL)
        return rmsnorm_bwd_launch<true, THREADS_MOST, 1>(args, shape, blocks, parts, on, err);
    return rmsnorm_bwd_launch<true, THREADS_SMALL, 2>(args, shape, blocks, parts, on, err);
}

/* cross_entropy without a gradient: a block a piece of a row, each logit read once, into registers:
 * HELD a thread. There they become exponentials relative to the thread's largest (Milakov and
 * Gimelshein, arXiv 1805.02867), and the thread notes whether any logit beats the target's.
 *
 * With a gradient a cluster of 8 blocks takes one row after the other, a slice of the vocabulary a
 * block, a share of the slice a warp, in two parts. A part comes to shared memory by one bulk copy
 * and is walked twice there; as soon as its warp is done with it, the next row's is asked for, so
 * that logits are always on their way. Blocks send what they found to each other through
 * distributed shared memory; the second walk writes the gradient.
 *
 * What was found in a piece or row goes to scratch; one block makes losses of it and adds them in a
 * fixed tree in fp64: the same bits each time.
 *
 * Bytes that must move: 6 B a logit with the gradient, 4 without. Share of a device copy: 1024 rows
 * of 128256 82%; 800 rows of 151936 82%; 4096 rows of 32000 65%; without a gradient 98% of each
 * (one H200, driver 580.159.04, 2026-11-30). Tried and lost, with the gradient: a second reading
 * from the L2 cache instead of shared memory, 59%; a cluster for each row, 68%; twice the warps,
 * 46%, half of them, 77%; four parts, 72%; clusters of 4 blocks, 64%. */
#include "common/mem_loss.h"
#include "common/must.h"
#include "worker/cuda/bulk.h"
#include "worker/cuda/cluster.h"
#include "worker/cuda/kernel.h"

enum {
    HELD = 32,             /* logits of a thread, without a gradient */
    THREADS = 256,         /* of a block then */
    BLOCKS = 4,            /* of these a multiprocessor: 64 registers a thread */
    CLUSTER = 8,           /* blocks of a row, with a gradient */
    CLUSTER_THREADS = 256, /* of a block then, where the vocabulary is large */
    WARPS_MAX = CLUSTER_THREADS / 32,
    UNROLL = 4,   /* vectors of logits met at once */
    PARTS = 2,    /* of a warp's share, asked for one by one */
    SHARE = 1900, /* logits that a warp has, at least */
    FINISH_THREADS = 1024,
    SHARED_MAX = 224 * 1024 /* of a block: what it holds of a row */
};
static_assert(HELD * THREADS == MEM_LOSS_PIECE && sizeof(float4) == MEM_LOSS_STATE_BYTES, "");

/* What is known of a set of logits. */
struct softmax_state {
    float largest;
    float sum;    /* of exp(logit - largest); NaN where a logit is */
    float beaten; /* 1: one is larger than the target's, or as large and before it */
};

/* What exponentials are relative to: the largest, or 0 where all are -inf. */
static __device__ __forceinline__ float softmax_base(float largest)
{
    return largest == -INFINITY ? 0 : largest;
}

static __device__ __forceinline__ struct softmax_state softmax_merge(struct softmax_state a,
                                                                     struct softmax_state b)
{
    const float largest = fmaxf(a.largest, b.largest), base = softmax_base(largest);
    return {largest, a.sum * exp_fast(a.largest - base) + b.sum * exp_fast(b.largest - base),
            fmaxf(a.beaten, b.beaten)};
}

/* The largest of a warp: floats in the order of integers. */
static __device__ __forceinline__ float softmax_warp_largest(float value)
{
    int bits = __float_as_int(value);
    bits = __reduce_max_sync(~0u, bits ^ (bits >> 31 & 0x7fffffff));
    return __int_as_float(bits ^ (bits >> 31 & 0x7fffffff));
}

/* Of all lanes of a warp, in each of them; the order is fixed. */
static __device__ __forceinline__ struct softmax_state softmax_warp(struct softmax_state state)
{
    const float largest = softmax_warp_largest(state.largest);
    float sum = state.sum * exp_fast(state.largest - softmax_base(largest));
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2)
        sum += __shfl_xor_sync(~0u, sum, offset);
    return {largest, sum, __any_sync(~0u, state.beaten != 0) ? 1.0f : 0.0f};
}

static __device__ __forceinline__ float4 softmax_pack(struct softmax_state state, float own)
{
    return make_float4(state.largest, state.sum, state.beaten, own);
}
static __device__ __forceinline__ struct softmax_state softmax_unpack(float4 packed)
{
    return {packed.x, packed.y, packed.z};
}

/* A thread's logits of a slice of a row: vectors of N, a block's width apart. */
template <int N> struct cross_entropy_held {
    span<N> vectors[HELD / N];
};

/* A thread's first logit within the slice, and how far the next vector is. */
template <int N> static __device__ __forceinline__ int cross_entropy_at(int vector)
{
    return (vector * (int)blockDim.x + (int)threadIdx.x) * N;
}

/* Where the slice ends before the thread's logits do, -inf stands. logits: of the slice. */
template <int N>
static __device__ __forceinline__ void cross_entropy_load(const float *logits, int count,
                                                          struct cross_entropy_held<N> *held)
{
#pragma unroll
    for (int v = 0; v < HELD / N; v++) {
#pragma unroll
        for (int i = 0; i < N; i++)
            held->vectors[v].at[i] = -INFINITY;
        if (cross_entropy_at<N>(v) < count)
            held->vectors[v].load_once(logits + cross_entropy_at<N>(v));
    }
}

/* The thread's state; its logits become exponentials relative to its largest. target: relative to
 * the slice; own: its logit. */
template <int N>
static __device__ __forceinline__ struct softmax_state
cross_entropy_meet(struct cross_entropy_held<N> *held, int target, float own)
{
    struct softmax_state state = {-INFINITY, 0, 0};
    float largest[N], sums[N] = {}; /* apart, so that fewer wait for each other */
#pragma unroll
    for (int i = 0; i < N; i++) {
        largest[i] = -INFINITY;
#pragma unroll
        for (int v = 0; v < HELD / N; v++)
            largest[i] = fmaxf(largest[i], held->vectors[v].at[i]);
        state.largest = fmaxf(state.largest, largest[i]);
    }
    if (state.largest > own)
        state.beaten = 1;
    if (state.largest == own)
#pragma unroll
        for (int v = 0; v < HELD / N; v++)
#pragma unroll
            for (int i = 0; i < N; i++)
                if (held->vectors[v].at[i] == own && cross_entropy_at<N>(v) + i < target)
                    state.beaten = 1;
    const float base = softmax_base(state.largest);
#pragma unroll
    for (int v = 0; v < HELD / N; v++)
#pragma unroll
        for (int i = 0; i < N; i++) {
            held->vectors[v].at[i] = exp_fast(held->vectors[v].at[i] - base);
            sums[i] += held->vectors[v].at[i];
        }
#pragma unroll
    for (int i = 0; i < N; i++)
        state.sum += sums[i];
    return state;
}

/* A block a piece of a row; no gradient. states: (rows, pieces), what is found in each. */
template <int N>
__global__ void __launch_bounds__(THREADS, BLOCKS)
    cross_entropy_pieces(struct ops_cross_entropy args, int pieces, int size, float4 *states)
{
    __shared__ float4 of_warp[THREADS / 32];
    const int64_t row = blockIdx.x / (unsigned)pieces;
    const int first = (int)(blockIdx.x % (unsigned)pieces) * size;
    const int count = min(size, (int)args.vocab - first), lane = (int)threadIdx.x % 32;
    const float *logits = args.logits + row * args.vocab;
    const int target = args.targets[row];
    if (target < 0)
        return;
    struct cross_entropy_held<N> held;
    cross_entropy_load<N>(logits + first, count, &held);
    const float own = logits[target];
    struct softmax_state state = cross_entropy_meet<N>(&held, target - first, own);
    state = softmax_warp(state);
    if (lane == 0)
        of_warp[threadIdx.x / 32] = softmax_pack(state, own);
    __syncthreads();
    if (threadIdx.x >= 32)
        return;
    const float4 none = make_float4(-INFINITY, 0, 0, 0);
    state = softmax_warp(softmax_unpack(lane < THREADS / 32 ? of_warp[lane] : none));
    if (lane == 0)
        states[blockIdx.x] = softmax_pack(state, own);
}

/* The row's state from those of all the cluster's threads; the order is fixed. All threads of the
 * cluster call it, `turn` alternating between 0 and 1: a block that is ahead writes to the other.
 */
static __device__ struct softmax_state softmax_cluster(struct softmax_state state, int turn)
{
    __shared__ float4 of_warp[WARPS_MAX], of_block[2][CLUSTER];
    const int lane = (int)threadIdx.x % 32, warps = (int)blockDim.x / 32;
    const float4 none = make_float4(-INFINITY, 0, 0, 0);
    state = softmax_warp(state);
    if (lane == 0)
        of_warp[threadIdx.x / 32] = softmax_pack(state, 0);
    __syncthreads();
    if (threadIdx.x < 32) {
        state = softmax_warp(softmax_unpack(lane < warps ? of_warp[lane] : none));
        if (lane < CLUSTER)
            cluster_write(&of_block[turn][blockIdx.x % CLUSTER], (uint32_t)lane,
                          softmax_pack(state, 0));
    }
    cluster_barrier();
    return softmax_warp(softmax_unpack(lane < CLUSTER ? of_block[turn][lane] : none));
}

/* A warp's share of each row, or a part of one: `count` logits from the vocabulary's `first` on. */
struct cross_entropy_share {
    float *held; /* (count) in shared memory */
    int first, count;
};

static __device__ __forceinline__ struct cross_entropy_share
cross_entropy_part(const struct cross_entropy_share &share, int part, int size)
{
    const int skip = part * size;
    return {share.held + skip, share.first + skip, min(share.count - skip, size)};
}

/* COUNT vectors from `at` on, 32 lanes apart, into the state. target: relative to the share, as
 * below; own: its logit. */
template <int N, int COUNT>
static __device__ __forceinline__ void cross_entropy_walk_vectors(const float *held, int at,
                                                                  int target, float own,
                                                                  struct softmax_state *state)
{
    span<N> x[COUNT];
    float largest = state->largest;
#pragma unroll
    for (int c = 0; c < COUNT; c++) {
        x[c].load(held + at + c * 32 * N);
#pragma unroll
        for (int i = 0; i < N; i++)
            largest = fmaxf(largest, x[c].at[i]);
    }
    if (state->beaten == 0 && largest >= own)
#pragma unroll
        for (int c = 0; c < COUNT; c++)
#pragma unroll
            for (int i = 0; i < N; i++)
                if (x[c].at[i] > own || (x[c].at[i] == own && at + c * 32 * N + i < target))
                    state->beaten = 1;
    const float base = softmax_base(largest);
    float sum = state->sum * exp_fast(state->largest - base);
#pragma unroll
    for (int c = 0; c < COUNT; c++)
#pragma unroll
        for (int i = 0; i < N; i++)
            sum += exp_fast(x[c].at[i] - base);
    state->largest = largest;
    state->sum = sum;
}

template <int N>
static __device__ __forceinline__ void cross_entropy_walk(const struct cross_entropy_share &share,
                                                          int target, float own,
                                                          struct softmax_state *state)
{
    int at = (int)threadIdx.x % 32 * N;
    for (; at + (UNROLL - 1) * 32 * N < share.count; at += UNROLL * 32 * N)
        cross_entropy_walk_vectors<N, UNROLL>(share.held, at, target, own, state);
    for (; at < share.count; at += 32 * N)
        cross_entropy_walk_vectors<N, 1>(share.held, at, target, own, state);
}

/* dlogits: of the share. */
template <int N>
static __device__ __forceinline__ void
cross_entropy_gradient(const struct cross_entropy_share &share, int target, float scale,
                       struct softmax_state state, bf16 *dlogits)
{
    const float factor = scale / state.sum;
#pragma unroll UNROLL
    for (int at = (int)threadIdx.x % 32 * N; at < share.count; at += 32 * N) {
        span<N> x;
        x.load(share.held + at);
#pragma unroll
        for (int i = 0; i < N; i++)
            x.at[i] = exp_fast(x.at[i] - state.largest) * factor;
        if (target >= at && target < at + N)
#pragma unroll
            for (int i = 0; i < N; i++)
                x.at[i] -= at + i == target ? scale : 0.0f;
        x.store(dlogits + at);
    }
}

template <int N>
static __device__ __forceinline__ void cross_entropy_zero(const struct cross_entropy_share &share,
                                                          bf16 *dlogits)
{
    span<N> zero;
    for (int i = 0; i < N; i++)
        zero.at[i] = 0;
    for (int at = (int)threadIdx.x % 32 * N; at < share.count; at += 32 * N)
        zero.store(dlogits + at);
}

/* A row's target, and that target's logit, both on their way while another row is worked on. */
struct cross_entropy_row {
    int64_t target; /* negative: not trained on, or no such row */
    float own;
};

static __device__ __forceinline__ int64_t cross_entropy_target(const struct ops_cross_entropy &args,
                                                               int64_t row)
{
    return row < args.rows ? args.targets[row] : -1;
}

/* Asks for a part of a row, once all lanes are done with what was there; by the copy engine where N
 * is 4. */
template <int N>
static __device__ __forceinline__ void
cross_entropy_fetch(const struct ops_cross_entropy &args, int64_t row, int64_t target,
                    const struct cross_entropy_share &part, uint64_t *full)
{
    const float *logits = args.logits + row * args.vocab + part.first;
    const int lane = (int)threadIdx.x % 32;
    if (target < 0 || part.count <= 0)
        return;
    __syncwarp();
    if (N == 4 && lane == 0) {
        bulk_expect(full, (uint32_t)part.count * (uint32_t)sizeof(float));
        bulk_copy(full, part.held, logits, (uint32_t)part.count * (uint32_t)sizeof(float));
    }
    for (int at = lane; N == 1 && at < part.count; at += 32)
        part.held[at] = logits[at];
    __syncwarp();
}

template <int N>
__global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(CLUSTER_THREADS, 3)
    cross_entropy_cluster(struct ops_cross_entropy args, int slice, int size, float4 *states)
{
    extern __shared__ __align__(16) float held[]; /* (slice) logits */
    __shared__ uint64_t full[WARPS_MAX][PARTS];
    const int warp = (int)threadIdx.x / 32, begin = (int)(blockIdx.x % CLUSTER) * slice;
    const int skip = warp * PARTS * size, left = min(slice, (int)args.vocab - begin) - skip;
    const struct cross_entropy_share share = {held + skip, begin + skip, min(left, PARTS * size)};
    const int64_t step = gridDim.x / CLUSTER;
    int64_t row = blockIdx.x / CLUSTER;
    struct cross_entropy_row now = {cross_entropy_target(args, row), 0};
    int64_t after = cross_entropy_target(args, row + step); /* the next row's target */
    if (now.target >= 0)
        now.own = args.logits[row * args.vocab + now.target];
    for (int p = 0; p < PARTS; p++) {
        if (threadIdx.x % 32 == 0)
            bulk_init(&full[warp][p]);
        cross_entropy_fetch<N>(args, row, now.target, cross_entropy_part(share, p, size),
                               &full[warp][p]);
    }
    cluster_barrier(); /* all blocks have started: they can be written to */
    int turn = 0;      /* of rows that were trained on, 0 and 1 */
    for (; row < args.rows; row += step) {
        bf16 *dlogits = (bf16 *)args.dlogits + row * args.vocab;
        struct cross_entropy_row next = {after, 0};
        struct softmax_state state = {-INFINITY, 0, 0}, all = {0, 1, 1};
        after = cross_entropy_target(args, row + 2 * step);
        if (next.target >= 0)
            next.own = args.logits[(row + step) * args.vocab + next.target];
        for (int p = 0; p < PARTS && now.target >= 0; p++) { /* the same for the whole cluster */
            const struct cross_entropy_share part = cross_entropy_part(share, p, size);
            if (N == 4 && part.count > 0)
                bulk_wait(&full[warp][p], (uint32_t)turn);
            cross_entropy_walk<N>(part, (int)now.target - part.first, now.own, &state);
        }
        if (now.target >= 0) {
            all = softmax_cluster(state, turn);
            turn ^= 1;
        }
        for (int p = 0; p < PARTS; p++) {
            const struct cross_entropy_share part = cross_entropy_part(share, p, size);
            if (now.target >= 0)
                cross_entropy_gradient<N>(part, (int)now.target - part.first, args.scale, all,
                                          dlogits + part.first);
            else
                cross_entropy_zero<N>(part, dlogits + part.first);
            cross_entropy_fetch<N>(args, row + step, next.target, part, &full[warp][p]);
        }
        if (threadIdx.x == 0 && blockIdx.x % CLUSTER == 0)
            states[row] = softmax_pack(all, now.own);
        now = next;
    }
}

/* A row's loss, and whether its target is the largest, from the states of its pieces. */
static __device__ double cross_entropy_row(const float4 *states, int pieces, int64_t *ret_hit)
{
    struct softmax_state all = {-INFINITY, 0, 0};
#pragma unroll 4
    for (int piece = 0; piece < pieces; piece++)
        all = softmax_merge(all, softmax_unpack(states[piece]));
    *ret_hit = all.beaten == 0;
    return log((double)all.sum) + ((double)all.largest - (double)states[0].w);
}

/* One block; a thread has every FINISH_THREADS-th row. */
static __global__ void __launch_bounds__(FINISH_THREADS)
    cross_entropy_finish(struct ops_cross_entropy args, int pieces, const float4 *states)
{
    __shared__ double losses[FINISH_THREADS];
    __shared__ int64_t hits[FINISH_THREADS];
    const int me = (int)threadIdx.x;
    losses[me] = 0, hits[me] = 0;
    for (int64_t row = me; row < args.rows; row += FINISH_THREADS) {
        double loss = 0;
        int64_t hit = 0;
        if (args.targets[row] >= 0)
            loss = cross_entropy_row(states + row * pieces, pieces, &hit);
        if (args.row_loss != nullptr)
            args.row_loss[row] = (float)loss;
        losses[me] += loss, hits[me] += hit;
    }
    for (int half = FINISH_THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (me < half)
            losses[me] += losses[me + half], hits[me] += hits[me + half];
    }
    if (me == 0)
        *args.loss_sum += losses[0], *args.correct += hits[0];
}

template <int N>
static int cross_entropy_launch_gradient(const struct ops_cross_entropy *args, float4 *states,
                                         cudaStream_t stream, struct err *err)
{
    const int slice = (int)(ceil_div(ceil_div(args->vocab, N), CLUSTER) * N),
              step = 32 * N * UNROLL;
    int warps = 1;
    while (warps < WARPS_MAX && warps * 2 * SHARE <= slice)
        warps *= 2;
    const int size = (int)ceil_div(slice, PARTS * warps * step) * step, threads = 32 * warps;
    const size_t bytes = (size_t)slice * sizeof(float);
    if (bytes > SHARED_MAX)
        return err_set(err, ERR_UNSUPPORTED, "a vocabulary of %lld; the CUDA backend goes to %d",
                       (long long)args->vocab, (int)(SHARED_MAX / sizeof(float) * CLUSTER));
    CUDA_TRY(cudaFuncSetAttribute(cross_entropy_cluster<N>,
                                  cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes));
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(CLUSTER), config.blockDim = dim3((unsigned)threads);
    config.dynamicSmemBytes = bytes, config.stream = stream;
    int clusters = 0; /* that the GPU holds at once */
    CUDA_TRY(cudaOccupancyMaxActiveClusters(&clusters, cross_entropy_cluster<N>, &config));
    config.gridDim.x = CLUSTER * (unsigned)(args->rows < clusters ? args->rows : clusters);
    CUDA_TRY(cudaLaunchKernelEx(&config, cross_entropy_cluster<N>, *args, slice, size, states));
    return 0;
}

template <int N>
static int cross_entropy_launch(const struct ops_cross_entropy *args, struct device *device,
                                struct stream *stream, struct err *err)
{
    const int pieces = args->dlogits != nullptr ? 1 : (int)mem_loss_pieces(args->vocab);
    const int size = (int)ceil_div(ceil_div(args->vocab, N), pieces) * N;
    must(args->rows * pieces < (int64_t)1 << 31 && args->rows < (int64_t)1 << 27);
    float4 *states =
        (float4 *)device_cuda_scratch(device_cuda_of(device), stream, DEVICE_SCRATCH_OP,
                                      (size_t)(args->rows * pieces) * sizeof *states, err);
    if (states == nullptr)
        return -(int)err->code;
    if (args->dlogits != nullptr)
        TRY(cross_entropy_launch_gradient<N>(args, states, stream->cuda, err));
    else
        cross_entropy_pieces<N><<<(unsigned)(args->rows * pieces), THREADS, 0, stream->cuda>>>(
            *args, pieces, size, states);
    cross_entropy_finish<<<1, FINISH_THREADS, 0, stream->cuda>>>(*args, pieces, states);
    return KERNEL_CHECK("cross_entropy");
}

int cuda_cross_entropy(struct device *device, struct stream *stream,
                       const struct ops_cross_entropy *args, struct err *err)
{
    if (args->rows == 0)
        return 0;
    stream = device_cuda_stream(device, stream);
    if (args->vocab % 4 == 0 && aligned16(args->logits, args->dlogits))
        return cross_entropy_launch<4>(args, device, stream, err);
    return cross_entropy_launch<1>(args, device, stream, err);
}

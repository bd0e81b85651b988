/* cross_entropy_cluster: a cluster of 8 blocks takes one row after the other, a slice of the
 * vocabulary a block, a share of the slice a warp, in two parts. A part comes to shared memory by
 * one bulk copy and is walked twice there; as soon as its warp is done with it, the next row's is
 * asked for, so that logits are always on their way. The first walk keeps, in each thread, the
 * largest logit met and the sum of exponentials relative to it, renewed when the largest changes.
 * Blocks send what they found to each other through distributed shared memory; the second walk
 * writes the gradient.
 *
 * Bytes that must move: 6 B a logit. Share of a device copy: 1024 rows of 128256 83%; 800 rows of
 * 151936 83% (one H200, driver 580.159.04, 2026-11-30, while the first thread still took the row's
 * logarithm). Tried and lost, both shapes where two figures stand: a second reading from the L2
 * cache instead of shared memory, 59%; bulk copies to a cluster for each row, 68%; twice the warps,
 * 46%, half of them, 77%; four parts, 72%; clusters of 4 blocks, 64%; a ring of chunks a warp with
 * the row held in it, 73% and 66%; rows in registers, a cluster for each, 77% and 70%; the same
 * with the next row on its way to shared memory, each thread's own place there (cp.async), 85% and
 * 76%: the better for what 8 blocks of 512 threads hold, 131072 logits, and the worse beyond. */
#include "worker/cuda/cross_entropy_cluster.h"

#include "worker/cuda/bulk.h"
#include "worker/cuda/cluster.h"
#include "worker/cuda/softmax.h"

enum {
    CLUSTER = 8,
    THREADS = 256, /* of a block, where the vocabulary is large */
    WARPS_MAX = THREADS / 32,
    UNROLL = 4,             /* vectors of logits met at once */
    PARTS = 2,              /* of a warp's share, asked for one by one */
    SHARE = 1900,           /* logits that a warp has, at least */
    SHARED_MAX = 224 * 1024 /* of a block: what it holds of a row */
};

/* The row's state from those of all the cluster's threads; the order is fixed. All threads of the
 * cluster call it, `turn` alternating between 0 and 1: a block that is ahead writes to the other.
 */
static __device__ struct softmax_state softmax_cluster(struct softmax_state state, int turn)
{
    __shared__ float4 of_warp[WARPS_MAX], of_block[2][CLUSTER];
    state = softmax_block(state, of_warp);
    if (threadIdx.x < CLUSTER)
        cluster_write(&of_block[turn][blockIdx.x % CLUSTER], threadIdx.x, softmax_pack(state, 0));
    cluster_barrier();
    return softmax_warp_of(of_block[turn], CLUSTER);
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
static __device__ __forceinline__ void cross_entropy_meet(const float *held, int at, int target,
                                                          float own, struct softmax_state *state)
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
        cross_entropy_meet<N, UNROLL>(share.held, at, target, own, state);
    for (; at < share.count; at += 32 * N)
        cross_entropy_meet<N, 1>(share.held, at, target, own, state);
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
__global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(THREADS, 3)
    cross_entropy_cluster_kernel(struct ops_cross_entropy args, int slice, int size, float4 *states)
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

template <int N>
static int cross_entropy_cluster_launch(const struct ops_cross_entropy *args, float4 *states,
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
    CUDA_TRY(cudaFuncSetAttribute(cross_entropy_cluster_kernel<N>,
                                  cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes));
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(CLUSTER), config.blockDim = dim3((unsigned)threads);
    config.dynamicSmemBytes = bytes, config.stream = stream;
    int clusters = 0; /* that the GPU holds at once */
    CUDA_TRY(cudaOccupancyMaxActiveClusters(&clusters, cross_entropy_cluster_kernel<N>, &config));
    config.gridDim.x = CLUSTER * (unsigned)(args->rows < clusters ? args->rows : clusters);
    CUDA_TRY(
        cudaLaunchKernelEx(&config, cross_entropy_cluster_kernel<N>, *args, slice, size, states));
    return 0;
}

int cross_entropy_cluster(const struct ops_cross_entropy *args, int vector, float4 *states,
                          cudaStream_t stream, struct err *err)
{
    if (vector == 4)
        return cross_entropy_cluster_launch<4>(args, states, stream, err);
    return cross_entropy_cluster_launch<1>(args, states, stream, err);
}

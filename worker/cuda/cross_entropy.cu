/* cross_entropy: a block has a piece of a row, each logit read once, into registers: HELD a thread.
 * There they become exponentials relative to the thread's largest (Milakov and Gimelshein, arXiv
 * 1805.02867), and the thread notes whether any logit beats the target's. With a gradient, the
 * piece is a whole row, and each thread writes that of the logits it holds; rows that are too long
 * for a block are cross_entropy_cluster.cu's then.
 *
 * What was found in a piece goes to scratch; one block makes losses of it and adds them in a fixed
 * tree in fp64: the same bits each time. The logarithm in fp64 is there: where the threads of a row
 * wait for one that takes it, that is as long as some thousand logits take.
 *
 * Bytes that must move: 6 B a logit with the gradient, 4 without. Share of a device copy: 4096 rows
 * of 32000 85%; without gradient 99%, 1024 rows of 128256 97%, 800 rows of 151936 98% (one H200,
 * driver 580.159.04, 2026-11-30, a trial program with these loops: results/2026-11-30-kernels.md).
 * Tried without gradient: 128 threads a block, 90%; four vectors a thread, 82%; losses by a warp a
 * row and their sum by one more kernel, 2% to 4% faster. With it, rows of 32000: 64 logits a
 * thread, 82%; clusters of 2 blocks, 80%, of more, less; a ring of chunks a warp in shared memory,
 * by bulk copies, 80%; blocks that stay, with the next row on its way to shared memory, each
 * thread's own place there (cp.async), 82%, in clusters of 2 blocks of 512 threads 89%: faster, not
 * taken up yet. */
#include "common/mem_loss.h"
#include "common/must.h"
#include "worker/cuda/cross_entropy_cluster.h"
#include "worker/cuda/softmax.h"

enum {
    HELD = 32,          /* logits of a thread */
    THREADS = 256,      /* of a block, without gradient */
    BLOCKS = 4,         /* of these a multiprocessor: 64 registers a thread */
    ROW_THREADS = 1024, /* of a block at most, with it */
    FINISH_THREADS = 1024
};
static_assert(HELD * THREADS == MEM_LOSS_PIECE && sizeof(float4) == MEM_LOSS_STATE_BYTES, "");

/* A thread's logits of a piece: vectors of N, a block's width apart. */
template <int N> struct cross_entropy_held {
    span<N> vectors[HELD / N];
};

/* Where a vector begins within the piece. */
template <int N> static __device__ __forceinline__ int cross_entropy_at(int vector)
{
    return (vector * (int)blockDim.x + (int)threadIdx.x) * N;
}

/* Where the piece ends before the thread's logits do, -inf stands. logits: of the piece. */
template <int N>
static __device__ __forceinline__ void cross_entropy_load(const float *logits, int count,
                                                          struct cross_entropy_held<N> *held)
{
    int at = (int)threadIdx.x * N;
#pragma unroll
    for (int v = 0; v < HELD / N; v++) {
#pragma unroll
        for (int i = 0; i < N; i++)
            held->vectors[v].at[i] = -INFINITY;
        if (at < count)
            held->vectors[v].load_once(logits + at);
        at += (int)blockDim.x * N;
    }
}

/* The thread's state; its logits become exponentials relative to its largest. target: relative to
 * the piece; own: its logit. */
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

/* target: relative to the piece; dlogits: of the piece; mine: the thread's state, all: the row's.
 */
template <int N>
static __device__ __forceinline__ void
cross_entropy_store(struct cross_entropy_held<N> *held, struct softmax_state mine,
                    struct softmax_state all, float scale, int target, int count, bf16 *dlogits)
{
    int at = (int)threadIdx.x * N;
    const float factor = exp_fast(mine.largest - all.largest) * (scale / all.sum);
#pragma unroll
    for (int v = 0; v < HELD / N; v++, at += (int)blockDim.x * N) {
        if (at >= count)
            continue;
#pragma unroll
        for (int i = 0; i < N; i++)
            held->vectors[v].at[i] *= factor;
        if (target >= at && target < at + N)
#pragma unroll
            for (int i = 0; i < N; i++)
                held->vectors[v].at[i] -= at + i == target ? scale : 0.0f;
        held->vectors[v].store(dlogits + at);
    }
}

template <int N> static __device__ __forceinline__ void cross_entropy_zero(int count, bf16 *dlogits)
{
    const span<N> zero = {};
    for (int at = (int)threadIdx.x * N; at < count; at += (int)blockDim.x * N)
        zero.store(dlogits + at);
}

/* A block a piece of a row, of `size` logits; with a gradient the whole row is one. states: (rows,
 * pieces), what is found in each; of rows that are not trained on, nothing is written. */
template <int N, bool GRADIENT>
__global__ void __launch_bounds__(GRADIENT ? ROW_THREADS : THREADS, GRADIENT ? 1 : BLOCKS)
    cross_entropy_kernel(struct ops_cross_entropy args, int pieces, int size, float4 *states)
{
    __shared__ float4 of_warp[32];
    const int64_t row = blockIdx.x / (unsigned)pieces;
    const int first = (int)(blockIdx.x % (unsigned)pieces) * size;
    const int count = min(size, (int)args.vocab - first);
    const float *logits = args.logits + row * args.vocab;
    bf16 *dlogits = (bf16 *)args.dlogits + row * args.vocab;
    const int target = args.targets[row];
    if (target < 0) {
        if (GRADIENT)
            cross_entropy_zero<N>(count, dlogits);
        return;
    }
    struct cross_entropy_held<N> held;
    cross_entropy_load<N>(logits + first, count, &held);
    const float own = logits[target];
    const struct softmax_state mine = cross_entropy_meet<N>(&held, target - first, own);
    const struct softmax_state all = softmax_block(mine, of_warp);
    if (GRADIENT)
        cross_entropy_store<N>(&held, mine, all, args.scale, target, count, dlogits);
    if (threadIdx.x == 0)
        states[blockIdx.x] = softmax_pack(all, own);
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
static int cross_entropy_launch(const struct ops_cross_entropy *args, struct device *device,
                                struct stream *stream, struct err *err)
{
    const bool gradient = args->dlogits != nullptr;
    const int pieces = gradient ? 1 : (int)mem_loss_pieces(args->vocab);
    const int size = (int)ceil_div(ceil_div(args->vocab, N), pieces) * N;
    const unsigned blocks = (unsigned)(args->rows * pieces);
    must(args->rows * pieces < (int64_t)1 << 31);
    float4 *states = (float4 *)device_cuda_scratch(
        device_cuda_of(device), stream, DEVICE_SCRATCH_OP, (size_t)blocks * sizeof *states, err);
    if (states == nullptr)
        return -(int)err->code;
    if (gradient && args->vocab > ROW_THREADS * HELD)
        TRY(cross_entropy_cluster(args, N, states, stream->cuda, err));
    else if (gradient)
        cross_entropy_kernel<N, true>
            <<<blocks, (unsigned)ceil_div(size, 32 * HELD) * 32, 0, stream->cuda>>>(*args, pieces,
                                                                                    size, states);
    else
        cross_entropy_kernel<N, false>
            <<<blocks, THREADS, 0, stream->cuda>>>(*args, pieces, size, states);
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

/* cross_entropy: a cluster of 8 blocks a row, a slice of the vocabulary each; two walks. The first
 * keeps, in each thread, the largest logit met and the sum of exponentials relative to it, renewed
 * when the largest changes (Milakov and Gimelshein, arXiv 1805.02867), and whether any logit beats
 * the target's; the blocks read each other's through distributed shared memory. The second writes
 * the gradient. With 8 blocks a row only some fifty rows are worked on at once, 25 MB at a
 * vocabulary of 128K, so that the second walk finds them in the L2 cache.
 *
 * Losses of rows go to scratch; one block adds them in a fixed tree in fp64: the same bits each
 * time.
 *
 * Bytes that must move: 6 B a logit with the gradient, 4 without. 1024 rows of 128256: 313 us, 59%
 * of a device copy; without gradient 223 us, 55% (bench_cuda_ops, one H200, driver 580.159.04,
 * 2026-11-29). One block a row, which reads the logits twice from memory: 319 us and 131 us.
 * NEEDSWORK: hold the slice in registers (32 floats a thread) instead of reading it again. */
#include "worker/cuda/kernel.h"

enum {
    CLUSTER = 8, /* blocks of a row */
    THREADS_MAX = 512,
    FINISH_THREADS = 256,
    UNROLL = 2 /* vectors of 8 logits met at once */
};

struct softmax_state {
    float largest; /* logit met so far */
    float sum;     /* of exp(logit - largest) */
};

static __device__ __forceinline__ struct softmax_state softmax_merge(struct softmax_state a,
                                                                     struct softmax_state b)
{
    const float largest = fmaxf(a.largest, b.largest);
    if (largest == -INFINITY)
        return a;
    return {largest, a.sum * exp_fast(a.largest - largest) + b.sum * exp_fast(b.largest - largest)};
}

/* The block's state, in every thread; the order is fixed. */
static __device__ struct softmax_state softmax_block(struct softmax_state state)
{
    __shared__ struct softmax_state part[32];
    for (int offset = 16; offset > 0; offset /= 2)
        state = softmax_merge(state, {__shfl_xor_sync(0xffffffffu, state.largest, offset),
                                      __shfl_xor_sync(0xffffffffu, state.sum, offset)});
    if (threadIdx.x % 32 == 0)
        part[threadIdx.x / 32] = state;
    __syncthreads();
    state = part[0];
    for (int i = 1; i < (int)blockDim.x / 32; i++)
        state = softmax_merge(state, part[i]);
    return state;
}

/* Whether a logit of this vector is larger than the target's, or as large and before it. */
template <int N>
static __device__ __forceinline__ bool cross_entropy_beaten(const span<N> &x, float largest,
                                                            int64_t at, int64_t target, float own)
{
    if (at > target || at + N <= target)
        return at < target ? largest >= own : largest > own;
    bool beaten = false;
    for (int i = 0; i < N; i++)
        beaten |= x.at[i] > own || (x.at[i] == own && at + i < target);
    return beaten;
}

/* First walk of the thread's share of [begin, end). */
template <int N>
static __device__ __forceinline__ struct softmax_state
cross_entropy_walk(const float *logits, int64_t begin, int64_t end, int64_t target, bool *beaten)
{
    const float own = logits[target];
    const int64_t stride = (int64_t)blockDim.x * N;
    struct softmax_state state = {-INFINITY, 0};
    for (int64_t first = begin + (int64_t)threadIdx.x * N; first < end; first += UNROLL * stride) {
        span<N> x[UNROLL];
        float largest = state.largest;
#pragma unroll
        for (int u = 0; u < UNROLL; u++)
            if (first + u * stride < end)
                x[u].load(logits + first + u * stride);
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            const int64_t at = first + u * stride;
            float largest_here = -INFINITY;
#pragma unroll
            for (int i = 0; i < N; i++) {
                x[u].at[i] = at < end ? x[u].at[i] : -INFINITY;
                largest_here = fmaxf(largest_here, x[u].at[i]);
            }
            if (at < end)
                *beaten |= cross_entropy_beaten<N>(x[u], largest_here, at, target, own);
            largest = fmaxf(largest, largest_here);
        }
        if (largest == -INFINITY)
            continue;
        float sum = state.sum * exp_fast(state.largest - largest);
#pragma unroll
        for (int u = 0; u < UNROLL; u++)
#pragma unroll
            for (int i = 0; i < N; i++)
                sum += exp_fast(x[u].at[i] - largest);
        state = {largest, sum};
    }
    return state;
}

/* What a block found, for the other blocks of its row. */
struct cross_entropy_part {
    struct softmax_state state;
    int beaten;
};

/* A word of the same variable in another block of the cluster. */
static __device__ __forceinline__ uint32_t cluster_read(const void *shared, uint32_t block)
{
    uint32_t address = (uint32_t)__cvta_generic_to_shared(shared), word;
    asm volatile("mapa.shared::cluster.u32 %0, %0, %1;" : "+r"(address) : "r"(block));
    asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(word) : "r"(address) : "memory");
    return word;
}

/* The row's result from all its blocks', in their order. Every thread of every block calls it; the
 * caller waits for the cluster before it returns. */
static __device__ struct cross_entropy_part cross_entropy_gather(struct cross_entropy_part part)
{
    __shared__ struct cross_entropy_part shared;
    if (threadIdx.x == 0)
        shared = part;
    asm volatile("barrier.cluster.arrive.release.aligned;\n"
                 "barrier.cluster.wait.acquire.aligned;" ::
                     : "memory");
    struct cross_entropy_part all = {{-INFINITY, 0}, 0};
    for (uint32_t block = 0; block < CLUSTER; block++) {
        all.state =
            softmax_merge(all.state, {__uint_as_float(cluster_read(&shared.state.largest, block)),
                                      __uint_as_float(cluster_read(&shared.state.sum, block))});
        all.beaten |= (int)cluster_read(&shared.beaten, block);
    }
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
    return all;
}

template <int N>
static __device__ __forceinline__ void
cross_entropy_gradient(const float *logits, int64_t begin, int64_t end, int64_t target, float scale,
                       struct softmax_state state, bf16 *dlogits)
{
    const float factor = scale / state.sum;
#pragma unroll 2
    for (int64_t at = begin + (int64_t)threadIdx.x * N; at < end; at += (int64_t)blockDim.x * N) {
        span<N> x;
        x.load(logits + at);
#pragma unroll
        for (int i = 0; i < N; i++)
            x.at[i] =
                exp_fast(x.at[i] - state.largest) * factor - (at + i == target ? scale : 0.0f);
        x.store(dlogits + at);
    }
}

template <int N>
__global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(THREADS_MAX, 3)
    cross_entropy_kernel(struct ops_cross_entropy args, int64_t slice, double *losses, int *hits)
{
    const int64_t row = blockIdx.x / CLUSTER, target = args.targets[row];
    const int64_t begin = (blockIdx.x % CLUSTER) * slice;
    const int64_t end = begin + slice < args.vocab ? begin + slice : args.vocab;
    const float *logits = args.logits + row * args.vocab;
    bf16 *dlogits = args.dlogits == nullptr ? nullptr : (bf16 *)args.dlogits + row * args.vocab;
    double loss = 0;
    int hit = 0;
    if (target >= 0) { /* the same for the whole cluster */
        bool beaten = false;
        struct softmax_state state = cross_entropy_walk<N>(logits, begin, end, target, &beaten);
        struct cross_entropy_part all =
            cross_entropy_gather({softmax_block(state), __syncthreads_or(beaten)});
        hit = all.beaten == 0;
        loss = log((double)all.state.sum) + ((double)all.state.largest - (double)logits[target]);
        if (dlogits != nullptr)
            cross_entropy_gradient<N>(logits, begin, end, target, args.scale, all.state, dlogits);
        asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
    } else if (dlogits != nullptr) {
        span<N> zero;
        for (int i = 0; i < N; i++)
            zero.at[i] = 0;
        for (int64_t at = begin + (int64_t)threadIdx.x * N; at < end; at += (int64_t)blockDim.x * N)
            zero.store(dlogits + at);
    }
    if (threadIdx.x != 0 || blockIdx.x % CLUSTER != 0)
        return;
    losses[row] = loss;
    hits[row] = hit;
    if (args.row_loss != nullptr)
        args.row_loss[row] = (float)loss;
}

static __global__ void cross_entropy_finish(const double *losses, const int *hits, int64_t rows,
                                            double *loss_sum, int64_t *correct)
{
    __shared__ double loss_of[FINISH_THREADS];
    __shared__ int64_t hits_of[FINISH_THREADS];
    const int me = (int)threadIdx.x;
    double loss = 0;
    int64_t hit = 0;
    for (int64_t row = me; row < rows; row += FINISH_THREADS) {
        loss += losses[row];
        hit += hits[row];
    }
    loss_of[me] = loss;
    hits_of[me] = hit;
    for (int half = FINISH_THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (me < half) {
            loss_of[me] += loss_of[me + half];
            hits_of[me] += hits_of[me + half];
        }
    }
    if (me == 0) {
        *loss_sum += loss_of[0];
        *correct += hits_of[0];
    }
}

int cuda_cross_entropy(struct device *device, struct stream *stream,
                       const struct ops_cross_entropy *args, struct err *err)
{
    if (args->rows == 0)
        return 0;
    stream = device_cuda_stream(device, stream);
    double *losses =
        (double *)device_cuda_scratch(device_cuda_of(device), stream, DEVICE_SCRATCH_OP,
                                      (size_t)args->rows * (sizeof(double) + sizeof(int)), err);
    if (losses == nullptr)
        return -(int)err->code;
    int *hits = (int *)(losses + args->rows);
    bool wide = args->vocab % 8 == 0 && aligned16(args->logits, args->dlogits);
    int64_t vector = wide ? 8 : 1;
    int64_t slice = ceil_div(ceil_div(args->vocab, vector), CLUSTER) * vector;
    int threads = slice > 2048 ? (int)THREADS_MAX : slice > 512 ? 128 : 32;
    unsigned blocks = (unsigned)(args->rows * CLUSTER);
    if (wide)
        cross_entropy_kernel<8><<<blocks, threads, 0, stream->cuda>>>(*args, slice, losses, hits);
    else
        cross_entropy_kernel<1><<<blocks, threads, 0, stream->cuda>>>(*args, slice, losses, hits);
    cross_entropy_finish<<<1, FINISH_THREADS, 0, stream->cuda>>>(losses, hits, args->rows,
                                                                 args->loss_sum, args->correct);
    return KERNEL_CHECK("cross_entropy");
}

/* embed: rows of a table; backward adds rows of gradients to it, deterministically.
 *
 * Backward takes 65536 tokens at a time. Keys (id << 32 | token) are sorted by a bitonic network:
 * keys differ, so their order is one and the same however they are sorted. The sorted list is cut
 * into pieces of 128; a block walks a piece and adds each run of one id, in order of tokens, to its
 * row of the table. A run that crosses pieces has its parts kept apart (`lead`: the part in a piece
 * that it enters, `tail`: the part in the piece where it starts), and a second kernel adds these in
 * order: a token met everywhere (padding, a space) does not serialise the whole.
 *
 * Bytes moved: forward 2 units; backward 1 unit and 8 B an element of each row of the table met.
 * Share of a device copy at 128K tokens of 4096: forward 89%; backward 89% with ids all over, 47%
 * with 100 different ids, where the pieces' loads wait for each other (bench_cuda_ops 131072, one
 * H200, driver 580.159.04, 2026-11-29). */
#include "worker/cuda/kernel.h"

enum {
    THREADS = 256,
    SORT_THREADS = 1024, /* each a pair: blocks of 2048 keys in shared memory */
    SORT_KEYS = 2 * SORT_THREADS,
    BATCH = 65536,
    PIECE = 128
};
#define KEY_NONE UINT64_MAX /* padding of the list to a power of two: sorts last */

template <int N> __global__ void embed_kernel(struct ops_embed args)
{
    const int64_t index = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    const int64_t vectors = args.width / N;
    if (index >= args.tokens * vectors)
        return;
    const int64_t token = index / vectors, column = index % vectors * N;
    span<N> row;
    row.load((const bf16 *)args.table + (int64_t)args.ids[token] * args.width + column);
    row.store((bf16 *)args.out + token * args.width + column);
}

int cuda_embed(struct device *device, struct stream *stream, const struct ops_embed *args,
               struct err *err)
{
    if (args->tokens == 0 || args->width == 0)
        return 0;
    cudaStream_t on = device_cuda_stream(device, stream)->cuda;
    bool wide = args->width % 8 == 0 && aligned16(args->table, args->out);
    unsigned blocks = (unsigned)ceil_div(args->tokens * (args->width / (wide ? 8 : 1)), THREADS);
    if (wide)
        embed_kernel<8><<<blocks, THREADS, 0, on>>>(*args);
    else
        embed_kernel<1><<<blocks, THREADS, 0, on>>>(*args);
    return KERNEL_CHECK("embed");
}

static __global__ void sort_fill(const int32_t *ids, int count, int padded, uint64_t *keys)
{
    const int i = (int)(blockIdx.x * THREADS + threadIdx.x);
    if (i < padded)
        keys[i] = i < count ? (uint64_t)(uint32_t)ids[i] << 32 | (uint32_t)i : KEY_NONE;
}

static __device__ __forceinline__ void sort_pair(uint64_t *low, uint64_t *high, bool ascending)
{
    const uint64_t a = *low, b = *high;
    if ((a > b) == ascending) {
        *low = b;
        *high = a;
    }
}

/* One step of the network over the whole list: pairs `stride` apart, in runs of `run` keys. */
static __global__ void sort_step(uint64_t *keys, int run, int stride)
{
    const int t = (int)(blockIdx.x * SORT_THREADS + threadIdx.x);
    const int i = t / stride * 2 * stride + t % stride;
    sort_pair(&keys[i], &keys[i + stride], (i & run) == 0);
}

/* The steps within 2048 keys: runs from `first` to `last`, strides below 2048. */
static __global__ void sort_local(uint64_t *keys, int first, int last)
{
    __shared__ uint64_t local[SORT_KEYS];
    const int base = (int)blockIdx.x * SORT_KEYS, t = (int)threadIdx.x;
    local[t] = keys[base + t];
    local[t + SORT_THREADS] = keys[base + t + SORT_THREADS];
    for (int run = first; run <= last; run *= 2)
        for (int stride = min(run, SORT_KEYS) / 2; stride > 0; stride /= 2) {
            __syncthreads();
            const int i = t / stride * 2 * stride + t % stride;
            sort_pair(&local[i], &local[i + stride], ((base + i) & run) == 0);
        }
    __syncthreads();
    keys[base + t] = local[t];
    keys[base + t + SORT_THREADS] = local[t + SORT_THREADS];
}

static void sort_keys(uint64_t *keys, int padded, cudaStream_t stream)
{
    const unsigned blocks = (unsigned)(padded / SORT_KEYS);
    sort_local<<<blocks, SORT_THREADS, 0, stream>>>(keys, 2, SORT_KEYS);
    for (int run = 2 * SORT_KEYS; run <= padded; run *= 2) {
        for (int stride = run / 2; stride >= SORT_KEYS; stride /= 2)
            sort_step<<<blocks, SORT_THREADS, 0, stream>>>(keys, run, stride);
        sort_local<<<blocks, SORT_THREADS, 0, stream>>>(keys, run, run);
    }
}

static __device__ __forceinline__ uint32_t key_id(uint64_t key)
{
    return (uint32_t)(key >> 32);
}

template <int N> static __device__ __forceinline__ void row_add(float *to, const span<N> &sum)
{
    span<N> old;
    old.load(to);
#pragma unroll
    for (int i = 0; i < N; i++)
        old.at[i] += sum.at[i];
    old.store(to);
}

/* A piece of the list (blockIdx.x) and THREADS * N columns (blockIdx.y). */
template <int N>
__global__ void pieces_kernel(struct ops_embed_bwd args, const uint64_t *keys, int count,
                              float *lead, float *tail)
{
    const int64_t column = ((int64_t)blockIdx.y * THREADS + threadIdx.x) * N;
    const int first = (int)blockIdx.x * PIECE, end = min(first + PIECE, count);
    if (column >= args.width)
        return;
    span<N> sum, row;
    bool entered = first > 0 && key_id(keys[first - 1]) == key_id(keys[first]);
    for (int i = 0; i < N; i++)
        sum.at[i] = 0;
    for (int k = first; k < end; k++) {
        const uint32_t id = key_id(keys[k]);
        row.load((const bf16 *)args.dout + (int64_t)(uint32_t)keys[k] * args.width + column);
#pragma unroll
        for (int i = 0; i < N; i++)
            sum.at[i] += row.at[i];
        const bool more = k + 1 < count && key_id(keys[k + 1]) == id;
        if (more && k + 1 < end)
            continue;
        if (entered)
            sum.store(lead + (int64_t)blockIdx.x * args.width + column);
        else if (more)
            sum.store(tail + (int64_t)blockIdx.x * args.width + column);
        else
            row_add<N>(args.dtable + (int64_t)id * args.width + column, sum);
        entered = false;
        for (int i = 0; i < N; i++)
            sum.at[i] = 0;
    }
}

/* The run that starts in this piece and goes beyond it: its tail and the leads that follow. */
template <int N>
__global__ void crossing_kernel(struct ops_embed_bwd args, const uint64_t *keys, int count,
                                const float *lead, const float *tail)
{
    const int64_t column = ((int64_t)blockIdx.y * THREADS + threadIdx.x) * N;
    const int piece = (int)blockIdx.x, first = piece * PIECE, end = first + PIECE;
    if (column >= args.width || end >= count)
        return;
    const uint32_t id = key_id(keys[end - 1]);
    if (key_id(keys[end]) != id || (first > 0 && key_id(keys[first - 1]) == id))
        return; /* nothing goes beyond, or it started earlier */
    span<N> sum, part;
    sum.load(tail + (int64_t)piece * args.width + column);
    for (int p = piece + 1; p * PIECE < count && key_id(keys[p * PIECE]) == id; p++) {
        part.load(lead + (int64_t)p * args.width + column);
#pragma unroll
        for (int i = 0; i < N; i++)
            sum.at[i] += part.at[i];
    }
    row_add<N>(args.dtable + (int64_t)id * args.width + column, sum);
}

/* `count` tokens from the start of args. scratch: keys, then lead and tail. */
static void embed_bwd_batch(const struct ops_embed_bwd *args, int count, char *scratch,
                            cudaStream_t stream)
{
    int padded = SORT_KEYS;
    while (padded < count)
        padded *= 2;
    uint64_t *keys = (uint64_t *)scratch;
    float *lead = (float *)(keys + BATCH), *tail = lead + BATCH / PIECE * args->width;
    sort_fill<<<(unsigned)(padded / THREADS), THREADS, 0, stream>>>(args->ids, count, padded, keys);
    sort_keys(keys, padded, stream);
    bool wide = args->width % 8 == 0 && aligned16(args->dout, args->dtable);
    dim3 grid((unsigned)ceil_div(count, PIECE),
              (unsigned)ceil_div(args->width, wide ? 8 * THREADS : THREADS));
    if (wide) {
        pieces_kernel<8><<<grid, THREADS, 0, stream>>>(*args, keys, count, lead, tail);
        crossing_kernel<8><<<grid, THREADS, 0, stream>>>(*args, keys, count, lead, tail);
    } else {
        pieces_kernel<1><<<grid, THREADS, 0, stream>>>(*args, keys, count, lead, tail);
        crossing_kernel<1><<<grid, THREADS, 0, stream>>>(*args, keys, count, lead, tail);
    }
}

int cuda_embed_bwd(struct device *device, struct stream *stream, const struct ops_embed_bwd *args,
                   struct err *err)
{
    if (args->tokens == 0 || args->width == 0)
        return 0;
    stream = device_cuda_stream(device, stream);
    size_t bytes = BATCH * sizeof(uint64_t) +
                   2 * (size_t)(BATCH / PIECE) * (size_t)args->width * sizeof(float);
    char *scratch =
        (char *)device_cuda_scratch(device_cuda_of(device), stream, DEVICE_SCRATCH_OP, bytes, err);
    if (scratch == nullptr)
        return -(int)err->code;
    for (int64_t first = 0; first < args->tokens; first += BATCH) {
        struct ops_embed_bwd part = *args;
        part.ids += first;
        part.dout = (const bf16 *)args->dout + first * args->width;
        int64_t left = args->tokens - first;
        embed_bwd_batch(&part, left < BATCH ? (int)left : (int)BATCH, scratch, stream->cuda);
    }
    return KERNEL_CHECK("embed_bwd");
}

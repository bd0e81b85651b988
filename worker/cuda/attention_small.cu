/* attention_small: a block for each row of a head, or for each key of a head; its warps share the
 * other side between them and add up what they have at the end. A lane holds every 32nd element of
 * the head. Sums are fp32, in an order of their own; no speed is claimed: there is little to do. */
#include "worker/cuda/attention_small.h"

#include "worker/cuda/kernel.h"

enum {
    SMALL_WARPS = 4,
    SMALL_PER_LANE = 4 /* elements of a head: up to 128 */
};

/* One row of a head, spread over a warp. */
struct small_row {
    float at[SMALL_PER_LANE];

    __device__ __forceinline__ void load(const struct ops_heads &heads, int64_t head, int64_t row,
                                         int64_t head_dim)
    {
        const bf16 *from =
            (const bf16 *)heads.data + head * heads.head_stride + row * heads.row_stride;
        for (int i = 0; i < SMALL_PER_LANE; i++) {
            const int64_t column = (threadIdx.x % 32) + 32 * i;
            at[i] = column < head_dim ? bf16_wide(from[column]) : 0;
        }
    }
    __device__ __forceinline__ float dot(const struct small_row &other) const
    {
        float sum = 0;
        for (int i = 0; i < SMALL_PER_LANE; i++)
            sum += at[i] * other.at[i];
        for (int offset = 16; offset > 0; offset /= 2)
            sum += __shfl_xor_sync(0xffffffffu, sum, offset);
        return sum;
    }
    __device__ __forceinline__ void add(float factor, const struct small_row &other)
    {
        for (int i = 0; i < SMALL_PER_LANE; i++)
            at[i] += factor * other.at[i];
    }
};

/* The sum over the block's warps, to warp 0. */
static __device__ void small_sum(struct small_row *row, float (*shared)[128])
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int i = 0; i < SMALL_PER_LANE; i++)
        shared[warp][lane + 32 * i] = row->at[i];
    __syncthreads();
    for (int w = 1; warp == 0 && w < SMALL_WARPS; w++)
        for (int i = 0; i < SMALL_PER_LANE; i++)
            row->at[i] += shared[w][lane + 32 * i];
    __syncthreads(); /* shared may be used again */
}

static __device__ void small_accumulate(const struct small_row &row, const struct ops_heads &heads,
                                        int64_t head, int64_t at, int64_t head_dim)
{
    float *to = (float *)heads.data + head * heads.head_stride + at * heads.row_stride;
    for (int i = 0; threadIdx.x < 32 && i < SMALL_PER_LANE; i++)
        if (threadIdx.x + 32 * i < head_dim)
            to[threadIdx.x + 32 * i] += row.at[i];
}

static __global__ void small_forward(struct ops_attention args, int64_t keys, int64_t lse_stride)
{
    __shared__ float shared[SMALL_WARPS][128], largest[SMALL_WARPS], sums[SMALL_WARPS];
    const int64_t row = blockIdx.x, head = blockIdx.y, d = args.head_dim;
    const int64_t kv_head = head / (args.q_heads / args.kv_heads);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    struct small_row q, k, v, o = {};
    float high = -INFINITY, sum = 0;
    q.load(args.q, head, row, d);
    for (int64_t key = warp; key < (args.kv_rows == 0 ? row + 1 : keys); key += SMALL_WARPS) {
        k.load(args.k, kv_head, key, d);
        v.load(args.v, kv_head, key, d);
        const float score = q.dot(k) * args.scale, higher = fmaxf(high, score);
        const float keep = expf(high - higher), take = expf(score - higher);
        for (int i = 0; i < SMALL_PER_LANE; i++)
            o.at[i] = o.at[i] * keep + take * v.at[i];
        sum = sum * keep + take;
        high = higher;
    }
    if (lane == 0)
        largest[warp] = high, sums[warp] = sum;
    __syncthreads();
    float highest = -INFINITY, total = 0;
    for (int w = 0; w < SMALL_WARPS; w++)
        highest = fmaxf(highest, largest[w]);
    for (int w = 0; w < SMALL_WARPS; w++)
        total += sums[w] * expf(largest[w] - highest); /* a warp without keys: 0 */
    for (int i = 0; i < SMALL_PER_LANE; i++)
        o.at[i] *= expf(high - highest) / total;
    small_sum(&o, shared);
    bf16 *to = (bf16 *)args.o.data + head * args.o.head_stride + row * args.o.row_stride;
    for (int i = 0; warp == 0 && i < SMALL_PER_LANE; i++)
        if (lane + 32 * i < d)
            to[lane + 32 * i] = (bf16)bf16_pair(o.at[i], 0);
    if (threadIdx.x == 0)
        args.lse[head * lse_stride + row] = highest + logf(total);
}

/* Probability of a key for a row, and the gradient of its score. */
static __device__ __forceinline__ float2 small_gradient(const struct ops_attention_bwd &args,
                                                        const struct small_row &q,
                                                        const struct small_row &k,
                                                        const struct small_row &v,
                                                        const struct small_row &d_o, int64_t at)
{
    const float p = expf(q.dot(k) * args.scale - args.lse[at]);
    return make_float2(p, p * (d_o.dot(v) - args.delta[at]) * args.scale);
}

static __global__ void small_dq(struct ops_attention_bwd args, int64_t keys, int64_t lse_stride)
{
    __shared__ float shared[SMALL_WARPS][128];
    const int64_t row = blockIdx.x, head = blockIdx.y, d = args.head_dim;
    const int64_t kv_head = head / (args.q_heads / args.kv_heads);
    struct small_row q, k, v, d_o, dq = {};
    q.load(args.q, head, row, d);
    d_o.load(args.d_o, head, row, d);
    for (int64_t key = threadIdx.x / 32; key < (args.kv_rows == 0 ? row + 1 : keys);
         key += SMALL_WARPS) {
        k.load(args.k, kv_head, key, d);
        v.load(args.v, kv_head, key, d);
        dq.add(small_gradient(args, q, k, v, d_o, head * lse_stride + row).y, k);
    }
    small_sum(&dq, shared);
    small_accumulate(dq, args.dq, head, row, d);
}

static __global__ void small_dkv(struct ops_attention_bwd args, int64_t lse_stride)
{
    __shared__ float shared[SMALL_WARPS][128];
    const int64_t key = blockIdx.x, kv_head = blockIdx.y, d = args.head_dim;
    const int64_t group = args.q_heads / args.kv_heads, first = args.kv_rows == 0 ? key : 0;
    struct small_row q, k, v, d_o, dk = {}, dv = {};
    k.load(args.k, kv_head, key, d);
    v.load(args.v, kv_head, key, d);
    for (int64_t head = kv_head * group; head < (kv_head + 1) * group; head++)
        for (int64_t row = first + threadIdx.x / 32; row < args.rows; row += SMALL_WARPS) {
            q.load(args.q, head, row, d);
            d_o.load(args.d_o, head, row, d);
            const float2 of = small_gradient(args, q, k, v, d_o, head * lse_stride + row);
            dv.add(of.x, d_o);
            dk.add(of.y, q);
        }
    small_sum(&dk, shared);
    small_sum(&dv, shared);
    small_accumulate(dk, args.dk, kv_head, key, d);
    small_accumulate(dv, args.dv, kv_head, key, d);
}

int attention_small(struct stream *stream, const struct ops_attention *args, struct err *err)
{
    const int64_t keys = args->kv_rows > 0 ? args->kv_rows : args->rows;
    const int64_t lse_stride = args->lse_stride > 0 ? args->lse_stride : args->rows;
    const dim3 blocks((unsigned)args->rows, (unsigned)args->q_heads);
    small_forward<<<blocks, 32 * SMALL_WARPS, 0, stream->cuda>>>(*args, keys, lse_stride);
    return KERNEL_CHECK("attention of a few rows");
}

int attention_small_bwd(struct stream *stream, const struct ops_attention_bwd *args,
                        struct err *err)
{
    const int64_t keys = args->kv_rows > 0 ? args->kv_rows : args->rows;
    const int64_t lse_stride = args->lse_stride > 0 ? args->lse_stride : args->rows;
    const dim3 of_rows((unsigned)args->rows, (unsigned)args->q_heads);
    const dim3 of_keys((unsigned)keys, (unsigned)args->kv_heads);
    small_dq<<<of_rows, 32 * SMALL_WARPS, 0, stream->cuda>>>(*args, keys, lse_stride);
    small_dkv<<<of_keys, 32 * SMALL_WARPS, 0, stream->cuda>>>(*args, lse_stride);
    return KERNEL_CHECK("attention of a few rows, backward");
}

/* softmax: what is known of a set of logits, and of sets of them together. For .cu files only; all
 * lanes of a warp call what is said to be a warp's, all threads of a block what is a block's. */
#pragma once
#include "worker/cuda/kernel.h"

struct softmax_state {
    float largest; /* -inf of none */
    float sum;     /* of exp(logit - largest); NaN where a logit is */
    float beaten;  /* 1: one is larger than the target's, or as large and before it */
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

/* As it is kept in memory; own: the target's logit. */
static __device__ __forceinline__ float4 softmax_pack(struct softmax_state state, float own)
{
    return make_float4(state.largest, state.sum, state.beaten, own);
}
static __device__ __forceinline__ struct softmax_state softmax_unpack(float4 packed)
{
    return {packed.x, packed.y, packed.z};
}

/* The largest of a warp: floats in the order of integers. */
static __device__ __forceinline__ float softmax_warp_largest(float value)
{
    int bits = __float_as_int(value);
    bits = __reduce_max_sync(~0u, bits ^ (bits >> 31 & 0x7fffffff));
    return __int_as_float(bits ^ (bits >> 31 & 0x7fffffff));
}

/* Of a warp's lanes, in each of them; the order is fixed. */
static __device__ __forceinline__ struct softmax_state softmax_warp(struct softmax_state state)
{
    const float largest = softmax_warp_largest(state.largest);
    float sum = state.sum * exp_fast(state.largest - softmax_base(largest));
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2)
        sum += __shfl_xor_sync(~0u, sum, offset);
    return {largest, sum, __any_sync(~0u, state.beaten != 0) ? 1.0f : 0.0f};
}

/* Of `count` states in shared memory, 32 at most, in each lane of a warp. */
static __device__ __forceinline__ struct softmax_state softmax_warp_of(const float4 *states,
                                                                       int count)
{
    const int lane = (int)threadIdx.x % 32;
    const float4 none = make_float4(-INFINITY, 0, 0, 0);
    return softmax_warp(softmax_unpack(lane < count ? states[lane] : none));
}

/* Of a block's threads, in each of them. of_warp: (warps) in shared memory, free to be written. */
static __device__ __forceinline__ struct softmax_state softmax_block(struct softmax_state state,
                                                                     float4 *of_warp)
{
    state = softmax_warp(state);
    if (threadIdx.x % 32 == 0)
        of_warp[threadIdx.x / 32] = softmax_pack(state, 0);
    __syncthreads();
    return softmax_warp_of(of_warp, (int)blockDim.x / 32);
}

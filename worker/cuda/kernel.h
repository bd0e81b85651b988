/* kernel: what the kernels share: bf16 in vectors of 16 bytes, sums over groups of threads, the
 * launch check. For .cu files only.
 *
 * bf16 travels as bits and is widened to fp32 at once. A kernel is a template of N, the elements of
 * one access: 8 where rows and pointers allow 16-byte accesses, else 1. */
#pragma once
#include "worker/cuda/device_cuda.h"
#include "worker/cuda/ops_cuda.h"

#include <stdint.h>

typedef uint16_t bf16;

#define KERNEL_CHECK(what) cuda_check(cudaGetLastError(), what, err)

static __device__ __forceinline__ float bf16_wide(bf16 bits)
{
    return __uint_as_float((uint32_t)bits << 16);
}

/* Two values to one word, `low` in its lower half; to nearest even. */
static __device__ __forceinline__ uint32_t bf16_pair(float low, float high)
{
    uint32_t word;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
}

/* 2 to the x, to 2 ulp; results below 2^-126 are 0. */
static __device__ __forceinline__ float exp2_fast(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
static __device__ __forceinline__ float exp_fast(float x)
{
    return exp2_fast(x * 1.44269504088896340736f);
}

/* N elements of a row in fp32. */
template <int N> struct span;
template <> struct span<8> {
    typedef uint4 raw; /* as in memory */
    float at[8];
    __device__ __forceinline__ void load(const bf16 *from)
    {
        unpack(*(const uint4 *)from);
    }
    __device__ __forceinline__ void unpack(uint4 raw)
    {
        const uint32_t word[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            at[2 * i] = __uint_as_float(word[i] << 16);
            at[2 * i + 1] = __uint_as_float(word[i] & 0xffff0000u);
        }
    }
    __device__ __forceinline__ uint4 pack() const
    {
        return make_uint4(bf16_pair(at[0], at[1]), bf16_pair(at[2], at[3]), bf16_pair(at[4], at[5]),
                          bf16_pair(at[6], at[7]));
    }
    __device__ __forceinline__ void store(bf16 *to) const
    {
        *(uint4 *)to = pack();
    }
    /* To bf16 and back: what a reader of the stored value sees. */
    __device__ __forceinline__ void round()
    {
        unpack(pack());
    }
    __device__ __forceinline__ void load(const float *from)
    {
        const float4 low = ((const float4 *)from)[0], high = ((const float4 *)from)[1];
        at[0] = low.x, at[1] = low.y, at[2] = low.z, at[3] = low.w;
        at[4] = high.x, at[5] = high.y, at[6] = high.z, at[7] = high.w;
    }
    __device__ __forceinline__ void store(float *to) const
    {
        ((float4 *)to)[0] = make_float4(at[0], at[1], at[2], at[3]);
        ((float4 *)to)[1] = make_float4(at[4], at[5], at[6], at[7]);
    }
};
template <> struct span<4> { /* between fp32 and bf16 */
    float at[4];
    __device__ __forceinline__ void unpack(float4 all)
    {
        at[0] = all.x, at[1] = all.y, at[2] = all.z, at[3] = all.w;
    }
    __device__ __forceinline__ void load(const float *from)
    {
        unpack(*(const float4 *)from);
    }
    /* From global memory, what is not read again. */
    __device__ __forceinline__ void load_once(const float *from)
    {
        unpack(__ldcs((const float4 *)from));
    }
    __device__ __forceinline__ void store(bf16 *to) const
    {
        *(uint2 *)to = make_uint2(bf16_pair(at[0], at[1]), bf16_pair(at[2], at[3]));
    }
};
template <> struct span<1> {
    typedef bf16 raw;
    float at[1];
    __device__ __forceinline__ void unpack(bf16 bits)
    {
        at[0] = bf16_wide(bits);
    }
    __device__ __forceinline__ void load(const bf16 *from)
    {
        at[0] = bf16_wide(*from);
    }
    __device__ __forceinline__ bf16 pack() const
    {
        return (bf16)bf16_pair(at[0], 0);
    }
    __device__ __forceinline__ void store(bf16 *to) const
    {
        *to = pack();
    }
    __device__ __forceinline__ void round()
    {
        unpack(pack());
    }
    __device__ __forceinline__ void load(const float *from)
    {
        at[0] = *from;
    }
    __device__ __forceinline__ void load_once(const float *from)
    {
        at[0] = __ldcs(from);
    }
    __device__ __forceinline__ void store(float *to) const
    {
        *to = at[0];
    }
};

/* Sums over the `lanes` consecutive threads (a power of two) that share a row; every thread gets
 * them. The order is fixed. All threads of the block call it; blocks have 1024 threads at most.
 * `turn` alternates between 0 and 1 from call to call, so that one barrier a call does. */
static __device__ __forceinline__ float2 group_sums(float2 value, int lanes, int turn)
{
    __shared__ float2 part[2][32];
    for (int offset = min(lanes, 32) / 2; offset > 0; offset /= 2) {
        value.x += __shfl_xor_sync(0xffffffffu, value.x, offset);
        value.y += __shfl_xor_sync(0xffffffffu, value.y, offset);
    }
    if (lanes <= 32)
        return value;
    const int warps = lanes / 32, warp = (int)threadIdx.x / 32, first = warp / warps * warps;
    if (threadIdx.x % 32 == 0)
        part[turn][warp] = value;
    __syncthreads();
    value = part[turn][first];
    for (int i = 1; i < warps; i++) {
        value.x += part[turn][first + i].x;
        value.y += part[turn][first + i].y;
    }
    return value;
}
static __device__ __forceinline__ float group_sum(float value, int lanes)
{
    return group_sums(make_float2(value, 0), lanes, 0).x;
}

static inline int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* Whether all of the pointers allow 16-byte accesses. */
static inline bool aligned16(const void *a, const void *b = nullptr, const void *c = nullptr,
                             const void *d = nullptr, const void *e = nullptr)
{
    return (((uintptr_t)a | (uintptr_t)b | (uintptr_t)c | (uintptr_t)d | (uintptr_t)e) & 15) == 0;
}

/* out[i] += sum over p of parts[p][i], in a fixed order (colsum.cu). */
void parts_add(const float *parts, int64_t count, int64_t width, float *out, cudaStream_t stream);

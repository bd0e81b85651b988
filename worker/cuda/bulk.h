/* bulk: contiguous bytes from global to shared memory by the copy engine, without registers or
 * waiting threads; an mbarrier in shared memory counts them in (PTX ISA, cp.async.bulk and
 * mbarrier). For .cu files only. One thread starts a copy, any may wait:
 *
 *     __shared__ uint64_t full;
 *     if (threadIdx.x == 0)
 *         bulk_init(&full);
 *     __syncthreads();
 *     if (threadIdx.x == 0) {
 *         bulk_expect(&full, bytes);               // of all copies of this phase
 *         bulk_copy(&full, to, from, bytes);
 *     }
 *     bulk_wait(&full, phase);                     // 0, 1, 0, ... from use to use
 *
 * Addresses and sizes are multiples of 16 bytes. Shared memory is taken again once a barrier has
 * told that all threads have read it. */
#pragma once
#include <stdint.h>

static __device__ __forceinline__ uint32_t bulk_address(const void *shared)
{
    return (uint32_t)__cvta_generic_to_shared(shared);
}

static __device__ __forceinline__ void bulk_init(uint64_t *barrier)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;\n"
                 "fence.mbarrier_init.release.cluster;" ::"r"(bulk_address(barrier))
                 : "memory");
}

static __device__ __forceinline__ void bulk_expect(uint64_t *barrier, uint32_t bytes)
{
    asm volatile(
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bulk_address(barrier)),
        "r"(bytes)
        : "memory");
}

static __device__ __forceinline__ void bulk_copy(uint64_t *barrier, void *to, const void *from,
                                                 uint32_t bytes)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], "
                 "%2, [%3];" ::"r"(bulk_address(to)),
                 "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(bulk_address(barrier))
                 : "memory");
}

static __device__ __forceinline__ void bulk_wait(uint64_t *barrier, uint32_t phase)
{
    asm volatile("{\n"
                 ".reg .pred done;\n"
                 "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@!done bra again;\n"
                 "}" ::"r"(bulk_address(barrier)),
                 "r"(phase)
                 : "memory");
}

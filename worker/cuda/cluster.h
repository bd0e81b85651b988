/* cluster: blocks that share a row or a list read and write each other's shared memory (PTX ISA,
 * clusters). For .cu files only. A variable is named by its own place in the calling block's shared
 * memory; the other block's lies at the same place in its own. Before the first access and before a
 * block ends a barrier stands, so that all blocks are there. */
#pragma once
#include "worker/cuda/bulk.h"

/* All threads of all blocks of the cluster; writes before it, to global memory too, are seen after.
 */
static __device__ __forceinline__ void cluster_barrier(void)
{
    asm volatile("barrier.cluster.arrive.release.aligned;\n"
                 "barrier.cluster.wait.acquire.aligned;" ::
                     : "memory");
}

static __device__ __forceinline__ uint32_t cluster_address(const void *mine, uint32_t block)
{
    uint32_t address;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
                 : "=r"(address)
                 : "r"(bulk_address(mine)), "r"(block));
    return address;
}

static __device__ __forceinline__ uint32_t cluster_read(const uint32_t *mine, uint32_t block)
{
    uint32_t value;
    asm volatile("ld.shared::cluster.u32 %0, [%1];"
                 : "=r"(value)
                 : "r"(cluster_address(mine, block))
                 : "memory");
    return value;
}

static __device__ __forceinline__ void cluster_write(float4 *mine, uint32_t block, float4 value)
{
    asm volatile(
        "st.shared::cluster.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(cluster_address(mine, block)),
        "f"(value.x), "f"(value.y), "f"(value.z), "f"(value.w)
        : "memory");
}

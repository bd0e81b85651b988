/* rng_philox: the block function of common/rng.h, for those who draw many numbers in a loop: on the
 * host, and in kernels (a .cu file that includes this has it on the device too).
 *
 * Philox-4x32 with 10 rounds; key = seed, counter = (counter, stream). */
#pragma once
#include <stdint.h>

#ifdef __CUDACC__
#define RNG_ANYWHERE __host__ __device__ __forceinline__
#else
#define RNG_ANYWHERE inline __attribute__((always_inline))
#endif

enum { RNG_PHILOX_ROUNDS = 10 };

/* A round of one block, in place. The key of round i is key + i * the steps below. */
#define RNG_PHILOX_STEP0 0x9E3779B9u
#define RNG_PHILOX_STEP1 0xBB67AE85u
static RNG_ANYWHERE void rng_philox_round(uint32_t *c0, uint32_t *c1, uint32_t *c2, uint32_t *c3,
                                          uint32_t key0, uint32_t key1)
{
    uint64_t product0 = (uint64_t)0xD2511F53u * *c0, product1 = (uint64_t)0xCD9E8D57u * *c2;
    *c0 = (uint32_t)(product1 >> 32) ^ *c1 ^ key0;
    *c1 = (uint32_t)product1;
    *c2 = (uint32_t)(product0 >> 32) ^ *c3 ^ key1;
    *c3 = (uint32_t)product0;
}

static RNG_ANYWHERE void rng_philox(uint64_t seed, uint64_t stream, uint64_t counter,
                                    uint32_t ret_words[4])
{
    uint32_t c0 = (uint32_t)counter, c1 = (uint32_t)(counter >> 32);
    uint32_t c2 = (uint32_t)stream, c3 = (uint32_t)(stream >> 32);
    uint32_t key0 = (uint32_t)seed, key1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < RNG_PHILOX_ROUNDS; round++) {
        rng_philox_round(&c0, &c1, &c2, &c3, key0, key1);
        key0 += RNG_PHILOX_STEP0;
        key1 += RNG_PHILOX_STEP1;
    }
    ret_words[0] = c0;
    ret_words[1] = c1;
    ret_words[2] = c2;
    ret_words[3] = c3;
}

/* rng: numbers of several kinds from the blocks of common/rng_philox.h. */
#include "common/rng.h"

#include "common/must.h"
#include "common/rng_philox.h"

#include <math.h>

void rng_block(uint64_t seed, uint64_t stream, uint64_t counter, uint32_t ret_words[4])
{
    rng_philox(seed, stream, counter, ret_words);
}

uint64_t rng_u64(uint64_t seed, uint64_t stream, uint64_t counter)
{
    uint32_t words[4];
    rng_block(seed, stream, counter, words);
    return ((uint64_t)words[1] << 32) | words[0];
}

double rng_uniform(uint64_t seed, uint64_t stream, uint64_t counter)
{
    return (double)(rng_u64(seed, stream, counter) >> 11) * 0x1p-53;
}

float rng_normal(uint64_t seed, uint64_t stream, uint64_t counter)
{
    uint32_t words[4];
    rng_block(seed, stream, counter, words);
    uint64_t bits0 = (((uint64_t)words[1] << 32) | words[0]) >> 11;
    uint64_t bits1 = (((uint64_t)words[3] << 32) | words[2]) >> 11;
    double u = ((double)bits0 + 1.0) * 0x1p-53; /* (0, 1]: its logarithm is finite */
    double v = (double)bits1 * 0x1p-53;
    return (float)(sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v));
}

uint64_t rng_below(uint64_t seed, uint64_t stream, uint64_t counter, uint64_t bound)
{
    must(bound > 0);
    /* The high word of a 128-bit product: its bias is below bound / 2^64. */
    return (uint64_t)(((unsigned __int128)rng_u64(seed, stream, counter) * bound) >> 64);
}

void rng_permutation(uint64_t seed, uint64_t stream, uint64_t count, uint64_t *ret_order)
{
    for (uint64_t i = 0; i < count; i++)
        ret_order[i] = i;
    for (uint64_t i = count; i > 1; i--) {
        uint64_t j = rng_below(seed, stream, i, i);
        uint64_t swap = ret_order[i - 1];
        ret_order[i - 1] = ret_order[j];
        ret_order[j] = swap;
    }
}

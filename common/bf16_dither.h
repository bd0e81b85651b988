/* bf16_dither: fp32 to bf16 upward or downward at random, by the odds of where a value lies between
 * its neighbours: right on average, so that sums of many small parts are, too ("stochastic
 * rounding"; Gupta et al., ICML 2015). To the nearest, a part below half of the last place of what
 * it is added to is lost each time.
 *
 * 16 random bits a value, two values a word: a function of key and pair alone, in a few integer
 * operations (MurmurHash3's finalizer), on the host and in kernels. */
#pragma once
#include "common/rng_philox.h"

/* Lower half: of element 2 * pair, upper half: of the next. */
static RNG_ANYWHERE uint32_t bf16_dither(uint64_t key, uint64_t pair)
{
    uint32_t word = (uint32_t)key ^ (uint32_t)pair * 0x9E3779B1u;
    word ^= (uint32_t)(key >> 32) + (uint32_t)(pair >> 32) * 0x85EBCA77u;
    word = (word ^ word >> 16) * 0x85EBCA6Bu;
    word = (word ^ word >> 13) * 0xC2B2AE35u;
    return word ^ word >> 16;
}

/* Bits of an fp32 that bf16 holds, from those of any; `noise` below 2^16. NaN stays one, infinity
 * too; what lies above the largest bf16 may become infinite. */
static RNG_ANYWHERE uint32_t bf16_dithered(uint32_t bits, uint32_t noise)
{
    return (bits & 0x7FFFFFFFu) > 0x7F800000u ? bits | 0x00400000u : (bits + noise) & 0xFFFF0000u;
}

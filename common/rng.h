/* rng: counter-based random numbers, Philox-4x32-10 (Salmon et al., SC 2011, "Parallel random
 * numbers: as easy as 1, 2, 3").
 *
 * A number is a pure function of (seed, stream, counter): no state, so the same numbers come out
 * for any rank count, any tiling and any order of evaluation. A stream names what the numbers are
 * for; the counter is the global index of the element (parameter index in its tensor, token index,
 * shuffle position).
 *
 *     float w = 0.02f * rng_normal(seed, RNG_STREAM_INIT + tensor, element); */
#pragma once
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* High 32 bits of a stream id: the purpose. The low 32 bits are the purpose's own (tensor, epoch,
 * step...). */
#define RNG_STREAM_INIT ((uint64_t)1 << 32)    /* + tensor index */
#define RNG_STREAM_SHUFFLE ((uint64_t)2 << 32) /* + epoch */
#define RNG_STREAM_DROPOUT ((uint64_t)3 << 32) /* + module */
#define RNG_STREAM_TEST ((uint64_t)5 << 32)
#define RNG_STREAM_LORA ((uint64_t)6 << 32)  /* + tensor index: first values of adapters */
#define RNG_STREAM_ROUND ((uint64_t)7 << 32) /* + norm: gradients between layers */

/* Four 32-bit words of block `counter`. */
void rng_block(uint64_t seed, uint64_t stream, uint64_t counter, uint32_t ret_words[4]);

uint64_t rng_u64(uint64_t seed, uint64_t stream, uint64_t counter);
double rng_uniform(uint64_t seed, uint64_t stream, uint64_t counter); /* [0, 1), 53 bits */
float rng_normal(uint64_t seed, uint64_t stream,
                 uint64_t counter); /* mean 0, variance 1, Box-Muller in fp64 */
uint64_t rng_below(uint64_t seed, uint64_t stream, uint64_t counter,
                   uint64_t bound); /* [0, bound), bound > 0 */

/* Fisher-Yates over 0..count-1, the same permutation for the same (seed, stream, count). */
void rng_permutation(uint64_t seed, uint64_t stream, uint64_t count, uint64_t *ret_order);

#ifdef __cplusplus
}
#endif

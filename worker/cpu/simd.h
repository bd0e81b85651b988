/* simd: what the CPU's elementwise loops share: building one loop for several instruction sets, and
 * an exponential that vectorises.
 *
 * CPU_CLONES in front of a static function makes the compiler emit it for AVX-512, AVX2+FMA and
 * plain x86-64, and the loader picks one. The function holds loops only: no OpenMP parallel region
 * (its outlined body would not be cloned). Not used under sanitizers, whose run-time is not up when
 * the loader picks.
 *
 * cpu_exp: exp(x) with relative error below 1.2e-7 on [-86.9, 88.7]; 0 below, infinity above, NaN
 * for NaN. Range reduction by ln 2 in two parts, then a polynomial of degree 6 on
 * [-ln2/2, ln2/2]. Around 0.3 ns an element with AVX-512 (EPYC of family 26, 2 cores), against
 * 2 to 5 for expf.
 *
 * cpu_max: the largest of `start` and count floats, NaN ignored. In lanes by hand: a reduction to
 * the maximum is vectorised by gcc only. */
#pragma once
#include <stdint.h>
#include <string.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define CPU_SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CPU_SANITIZED 1
#endif

#if defined(__x86_64__) && !defined(CPU_SANITIZED)
#define CPU_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define CPU_CLONES
#endif

static inline __attribute__((always_inline)) float cpu_exp(float x)
{
    float bounded = x > 89.0f ? 89.0f : x;
    bounded = bounded < -87.0f ? -87.0f : bounded;
    /* Adding 1.5 * 2^23 rounds to an integer, which then stands in the low bits. */
    float shifted = bounded * 1.44269504f + 12582912.0f;
    float n = shifted - 12582912.0f;
    float r = bounded - n * 0.693359375f;
    r = r + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    /* Times 2^(n-1), then 2: 2^128 itself has no float. */
    uint32_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits + 126u) << 23;
    float power;
    memcpy(&power, &bits, sizeof power);
    return bounded < -86.9f ? 0.0f : p * power * 2.0f;
}

static inline __attribute__((always_inline)) float cpu_max(const float *x, int64_t count,
                                                           float start)
{
    enum { LANES = 16 };
    float largest[LANES];
    for (int lane = 0; lane < LANES; lane++)
        largest[lane] = start;
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES) {
#pragma omp simd
        for (int lane = 0; lane < LANES; lane++)
            largest[lane] = x[i + lane] > largest[lane] ? x[i + lane] : largest[lane];
    }
    for (int lane = 0; i < count; i++, lane++)
        largest[lane] = x[i] > largest[lane] ? x[i] : largest[lane];
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int lane = 0; lane < half; lane++)
            largest[lane] =
                largest[lane + half] > largest[lane] ? largest[lane + half] : largest[lane];
    return largest[0];
}

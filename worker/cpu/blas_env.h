/* cpu_blas_env: which OpenBLAS kernels a worker shall run on.
 *
 * OpenBLAS picks its kernels once, when the process starts, from a list of CPU models; a CPU newer
 * than the library falls to old kernels. Debian 12's 0.3.21 on a Xeon it does not know reaches 48
 * GF/s on two cores, against 229 to 302 with OPENBLAS_CORETYPE set to SkylakeX or Cooperlake. So
 * the keeper asks here, from cpuid, and sets the variable before it executes a rank:
 *
 *     const char *core = cpu_blas_env_core();
 *     if (core != NULL)
 *         setenv("OPENBLAS_CORETYPE", core, 1);
 *
 * A value already in the environment wins: nothing is to be set then. The choice is the same for
 * Intel and AMD where the features are the same: on an AMD EPYC of family 26 (Zen 5; OpenBLAS
 * 0.3.21 detects Cooperlake there by itself) SkylakeX, Cooperlake, Haswell and Zen each computed
 * 3000 products of ragged shapes within 4e-7 of fp64; one core, 512x512x512: Cooperlake 203 GF/s,
 * SkylakeX 191, Haswell 105, Zen 106, Sandybridge 97. device_cpu_open() checks products again on
 * the machine it runs on and refuses wrong ones. */
#pragma once
#include <stdbool.h>

/* What the CPU has and the system lets programs use. */
struct cpu_blas_features {
    bool avx2_fma;    /* AVX2 and FMA */
    bool avx512;      /* AVX-512 F, CD, BW, DQ, VL */
    bool avx512_bf16; /* AVX512_BF16 */
};

/* OpenBLAS core type for these features; NULL: leave the choice to the library. */
const char *cpu_blas_env_choose(const struct cpu_blas_features *features);

struct cpu_blas_features cpu_blas_env_features(void); /* of this machine */

/* The value to set for OPENBLAS_CORETYPE here, or NULL when nothing is to be set. */
const char *cpu_blas_env_core(void);

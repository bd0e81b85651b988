/* blas_env: cpuid through the compiler's built-ins, which also ask the system (XGETBV) whether the
 * wide registers are kept. Cooperlake's sgemm is SkylakeX's with its own block sizes; it is chosen
 * where the CPU has what OpenBLAS expects of that core type. */
#include "worker/cpu/blas_env.h"

#include <stddef.h>
#include <stdlib.h>

const char *cpu_blas_env_choose(const struct cpu_blas_features *features)
{
    if (features->avx512 && features->avx512_bf16)
        return "Cooperlake";
    if (features->avx512)
        return "SkylakeX";
    if (features->avx2_fma)
        return "Haswell";
    return NULL;
}

struct cpu_blas_features cpu_blas_env_features(void)
{
    struct cpu_blas_features features = {0};
#if defined(__x86_64__)
    features.avx2_fma = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    features.avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512cd") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl");
    features.avx512_bf16 = __builtin_cpu_supports("avx512bf16");
#endif
    return features;
}

const char *cpu_blas_env_core(void)
{
    const char *set = getenv("OPENBLAS_CORETYPE");
    if (set != NULL && set[0] != '\0')
        return NULL;
    struct cpu_blas_features features = cpu_blas_env_features();
    return cpu_blas_env_choose(&features);
}

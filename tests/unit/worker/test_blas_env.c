/* blas_env: the core type for each set of features; a value in the environment wins. */
#include "tests/lib/cmocka.h"

#include <stdlib.h>

#include "worker/cpu/blas_env.h"

static void test_choice(void **state)
{
    struct cpu_blas_features features = {0};
    assert_null(cpu_blas_env_choose(&features));
    features.avx2_fma = true;
    assert_string_equal(cpu_blas_env_choose(&features), "Haswell");
    features.avx512_bf16 = true; /* without the rest of AVX-512: not to be trusted */
    assert_string_equal(cpu_blas_env_choose(&features), "Haswell");
    features.avx512 = true;
    assert_string_equal(cpu_blas_env_choose(&features), "Cooperlake");
    features.avx512_bf16 = false;
    assert_string_equal(cpu_blas_env_choose(&features), "SkylakeX");
}

static void test_environment_wins(void **state)
{
    struct cpu_blas_features features = cpu_blas_env_features();
    assert_int_equal(setenv("OPENBLAS_CORETYPE", "Zen", 1), 0);
    assert_null(cpu_blas_env_core());
    const char *choice = cpu_blas_env_choose(&features);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(
            i == 0 ? setenv("OPENBLAS_CORETYPE", "", 1) : unsetenv("OPENBLAS_CORETYPE"), 0);
        if (choice == NULL)
            assert_null(cpu_blas_env_core());
        else
            assert_string_equal(cpu_blas_env_core(), choice);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_choice),
        cmocka_unit_test(test_environment_wins),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

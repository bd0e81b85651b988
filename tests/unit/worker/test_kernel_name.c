/* kernel_name: mangled names of kernels, plain ones, and what only looks mangled. */
#include "tests/lib/cmocka.h"
#include "worker/kernel_name.h"

static void test_names(void **state)
{
    static const char *const names[][2] = {
        {"ncclDevKernel_AllGather_RING_LL", "ncclDevKernel_AllGather_RING_LL"},
        {"_Z11rope_kernel9rope_args", "rope_kernel"},
        {"_Z14rmsnorm_kernelILb1ELi4EEvPKfS1_Pf", "rmsnorm_kernel"},
        {"_ZN7cutlass13device_kernelINS_4gemm6kernelEEEvT_", "cutlass::device_kernel"},
        {"_ZN12_GLOBAL__N_110add_kernelEPfS0_", "add_kernel"},
        {"_ZN40_INTERNAL_abcdef01_23456789_7_adamw_cu_x5adamwEf", "adamw"},
        {"_Z", "_Z"},
        {"_Zx", "_Zx"},
        {"_Z99short", "_Z99short"}, /* longer than it is */
        {"_ZN", "_ZN"},
        {"_Z99999999999999999999a", "_Z99999999999999999999a"},
        {"", ""}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char name[64];
        kernel_name(names[i][0], name, sizeof name);
        assert_string_equal(name, names[i][1]);
    }
    char cut[8];
    kernel_name("_ZN7cutlass13device_kernelEv", cut, sizeof cut);
    assert_string_equal(cut, "cutlass");
    kernel_name("sm90_xmma_gemm", cut, sizeof cut);
    assert_string_equal(cut, "sm90_xm");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_names)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

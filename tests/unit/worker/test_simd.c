/* simd: cpu_exp over its whole domain against fp64, and outside it; cpu_max. */
#include "tests/lib/cmocka.h"

#include <math.h>

#include "worker/cpu/simd.h"

static void test_error(void **state)
{
    double worst = 0;
    for (int i = 0; i <= 2000000; i++) {
        float x = (float)(-86.9 + (88.7 + 86.9) * i / 2000000);
        double want = exp((double)x), error = fabs((double)cpu_exp(x) - want) / want;
        worst = error <= worst ? worst : error;
    }
    print_message("cpu_exp: largest relative error %.3g\n", worst);
    assert_true(worst < 1.2e-7);
}

static void test_outside(void **state)
{
    assert_true(cpu_exp(0.0f) == 1.0f && cpu_exp(-0.0f) == 1.0f);
    assert_true(cpu_exp(-87.0f) == 0 && cpu_exp(-1000.0f) == 0 && cpu_exp(-INFINITY) == 0);
    assert_true(isinf(cpu_exp(88.8f)) && isinf(cpu_exp(1000.0f)) && isinf(cpu_exp(INFINITY)));
    assert_true(isnan(cpu_exp(NAN)) && isnan(cpu_exp(-NAN)));
}

static void test_max(void **state)
{
    float x[100];
    for (int count = 0; count <= 100; count++)
        for (int at = 0; at < count; at++) {
            for (int i = 0; i < count; i++)
                x[i] = i % 3 == 0 ? NAN : (float)-i - 2;
            x[at] = -1;
            assert_true(cpu_max(x, count, -INFINITY) == -1);
            assert_true(cpu_max(x, count, 5) == 5);
        }
    assert_true(cpu_max(x, 0, -3) == -3);
    assert_true(cpu_max(x, -4, -3) == -3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_error),
        cmocka_unit_test(test_outside),
        cmocka_unit_test(test_max),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

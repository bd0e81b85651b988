/* sumsq: against long double, added to what was there, the same bits for any thread count. */
#include "tests/lib/cmocka.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/rng.h"
#include "tests/lib/on_device.h"

static void test_sums(void **state)
{
    static const int64_t counts[] = {0, 1, 7, 63, 65, 4095, 4096, 4097, 50000};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        float *x = testing_normal(counts[i]);
        long double want = 3;
        double first = 0;
        for (int64_t j = 0; j < counts[i]; j++)
            want += (long double)x[j] * x[j];
        for (int threads = 1; threads <= 3; threads++) {
            double sum = 3;
            RUN(threads, sumsq, .count = counts[i], .x = x, .out = &sum);
            assert_true(fabs(sum - (double)want) <= 1e-14 * (double)want);
            first = threads == 1 ? sum : first;
            testing_same_bits("sum", &sum, &first, sizeof sum);
        }
    }
}

static void test_large_values(void **state)
{
    float x[2] = {1e30f, 1e30f}; /* their squares overflow fp32 */
    double sum = 0;
    RUN(1, sumsq, .count = 2, .x = x, .out = &sum);
    assert_true(fabs(sum / 2e60 - 1) < 1e-6);
    x[1] = NAN;
    RUN(1, sumsq, .count = 2, .x = x, .out = &sum);
    assert_true(isnan(sum));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_sums, testing_free),
        cmocka_unit_test_teardown(test_large_values, testing_free),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* colsum: against fp64, added to what was there, the same bits for any thread count. */
#include "tests/lib/cmocka.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/rng.h"
#include "tests/lib/on_device.h"

static void test_sums(void **state)
{
    static const int64_t rows[] = {0, 1, 7, 64, 65, 300}, widths[] = {0, 1, 7, 63, 256, 257, 700};
    for (int i = 0; i < 42; i++) {
        int64_t t = rows[i % 6], n = widths[i / 6];
        float *x = testing_normal(t * n), *before = testing_normal(n), *first = NULL;
        double *want = testing_zeros(n), *terms = testing_zeros(n);
        for (int64_t c = 0; c < n; c++)
            terms[c] = fabs(want[c] = (double)before[c]);
        for (int64_t j = 0; j < t * n; j++) {
            want[j % n] += (double)x[j];
            terms[j % n] += fabs((double)x[j]);
        }
        for (int threads = 1; threads <= 3; threads++) {
            float *out = testing_copy(before, n);
            RUN(threads, colsum, .rows = t, .width = n, .x = x, .out = out);
            testing_close("out", out, want, terms, n, 2e-7);
            first = threads == 1 ? out : first;
            testing_same_bits("out", out, first, n * (int64_t)sizeof(float));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_sums, testing_free),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* add, cast: exact, also in place. */
#include "tests/lib/cmocka.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/rng.h"
#include "tests/lib/on_device.h"

static const int64_t counts[] = {0, 1, 7, 63, 64, 65, 8193, 20000};
enum { COUNTS = sizeof counts / sizeof counts[0] };

static void test_add(void **state)
{
    for (int i = 0; i < COUNTS * 3; i++) {
        int64_t count = counts[i % COUNTS];
        float *a = testing_normal(count), *b = testing_normal(count), *want = testing_poison(count);
        for (int64_t j = 0; j < count; j++)
            want[j] = a[j] + b[j];
        float *out = i / COUNTS == 0 ? testing_poison(count) : i / COUNTS == 1 ? a : b;
        RUN(1 + i % 3, add, .count = count, .a = a, .b = b, .out = out);
        testing_same_bits("out", out, want, count * (int64_t)sizeof(float));
    }
}

static void test_cast(void **state)
{
    for (int i = 0; i < COUNTS * 2; i++) {
        int64_t count = counts[i % COUNTS];
        float *in = testing_normal(count), *kept = testing_copy(in, count);
        float *out = i < COUNTS ? testing_poison(count) : in;
        RUN(1 + i % 3, cast, .count = count, .in = in, .out = out, .to_act = i % 2 == 0);
        testing_same_bits("out", out, kept, count * (int64_t)sizeof(float));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_add, testing_free),
        cmocka_unit_test_teardown(test_cast, testing_free),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

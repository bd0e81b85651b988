/* swiglu, swiglu_bwd: against fp64, in place, far into saturation; the fp64 derivative against
 * differences. */
#include "tests/lib/cmocka.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/rng.h"
#include "tests/lib/on_device.h"

static const int64_t counts[] = {0, 1, 7, 63, 64, 65, 8191, 8192, 8193, 30000};
enum { COUNTS = sizeof counts / sizeof counts[0] };

static double silu(double x)
{
    return x / (1 + exp(-x));
}

static double dsilu(double x)
{
    double s = 1 / (1 + exp(-x));
    return s * (1 + x * (1 - s));
}

/* Magnitudes of what dsilu adds up, and a floor: exp underflows for gates below -87. */
static double dsilu_terms(double x)
{
    double s = 1 / (1 + exp(-x));
    return s * (1 + fabs(x) * (1 - s)) + 1e-30;
}

/* Gates from -200 to 200: past where exp overflows in fp32. */
static float *gates(int64_t count)
{
    float *gate = testing_normal(count);
    for (int64_t i = 0; i < count; i++)
        gate[i] *= i % 7 == 0 ? 50.0f : 2.0f;
    return gate;
}

static void test_forward(void **state)
{
    for (int i = 0; i < COUNTS * 3; i++) {
        int64_t count = counts[i % COUNTS];
        float *gate = gates(count), *up = testing_normal(count);
        double *want = testing_zeros(count), *terms = testing_zeros(count);
        for (int64_t j = 0; j < count; j++) {
            want[j] = silu((double)gate[j]) * (double)up[j];
            terms[j] = fabs(want[j]) + 1e-30;
        }
        float *out = i / COUNTS == 0 ? testing_poison(count) : i / COUNTS == 1 ? gate : up;
        RUN(1 + i % 3, swiglu, .count = count, .gate = gate, .up = up, .out = out);
        testing_close("out", out, want, terms, count, 3e-7);
    }
}

static void test_backward(void **state)
{
    for (int i = 0; i < COUNTS * 2; i++) {
        int64_t count = counts[i % COUNTS];
        float *gate = gates(count), *up = testing_normal(count), *dout = testing_normal(count);
        double *dgate_want = testing_zeros(count), *dup_want = testing_zeros(count);
        double *dgate_terms = testing_zeros(count), *dup_terms = testing_zeros(count);
        for (int64_t j = 0; j < count; j++) {
            dgate_want[j] = (double)dout[j] * (double)up[j] * dsilu((double)gate[j]);
            dgate_terms[j] = fabs((double)dout[j] * (double)up[j]) * dsilu_terms((double)gate[j]);
            dup_want[j] = (double)dout[j] * silu((double)gate[j]);
            dup_terms[j] = fabs(dup_want[j]) + 1e-30;
        }
        bool in_place = i >= COUNTS;
        float *dgate = in_place ? gate : testing_poison(count);
        float *dup = in_place ? up : testing_poison(count);
        RUN(1 + i % 3, swiglu_bwd, .count = count, .gate = gate, .up = up, .dout = dout,
            .dgate = dgate, .dup = dup);
        testing_close("dgate", dgate, dgate_want, dgate_terms, count, 3e-7);
        testing_close("dup", dup, dup_want, dup_terms, count, 3e-7);
    }
}

static void test_derivative(void **state)
{
    for (double x = -20; x < 20; x += 0.37) {
        double want = (silu(x + 1e-6) - silu(x - 1e-6)) / 2e-6;
        assert_true(fabs(dsilu(x) - want) < 1e-8);
    }
}

static void test_nan_stays(void **state)
{
    float gate[3] = {NAN, 1, INFINITY}, up[3] = {1, NAN, 1}, out[3];
    RUN(1, swiglu, .count = 3, .gate = gate, .up = up, .out = out);
    assert_true(isnan(out[0]) && isnan(out[1]) && isinf(out[2]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_forward, testing_free),
        cmocka_unit_test_teardown(test_backward, testing_free),
        cmocka_unit_test_teardown(test_derivative, testing_free),
        cmocka_unit_test_teardown(test_nan_stays, testing_free),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

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

/* An operation may take exp below -86.9 for nothing (cpu_exp does), where silu and its derivative
 * still are 88 * exp(-86.9) = 1.6e-36: within 3e-7 of what is above this floor. */
static const double FLOOR = 1e-29;

static double silu_terms(double x)
{
    return fabs(silu(x)) + FLOOR;
}

/* Magnitudes of what dsilu adds up. */
static double dsilu_terms(double x)
{
    double s = 1 / (1 + exp(-x));
    return s * (1 + fabs(x) * (1 - s)) + FLOOR;
}

/* Gates from -200 to 200: past where exp overflows in fp32. */
static float *gates(int64_t count)
{
    float *gate = testing_normal(count);
    for (int64_t i = 0; i < count; i++)
        gate[i] *= i % 7 == 0 ? 50.0f : 2.0f;
    return gate;
}

/* place: 0 apart, 1 over gate, 2 over up. */
static void check_forward(int64_t count, float *gate, float *up, int place, int threads)
{
    double *want = testing_zeros(count), *terms = testing_zeros(count);
    for (int64_t j = 0; j < count; j++) {
        want[j] = silu((double)gate[j]) * (double)up[j];
        terms[j] = silu_terms((double)gate[j]) * fabs((double)up[j]);
    }
    float *out = place == 0 ? testing_poison(count) : place == 1 ? gate : up;
    RUN(threads, swiglu, .count = count, .gate = gate, .up = up, .out = out);
    testing_close("out", out, want, terms, count, 3e-7);
}

static void check_backward(int64_t count, float *gate, float *up, bool in_place, int threads)
{
    float *dout = testing_normal(count);
    double *dgate_want = testing_zeros(count), *dup_want = testing_zeros(count);
    double *dgate_terms = testing_zeros(count), *dup_terms = testing_zeros(count);
    for (int64_t j = 0; j < count; j++) {
        dgate_want[j] = (double)dout[j] * (double)up[j] * dsilu((double)gate[j]);
        dgate_terms[j] = fabs((double)dout[j] * (double)up[j]) * dsilu_terms((double)gate[j]);
        dup_want[j] = (double)dout[j] * silu((double)gate[j]);
        dup_terms[j] = silu_terms((double)gate[j]) * fabs((double)dout[j]);
    }
    float *dgate = in_place ? gate : testing_poison(count);
    float *dup = in_place ? up : testing_poison(count);
    RUN(threads, swiglu_bwd, .count = count, .gate = gate, .up = up, .dout = dout, .dgate = dgate,
        .dup = dup);
    testing_close("dgate", dgate, dgate_want, dgate_terms, count, 3e-7);
    testing_close("dup", dup, dup_want, dup_terms, count, 3e-7);
}

static void test_forward(void **state)
{
    for (int i = 0; i < COUNTS * 3; i++) {
        int64_t count = counts[i % COUNTS];
        check_forward(count, gates(count), testing_normal(count), i / COUNTS, 1 + i % 3);
    }
}

static void test_backward(void **state)
{
    for (int i = 0; i < COUNTS * 2; i++) {
        int64_t count = counts[i % COUNTS];
        check_backward(count, gates(count), testing_normal(count), i >= COUNTS, 1 + i % 3);
    }
}

/* One gate at a time: among others, these would not be seen. */
static void test_where_exp_ends(void **state)
{
    for (int i = 0; i < 300; i++) {
        float *gate = testing_poison(1), *up = testing_normal(1);
        gate[0] = (float)(i % 2 == 0 ? -85 : 85) + (float)(i % 2 == 0 ? -i : i) / 60;
        check_forward(1, gate, up, 0, 1);
        check_backward(1, gate, up, false, 1);
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
        cmocka_unit_test_teardown(test_where_exp_ends, testing_free),
        cmocka_unit_test_teardown(test_derivative, testing_free),
        cmocka_unit_test_teardown(test_nan_stays, testing_free),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

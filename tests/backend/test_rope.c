/* rope: against long double at positions near 0, 60 thousand, 1 million, 10 million and the
 * largest; both layouts; the inverse undoes; the same bits for any thread count. */
#include "tests/lib/cmocka.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/rng.h"
#include "tests/lib/on_device.h"

static float *frequencies(int64_t half, double theta)
{
    float *inv_freq = testing_poison(half);
    for (int64_t i = 0; i < half; i++)
        inv_freq[i] = (float)pow(theta, -(double)i / (double)half);
    return inv_freq;
}

static double *reference(const struct ops_rope *args, const float *x, int64_t floats)
{
    double *want = testing_zeros(floats);
    for (int64_t i = 0; i < floats; i++)
        want[i] = (double)x[i];
    int64_t half = args->head_dim / 2;
    for (int64_t h = 0; h < args->heads; h++)
        for (int64_t t = 0; t < args->tokens; t++)
            for (int64_t i = 0; i < half; i++) {
                int64_t low = h * args->head_stride + t * args->token_stride + i;
                long double angle = (long double)args->positions[t] * args->inv_freq[i];
                angle = args->inverse ? -angle : angle;
                double c = (double)(cosl(angle) * (long double)args->scale);
                double s = (double)(sinl(angle) * (long double)args->scale);
                want[low] = (double)x[low] * c - (double)x[low + half] * s;
                want[low + half] = (double)x[low + half] * c + (double)x[low] * s;
            }
    return want;
}

static void check(int64_t heads, int64_t tokens, int64_t head_dim, int64_t base, bool head_major,
                  bool inverse)
{
    int64_t gap = 3, row = head_dim + gap;
    struct ops_rope args = {.heads = heads,
                            .tokens = tokens,
                            .head_dim = head_dim,
                            .head_stride = head_major ? tokens * row : row,
                            .token_stride = head_major ? row : heads * row,
                            .inv_freq = frequencies(head_dim / 2, 10000.0),
                            .scale = inverse ? 1.25f : 1.0f,
                            .inverse = inverse};
    int32_t *positions = testing_below(tokens, 100);
    for (int64_t t = 0; t < tokens; t++)
        positions[t] = (int32_t)(base - positions[t] < 0 ? positions[t] : base - positions[t]);
    args.positions = positions;
    int64_t floats = heads * tokens * row;
    float *x = testing_normal(floats), *one = NULL;
    double *want = reference(&args, x, floats);
    for (int threads = 1; threads <= 3; threads++) {
        float *got = testing_copy(x, floats);
        struct ops_rope now = args;
        now.x = got;
        struct err err = {0};
        struct device *device = on_device(threads);
        assert_int_equal(device->ops->rope(device, NULL, &now, &err), 0);
        testing_close("x", got, want, NULL, floats, 3e-7);
        for (int64_t i = 0; i < floats; i++)
            if (i % row >= head_dim)
                assert_true(got[i] == x[i]); /* gaps keep their bits */
        one = threads == 1 ? got : one;
        testing_same_bits("x", got, one, floats * (int64_t)sizeof(float));
    }
    (void)testing_free(NULL);
}

static void test_positions(void **state)
{
    static const int64_t bases[] = {0, 99, 60000, 1000000, 10000000, INT32_MAX};
    for (size_t i = 0; i < sizeof bases / sizeof bases[0]; i++)
        for (int variant = 0; variant < 4; variant++)
            check(3, 40, 32, bases[i], (variant & 1) != 0, (variant & 2) != 0);
}

static void test_shapes(void **state)
{
    static const int64_t dims[] = {2, 6, 64, 126, 128, 256, 1024, 1030};
    for (size_t i = 0; i < sizeof dims / sizeof dims[0]; i++) {
        check(1, 1, dims[i], 5000, false, false);
        check(2, 7, dims[i], 1000000, true, true);
    }
    check(0, 5, 8, 10, false, false);
    check(5, 0, 8, 10, false, false);
}

/* Each cosine and sine by itself, where the norm over all would hide a bad one. */
static void test_every_angle(void **state)
{
    enum { TOKENS = 20000 };
    int32_t *positions = testing_below(TOKENS, 10000000);
    float inv_freq[1] = {1.0f}, *x = testing_poison(2 * TOKENS);
    for (int64_t t = 0; t < TOKENS; t++) {
        x[2 * t] = 1;
        x[2 * t + 1] = 0;
    }
    RUN(1, rope, .heads = 1, .tokens = TOKENS, .head_dim = 2, .head_stride = 2, .token_stride = 2,
        .x = x, .positions = positions, .inv_freq = inv_freq, .scale = 1.0f);
    for (int64_t t = 0; t < TOKENS; t++) {
        double c = (double)cosl((long double)positions[t]);
        double s = (double)sinl((long double)positions[t]);
        if (!(fabs((double)x[2 * t] - c) < 2e-7 && fabs((double)x[2 * t + 1] - s) < 2e-7))
            fail_msg("position %d: %.9g %.9g, want %.9g %.9g", positions[t], (double)x[2 * t],
                     (double)x[2 * t + 1], c, s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_positions, testing_free),
        cmocka_unit_test_teardown(test_shapes, testing_free),
        cmocka_unit_test_teardown(test_every_angle, testing_free),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

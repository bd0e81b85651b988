/* dtype: every 16-bit pattern, and every tie between two neighbours. */
#include "common/dtype.h"
#include "common/float_bits.h"
#include "tests/lib/cmocka.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

static void test_names_and_sizes(void **state)
{
    for (int dtype = 0; dtype < DTYPE_COUNT; dtype++)
        assert_int_equal(dtype_parse(dtype_name((enum dtype)dtype)), dtype);
    assert_int_equal(dtype_parse("F8"), DTYPE_COUNT);
    assert_int_equal(dtype_bytes(DTYPE_BF16), 2);
    assert_int_equal(dtype_bytes(DTYPE_F32), 4);
    assert_int_equal(dtype_bytes(DTYPE_I64), 8);
    assert_string_equal(dtype_name(DTYPE_BF16), "BF16");
}

/* Value of a half by the definition of IEEE 754. */
static double half_value(uint16_t half)
{
    int exponent = (half >> 10) & 0x1f;
    double mantissa = half & 0x3ff;
    double magnitude = exponent == 0 ? ldexp(mantissa, -24) : ldexp(1024 + mantissa, exponent - 25);
    return (half & 0x8000) != 0 ? -magnitude : magnitude;
}

static void test_every_half(void **state)
{
    for (uint32_t half = 0; half < 0x10000; half++) {
        float value = dtype_f16_to_f32((uint16_t)half);
        bool special = (half & 0x7c00) == 0x7c00;
        if (special && (half & 0x3ff) != 0) {
            assert_true(isnan(value));
            assert_true(isnan(dtype_f16_to_f32(dtype_f32_to_f16(value))));
            continue;
        }
        if (special)
            assert_true(isinf(value) && (value < 0) == (half >= 0x8000));
        else
            assert_true((double)value == half_value((uint16_t)half));
        assert_int_equal(dtype_f32_to_f16(value), half); /* the sign of zero, too */
    }
}

static void test_half_rounds_to_nearest_even(void **state)
{
    for (uint32_t half = 0; half < 0x7bff; half++) { /* below the largest finite one */
        float low = dtype_f16_to_f32((uint16_t)half);
        float high = dtype_f16_to_f32((uint16_t)(half + 1));
        float middle = low + (high - low) / 2; /* exact in fp32 */
        uint32_t even = half % 2 == 0 ? half : half + 1;
        assert_int_equal(dtype_f32_to_f16(middle), even);
        assert_int_equal(dtype_f32_to_f16(-middle), even | 0x8000);
        assert_int_equal(dtype_f32_to_f16(nextafterf(middle, 0)), half);
        assert_int_equal(dtype_f32_to_f16(nextafterf(middle, INFINITY)), half + 1);
    }
    assert_int_equal(dtype_f32_to_f16(nextafterf(65520, 0)), 0x7bff);
    assert_int_equal(dtype_f32_to_f16(65520), 0x7c00);
    assert_int_equal(dtype_f32_to_f16(-FLT_MAX), 0xfc00);
    assert_int_equal(dtype_f32_to_f16(FLT_TRUE_MIN), 0);
}

static void test_every_bf16(void **state)
{
    for (uint32_t bits = 0; bits < 0x10000; bits++) {
        float value = dtype_bf16_to_f32((uint16_t)bits);
        if (isnan(value)) {
            for (uint32_t tail = 0; tail < 0x10000; tail += 0xfff) {
                float nan_value = float_of_bits(bits << 16 | tail);
                assert_true(isnan(dtype_bf16_to_f32(dtype_f32_to_bf16(nan_value))));
            }
            continue;
        }
        assert_int_equal(float_bits(value), bits << 16);
        assert_int_equal(dtype_f32_to_bf16(value), bits);
        if (isinf(value))
            continue;
        uint32_t even = bits % 2 == 0 ? bits : bits + 1;
        assert_int_equal(dtype_f32_to_bf16(float_of_bits(bits << 16 | 0x8000)), even);
        assert_int_equal(dtype_f32_to_bf16(float_of_bits(bits << 16 | 0x7fff)), bits);
        assert_int_equal(dtype_f32_to_bf16(float_of_bits(bits << 16 | 0x8001)), bits + 1);
    }
    assert_int_equal(dtype_f32_to_bf16(FLT_MAX), 0x7f80); /* rounds to infinity */
    assert_true(isnan(dtype_bf16_to_f32(dtype_f32_to_bf16(float_of_bits(0x7f800001)))));
}

static void test_arrays(void **state)
{
    const float values[] = {0, -1.5f, 3.140625f, 65504, 1e-7f};
    enum { COUNT = sizeof values / sizeof values[0] };
    static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};
    for (size_t d = 0; d < sizeof dtypes / sizeof dtypes[0]; d++) {
        uint32_t stored[COUNT + 1];
        float back[COUNT];
        memset(stored, 0xee, sizeof stored);
        dtype_from_f32(dtypes[d], values, stored, COUNT);
        dtype_to_f32(dtypes[d], stored, back, COUNT);
        const unsigned char *after = (unsigned char *)stored + COUNT * dtype_bytes(dtypes[d]);
        assert_int_equal(*after, 0xee); /* nothing beyond the elements is written */
        for (int i = 0; i < COUNT; i++) {
            float wanted = dtypes[d] == DTYPE_F32 ? values[i]
                           : dtypes[d] == DTYPE_BF16
                               ? dtype_bf16_to_f32(dtype_f32_to_bf16(values[i]))
                               : dtype_f16_to_f32(dtype_f32_to_f16(values[i]));
            assert_true(back[i] == wanted);
        }
    }
}

/* Many values at once are each as one alone: all high halves, ties and NaNs in any lane, any length
 * and no alignment. */
static void test_long_arrays(void **state)
{
    static const uint32_t tails[] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff};
    enum { COUNT = 1000, TAILS = sizeof tails / sizeof tails[0] };
    for (uint32_t first = 0; first < 0x10000 * TAILS; first += COUNT) {
        float values[COUNT + 1], back[COUNT];
        uint16_t stored[COUNT + 3];
        for (uint32_t i = 0; i < COUNT; i++) {
            uint32_t bits = (first + i) / TAILS << 16 | tails[(first + i) % TAILS];
            memcpy(&values[1 + i], &bits, sizeof bits);
        }
        size_t count = COUNT - first / COUNT % 9; /* with and without a rest */
        memset(stored, 0xee, sizeof stored);
        dtype_from_f32(DTYPE_BF16, values + 1, stored + 1, count);
        dtype_to_f32(DTYPE_BF16, stored + 1, back, count);
        assert_true(stored[0] == 0xeeee && stored[count + 1] == 0xeeee);
        for (size_t i = 0; i < count; i++) {
            assert_int_equal(stored[1 + i], dtype_f32_to_bf16(values[1 + i]));
            assert_int_equal(float_bits(back[i]), (uint32_t)stored[1 + i] << 16);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_and_sizes),
        cmocka_unit_test(test_every_half),
        cmocka_unit_test(test_half_rounds_to_nearest_even),
        cmocka_unit_test(test_every_bf16),
        cmocka_unit_test(test_arrays),
        cmocka_unit_test(test_long_arrays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

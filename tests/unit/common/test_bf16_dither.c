/* bf16_dither: one of the two neighbours, right on average; what is no number stays so. */
#include "common/bf16_dither.h"
#include "common/float_bits.h"
#include "tests/lib/cmocka.h"

#include <math.h>

static void test_average(void **state)
{
    enum { COUNT = 200000 };
    static const float values[] = {1.0f,     1.0001f, -1.0039f, 3e-9f, -0.02f,
                                   65504.3f, 1e-39f,  -7e30f,   0.0f,  1.00390625f};
    for (size_t v = 0; v < sizeof values / sizeof values[0]; v++) {
        uint32_t bits = float_bits(values[v]), low = bits & 0xFFFF0000u;
        double down = (double)float_of_bits(low), up = (double)float_of_bits(low + 0x10000),
               sum = 0;
        for (uint64_t i = 0; i < COUNT; i++) {
            uint32_t word = bf16_dither(77, i / 2), noise = i % 2 == 0 ? word & 0xFFFF : word >> 16;
            double got = (double)float_of_bits(bf16_dithered(bits, noise));
            assert_true(got == down || (got == up && (double)values[v] != down));
            sum += got;
        }
        double off = fabs(sum / COUNT - (double)values[v]) / fabs(up - down);
        assert_true(off < 5 * 0.5 / sqrt(COUNT));
    }
}

/* Neighbouring keys and pairs have nothing in common: bits agree half of the time. */
static void test_words(void **state)
{
    enum { COUNT = 100000 };
    int64_t key = 0, pair = 0, far = 0;
    for (uint64_t i = 0; i < COUNT; i++) {
        uint32_t word = bf16_dither(1000003 * i, i);
        key += __builtin_popcount(word ^ bf16_dither(1000003 * i + 2, i));
        pair += __builtin_popcount(word ^ bf16_dither(1000003 * i, i + 1));
        far += __builtin_popcount(word ^ bf16_dither(1000003 * i, i + ((uint64_t)1 << 32)));
    }
    double most = 5 * sqrt(32.0 * COUNT) / 2;
    assert_true(fabs((double)key - 16.0 * COUNT) < most);
    assert_true(fabs((double)pair - 16.0 * COUNT) < most);
    assert_true(fabs((double)far - 16.0 * COUNT) < most);
}

static void test_no_numbers(void **state)
{
    static const uint32_t nans[] = {0x7FC00000, 0x7FFFFFFF, 0x7F800001, 0xFFFFFFFF, 0xFFC00001};
    for (size_t i = 0; i < sizeof nans / sizeof nans[0]; i++)
        for (uint32_t noise = 0; noise < 0x10000; noise += 0xFFF) {
            uint32_t kept = bf16_dithered(nans[i], noise) & 0xFFFF0000u; /* what bf16 has of it */
            assert_true(isnan(float_of_bits(kept)));
        }
    assert_int_equal(bf16_dithered(0x7F800000, 0xFFFF), 0x7F800000);
    assert_int_equal(bf16_dithered(0xFF800000, 0xFFFF), 0xFF800000);
    assert_int_equal(bf16_dithered(0x7F7FFFFF, 0xFFFF), 0x7F800000);
    assert_int_equal(bf16_dithered(0x80000000, 0xFFFF), 0x80000000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_average), cmocka_unit_test(test_words),
                                       cmocka_unit_test(test_no_numbers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

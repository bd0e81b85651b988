/* rng: the known answers of Random123, and that numbers do not depend on who asks for them when. */
#include "common/rng.h"
#include "tests/lib/cmocka.h"

#include <math.h>
#include <stdbool.h>

static void test_known_answers(void **state)
{
    /* philox4x32-10 in kat_vectors of the Random123 distribution */
    static const struct {
        uint32_t counter[4], key[2], wanted[4];
    } cases[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const uint32_t *c = cases[i].counter;
        const uint32_t *k = cases[i].key;
        uint32_t words[4];
        rng_block(k[0] | (uint64_t)k[1] << 32, c[2] | (uint64_t)c[3] << 32,
                  c[0] | (uint64_t)c[1] << 32, words);
        assert_memory_equal(words, cases[i].wanted, sizeof words);
    }
}

static void test_same_numbers_in_any_order(void **state)
{
    enum { COUNT = 1000 };
    static float forward[COUNT];
    for (uint64_t i = 0; i < COUNT; i++)
        forward[i] = rng_normal(7, RNG_STREAM_TEST, i);
    for (uint64_t i = COUNT; i-- > 0;)
        assert_true(rng_normal(7, RNG_STREAM_TEST, i) == forward[i]);
    int equal = 0;
    for (uint64_t i = 0; i < COUNT; i++)
        equal += rng_normal(7, RNG_STREAM_TEST + 1, i) == forward[i] ||
                 rng_normal(8, RNG_STREAM_TEST, i) == forward[i];
    assert_true(equal < 3); /* another stream or seed gives other numbers */
}

static void test_distributions(void **state)
{
    enum { COUNT = 200000 };
    double uniform_sum = 0;
    double normal_sum = 0;
    double normal_squares = 0;
    for (uint64_t i = 0; i < COUNT; i++) {
        double u = rng_uniform(1, RNG_STREAM_TEST, i);
        assert_true(u >= 0 && u < 1);
        uniform_sum += u;
        double n = (double)rng_normal(2, RNG_STREAM_TEST, i);
        assert_true(isfinite(n));
        normal_sum += n;
        normal_squares += n * n;
    }
    /* five standard errors */
    assert_true(fabs(uniform_sum / COUNT - 0.5) < 5 * 0.2887 / sqrt(COUNT));
    assert_true(fabs(normal_sum / COUNT) < 5 / sqrt(COUNT));
    assert_true(fabs(normal_squares / COUNT - 1) < 5 * sqrt(2.0) / sqrt(COUNT));
}

static void test_below(void **state)
{
    enum { BOUND = 7, COUNT = 70000 };
    int seen[BOUND] = {0};
    for (uint64_t i = 0; i < COUNT; i++) {
        uint64_t value = rng_below(3, RNG_STREAM_TEST, i, BOUND);
        assert_true(value < BOUND);
        seen[value]++;
    }
    for (int value = 0; value < BOUND; value++)
        assert_in_range(seen[value], 10000 - 500, 10000 + 500);
    for (uint64_t i = 0; i < 100; i++) {
        assert_int_equal(rng_below(3, RNG_STREAM_TEST, i, 1), 0);
        assert_true(rng_below(3, RNG_STREAM_TEST, i, UINT64_MAX) < UINT64_MAX);
    }
}

static void test_permutation(void **state)
{
    static uint64_t order[1000];
    static uint64_t again[1000];
    static const uint64_t counts[] = {0, 1, 2, 3, 10, 1000};
    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
        bool seen[1000] = {false};
        rng_permutation(5, RNG_STREAM_SHUFFLE, counts[c], order);
        rng_permutation(5, RNG_STREAM_SHUFFLE, counts[c], again);
        for (uint64_t i = 0; i < counts[c]; i++) {
            assert_true(order[i] < counts[c] && !seen[order[i]]);
            seen[order[i]] = true;
            assert_true(order[i] == again[i]);
        }
    }
    rng_permutation(5, RNG_STREAM_SHUFFLE + 1, 1000, again);
    assert_memory_not_equal(order, again, sizeof order);
}

/* Each of the six orders of three comes up a sixth of the time. */
static void test_permutation_is_fair(void **state)
{
    enum { COUNT = 60000 };
    int seen[27] = {0};
    for (uint64_t epoch = 0; epoch < COUNT; epoch++) {
        uint64_t order[3];
        rng_permutation(11, RNG_STREAM_SHUFFLE + epoch, 3, order);
        seen[order[0] * 9 + order[1] * 3 + order[2]]++;
    }
    int orders = 0;
    for (int i = 0; i < 27; i++) {
        if (seen[i] == 0)
            continue;
        orders++;
        assert_in_range(seen[i], 10000 - 500, 10000 + 500);
    }
    assert_int_equal(orders, 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_answers), cmocka_unit_test(test_same_numbers_in_any_order),
        cmocka_unit_test(test_distributions), cmocka_unit_test(test_below),
        cmocka_unit_test(test_permutation),   cmocka_unit_test(test_permutation_is_fair),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* dropout: the mask is the function of worker/ops.h and nothing else: the same in one piece, in
 * tiles, in heads, for any thread count; the share that is dropped, of elements and of pairs of
 * them; rates that are next to none and next to all; sums and places. */
#include "tests/lib/cmocka.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/rng.h"
#include "tests/lib/on_device.h"

enum { ROWS = 37, HEADS = 6, HEAD_DIM = 10, WIDTH = HEADS * HEAD_DIM };

static int64_t numbers[ROWS];

static void fill_numbers(void)
{
    for (int64_t row = 0; row < ROWS; row++)
        numbers[row] = (row * 1000003) << (row % 20); /* beyond 32 bits too */
}

static bool is_dropped(uint64_t key, int64_t number, int64_t feature, int64_t width, double rate)
{
    uint32_t words[4];
    rng_block(key, 0, (uint64_t)(number * ((width + 7) / 8) + feature / 8), words);
    return (words[feature % 8 / 2] >> (feature % 2 * 16) & 0xffff) < (uint32_t)(rate * 0x1p16);
}

static struct ops_heads flat(float *data)
{
    return (struct ops_heads){data, 0, WIDTH};
}

static void test_definition(void **state)
{
    float *x = testing_normal(ROWS * WIDTH), *y = testing_poison(ROWS * WIDTH);
    float *sum = testing_normal(ROWS * WIDTH), *before = testing_copy(sum, ROWS * WIDTH);
    fill_numbers();
    RUN(3, dropout, .heads = 1, .rows = ROWS, .head_dim = WIDTH, .in = flat(x), .out = flat(y),
        .numbers = numbers, .width = WIDTH, .key = 99, .rate = 0.25f);
    RUN(2, dropout, .heads = 1, .rows = ROWS, .head_dim = WIDTH, .in = flat(x), .out = flat(sum),
        .accumulate = true, .numbers = numbers, .width = WIDTH, .key = 99, .rate = 0.25f);
    for (int64_t i = 0; i < ROWS * WIDTH; i++) {
        bool dropped = is_dropped(99, numbers[i / WIDTH], i % WIDTH, WIDTH, 0.25);
        float want = dropped ? 0 : x[i] * (1.0f / 0.75f);
        assert_true(y[i] == want && sum[i] == before[i] + want);
    }
    RUN(1, dropout, .heads = 1, .rows = ROWS, .head_dim = WIDTH, .in = flat(x), .out = flat(x),
        .numbers = numbers, .width = WIDTH, .key = 99, .rate = 0.25f); /* in place */
    testing_same_bits("in place", x, y, ROWS * WIDTH * (int64_t)sizeof(float));
}

/* Heads first to heads last, some of them, in tiles of rows: the flat op's elements. */
static void test_heads_and_tiles(void **state)
{
    float *x = testing_normal(ROWS * WIDTH), *y = testing_poison(ROWS * WIDTH);
    float *packed = testing_poison(3 * ROWS * HEAD_DIM), *out = testing_poison(ROWS * WIDTH);
    fill_numbers();
    RUN(1, dropout, .heads = 1, .rows = ROWS, .head_dim = WIDTH, .in = flat(x), .out = flat(y),
        .numbers = numbers, .width = WIDTH, .key = 7, .rate = 0.5f);
    for (int64_t h = 0; h < 3; h++) /* heads 1, 3 and 5 */
        for (int64_t row = 0; row < ROWS; row++)
            memcpy(packed + (h * ROWS + row) * HEAD_DIM, x + row * WIDTH + (2 * h + 1) * HEAD_DIM,
                   HEAD_DIM * sizeof *x);
    for (int64_t row = 0; row < ROWS; row += 11) {
        int64_t rows = ROWS - row < 11 ? ROWS - row : 11;
        RUN(2, dropout, .heads = 3, .rows = rows, .head_dim = HEAD_DIM,
            .in = {packed + row * HEAD_DIM, ROWS * HEAD_DIM, HEAD_DIM},
            .out = {out + row * WIDTH + HEAD_DIM, 2 * HEAD_DIM, WIDTH}, .numbers = numbers + row,
            .feature = HEAD_DIM, .feature_stride = 2 * HEAD_DIM, .width = WIDTH, .key = 7,
            .rate = 0.5f);
    }
    for (int64_t i = 0; i < ROWS * WIDTH; i++) {
        if (i % WIDTH / HEAD_DIM % 2 == 1)
            assert_true(out[i] == y[i]);
        else
            testing_untouched("other heads", out + i, 1);
    }
}

enum { MANY = 400, WIDE = 512 };

static void check_near(const char *what, double found, double wanted)
{
    double deviation = sqrt(wanted * (1 - wanted) / ((double)MANY * WIDE));
    if (fabs(found - wanted) > 6 * deviation)
        fail_msg("%s: %g of %g; ITHACA_TEST_SEED=%" PRIu64, what, found, wanted, testing_seed());
}

/* Elements dropped, and pairs of them: of one word, of two, of two blocks, of two rows. */
static void check_share(const float *y, double rate)
{
    static const int64_t apart[] = {1, 2, 8, WIDE};
    double dropped = 0, sum = 0, n = (double)MANY * WIDE, pairs[4] = {0};
    for (int64_t j = 0; j < MANY * WIDE; j++) {
        sum += (double)y[j];
        dropped += y[j] == 0;
        for (int i = 0; i < 4; i++)
            pairs[i] += y[j] == 0 && y[(j + apart[i]) % (MANY * WIDE)] == 0;
    }
    check_near("dropped", dropped / n, rate);
    for (int i = 0; i < 4; i++) /* twice the spread: neighbouring pairs share an element */
        check_near("pairs", rate * rate + (pairs[i] / n - rate * rate) / 2, rate * rate);
    assert_true(fabs(sum / n - 1) < 6 * sqrt(rate / (1 - rate) / n)); /* the mean stays */
}

static void test_share(void **state)
{
    static int64_t many[MANY];
    float *ones = testing_poison(MANY * WIDE), *y = testing_poison(MANY * WIDE);
    for (int64_t i = 0; i < MANY * WIDE; i++)
        ones[i] = 1;
    for (int64_t row = 0; row < MANY; row++)
        many[row] = row;
    static const float rates[] = {1e-9f, 0.01f, 0.1f, 0.3f, 0.5f, 0.7f, 0.9f, 0.9999999f};
    for (int i = 0; i < 8; i++) {
        RUN(2, dropout, .heads = 1, .rows = MANY, .head_dim = WIDE, .in = {ones, 0, WIDE},
            .out = {y, 0, WIDE}, .numbers = many, .width = WIDE,
            .key = testing_seed() + (uint64_t)i, .rate = rates[i]);
        if (i == 0 || i == 7) { /* one in 65536 is dropped, or kept */
            for (int64_t j = 0; j < MANY * WIDE; j++)
                assert_true(y[j] == 0 || y[j] == (i == 0 ? 65536.0f / 65535 : 65536));
            continue;
        }
        check_share(y, (double)rates[i]);
    }
    assert_int_equal(ops_dropout_below(1e-9f), 1);
    assert_int_equal(ops_dropout_below(0.1f), 6554);
    assert_int_equal(ops_dropout_below(0.25f), 16384);
    assert_int_equal(ops_dropout_below(0.9999999f), 65535);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_definition, testing_free),
        cmocka_unit_test_teardown(test_heads_and_tiles, testing_free),
        cmocka_unit_test_teardown(test_share, testing_free),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* embed, embed_bwd: copies exact; rows added in the order of tokens, to the bit, on any thread
 * count. */
#include "tests/lib/cmocka.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/rng.h"
#include "tests/lib/on_device.h"

static void test_rows(void **state)
{
    static const int64_t widths[] = {1, 7, 63, 64, 65, 300};
    for (size_t i = 0; i < sizeof widths / sizeof widths[0]; i++) {
        int64_t width = widths[i], tokens = 37, vocab = 11;
        float *table = testing_normal(vocab * width), *out = testing_poison(tokens * width + 1);
        int32_t *ids = testing_below(tokens, vocab);
        RUN(1 + (int)i % 3, embed, .tokens = tokens, .vocab = vocab, .width = width, .ids = ids,
            .table = table, .out = out);
        for (int64_t t = 0; t < tokens; t++)
            testing_same_bits("row", out + t * width, table + ids[t] * width,
                              width * (int64_t)sizeof(float));
        testing_untouched("behind", out + tokens * width, 1);
    }
}

static void test_bwd(void **state)
{
    static const int64_t widths[] = {1, 7, 255, 256, 257, 600};
    for (size_t i = 0; i < sizeof widths / sizeof widths[0]; i++) {
        int64_t width = widths[i], tokens = 50, vocab = 7;
        float *dout = testing_normal(tokens * width), *before = testing_normal(vocab * width);
        float *want = testing_copy(before, vocab * width);
        int32_t *ids = testing_below(tokens, vocab);
        for (int64_t t = 0; t < tokens; t++)
            for (int64_t c = 0; c < width; c++)
                want[ids[t] * width + c] += dout[t * width + c];
        for (int threads = 1; threads <= 3; threads++) {
            float *got = testing_copy(before, vocab * width);
            RUN(threads, embed_bwd, .tokens = tokens, .vocab = vocab, .width = width, .ids = ids,
                .dout = dout, .dtable = got);
            testing_same_bits("dtable", got, want, vocab * width * (int64_t)sizeof(float));
        }
    }
}

static void test_empty(void **state)
{
    float *x = testing_poison(4);
    int32_t *ids = testing_below(4, 1);
    RUN(2, embed, .tokens = 0, .vocab = 1, .width = 4, .ids = ids, .table = x, .out = x);
    RUN(2, embed, .tokens = 4, .vocab = 1, .width = 0, .ids = ids, .table = x, .out = x);
    RUN(2, embed_bwd, .tokens = 0, .vocab = 1, .width = 4, .ids = ids, .dout = x, .dtable = x);
    RUN(2, embed_bwd, .tokens = 4, .vocab = 1, .width = 0, .ids = ids, .dout = x, .dtable = x);
    testing_untouched("x", x, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_rows, testing_free),
        cmocka_unit_test_teardown(test_bwd, testing_free),
        cmocka_unit_test_teardown(test_empty, testing_free),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* cuda dropout: against the CPU backend, element by element what is dropped: rows in heads, heads
 * that begin within a block of random words, sums. */
#include "tests/lib/cmocka.h"

#include <inttypes.h>
#include <stdio.h>

#include "tests/lib/on_cuda.h"

static const double bf16_bound = 4e-3;

/* Rows of `heads` heads of d, side by side on the way in, one after the other on the way out. */
static void check_dropout(int64_t rows, int64_t heads, int64_t d, int64_t feature, bool accumulate)
{
    int64_t count = rows * heads * d;
    struct pair x = pair_normal(count, true), y = pair_normal(count, true);
    int64_t *numbers = (int64_t *)testing_zeros(rows);
    void *numbers_gpu = on_cuda_alloc(rows * 8);
    for (int64_t row = 0; row < rows; row++)
        numbers[row] = (row * 7919) << (row % 24);
    on_cuda_copy(numbers_gpu, numbers, rows * 8);
    struct ops_dropout cpu = {.heads = heads,
                              .rows = rows,
                              .head_dim = d,
                              .in = {x.cpu, d, heads * d},
                              .out = {y.cpu, rows * d, d},
                              .accumulate = accumulate,
                              .numbers = numbers,
                              .feature = feature,
                              .feature_stride = 3 * d,
                              .width = feature + 3 * heads * d,
                              .key = testing_seed(),
                              .rate = 0.3f};
    struct ops_dropout gpu = cpu;
    gpu.in.data = x.gpu, gpu.out.data = y.gpu, gpu.numbers = numbers_gpu;
    BOTH(dropout, &cpu, &gpu);
    pair_close("dropout", &y, bf16_bound);
    float *got = pair_download(&y);
    for (int64_t i = 0; i < count && !accumulate; i++)
        if ((got[i] == 0) != (y.cpu[i] == 0))
            fail_msg("element %lld is %g, on the CPU %g; ITHACA_TEST_SEED=%llu", (long long)i,
                     (double)got[i], (double)y.cpu[i], (unsigned long long)testing_seed());
}

static void test_dropout(void **state)
{
    for (int i = 0; i < 2; i++) {
        check_dropout(33, 1, 4096, 0, i == 1);
        check_dropout(257, 4, 128, 256, i == 1);
        check_dropout(5, 3, 10, 30, i == 1); /* blocks of random words across heads */
        check_dropout(9, 2, 64, 4, i == 1);  /* whole vectors, but not of one block */
        check_dropout(7, 3, 24, 8, i == 1);
        check_dropout(1, 1, 1, 3, i == 1);
        (void)on_cuda_free(NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_dropout, on_cuda_free),
    };
    if (!on_cuda_open())
        return ON_CUDA_SKIPPED;
    return cmocka_run_group_tests(tests, NULL, NULL);
}

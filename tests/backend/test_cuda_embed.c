/* cuda embed: rows of the table and the gradient's sums over equal ids, against the CPU backend:
 * few tokens and many, one id and many; the same bits when run again. */
#include "tests/lib/cmocka.h"

#include <stdio.h>

#include "tests/lib/on_cuda.h"

static void check_embed(int64_t tokens, int64_t width, int64_t vocab)
{
    struct pair ids = pair_below(tokens, vocab), table = pair_normal(vocab * width, true);
    struct pair out = pair_poison(tokens * width, true), dtable = pair_normal(vocab * width, false);
    struct pair again = pair_of(testing_copy(dtable.cpu, vocab * width), vocab * width, false);
    struct ops_embed cpu = {tokens, vocab, width, (const int32_t *)ids.cpu, table.cpu, out.cpu};
    struct ops_embed gpu = {tokens, vocab, width, ids.gpu, table.gpu, out.gpu};
    BOTH(embed, &cpu, &gpu);
    pair_close("embed", &out, 0);
    struct ops_embed_bwd cpu_bwd = {tokens, vocab, width, cpu.ids, out.cpu, dtable.cpu};
    struct ops_embed_bwd gpu_bwd = {tokens, vocab, width, ids.gpu, out.gpu, dtable.gpu};
    BOTH(embed_bwd, &cpu_bwd, &gpu_bwd);
    pair_close("embed_bwd", &dtable, 1e-5);
    gpu_bwd.dtable = again.gpu;
    CHECK(on_cuda_gpu->ops->embed_bwd(on_cuda_gpu, NULL, &gpu_bwd, err));
    testing_same_bits("embed_bwd again", pair_download(&again), pair_download(&dtable),
                      vocab * width * 4);
}

static void test_embed(void **state)
{
    static const int64_t tokens[] = {1, 37, 128, 129, 2049, 5000}, widths[] = {1, 7, 64, 72};
    for (int i = 0; i < 24; i++)
        for (int64_t vocab = 1; vocab < 10000; vocab *= 97) {
            check_embed(tokens[i % 6], widths[i / 6], vocab);
            (void)on_cuda_free(NULL);
        }
}

static void test_many_embeds(void **state)
{
    check_embed(70000, 40, 3);     /* several batches, runs of many pieces */
    check_embed(3000, 2056, 500);  /* several blocks of columns */
    check_embed(66000, 8, 300000); /* ids of three digits, two lists */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_embed, on_cuda_free),
        cmocka_unit_test_teardown(test_many_embeds, on_cuda_free),
    };
    if (!on_cuda_open())
        return ON_CUDA_SKIPPED;
    cmocka_set_test_filter(getenv("ITHACA_TEST_FILTER")); /* one test, for compute-sanitizer */
    return cmocka_run_group_tests(tests, NULL, NULL);
}

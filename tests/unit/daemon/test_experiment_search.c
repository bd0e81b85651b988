/* experiment_search: a machine on which all up to some length runs is found out, in few runs. */
#include "daemon/experiment_search.h"
#include "tests/lib/cmocka.h"

#include <stdbool.h>

/* Runs the search on a machine; how many runs it took, the answer in *ret. */
static int search(int64_t longest, int64_t min, int64_t step, int64_t runs_up_to, int64_t *ret)
{
    struct experiment_probe probes[64];
    size_t count = 0;
    *ret = 0;
    for (int64_t next = longest; next > 0;
         next = experiment_search_next(probes, count, min, step)) {
        assert_true(count < 64 && next >= min && next <= longest);
        for (size_t i = 0; i < count; i++)
            assert_int_not_equal(probes[i].seq_len, next); /* nothing is run twice */
        bool runs = next <= runs_up_to;
        probes[count++] = (struct experiment_probe){
            .seq_len = next, .outcome = runs ? EXPERIMENT_RUNS : EXPERIMENT_TOO_LONG};
        if (runs && next > *ret)
            *ret = next;
    }
    return (int)count;
}

static void test_every_machine(void **state)
{
    for (int64_t step = 1; step <= 64; step *= 4)
        for (int64_t runs_up_to = 0; runs_up_to <= 1100; runs_up_to += 7) {
            int64_t found = 0;
            int runs = search(1000, 16, step, runs_up_to, &found);
            if (runs_up_to < 16)
                assert_int_equal(found, 0);
            else
                assert_true(found <= runs_up_to &&
                            found + step >= (runs_up_to < 1000 ? runs_up_to : 1000));
            assert_true(runs <= 12);
            if (runs_up_to >= 1000)
                assert_int_equal(runs, 1); /* the plan was right */
        }
}

static void test_edges(void **state)
{
    int64_t found = 0;
    assert_int_equal(search(16, 16, 1, 0, &found), 1); /* there is nothing shorter */
    assert_int_equal(search(17, 16, 1, 16, &found), 2);
    assert_int_equal(found, 16);
    assert_true(search(16777216, 1024, 65536, 5000000, &found) < 12);
    assert_int_equal(found % 65536, 0); /* a round number */
    const struct experiment_probe broken[] = {
        {.seq_len = 64, .outcome = EXPERIMENT_TOO_LONG},
        {.seq_len = 32, .outcome = EXPERIMENT_BREAKS},
    };
    assert_int_equal(experiment_search_next(broken, 2, 1, 1), 0);
    assert_true(experiment_search_next(broken, 1, 1, 1) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_machine),
        cmocka_unit_test(test_edges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

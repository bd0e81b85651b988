/* median: of one, an odd and an even number of values; they are sorted after it. */
#include "common/median.h"
#include "tests/lib/cmocka.h"

static void test_median(void **state)
{
    double one[] = {7}, odd[] = {3, -1, 2}, even[] = {4, 1, 3, 2};
    assert_true(median_sort(one, 1) == 7);
    assert_true(median_sort(odd, 3) == 2);
    assert_true(odd[0] == -1 && odd[2] == 3);
    assert_true(median_sort(even, 4) == 3); /* the upper one of the middle */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_median)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

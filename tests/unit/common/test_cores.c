/* cores: as many as the process was left. */
#include "common/cores.h"
#include "tests/lib/cmocka.h"

#include <sched.h>

static void test_one_is_left(void **state)
{
    cpu_set_t all, one;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    assert_int_equal(cores_allowed(), CPU_COUNT(&all));
    size_t core = 0;
    while (!CPU_ISSET(core, &all))
        core++;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(cores_allowed(), 1);
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_one_is_left)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* metric: names lead back to their numbers. */
#include "common/metric.h"
#include "tests/lib/cmocka.h"

static void test_names(void **state)
{
    for (int id = 0; id < METRIC_COUNT; id++)
        assert_int_equal(metric_parse(metric_name((enum metric_id)id)), id);
    assert_int_equal(metric_parse("no such"), METRIC_COUNT);
    assert_string_equal(metric_name(METRIC_LOSS), "loss");
    assert_string_equal(metric_unit(METRIC_LOSS), "nats/token");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

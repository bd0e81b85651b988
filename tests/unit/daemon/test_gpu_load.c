/* gpu_load: means and the highest over looks, what is not told, a step's points once. */
#include "daemon/gpu_load.h"
#include "tests/lib/cmocka.h"

static struct gpu_sample look(int64_t busy, int64_t power_mw, int64_t celsius)
{
    return (struct gpu_sample){
        .busy_percent = busy, .power_mw = power_mw, .temperature_c = celsius};
}

static void add(struct gpu_load *load, int64_t busy, int64_t power_mw, int64_t celsius)
{
    struct gpu_sample seen = look(busy, power_mw, celsius);
    gpu_load_add(load, &seen);
}

static double value_of(const struct wire_metrics *metrics, enum metric_id metric)
{
    for (uint32_t i = 0; i < metrics->count; i++)
        if (metrics->points[i].metric == metric)
            return metrics->points[i].value;
    return -1;
}

static void test_means_and_the_highest(void **state)
{
    struct gpu_load load = {0};
    add(&load, 100, 600000, 61);
    add(&load, 50, 300000, 70);
    add(&load, 0, 150000, 55);
    struct wire_metrics step = {.step = 1, .count = 5};
    gpu_load_take(&load, &step);
    assert_int_equal(step.count, 8);
    assert_true(value_of(&step, METRIC_GPU_UTILIZATION) == 0.5);
    assert_true(value_of(&step, METRIC_GPU_POWER_W) == 350);
    assert_true(value_of(&step, METRIC_GPU_TEMPERATURE_C) == 70);

    add(&load, 20, 90000, 30); /* what came before is taken */
    struct wire_metrics next = {.step = 2};
    gpu_load_take(&load, &next);
    assert_true(value_of(&next, METRIC_GPU_UTILIZATION) == 0.2);
    assert_true(value_of(&next, METRIC_GPU_TEMPERATURE_C) == 30);
}

static void test_what_is_not_told_is_left_out(void **state)
{
    struct gpu_load load = {0};
    struct wire_metrics none = {.step = 1};
    gpu_load_take(&load, &none);
    assert_int_equal(none.count, 0);
    add(&load, -1, -1, 44);
    add(&load, 10, -1, -1);
    struct wire_metrics some = {.step = 2};
    gpu_load_take(&load, &some);
    assert_int_equal(some.count, 2);
    assert_true(value_of(&some, METRIC_GPU_UTILIZATION) == 0.1);
    assert_true(value_of(&some, METRIC_GPU_TEMPERATURE_C) == 44);
}

static void test_a_step_takes_once_and_a_full_frame_nothing(void **state)
{
    struct gpu_load load = {0};
    add(&load, 10, 1000, 40);
    struct wire_metrics full = {.step = 1, .count = WIRE_METRICS_MAX - 2};
    gpu_load_take(&load, &full);
    assert_int_equal(full.count, WIRE_METRICS_MAX - 2);
    struct wire_metrics step = {.step = 1};
    gpu_load_take(&load, &step);
    assert_int_equal(step.count, 3);
    add(&load, 90, 9000, 90);
    struct wire_metrics evaluation = {.step = 1}; /* of the same step */
    gpu_load_take(&load, &evaluation);
    assert_int_equal(evaluation.count, 0);
    struct wire_metrics next = {.step = 2};
    gpu_load_take(&load, &next);
    assert_true(value_of(&next, METRIC_GPU_UTILIZATION) == 0.9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_means_and_the_highest),
        cmocka_unit_test(test_what_is_not_told_is_left_out),
        cmocka_unit_test(test_a_step_takes_once_and_a_full_frame_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

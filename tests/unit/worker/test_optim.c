/* optim: the learning rate's shapes at their edges (field case R59): finite and above zero in every
 * step that updates. The update itself is held against fp64 by tests/golden. */
#include "worker/optim.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static double rate(enum job_schedule schedule, int64_t warmup, int64_t step, int64_t total)
{
    struct job_spec spec = {.learning_rate = 2.0, .schedule = schedule, .warmup_steps = warmup};
    return optim_rate(&spec, step, total);
}

static void expect(double got, double want)
{
    if (!(fabs(got - want) < 1e-12))
        fail_msg("%.17g is not %.17g", got, want);
}

static void test_cosine(void **state)
{
    (void)state;
    expect(rate(JOB_schedule_COSINE, 0, 1, 4), 2.0);
    expect(rate(JOB_schedule_COSINE, 0, 3, 4), 1.0);
    expect(rate(JOB_schedule_COSINE, 0, 4, 4), 1.0 + cos(3 * acos(-1.0) / 4));
    expect(rate(JOB_schedule_COSINE, 2, 1, 6), 1.0); /* warmup: half, whole, then the cosine */
    expect(rate(JOB_schedule_COSINE, 2, 2, 6), 2.0);
    expect(rate(JOB_schedule_COSINE, 2, 3, 6), 2.0);
    expect(rate(JOB_schedule_COSINE, 2, 5, 6), 1.0);
}

static void test_constant(void **state)
{
    (void)state;
    expect(rate(JOB_schedule_CONSTANT, 4, 1, 9), 0.5);
    expect(rate(JOB_schedule_CONSTANT, 4, 4, 9), 2.0);
    expect(rate(JOB_schedule_CONSTANT, 4, 9, 9), 2.0);
}

static void test_always_above_zero(void **state)
{
    (void)state;
    static const int64_t warmups[] = {0, 1, 2, 3, 9, 10, 11, 1000};
    for (size_t w = 0; w < sizeof warmups / sizeof warmups[0]; w++)
        for (int64_t total = 1; total <= 12; total++)
            for (int64_t step = 1; step <= total; step++) {
                double got = rate(JOB_schedule_COSINE, warmups[w], step, total);
                assert_true(isfinite(got) && got > 0 && got <= 2.0);
                got = rate(JOB_schedule_CONSTANT, warmups[w], step, total);
                assert_true(isfinite(got) && got > 0 && got <= 2.0);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cosine),
        cmocka_unit_test(test_constant),
        cmocka_unit_test(test_always_above_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

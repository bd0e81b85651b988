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

static void test_linear(void **state)
{
    (void)state;
    expect(rate(JOB_schedule_LINEAR, 0, 1, 4), 2.0);
    expect(rate(JOB_schedule_LINEAR, 0, 3, 4), 1.0);
    expect(rate(JOB_schedule_LINEAR, 0, 4, 4), 0.5);
    expect(rate(JOB_schedule_LINEAR, 2, 1, 6), 1.0);
    expect(rate(JOB_schedule_LINEAR, 2, 3, 6), 2.0);
    expect(rate(JOB_schedule_LINEAR, 2, 6, 6), 0.5);
}

static double wsd(int64_t decay, int64_t step, int64_t total)
{
    struct job_spec spec = {.learning_rate = 2.0,
                            .schedule = JOB_schedule_WSD,
                            .warmup_steps = 2,
                            .decay_steps = decay};
    return optim_rate(&spec, step, total);
}

static void test_warmup_stable_decay(void **state)
{
    (void)state;
    expect(wsd(3, 1, 12), 1.0);
    expect(wsd(3, 2, 12), 2.0);
    expect(wsd(3, 9, 12), 2.0);
    expect(wsd(3, 10, 12), 1.5); /* three steps below the peak, zero after them */
    expect(wsd(3, 12, 12), 0.5);
    expect(wsd(0, 18, 20), 2.0); /* null: a tenth */
    expect(wsd(0, 19, 20), 2.0 * 2 / 3);
    expect(wsd(0, 20, 20), 2.0 / 3);
    expect(wsd(100, 3, 4), 2.0 * 2 / 3); /* cut to what the warmup leaves */
    expect(wsd(100, 4, 4), 2.0 / 3);
    expect(wsd(3, 2, 2), 2.0); /* nothing is left */
}

/* Warmup of any length, one step, any decay. */
static void test_always_above_zero(void **state)
{
    (void)state;
    static const int64_t lengths[] = {0, 1, 2, 3, 9, 10, 11, 1000, 1000000};
    enum { LENGTHS = sizeof lengths / sizeof lengths[0] };
    for (int64_t i = 0; i < LENGTHS * LENGTHS * JOB_schedule_COUNT; i++) {
        struct job_spec spec = {.learning_rate = 2.0,
                                .warmup_steps = lengths[i % LENGTHS],
                                .decay_steps = lengths[i / LENGTHS % LENGTHS],
                                .schedule = (enum job_schedule)(i / LENGTHS / LENGTHS)};
        for (int64_t total = 1; total <= 12; total++)
            for (int64_t step = 1; step <= total; step++) {
                double got = optim_rate(&spec, step, total);
                assert_true(isfinite(got) && got > 0 && got <= 2.0);
            }
        double last = optim_rate(&spec, 100000000, 100000000); /* the longest run there is */
        assert_true(isfinite(last) && last > 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cosine),
        cmocka_unit_test(test_constant),
        cmocka_unit_test(test_linear),
        cmocka_unit_test(test_warmup_stable_decay),
        cmocka_unit_test(test_always_above_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

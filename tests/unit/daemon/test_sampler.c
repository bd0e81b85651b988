/* sampler: that no peak and no NaN is lost however few points are kept, that ends are kept, that a
 * short series is kept whole, that the newest attempt of a step counts. */
#include "daemon/sampler.h"
#include "tests/lib/cmocka.h"

#include <math.h>

enum { KEPT_MAX = 400 };

struct kept {
    struct sampler_point points[KEPT_MAX];
    int count;
    int fail_at; /* the call that fails; 0: none */
};

static int keep(void *context, const struct sampler_point *point)
{
    struct kept *kept = context;
    if (kept->count + 1 == kept->fail_at)
        return 7;
    assert_true(kept->count < KEPT_MAX);
    assert_true(kept->count == 0 || point->step > kept->points[kept->count - 1].step);
    kept->points[kept->count++] = *point;
    return 0;
}

static bool has(const struct kept *kept, int64_t step)
{
    for (int i = 0; i < kept->count; i++)
        if (kept->points[i].step == step)
            return true;
    return false;
}

static void add(struct sampler *sampler, int64_t step, int64_t attempt, double value)
{
    assert_int_equal(
        sampler_add(sampler,
                    &(struct sampler_point){.step = step, .attempt = attempt, .value = value}),
        0);
}

static void test_peaks_and_nans_stay(void **state)
{
    for (int64_t points_max = SAMPLER_POINTS_MIN; points_max <= 300; points_max += 29) {
        struct sampler sampler;
        struct kept kept = {.count = 0};
        sampler_begin(&sampler, 1, 100000, points_max, keep, &kept);
        for (int64_t step = 1; step <= 100000; step++)
            add(&sampler, step, 1,
                step == 31234   ? 1e9
                : step == 50001 ? -1e9
                : step == 70707 ? (double)NAN
                : step == 90909 ? (double)INFINITY
                                : 1.0 / (double)step);
        assert_int_equal(sampler_end(&sampler), 0);
        assert_true(kept.count <= points_max);
        assert_true(has(&kept, 1) && has(&kept, 100000));
        assert_true(has(&kept, 31234) && has(&kept, 50001));
        assert_true(has(&kept, 70707));
        assert_true(points_max < 40 || has(&kept, 90909)); /* else both are of one bucket */
    }
}

static void test_short_series_are_whole(void **state)
{
    struct sampler sampler;
    struct kept kept = {.count = 0};
    sampler_begin(&sampler, 1, 20, 20, keep, &kept);
    for (int64_t step = 1; step <= 20; step++)
        add(&sampler, step, 1, step % 3 == 0 ? (double)NAN : 2.0);
    assert_int_equal(sampler_end(&sampler), 0);
    assert_int_equal(kept.count, 20);
    kept.count = 0;
    sampler_begin(&sampler, 5, 5, 10, keep, &kept);
    add(&sampler, 5, 1, 1);
    assert_int_equal(sampler_end(&sampler), 0);
    assert_int_equal(kept.count, 1);
    kept.count = 0;
    sampler_begin(&sampler, 5, 0, 10, keep, &kept);
    assert_int_equal(sampler_end(&sampler), 0);
    assert_int_equal(kept.count, 0);
}

static void test_newest_attempt_counts(void **state)
{
    struct sampler sampler;
    struct kept kept = {.count = 0};
    sampler_begin(&sampler, 0, 3, 10, keep, &kept);
    add(&sampler, 1, 1, 1);
    add(&sampler, 2, 1, 99); /* steps 2 and 3 were done again */
    add(&sampler, 2, 2, 2);
    add(&sampler, 3, 1, (double)NAN);
    add(&sampler, 3, 2, 3);
    assert_int_equal(sampler_end(&sampler), 0);
    assert_int_equal(kept.count, 3);
    for (int i = 0; i < 3; i++)
        assert_true(kept.points[i].value == i + 1 && kept.points[i].attempt == (i > 0 ? 2 : 1));
}

static void test_failure_is_returned(void **state)
{
    for (int n = 1; n <= 3; n++) {
        struct sampler sampler;
        struct kept kept = {.fail_at = n};
        int rc = 0;
        sampler_begin(&sampler, 1, 3, 10, keep, &kept);
        for (int64_t step = 1; rc == 0 && step <= 3; step++)
            rc = sampler_add(&sampler, &(struct sampler_point){.step = step, .value = 1});
        assert_int_equal(rc != 0 ? rc : sampler_end(&sampler), 7);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_peaks_and_nans_stay),
        cmocka_unit_test(test_short_series_are_whole),
        cmocka_unit_test(test_newest_attempt_counts),
        cmocka_unit_test(test_failure_is_returned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

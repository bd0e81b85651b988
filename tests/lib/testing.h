/* testing: what tests of numbers share: seeded inputs, poisoned outputs, one error measure.
 *
 * Every run draws a fresh seed and prints it; ITHACA_TEST_SEED=<n> repeats a run. Arrays live until
 * testing_free(), a cmocka teardown:
 *
 *     float *x = testing_normal(rows * width), *y = testing_poison(rows * width);
 *     ...
 *     testing_close("y", y, want, NULL, rows * width, 1e-6);
 *
 * Poison is NaN: an element that an operation fails to write, or one that it reads though it should
 * not, shows in the error. */
#pragma once
#include <stdint.h>

uint64_t testing_seed(void); /* of this run */

float *testing_normal(int64_t count);                 /* mean 0, variance 1, fresh */
float *testing_poison(int64_t count);                 /* NaN */
double *testing_zeros(int64_t count);                 /* fp64 zeros, for references */
int32_t *testing_below(int64_t count, int64_t bound); /* uniform in [0, bound) */
float *testing_copy(const float *source, int64_t count);
int testing_free(void **state); /* frees all of the above */

/* ||got - want|| / ||size||, size being `want`, or `terms` where it is given: for sums that may
 * cancel, the sum of the magnitudes of what is added. 0 / 0 is 0; NaN when there is a NaN. */
double testing_error(const float *got, const double *want, const double *terms, int64_t count);
/* Fails the test, naming `what`, error, bound and seed, unless the error is at most `bound`.
 *
 * It is a relative root mean square, of as many elements as have sizes near the largest: of one,
 * where that is far above the rest. So `bound` is to hold for one element too: three times or more
 * what roundings come to in the mean, sqrt(k) * 2.5e-8 for k of them (each is 6e-8 at worst). What
 * breaks that is no matter of luck with few elements, but of sizes: results that cancel need
 * `terms`, and what an operation rounds to zero needs a floor in them. */
void testing_close(const char *what, const float *got, const double *want, const double *terms,
                   int64_t count, double bound);
/* Fails unless all of x is still poison. */
void testing_untouched(const char *what, const float *x, int64_t count);
/* Fails unless the bytes are equal. */
void testing_same_bits(const char *what, const void *a, const void *b, int64_t bytes);

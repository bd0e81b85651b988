/* testing: arrays are kept in a list and freed together. Streams of rng.h number the arrays of a
 * run, so that no two inputs are alike. */
#include "tests/lib/testing.h"

#include "common/mem.h"
#include "common/must.h"
#include "common/rng.h"
#include "tests/lib/cmocka.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum { ARRAYS_MAX = 16384 }; /* alive at once in one test */

static void *testing_arrays[ARRAYS_MAX];
static int testing_count;
static uint64_t testing_stream = RNG_STREAM_TEST;

uint64_t testing_seed(void)
{
    static uint64_t seed;
    if (seed == 0) {
        const char *text = getenv("ITHACA_TEST_SEED");
        if (text != NULL)
            seed = strtoull(text, NULL, 0);
        else
            must(getrandom(&seed, sizeof seed, 0) == sizeof seed);
        seed |= 1; /* not 0 */
        printf("seed: ITHACA_TEST_SEED=%" PRIu64 "\n", seed);
        (void)fflush(stdout);
    }
    return seed;
}

static void *testing_new(int64_t count, size_t size)
{
    must(testing_count < ARRAYS_MAX);
    void *array = mem_new((size_t)count, size);
    must(array != NULL);
    testing_arrays[testing_count++] = array;
    return array;
}

int testing_free(void **state)
{
    while (testing_count > 0)
        mem_free(testing_arrays[--testing_count]);
    return 0;
}

float *testing_normal(int64_t count)
{
    float *array = testing_new(count, sizeof *array);
    testing_stream++;
    for (int64_t i = 0; i < count; i++)
        array[i] = rng_normal(testing_seed(), testing_stream, (uint64_t)i);
    return array;
}

float *testing_poison(int64_t count)
{
    float *array = testing_new(count, sizeof *array);
    for (int64_t i = 0; i < count; i++)
        array[i] = NAN;
    return array;
}

double *testing_zeros(int64_t count)
{
    return testing_new(count, sizeof(double));
}

int32_t *testing_below(int64_t count, int64_t bound)
{
    int32_t *array = testing_new(count, sizeof *array);
    testing_stream++;
    for (int64_t i = 0; i < count; i++)
        array[i] = (int32_t)rng_below(testing_seed(), testing_stream, (uint64_t)i, (uint64_t)bound);
    return array;
}

float *testing_copy(const float *source, int64_t count)
{
    float *array = testing_new(count, sizeof *array);
    if (count > 0)
        memcpy(array, source, (size_t)count * sizeof *array);
    return array;
}

double testing_error(const float *got, const double *want, const double *terms, int64_t count)
{
    const double *sizes = terms != NULL ? terms : want;
    double difference = 0, size = 0;
    for (int64_t i = 0; i < count; i++) {
        double d = (double)got[i] - want[i];
        difference += d * d;
        size += sizes[i] * sizes[i];
    }
    return difference == 0 ? 0 : sqrt(difference / size);
}

void testing_close(const char *what, const float *got, const double *want, const double *terms,
                   int64_t count, double bound)
{
    double error = testing_error(got, want, terms, count);
    if (!(error <= bound))
        fail_msg("%s: error %.3g, bound %.3g; ITHACA_TEST_SEED=%" PRIu64, what, error, bound,
                 testing_seed());
}

void testing_untouched(const char *what, const float *x, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (!isnan(x[i]))
            fail_msg("%s: element %" PRId64 " was written; ITHACA_TEST_SEED=%" PRIu64, what, i,
                     testing_seed());
}

void testing_same_bits(const char *what, const void *a, const void *b, int64_t bytes)
{
    if (bytes > 0 && memcmp(a, b, (size_t)bytes) != 0)
        fail_msg("%s: bits differ; ITHACA_TEST_SEED=%" PRIu64, what, testing_seed());
}

/* rmsnorm, rmsnorm_bwd: against fp64, with residual and in place; dweight to the bit on any thread
 * count; the fp64 derivative against differences of the fp64 norm. */
#include "tests/lib/cmocka.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/rng.h"
#include "tests/lib/on_device.h"

static const float eps = 1e-5f;

static void reference(int64_t rows, int64_t width, const double *x, const double *weight, double *y,
                      double *rstd)
{
    for (int64_t r = 0; r < rows; r++) {
        double squares = 0;
        for (int64_t i = 0; i < width; i++)
            squares += x[r * width + i] * x[r * width + i];
        rstd[r] = 1 / sqrt(squares / (double)width + (double)eps);
        for (int64_t i = 0; i < width; i++)
            y[r * width + i] = x[r * width + i] * rstd[r] * weight[i];
    }
}

/* dx and dweight are added to, and the magnitudes of what is added to their terms. */
static void reference_bwd(int64_t rows, int64_t width, const double *x, const double *weight,
                          const double *dy, double *dx, double *dx_terms, double *dweight,
                          double *dweight_terms)
{
    for (int64_t r = 0; r < rows; r++) {
        const double *xr = x + r * width, *dyr = dy + r * width;
        double squares = 0, dot = 0, dot_terms = 0;
        for (int64_t i = 0; i < width; i++) {
            squares += xr[i] * xr[i];
            dot += xr[i] * weight[i] * dyr[i];
            dot_terms += fabs(xr[i] * weight[i] * dyr[i]);
        }
        double rstd = 1 / sqrt(squares / (double)width + (double)eps);
        for (int64_t i = 0; i < width; i++) {
            double direct = rstd * weight[i] * dyr[i],
                   pull = xr[i] * rstd * rstd * rstd / (double)width;
            dx[r * width + i] += direct - pull * dot;
            dx_terms[r * width + i] += fabs(direct) + fabs(pull) * dot_terms;
            dweight[i] += dyr[i] * xr[i] * rstd;
            dweight_terms[i] += fabs(dyr[i] * xr[i] * rstd);
        }
    }
}

static double *widened(const float *x, int64_t count)
{
    double *wide = testing_zeros(count);
    for (int64_t i = 0; i < count; i++)
        wide[i] = (double)x[i];
    return wide;
}

/* residual: 0 none, 1 sum apart, 2 sum over x, 3 sum over residual. */
static void check_forward(int64_t rows, int64_t width, int residual, int threads)
{
    int64_t count = rows * width;
    float *x = testing_normal(count), *weight = testing_normal(width);
    float *add = residual > 0 ? testing_normal(count) : NULL, *rstd = testing_poison(rows);
    double *input = widened(x, count);
    for (int64_t i = 0; i < count && add != NULL; i++)
        input[i] = (double)(x[i] + add[i]); /* the sum is stored in fp32 */
    double *y_want = testing_zeros(count), *rstd_want = testing_zeros(rows);
    reference(rows, width, input, widened(weight, width), y_want, rstd_want);
    float *sum = residual == 1 ? testing_poison(count) : residual == 2 ? x : add;
    float *y = residual == 0 && rows % 2 == 0 ? x : testing_poison(count);
    RUN(threads, rmsnorm, .rows = rows, .width = width, .eps = eps, .x = x, .residual = add,
        .sum = sum, .weight = weight, .y = y, .rstd = rows % 3 == 0 ? NULL : rstd);
    testing_close("y", y, y_want, NULL, count, 1e-6);
    if (rows % 3 == 0)
        testing_untouched("rstd", rstd, rows);
    else
        testing_close("rstd", rstd, rstd_want, NULL, rows, 1e-6);
    if (residual > 0)
        testing_close("sum", sum, input, NULL, count, 0);
}

/* Variants: accumulate, rstd given, dx in place of dy, dweight absent. */
static void check_backward(int64_t rows, int64_t width, int variant)
{
    bool accumulate = (variant & 1) != 0, given = (variant & 2) != 0;
    bool in_place = (variant & 4) != 0 && !accumulate, no_dweight = (variant & 8) != 0;
    int64_t count = rows * width;
    float *x = testing_normal(count), *weight = testing_normal(width), *dy = testing_normal(count);
    float *before = accumulate ? testing_normal(count) : testing_poison(count);
    float *dweight_before = testing_normal(width), *rstd = testing_poison(rows);
    double *dx_want = accumulate ? widened(before, count) : testing_zeros(count);
    double *dx_terms = testing_zeros(count), *dweight_terms = testing_zeros(width);
    double *dweight_want = widened(dweight_before, width), *rstd_want = testing_zeros(rows);
    reference(rows, width, widened(x, count), widened(weight, width), testing_zeros(count),
              rstd_want);
    for (int64_t r = 0; r < rows; r++)
        rstd[r] = (float)rstd_want[r];
    reference_bwd(rows, width, widened(x, count), widened(weight, width), widened(dy, count),
                  dx_want, dx_terms, dweight_want, dweight_terms);
    for (int64_t i = 0; i < count && accumulate; i++)
        dx_terms[i] += fabs((double)before[i]);
    for (int64_t i = 0; i < width; i++)
        dweight_terms[i] += fabs((double)dweight_before[i]);
    float *dweight_one = NULL, *dx_one = NULL;
    for (int threads = 1; threads <= 3; threads++) {
        float *dout = testing_copy(dy, count), *dweight = testing_copy(dweight_before, width);
        float *dx = in_place ? dout : testing_copy(before, count);
        RUN(threads, rmsnorm_bwd, .rows = rows, .width = width, .eps = eps, .x = x,
            .weight = weight, .rstd = given ? rstd : NULL, .dy = dout, .dx = dx,
            .accumulate = accumulate, .dweight = no_dweight ? NULL : dweight);
        testing_close("dx", dx, dx_want, dx_terms, count, 5e-7);
        if (!no_dweight)
            testing_close("dweight", dweight, dweight_want, dweight_terms, width, 5e-7);
        dx_one = threads == 1 ? dx : dx_one;
        dweight_one = threads == 1 ? dweight : dweight_one;
        testing_same_bits("dx", dx, dx_one, count * (int64_t)sizeof(float));
        testing_same_bits("dweight", dweight, dweight_one, width * (int64_t)sizeof(float));
    }
}

static void test_forward(void **state)
{
    static const int64_t rows[] = {0, 1, 2, 7, 63, 64, 65, 129}, widths[] = {1, 7, 32, 63, 65, 256};
    for (int i = 0; i < 48; i++)
        for (int residual = 0; residual < 4; residual++)
            check_forward(rows[i % 8], widths[i / 8], residual, 1 + (i + residual) % 3);
}

static void test_backward(void **state)
{
    static const int64_t rows[] = {0, 1, 7, 64, 65, 200}, widths[] = {1, 7, 65, 256};
    for (int i = 0; i < 24; i++)
        for (int variant = 0; variant < 16; variant++) {
            check_backward(rows[i % 6], widths[i / 6], variant);
            (void)testing_free(NULL);
        }
}

static void test_derivative(void **state)
{
    enum { ROWS = 2, WIDTH = 5, COUNT = ROWS * WIDTH };
    double *x = widened(testing_normal(COUNT), COUNT), *dy = widened(testing_normal(COUNT), COUNT);
    double *weight = widened(testing_normal(WIDTH), WIDTH), *dx = testing_zeros(COUNT);
    double *dweight = testing_zeros(WIDTH), *y = testing_zeros(COUNT), rstd[ROWS];
    reference_bwd(ROWS, WIDTH, x, weight, dy, dx, testing_zeros(COUNT), dweight,
                  testing_zeros(WIDTH));
    for (int i = 0; i < COUNT + WIDTH; i++) {
        double *input = i < COUNT ? x + i : weight + i - COUNT, kept = *input, loss[2] = {0, 0};
        for (int side = 0; side < 2; side++) {
            *input = kept + (side == 0 ? -1e-6 : 1e-6);
            reference(ROWS, WIDTH, x, weight, y, rstd);
            for (int j = 0; j < COUNT; j++)
                loss[side] += y[j] * dy[j];
        }
        *input = kept;
        double want = (loss[1] - loss[0]) / 2e-6, got = i < COUNT ? dx[i] : dweight[i - COUNT];
        if (!(fabs(got - want) < 1e-6 * (1 + fabs(want))))
            fail_msg("input %d: %g, difference %g; ITHACA_TEST_SEED=%" PRIu64, i, got, want,
                     testing_seed());
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_forward, testing_free),
        cmocka_unit_test_teardown(test_backward, testing_free),
        cmocka_unit_test_teardown(test_derivative, testing_free),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

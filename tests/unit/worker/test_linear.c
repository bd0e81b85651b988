/* linear: the three products against fp64, with and without bias and accumulation, for shapes with
 * edges: one row, one feature. */
#include "worker/linear.h"

#include "tests/lib/cmocka.h"
#include "tests/lib/testing.h"

static const int64_t shapes[][3] = {{1, 1, 1},   {1, 7, 5},    {5, 1, 3},   {4, 3, 1},
                                    {17, 33, 9}, {64, 16, 48}, {3, 130, 65}};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

static struct device *device;

static int setup(void **state)
{
    struct err err;
    return device_cpu_open(1, &device, &err);
}

static int teardown(void **state)
{
    device->dev->close(device);
    return 0;
}

struct data {
    int64_t rows, n, k;
    float *x, *dy, *weight, *bias;
};

static struct linear make(struct data *d, const int64_t shape[3])
{
    *d = (struct data){.rows = shape[0], .n = shape[1], .k = shape[2]};
    d->x = testing_normal(d->rows * d->k);
    d->dy = testing_normal(d->rows * d->n);
    d->weight = testing_normal(d->n * d->k);
    d->bias = testing_normal(d->n);
    return (struct linear){.device = device,
                           .rows = d->rows,
                           .n = d->n,
                           .k = d->k,
                           .weight = d->weight,
                           .bias = d->bias};
}

/* fp64 references, and the magnitudes of what each adds up: sums may cancel. */
struct sums {
    double *sums, *terms;
};

static struct sums sums_new(int64_t count)
{
    return (struct sums){testing_zeros(count), testing_zeros(count)};
}

static void sums_add(struct sums *to, int64_t at, double term)
{
    to->sums[at] += term;
    to->terms[at] += term < 0 ? -term : term;
}

static void test_forward(void **state)
{
    struct err err;
    for (int s = 0; s < SHAPES; s++)
        for (int variant = 0; variant < 4; variant++) {
            struct data d;
            struct linear linear = make(&d, shapes[s]);
            bool bias = (variant & 1) != 0, accumulate = (variant & 2) != 0;
            linear.bias = bias ? d.bias : NULL;
            linear.accumulate = accumulate;
            float *before = testing_normal(d.rows * d.n);
            float *y =
                accumulate ? testing_copy(before, d.rows * d.n) : testing_poison(d.rows * d.n);
            struct sums want = sums_new(d.rows * d.n);
            for (int64_t r = 0; r < d.rows; r++)
                for (int64_t j = 0; j < d.n; j++) {
                    int64_t at = r * d.n + j;
                    sums_add(&want, at, bias ? (double)d.bias[j] : 0);
                    sums_add(&want, at, accumulate ? (double)before[at] : 0);
                    for (int64_t i = 0; i < d.k; i++)
                        sums_add(&want, at,
                                 (double)d.x[r * d.k + i] * (double)d.weight[j * d.k + i]);
                }
            assert_int_equal(linear_forward(&linear, d.x, y, true, &err), 0);
            testing_close("y", y, want.sums, want.terms, d.rows * d.n, 5e-7);
        }
}

static void test_dx(void **state)
{
    struct err err;
    for (int s = 0; s < SHAPES; s++)
        for (int accumulate = 0; accumulate < 2; accumulate++) {
            struct data d;
            struct linear linear = make(&d, shapes[s]);
            float *before = testing_normal(d.rows * d.k);
            float *dx =
                accumulate ? testing_copy(before, d.rows * d.k) : testing_poison(d.rows * d.k);
            struct sums want = sums_new(d.rows * d.k);
            for (int64_t r = 0; r < d.rows; r++)
                for (int64_t i = 0; i < d.k; i++) {
                    int64_t at = r * d.k + i;
                    sums_add(&want, at, accumulate ? (double)before[at] : 0);
                    for (int64_t j = 0; j < d.n; j++)
                        sums_add(&want, at,
                                 (double)d.dy[r * d.n + j] * (double)d.weight[j * d.k + i]);
                }
            assert_int_equal(linear_dx(&linear, d.dy, dx, accumulate != 0, &err), 0);
            testing_close("dx", dx, want.sums, want.terms, d.rows * d.k, 5e-7);
        }
}

/* Gradients of weights are always added to what is there. */
static void test_dw(void **state)
{
    struct err err;
    for (int s = 0; s < SHAPES; s++)
        for (int bias = 0; bias < 2; bias++) {
            struct data d;
            struct linear linear = make(&d, shapes[s]);
            float *before = testing_normal(d.n * d.k), *bias_before = testing_normal(d.n);
            float *dw = testing_copy(before, d.n * d.k), *db = testing_copy(bias_before, d.n);
            struct sums want = sums_new(d.n * d.k), want_bias = sums_new(d.n);
            for (int64_t j = 0; j < d.n; j++) {
                sums_add(&want_bias, j, (double)bias_before[j]);
                for (int64_t r = 0; r < d.rows; r++)
                    sums_add(&want_bias, j, (double)d.dy[r * d.n + j]);
                for (int64_t i = 0; i < d.k; i++) {
                    sums_add(&want, j * d.k + i, (double)before[j * d.k + i]);
                    for (int64_t r = 0; r < d.rows; r++)
                        sums_add(&want, j * d.k + i,
                                 (double)d.dy[r * d.n + j] * (double)d.x[r * d.k + i]);
                }
            }
            assert_int_equal(linear_dw(&linear, d.dy, d.x, dw, bias ? db : NULL, &err), 0);
            testing_close("dw", dw, want.sums, want.terms, d.n * d.k, 5e-7);
            if (bias)
                testing_close("db", db, want_bias.sums, want_bias.terms, d.n, 5e-7);
            else
                testing_same_bits("db", db, bias_before, d.n * (int64_t)sizeof *db);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_forward, testing_free),
        cmocka_unit_test_teardown(test_dx, testing_free),
        cmocka_unit_test_teardown(test_dw, testing_free),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

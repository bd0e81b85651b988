/* gemm: all transposes, ragged shapes, padded rows, accumulate, bias, alpha, batches with strides
 * and with a repeated matrix; nothing outside C written; empty extents. */
#include "tests/lib/cmocka.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/rng.h"
#include "tests/lib/on_device.h"

struct product {
    struct ops_gemm args;
    float *c_before; /* what C held */
    int64_t c_floats;
};

/* A product of this shape with rows padded by `gap` and matrices of the batch 5 further apart. */
static struct product product_of(int64_t m, int64_t n, int64_t k, int trans, int64_t gap,
                                 int64_t batch, bool accumulate, bool bias)
{
    struct ops_gemm args = {.m = m,
                            .n = n,
                            .k = k,
                            .trans_a = (trans & 1) != 0,
                            .trans_b = (trans & 2) != 0,
                            .alpha = 0.75f,
                            .batch = batch,
                            .accumulate = accumulate,
                            .ldc = n + gap};
    args.lda = (args.trans_a ? m : k) + gap;
    args.ldb = (args.trans_b ? k : n) + gap;
    args.stride_a = (args.trans_a ? k : m) * args.lda + 5;
    args.stride_b = (args.trans_b ? n : k) * args.ldb + 5;
    args.stride_c = m * args.ldc + 5;
    args.a = testing_normal(batch * args.stride_a);
    args.b = testing_normal(batch * args.stride_b);
    args.stride_bias = m % 2 == 0 ? n + 3 : 0;
    args.bias = bias ? testing_normal(n + batch * args.stride_bias) : NULL;
    struct product product = {.args = args, .c_floats = batch * args.stride_c};
    product.c_before =
        accumulate ? testing_normal(product.c_floats) : testing_poison(product.c_floats);
    product.args.c = testing_copy(product.c_before, product.c_floats);
    return product;
}

/* An element of C; *ret_terms: the sum of the magnitudes of what it is made of. */
static double want_at(const struct product *product, int64_t i, int64_t row, int64_t column,
                      double *ret_terms)
{
    const struct ops_gemm *args = &product->args;
    const float *a = (const float *)args->a + i * args->stride_a;
    const float *b = (const float *)args->b + i * args->stride_b;
    double sum = 0, terms = 0;
    for (int64_t l = 0; l < args->k; l++) {
        double term = (double)a[args->trans_a ? l * args->lda + row : row * args->lda + l] *
                      (double)b[args->trans_b ? column * args->ldb + l : l * args->ldb + column];
        sum += term * (double)args->alpha;
        terms += fabs(term * (double)args->alpha);
    }
    double before = (double)product->c_before[i * args->stride_c + row * args->ldc + column];
    double bias = args->bias != NULL
                      ? (double)((const float *)args->bias)[i * args->stride_bias + column]
                      : 0;
    before = args->accumulate ? before : 0;
    *ret_terms = terms + fabs(before) + fabs(bias);
    return sum + before + bias;
}

static void check_product(const struct product *product, int threads)
{
    const struct ops_gemm *args = &product->args;
    struct err err = {0};
    struct device *device = on_device(threads);
    if (device->ops->gemm(device, NULL, args, &err) != 0)
        fail_msg("gemm: %s", err.text);
    /* What lies between rows and matrices keeps its bits: take C's elements out, compare the rest.
     */
    float *rest = testing_copy(args->c, product->c_floats);
    float *got = testing_poison(args->batch * args->m * args->n);
    double *want = testing_zeros(args->batch * args->m * args->n);
    double *terms = testing_zeros(args->batch * args->m * args->n);
    int64_t at = 0;
    for (int64_t i = 0; i < args->batch; i++)
        for (int64_t row = 0; row < args->m; row++)
            for (int64_t column = 0; column < args->n; column++, at++) {
                int64_t element = i * args->stride_c + row * args->ldc + column;
                got[at] = ((float *)args->c)[element];
                want[at] = want_at(product, i, row, column, &terms[at]);
                rest[element] = product->c_before[element];
            }
    char what[128];
    (void)snprintf(what, sizeof what, "m %d n %d k %d batch %d trans %d%d accumulate %d bias %d",
                   (int)args->m, (int)args->n, (int)args->k, (int)args->batch, args->trans_a,
                   args->trans_b, args->accumulate, args->bias != NULL);
    testing_close(what, got, want, terms, at, 5e-7);
    testing_same_bits(what, rest, product->c_before, product->c_floats * (int64_t)sizeof(float));
    (void)testing_free(NULL);
}

static void test_shapes(void **state)
{
    static const int64_t extents[] = {1, 7, 63, 64, 65};
    for (int i = 0; i < 125; i++)
        for (int trans = 0; trans < 4; trans++) {
            struct product product =
                product_of(extents[i % 5], extents[i / 5 % 5], extents[i / 25], trans,
                           i % 2 == 0 ? 0 : 3, 1, (i / 2 + trans) % 2 == 0, (i + trans) % 3 == 0);
            check_product(&product, 1 + i % 3);
        }
}

static void test_batches(void **state)
{
    for (int trans = 0; trans < 4; trans++) {
        struct product product = product_of(9, 17, 33, trans, 2, 3, trans % 2 == 0, trans > 1);
        check_product(&product, 1);
        product = product_of(9, 17, 33, trans, 0, 3, trans % 2 == 0, false);
        product.args.stride_b = 0; /* the same B for all */
        check_product(&product, 2);
        product = product_of(9, 17, 33, trans, 0, 4, false, true);
        product.args.stride_a = 0;
        product.args.c_f32 = true; /* the same on this device */
        check_product(&product, 1);
    }
}

static void test_large(void **state)
{
    struct product product = product_of(257, 131, 700, 2, 1, 1, false, true);
    check_product(&product, 3);
}

static void test_empty(void **state)
{
    for (int accumulate = 0; accumulate < 2; accumulate++)
        for (int bias = 0; bias < 2; bias++) {
            struct product product = product_of(5, 6, 0, 0, 2, 2, accumulate == 1, bias == 1);
            check_product(&product, 1); /* the empty sum */
            product = product_of(0, 6, 3, 0, 2, 2, accumulate == 1, bias == 1);
            check_product(&product, 1);
            product = product_of(5, 0, 3, 0, 2, 2, accumulate == 1, bias == 1);
            check_product(&product, 1);
            product = product_of(5, 6, 3, 0, 2, 0, accumulate == 1, bias == 1);
            check_product(&product, 1);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_shapes, testing_free),
        cmocka_unit_test_teardown(test_batches, testing_free),
        cmocka_unit_test_teardown(test_large, testing_free),
        cmocka_unit_test_teardown(test_empty, testing_free),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* adamw: many steps against fp64; the same bits for any thread count; a zero gradient decays only.
 */
#include "tests/lib/cmocka.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/rng.h"
#include "tests/lib/on_device.h"

/* m_terms: the sum of the magnitudes that m is made of. */
static void reference(const struct ops_adamw *args, double *w, double *m, double *m_terms,
                      double *v)
{
    double beta1 = (double)args->beta1, beta2 = (double)args->beta2;
    for (int64_t i = 0; i < args->count; i++) {
        double g = (double)args->grad[i] * (double)*args->grad_scale;
        m[i] = beta1 * m[i] + (1 - beta1) * g;
        m_terms[i] = beta1 * m_terms[i] + (1 - beta1) * fabs(g);
        v[i] = beta2 * v[i] + (1 - beta2) * g * g;
        double m_hat = m[i] / (1 - pow(beta1, (double)args->step));
        double v_hat = v[i] / (1 - pow(beta2, (double)args->step));
        w[i] -= (double)args->lr *
                (m_hat / (sqrt(v_hat) + (double)args->eps) + (double)args->weight_decay * w[i]);
    }
}

static void test_steps(void **state)
{
    static const int64_t counts[] = {0, 1, 7, 63, 64, 65, 8192, 8193, 20000};
    float grad_scale = 0.3f;
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        int64_t count = counts[i];
        float *start = testing_normal(count), *first = NULL;
        double *w = testing_zeros(count), *m = testing_zeros(count), *v = testing_zeros(count);
        double *w_terms = testing_zeros(count), *m_terms = testing_zeros(count);
        float *grads[5];
        for (int step = 0; step < 5; step++)
            grads[step] = testing_normal(count);
        for (int64_t j = 0; j < count; j++)
            w_terms[j] = fabs(w[j] = (double)start[j]) + 5e-2; /* five steps of lr */
        for (int threads = 1; threads <= 3; threads++) {
            float *master = testing_copy(start, count);
            float *ms = testing_copy(start, count), *vs = testing_copy(start, count);
            for (int64_t j = 0; j < count; j++)
                ms[j] = vs[j] = 0;
            for (int step = 1; step <= 5; step++) {
                struct ops_adamw args = {count,           master,      ms,    vs,
                                         grads[step - 1], &grad_scale, 1e-2f, 0.9f,
                                         0.999f,          1e-8f,       0.1f,  step};
                struct err err = {0};
                struct device *device = on_device(threads);
                assert_int_equal(device->ops->adamw(device, NULL, &args, &err), 0);
                if (threads == 1)
                    reference(&args, w, m, m_terms, v);
            }
            testing_close("master", master, w, w_terms, count, 5e-7);
            testing_close("m", ms, m, m_terms, count, 5e-7);
            testing_close("v", vs, v, NULL, count, 5e-7);
            first = threads == 1 ? master : first;
            testing_same_bits("master", master, first, count * (int64_t)sizeof(float));
        }
    }
}

static void test_late_step(void **state)
{
    float w = 2, m = 0.5f, v = 0.25f, grad = -1, one = 1;
    double w64 = 2, m64 = 0.5, m_terms = 0.5, v64 = 0.25;
    struct ops_adamw args = {.count = 1,
                             .master = &w,
                             .m = &m,
                             .v = &v,
                             .grad = &grad,
                             .grad_scale = &one,
                             .lr = 1e-3f,
                             .beta1 = 0.9f,
                             .beta2 = 0.95f,
                             .eps = 1e-8f,
                             .step = 100000,
                             .weight_decay = 0.0f};
    struct err err = {0};
    struct device *device = on_device(1);
    assert_int_equal(device->ops->adamw(device, NULL, &args, &err), 0);
    reference(&args, &w64, &m64, &m_terms, &v64);
    testing_close("w", &w, &w64, NULL, 1, 1e-7);
}

static void test_zero_gradient(void **state)
{
    float w = 2, m = 0, v = 0, grad = 0, one = 1;
    RUN(1, adamw, .count = 1, .master = &w, .m = &m, .v = &v, .grad = &grad, .grad_scale = &one,
        .lr = 0.5f, .beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-8f, .weight_decay = 0.25f, .step = 1);
    assert_true(w == 1.75f && m == 0 && v == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_steps, testing_free),
        cmocka_unit_test_teardown(test_late_step, testing_free),
        cmocka_unit_test_teardown(test_zero_gradient, testing_free),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

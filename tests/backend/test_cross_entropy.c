/* cross_entropy: loss, correct answers and gradient against fp64; untrained rows; ties; in place;
 * evaluation; the bits for any thread count; the gradient against differences. */
#include "tests/lib/cmocka.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/rng.h"
#include "tests/lib/on_device.h"

struct want {
    double loss;
    int64_t correct;
    double *dlogits, *terms; /* p - onehot, p + onehot, scaled */
    double *losses;          /* of each row, 0 when it is untrained */
    double *sizes;           /* 1 + loss: a certain row's loss is the logarithm of nearly one */
};

static double row_loss(const double *logits, int64_t vocab, int64_t target, double *ret_sum,
                       double *ret_largest)
{
    double largest = -INFINITY, sum = 0;
    for (int64_t i = 0; i < vocab; i++)
        largest = fmax(largest, logits[i]);
    for (int64_t i = 0; i < vocab; i++)
        sum += exp(logits[i] - largest);
    *ret_sum = sum;
    *ret_largest = largest;
    return log(sum) + largest - logits[target];
}

static struct want reference(int64_t rows, int64_t vocab, const float *logits,
                             const int32_t *targets, double scale)
{
    struct want want = {.dlogits = testing_zeros(rows * vocab),
                        .terms = testing_zeros(rows * vocab),
                        .losses = testing_zeros(rows),
                        .sizes = testing_zeros(rows)};
    double *row = testing_zeros(vocab);
    for (int64_t r = 0; r < rows; r++) {
        if (targets[r] < 0)
            continue;
        int64_t first = -1;
        double sum, largest;
        for (int64_t i = 0; i < vocab; i++)
            row[i] = (double)logits[r * vocab + i];
        want.losses[r] = row_loss(row, vocab, targets[r], &sum, &largest);
        want.sizes[r] = 1 + want.losses[r];
        want.loss += want.losses[r];
        for (int64_t i = 0; i < vocab; i++) {
            double p = exp(row[i] - largest) / sum, hot = i == targets[r] ? 1 : 0;
            want.dlogits[r * vocab + i] = (p - hot) * scale;
            want.terms[r * vocab + i] = (p + hot) * scale;
            first = first < 0 && row[i] == largest ? i : first;
        }
        want.correct += first == targets[r];
    }
    return want;
}

/* how: 0 apart, 1 in place, 2 evaluation. */
static void check(int64_t rows, int64_t vocab, float spread, int how)
{
    float *logits = testing_normal(rows * vocab), *first = NULL;
    int32_t *targets = testing_below(rows, vocab), *untrained = testing_below(rows, 4);
    for (int64_t i = 0; i < rows * vocab; i++)
        logits[i] *= spread;
    for (int64_t r = 0; r < rows; r++) {
        if (r % 3 == 0)
            logits[r * vocab + targets[r]] = 4 * spread; /* some right answers */
        targets[r] = untrained[r] == 0 ? -100 : targets[r];
    }
    struct want want = reference(rows, vocab, logits, targets, (double)0.125f);
    double loss_one = 0;
    for (int threads = 1; threads <= 3; threads++) {
        float *in = testing_copy(logits, rows * vocab);
        float *out = how == 0 ? testing_poison(rows * vocab) : how == 1 ? in : NULL;
        float *losses = how == 2 ? testing_poison(rows) : NULL;
        double loss = 2;
        int64_t correct = 5;
        RUN(threads, cross_entropy, .rows = rows, .vocab = vocab, .logits = in, .targets = targets,
            .scale = 0.125f, .dlogits = out, .loss_sum = &loss, .correct = &correct,
            .row_loss = losses);
        if (losses != NULL)
            testing_close("losses of rows", losses, want.losses, want.sizes, rows, 1e-6);
        if (!(fabs(loss - 2 - want.loss) <= 1e-6 * (1 + want.loss)))
            fail_msg("loss %.9g, want %.9g; ITHACA_TEST_SEED=%" PRIu64, loss - 2, want.loss,
                     testing_seed());
        assert_int_equal(correct - 5, want.correct);
        loss_one = threads == 1 ? loss : loss_one;
        testing_same_bits("loss", &loss, &loss_one, sizeof loss);
        first = threads == 1 ? out : first;
        if (how == 2)
            continue;
        testing_close("dlogits", out, want.dlogits, want.terms, rows * vocab, 1e-6);
        testing_same_bits("dlogits", out, first, rows * vocab * (int64_t)sizeof(float));
    }
    (void)testing_free(NULL);
}

static void test_shapes(void **state)
{
    static const int64_t rows[] = {0, 1, 7, 16, 17, 65},
                         vocabs[] = {1, 7, 64, 264, 1023, 1025, 5000};
    for (int i = 0; i < 42; i++)
        for (int how = 0; how < 3; how++)
            check(rows[i % 6], vocabs[i / 6], i % 2 == 0 ? 1.0f : 30.0f, how);
}

static void test_ties_go_to_the_lowest(void **state)
{
    float logits[6] = {1, 3, 3, 3, 3, 1};
    for (int target = 0; target < 3; target++) {
        int32_t targets[2] = {target, 2 - target};
        double loss = 0;
        int64_t correct = 0;
        RUN(1, cross_entropy, .rows = 2, .vocab = 3, .logits = logits, .targets = targets,
            .scale = 1, .loss_sum = &loss, .correct = &correct);
        assert_int_equal(correct, target == 1 ? 1 : target == 2 ? 1 : 0);
    }
}

static void test_nan_and_infinity_show(void **state)
{
    for (int i = 0; i < 70; i += 23) {
        float *logits = testing_normal(70);
        int32_t target = 3;
        double loss = 0;
        int64_t correct = 0;
        logits[i] = i == 46 ? INFINITY : NAN;
        RUN(1, cross_entropy, .rows = 1, .vocab = 70, .logits = logits, .targets = &target,
            .scale = 1, .dlogits = logits, .loss_sum = &loss, .correct = &correct);
        assert_true(isnan(loss) || isinf(loss));
    }
}

static void test_derivative(void **state)
{
    enum { VOCAB = 9 };
    float *logits = testing_normal(VOCAB);
    int32_t target = 4;
    struct want want = reference(1, VOCAB, logits, &target, 1);
    double row[VOCAB], sum, largest;
    for (int i = 0; i < VOCAB; i++)
        row[i] = (double)logits[i];
    for (int i = 0; i < VOCAB; i++) {
        double kept = row[i];
        row[i] = kept + 1e-6;
        double above = row_loss(row, VOCAB, target, &sum, &largest);
        row[i] = kept - 1e-6;
        double below = row_loss(row, VOCAB, target, &sum, &largest);
        row[i] = kept;
        assert_true(fabs((above - below) / 2e-6 - want.dlogits[i]) < 1e-8);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_shapes, testing_free),
        cmocka_unit_test_teardown(test_ties_go_to_the_lowest, testing_free),
        cmocka_unit_test_teardown(test_nan_and_infinity_show, testing_free),
        cmocka_unit_test_teardown(test_derivative, testing_free),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

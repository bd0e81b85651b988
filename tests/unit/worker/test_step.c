/* step: gradients leave the weights alone and are the same when asked for again; an update learns;
 * what is not finite stops the run or is skipped; a step without a trained token counts and changes
 * nothing. */
#include "worker/step.h"

#include "tests/lib/rank_scene.h"

#define FIELDS                                                                    \
    "\"seq_len\":64,\"max_steps\":50,\"batch\":{\"sequences\":4},\"optimizer\":{" \
    "\"learning_rate\":0.01,\"schedule\":\"constant\",\"warmup_steps\":2},\"on_nonfinite\":\"%s\""

static void open_scene(struct rank_scene *s, const char *on_nonfinite)
{
    char fields[512];
    (void)snprintf(fields, sizeof fields, FIELDS, on_nonfinite);
    rank_scene_open(s, fields);
}

static struct step_result gradients(struct rank_scene *s, int64_t step)
{
    struct step_result result;
    MUST_WORK(step_gradients(&s->rank, step, &result, &s->err), &s->err);
    return result;
}

static void test_gradients(void **state)
{
    struct rank_scene s;
    open_scene(&s, "stop");
    int64_t counts[LOADER_COUNTS], trained;
    loader_count(&s.rank.train, 1, counts);
    trained = counts[LOADER_TRAINED];
    struct step_result first = gradients(&s, 1), again = gradients(&s, 1), next = gradients(&s, 2);
    assert_int_equal(first.tokens, counts[LOADER_TOKENS]);
    assert_int_equal(first.pairs, counts[LOADER_PAIRS]);
    assert_int_equal(first.trained, trained);
    assert_true(trained > 0 && first.correct >= 0 && first.correct <= trained);
    assert_true(first.loss > 1 && first.loss < 20); /* log 83 is 4.4 */
    assert_true(isfinite(first.norm) && first.norm > 0);
    assert_true(first.loss == again.loss && first.norm == again.norm); /* bit for bit */
    assert_true(next.loss != first.loss);                              /* other data */
    assert_int_equal(s.rank.optim.updates, 0);
    rank_scene_close(&s);
}

static void test_update(void **state)
{
    struct rank_scene s;
    open_scene(&s, "stop");
    struct step_result first = gradients(&s, 1), result = first;
    MUST_WORK(step_update(&s.rank, 1, &result, &s.err), &s.err);
    assert_true(result.updated);
    assert_true(result.rate == 0.005); /* the warmup's first */
    assert_int_equal(s.rank.optim.updates, 1);
    struct step_result after = gradients(&s, 1);
    assert_true(after.loss != first.loss);
    for (int i = 0; i < 20; i++) { /* the same data again and again: it is learnt */
        result = gradients(&s, 1);
        MUST_WORK(step_update(&s.rank, 3, &result, &s.err), &s.err);
        assert_true(result.rate == 0.01);
    }
    assert_true(gradients(&s, 1).loss < first.loss - 0.5);
    rank_scene_close(&s);
}

static void test_not_finite(void **state)
{
    static const double losses[] = {(double)NAN, (double)INFINITY, 1, 1};
    static const double norms[] = {1, 1, (double)NAN, (double)INFINITY};
    for (int skips = 0; skips < 2; skips++) {
        struct rank_scene s;
        open_scene(&s, skips ? "skip" : "stop");
        struct step_result clean = gradients(&s, 1);
        for (int i = 0; i < 4; i++) {
            struct step_result result = clean;
            result.loss = losses[i];
            result.norm = norms[i];
            int rc = step_update(&s.rank, 1, &result, &s.err);
            assert_int_equal(rc, skips ? 0 : -ERR_NONFINITE);
            assert_false(result.updated);
            if (!skips)
                assert_non_null(strstr(s.err.text, "step 1: loss"));
        }
        assert_int_equal(s.rank.optim.updates, 0);
        struct step_result after = gradients(&s, 1);
        assert_true(after.loss == clean.loss); /* no weight has changed */
        rank_scene_close(&s);
    }
}

static void test_nothing_trained(void **state)
{
    struct rank_scene s;
    rank_scene_prepare(&s, "\"seq_len\":64,\"max_steps\":5,\"batch\":{\"sequences\":1},"
                           "\"data\":{\"packing\":false}");
    train_scene_tokens(&s.scene, "train.tok", (int64_t[]){9, 9}, (int64_t[]){0, 0}, 2);
    rank_scene_begin(&s);
    struct step_result result = gradients(&s, 1);
    assert_int_equal(result.trained, 0);
    assert_int_equal(result.tokens, 9);
    assert_true(result.loss == 0 && result.norm == 0);
    MUST_WORK(step_update(&s.rank, 1, &result, &s.err), &s.err);
    assert_false(result.updated);
    assert_true(result.rate > 0);
    assert_int_equal(s.rank.optim.updates, 0);
    rank_scene_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_update),
        cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_nothing_trained),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

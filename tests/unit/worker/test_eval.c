/* eval: means over the whole file and by position in the document, against counts made here; the
 * edges of the buckets where seq_len is no multiple of them; and that an evaluation moves nothing.
 */
#include "worker/eval.h"

#include "tests/lib/rank_scene.h"
#include "worker/step.h"

static struct eval_result evaluate(struct rank_scene *s)
{
    struct eval_result result;
    MUST_WORK(eval_run(&s->rank, &result, &s->err), &s->err);
    return result;
}

/* Trained inputs of each bucket: example e trains its last trained[e] tokens, and token t is the
 * target at position t - 1. */
static void expect_buckets(const struct eval_result *result, int64_t seq_len,
                           const int64_t *lengths, const int64_t *trained, int count)
{
    int64_t want[POSITION_BUCKETS] = {0}, all = 0;
    double sum = 0;
    for (int e = 0; e < count; e++)
        for (int64_t t = lengths[e] - trained[e]; t < lengths[e]; t++) {
            if (t == 0)
                continue; /* nothing predicts the first */
            int b = 0;
            while ((int64_t)(b + 1) * seq_len <= (t - 1) * POSITION_BUCKETS)
                b++;
            want[b]++;
            all++;
        }
    assert_int_equal(result->trained, all);
    for (int b = 0; b < POSITION_BUCKETS; b++) {
        if (result->positions.trained[b] != want[b])
            fail_msg("bucket %d of %lld: %lld, not %lld", b, (long long)seq_len,
                     (long long)result->positions.trained[b], (long long)want[b]);
        assert_true(want[b] > 0 ? result->positions.loss[b] > 0 : result->positions.loss[b] == 0);
        sum += result->positions.loss[b] * (double)want[b];
    }
    assert_true(fabs(sum / (double)all - result->loss) < 1e-5 * result->loss);
    assert_true(result->accuracy >= 0 && result->accuracy <= 1);
}

static void test_buckets(void **state)
{
    static const int64_t seq_lens[] = {64, 60, 57, 9, 8};
    for (size_t i = 0; i < sizeof seq_lens / sizeof seq_lens[0]; i++) {
        struct rank_scene s;
        char fields[128];
        int64_t seq_len = seq_lens[i];
        const int64_t lengths[] = {seq_len, seq_len / 2 + 1, 2, seq_len};
        const int64_t trained[] = {seq_len - 1, seq_len / 4, 1, 1};
        (void)snprintf(fields, sizeof fields, "\"seq_len\":%lld,\"batch\":{\"sequences\":2}",
                       (long long)seq_len);
        rank_scene_prepare(&s, fields);
        train_scene_tokens(&s.scene, "train.tok", lengths, trained, 4);
        train_scene_tokens(&s.scene, "valid.tok", lengths, trained, 4);
        rank_scene_begin(&s);
        struct eval_result result = evaluate(&s);
        expect_buckets(&result, seq_len, lengths, trained, 4);
        rank_scene_close(&s);
    }
}

/* The same again, and training goes on as if there had been none. */
static void test_moves_nothing(void **state)
{
    struct rank_scene s;
    struct step_result before, after;
    rank_scene_prepare(&s, "\"seq_len\":64,\"batch\":{\"sequences\":4}");
    train_scene_many(&s.scene, "valid.tok");
    rank_scene_begin(&s);
    MUST_WORK(step_gradients(&s.rank, 1, &before, &s.err), &s.err);
    struct eval_result first = evaluate(&s), second = evaluate(&s);
    assert_true(first.loss == second.loss && first.trained == second.trained);
    assert_true(first.accuracy == second.accuracy);
    testing_same_bits("positions", first.positions.loss, second.positions.loss,
                      sizeof first.positions.loss);
    MUST_WORK(step_gradients(&s.rank, 1, &after, &s.err), &s.err);
    assert_true(before.loss == after.loss && before.norm == after.norm);
    rank_scene_close(&s);
}

static void test_nothing_trained(void **state)
{
    struct rank_scene s;
    rank_scene_prepare(&s, "\"seq_len\":64,\"batch\":{\"sequences\":4}");
    train_scene_tokens(&s.scene, "valid.tok", (int64_t[]){5}, (int64_t[]){0}, 1);
    rank_scene_begin(&s);
    struct eval_result result = evaluate(&s);
    assert_int_equal(result.trained, 0);
    assert_true(result.loss == 0 && result.accuracy == 0); /* not NaN */
    rank_scene_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_buckets),
        cmocka_unit_test(test_moves_nothing),
        cmocka_unit_test(test_nothing_trained),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

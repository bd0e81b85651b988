/* optim: the learning rate's shapes at their edges (field case R59): finite and above zero in every
 * step that updates; the norm, the clip's edges, and what weight decay leaves alone. The update
 * itself is held against fp64 by tests/golden. */
#include "worker/optim.h"

#include "tests/lib/rank_scene.h"

static double rate(enum job_schedule schedule, int64_t warmup, int64_t step, int64_t total)
{
    struct job_spec spec = {.learning_rate = 2.0, .schedule = schedule, .warmup_steps = warmup};
    return optim_rate(&spec, step, total);
}

static void expect(double got, double want)
{
    if (!(fabs(got - want) < 1e-12))
        fail_msg("%.17g is not %.17g", got, want);
}

static void test_cosine(void **state)
{
    expect(rate(JOB_schedule_COSINE, 0, 1, 4), 2.0);
    expect(rate(JOB_schedule_COSINE, 0, 3, 4), 1.0);
    expect(rate(JOB_schedule_COSINE, 0, 4, 4), 1.0 + cos(3 * acos(-1.0) / 4));
    expect(rate(JOB_schedule_COSINE, 2, 1, 6), 1.0); /* warmup: half, whole, then the cosine */
    expect(rate(JOB_schedule_COSINE, 2, 2, 6), 2.0);
    expect(rate(JOB_schedule_COSINE, 2, 3, 6), 2.0);
    expect(rate(JOB_schedule_COSINE, 2, 5, 6), 1.0);
}

static void test_constant(void **state)
{
    expect(rate(JOB_schedule_CONSTANT, 4, 1, 9), 0.5);
    expect(rate(JOB_schedule_CONSTANT, 4, 4, 9), 2.0);
    expect(rate(JOB_schedule_CONSTANT, 4, 9, 9), 2.0);
}

static void test_linear(void **state)
{
    expect(rate(JOB_schedule_LINEAR, 0, 1, 4), 2.0);
    expect(rate(JOB_schedule_LINEAR, 0, 3, 4), 1.0);
    expect(rate(JOB_schedule_LINEAR, 0, 4, 4), 0.5);
    expect(rate(JOB_schedule_LINEAR, 2, 1, 6), 1.0);
    expect(rate(JOB_schedule_LINEAR, 2, 3, 6), 2.0);
    expect(rate(JOB_schedule_LINEAR, 2, 6, 6), 0.5);
}

static double wsd(int64_t decay, int64_t step, int64_t total)
{
    struct job_spec spec = {.learning_rate = 2.0,
                            .schedule = JOB_schedule_WSD,
                            .warmup_steps = 2,
                            .decay_steps = decay};
    return optim_rate(&spec, step, total);
}

static void test_warmup_stable_decay(void **state)
{
    expect(wsd(3, 1, 12), 1.0);
    expect(wsd(3, 2, 12), 2.0);
    expect(wsd(3, 9, 12), 2.0);
    expect(wsd(3, 10, 12), 1.5); /* three steps below the peak, zero after them */
    expect(wsd(3, 12, 12), 0.5);
    expect(wsd(0, 18, 20), 2.0); /* null: a tenth */
    expect(wsd(0, 19, 20), 2.0 * 2 / 3);
    expect(wsd(0, 20, 20), 2.0 / 3);
    expect(wsd(0, 10, 12), 2.0); /* rounded up, so that a short run ends below its peak too */
    expect(wsd(0, 11, 12), 2.0 * 2 / 3);
    expect(wsd(0, 5, 5), 1.0);
    expect(wsd(100, 3, 4), 2.0 * 2 / 3); /* cut to what the warmup leaves */
    expect(wsd(100, 4, 4), 2.0 / 3);
    expect(wsd(3, 2, 2), 2.0); /* nothing is left */
}

/* Warmup of any length, one step, any decay. */
static void test_always_above_zero(void **state)
{
    static const int64_t lengths[] = {0, 1, 2, 3, 9, 10, 11, 1000, 1000000};
    enum { LENGTHS = sizeof lengths / sizeof lengths[0] };
    for (int64_t i = 0; i < LENGTHS * LENGTHS * JOB_schedule_COUNT; i++) {
        struct job_spec spec = {.learning_rate = 2.0,
                                .warmup_steps = lengths[i % LENGTHS],
                                .decay_steps = lengths[i / LENGTHS % LENGTHS],
                                .schedule = (enum job_schedule)(i / LENGTHS / LENGTHS)};
        for (int64_t total = 1; total <= 12; total++)
            for (int64_t step = 1; step <= total; step++) {
                double got = optim_rate(&spec, step, total);
                assert_true(isfinite(got) && got > 0 && got <= 2.0);
            }
        double last = optim_rate(&spec, 100000000, 100000000); /* the longest run there is */
        assert_true(isfinite(last) && last > 0);
    }
}

/* ---- the update, of one rank ---- */

/* Calls with every element of the weights and its gradient. */
typedef void element_fn(void *context, const struct model_shape_row *row, float *master,
                        float *grad);

static void each_element(struct rank_scene *s, element_fn *each, void *context)
{
    struct fsdp *fsdp = &s->rank.fsdp;
    for (int64_t unit = 0; unit < fsdp->unit_count; unit++) {
        int64_t row = fsdp->units[unit].row_first;
        struct fsdp_piece piece;
        while (fsdp_next_piece(fsdp, unit, &row, &piece))
            for (int64_t i = 0; i < piece.count; i++)
                each(context, piece.row, fsdp->units[unit].master + piece.shard_element + i,
                     fsdp->units[unit].grad + piece.shard_element + i);
    }
}

struct grads {
    float value;    /* given to every gradient */
    double squares; /* of all gradients */
    int64_t matrices, vectors;
};

static void set_grad(void *context, const struct model_shape_row *row, float *master, float *grad)
{
    struct grads *grads = context;
    *grad = grads->value;
    grads->squares += (double)*grad * (double)*grad;
    grads->matrices += row->dims == 2;
    grads->vectors += row->dims == 1;
}

static struct grads set_grads(struct rank_scene *s, float value)
{
    struct grads grads = {.value = value};
    each_element(s, set_grad, &grads);
    assert_true(grads.matrices > 0 && grads.vectors > 0);
    return grads;
}

#define OPTIM_FIELDS                                                             \
    "\"seq_len\":64,\"max_steps\":5,\"batch\":{\"sequences\":2},\"optimizer\":{" \
    "\"weight_decay\":0.5,\"clip\":%s}"

static void open_optim(struct rank_scene *s, const char *clip)
{
    char fields[256];
    (void)snprintf(fields, sizeof fields, OPTIM_FIELDS, clip);
    rank_scene_open(s, fields);
}

static void test_norm_and_clip(void **state)
{
    static const struct {
        const char *clip;
        float grad;
        bool clipped;
    } cases[] = {
        {"1.0", 0.5f, true}, {"0", 0.5f, false}, {"1000000", 0.5f, false}, {"1.0", 0, false}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct rank_scene s;
        double norm = -1;
        open_optim(&s, cases[i].clip);
        struct grads grads = set_grads(&s, cases[i].grad);
        MUST_WORK(optim_norm(&s.rank.optim, NULL, &norm, &s.err), &s.err);
        assert_true(fabs(norm - sqrt(grads.squares)) <= 1e-12 * norm); /* padding takes no part */
        MUST_WORK(optim_apply(&s.rank.optim, 1e-3, norm, NULL, &s.err), &s.err);
        float want = cases[i].clipped ? (float)(s.rank.optim.clip / norm) : 1.0f;
        assert_true(*s.rank.optim.grad_scale == want); /* the CPU's memory */
        assert_int_equal(s.rank.optim.updates, 1);
        rank_scene_close(&s);
    }
    struct rank_scene s; /* a norm that is just the limit is not above it */
    open_optim(&s, "2.0");
    MUST_WORK(optim_apply(&s.rank.optim, 1e-3, 2.0, NULL, &s.err), &s.err);
    assert_true(*s.rank.optim.grad_scale == 1.0f);
    rank_scene_close(&s);
}

struct decay {
    float *before; /* all elements, in order */
    int64_t at;
    double factor; /* wanted of matrices */
};

static void keep(void *context, const struct model_shape_row *row, float *master, float *grad)
{
    struct decay *decay = context;
    decay->before[decay->at++] = *master;
}

static void compare(void *context, const struct model_shape_row *row, float *master, float *grad)
{
    struct decay *decay = context;
    double before = (double)decay->before[decay->at++];
    double want = row->dims == 2 ? before * decay->factor : before;
    if (!(fabs((double)*master - want) <= 1e-6 * fabs(before)))
        fail_msg("%s: %g, not %g", row->name, (double)*master, want);
}

/* Without gradients only the decay acts, and on matrices only. */
static void test_decay(void **state)
{
    struct rank_scene s;
    open_optim(&s, "1.0");
    struct grads grads = set_grads(&s, 0);
    struct decay decay = {.before = testing_poison(grads.matrices + grads.vectors),
                          .factor = 1 - 0.1 * 0.5};
    each_element(&s, keep, &decay);
    MUST_WORK(optim_apply(&s.rank.optim, 0.1, 0, NULL, &s.err), &s.err);
    decay.at = 0;
    each_element(&s, compare, &decay);
    rank_scene_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cosine),
        cmocka_unit_test(test_constant),
        cmocka_unit_test(test_linear),
        cmocka_unit_test(test_warmup_stable_decay),
        cmocka_unit_test(test_always_above_zero),
        cmocka_unit_test(test_norm_and_clip),
        cmocka_unit_test(test_decay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

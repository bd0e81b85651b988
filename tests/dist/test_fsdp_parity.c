/* fsdp: any number of ranks trains the same model. 1, 2, 3 and 4 ranks (and 5, which divides
 * nothing here) with one global batch: gradients of step 1 and weights after 5 steps, tensor by
 * tensor, against one rank; trained tokens exactly; the same run twice, bit for bit; gathers that
 * are started early. */
#include "common/must.h"
#include "tests/dist/parity_scene.h"

static struct model_config shape(bool tied, bool qwen3)
{
    return (struct model_config){.family = qwen3 ? MODEL_FAMILY_QWEN3 : MODEL_FAMILY_LLAMA,
                                 .vocab_size = PARITY_VOCAB,
                                 .hidden_size = 40,
                                 .intermediate_size = 56,
                                 .layers = 2,
                                 .heads = 4,
                                 .kv_heads = 2,
                                 .head_dim = qwen3 ? 16 : 10,
                                 .context_max = 256,
                                 .rms_norm_eps = 1e-5,
                                 .rope_theta = 10000,
                                 .initializer_range = 0.2,
                                 .tie_embeddings = tied,
                                 .qk_norm = qwen3};
}

static void open_scene(struct parity_scene *scene, bool tied, bool qwen3, int64_t sequences)
{
    struct model_config config = shape(tied, qwen3);
    parity_open(scene, &config, PARITY_DATA_MIXED, sequences);
}

static void check_worlds(struct parity_scene *scene, const uint32_t *worlds, size_t count)
{
    struct outcome *one = parity_run(scene, 1);
    assert_true(one->norm[0] > 0);
    for (size_t i = 0; i < count; i++) {
        struct outcome *many = parity_run(scene, worlds[i]);
        parity_check(scene, "layout", many, one);
        parity_release(many);
    }
    parity_release(one);
}

static void test_divides(void **state)
{
    struct parity_scene scene;
    open_scene(&scene, true, false, 12);
    check_worlds(&scene, (const uint32_t[]){2, 3, 4}, 3);
    parity_close(&scene);
}

static void test_does_not_divide(void **state)
{
    struct parity_scene scene;
    open_scene(&scene, false, true, 10);
    check_worlds(&scene, (const uint32_t[]){3, 4}, 2);
    parity_close(&scene);
    open_scene(&scene, true, true, 12);
    check_worlds(&scene, (const uint32_t[]){5}, 1);
    parity_close(&scene);
    open_scene(&scene, true, false, 1); /* most ranks have nothing at all */
    check_worlds(&scene, (const uint32_t[]){3}, 1);
    parity_close(&scene);
}

/* Several sequences in a micro-step, recomputation, tiles, no sharding: the same training. */
static void test_layouts(void **state)
{
    struct parity_scene scene;
    open_scene(&scene, true, true, 12);
    struct outcome *one = parity_run(&scene, 1);
    for (int layout = 0; layout < 4; layout++) {
        struct job_spec *spec = &scene.plan.spec;
        spec->grad_accum = layout == 0 ? 2 : layout == 1 ? 1 : 0;
        spec->recompute = layout % 2 == 0 ? JOB_recompute_INPUT : JOB_recompute_NONE;
        spec->tile_mlp = layout == 3 ? 0 : 23;
        spec->tile_loss = 19;
        spec->fsdp = layout < 2;
        struct outcome *other = parity_run(&scene, 2);
        parity_check(&scene, "layout", other, one);
        parity_release(other);
    }
    parity_release(one);
    parity_close(&scene);
}

static void test_rerun(void **state)
{
    struct parity_scene scene;
    open_scene(&scene, true, false, 12);
    struct outcome *first = parity_run(&scene, 3), *second = parity_run(&scene, 3);
    testing_same_bits("rerun", first, second, (int64_t)sizeof *first);
    parity_release(first);
    parity_release(second);
    parity_close(&scene);
}

/* A rate that ruins the weights in step 1: `stop` ends the job by name, `skip` updates no more. */
static void test_nonfinite(void **state)
{
    struct parity_scene scene;
    open_scene(&scene, true, false, 12);
    scene.plan.spec.learning_rate = 1e36;
    scene.plan.spec.warmup_steps = 0;
    struct outcome *stopped = parity_try(&scene, 2);
    assert_false(scene.good);
    assert_int_equal(stopped->err.code, ERR_NONFINITE);
    scene.plan.spec.on_nonfinite = JOB_on_nonfinite_SKIP;
    struct outcome *skipped = parity_run(&scene, 2);
    for (int step = 0; step < PARITY_STEPS; step++)
        assert_int_equal(skipped->updated[step], step == 0);
    for (int64_t i = 0; i < PARITY_PARAMETERS_MAX; i++)
        assert_true(isfinite(skipped->weights[i]));
    parity_release(stopped);
    parity_release(skipped);
    parity_close(&scene);
}

enum { PREFETCH_UNITS = 4 };

/* A copy of each unit's master. */
static int prefetch_masters(struct rank *rank, float **masters, struct err *err)
{
    must(rank->fsdp.unit_count == PREFETCH_UNITS);
    for (int64_t unit = 0; unit < PREFETCH_UNITS; unit++) {
        const float *master = NULL;
        size_t bytes = (size_t)rank->shape.unit_elements[unit] * sizeof *master;
        TRY(fsdp_gather_master(&rank->fsdp, unit, NULL, &master, err));
        masters[unit] = mem_new(1, bytes);
        must(masters[unit] != NULL);
        memcpy(masters[unit], master, bytes);
    }
    return 0;
}

/* Units as they are asked for, and ahead of that: what is gathered is the master, whatever is under
 * way, also once that has come. */
static int prefetch_play(struct rank *rank, struct err *err)
{
    /* 0 and 3, whose buffers are others' while layers go backwards, never under a gradient. */
    static const int64_t order[] = {0, 1, 2, 3, 2, 1, 1, 2, 0, 3};
    enum { COUNT = sizeof order / sizeof order[0] };
    float *masters[PREFETCH_UNITS] = {NULL};
    struct fsdp *fsdp = &rank->fsdp;
    int wrong = 0;
    TRY(prefetch_masters(rank, masters, err));
    for (int i = 0; i < COUNT; i++) {
        const void *weights = NULL, *other = NULL;
        float *grad = NULL;
        size_t bytes = (size_t)rank->shape.unit_elements[order[i]] * sizeof(float);
        TRY(fsdp_gather(fsdp, order[i], NULL, &weights, err));
        wrong += memcmp(weights, masters[order[i]], bytes) != 0;
        if (i + 1 < COUNT)
            TRY(fsdp_prefetch(fsdp, order[i + 1], NULL, err));
        wrong += i < 3 && !fsdp->under_way; /* later some are there already */
        if (i % 3 == 0) { /* a reduction between: the gather under way is done first */
            TRY(fsdp_grad_begin(fsdp, order[i], NULL, &grad, err));
            TRY(fsdp_grad_end(fsdp, order[i], NULL, err));
        }
        if (order[i] == 1 || order[i] == 2) /* a layer stays beside the next */
            wrong += memcmp(weights, masters[order[i]], bytes) != 0;
        if (i == 3) { /* not the one that was started */
            TRY(fsdp_gather(fsdp, 1, NULL, &other, err));
            wrong += memcmp(other, masters[1], (size_t)rank->shape.unit_elements[1] * 4) != 0;
        }
    }
    for (int unit = 0; unit < PREFETCH_UNITS; unit++)
        mem_free(masters[unit]);
    return wrong == 0 ? 0 : err_set(err, ERR_INTERNAL, "%d gathered units differ", wrong);
}

/* All of a unit's gradient is this, on this rank. */
static int reduce_fill(struct rank *rank, int64_t unit, float value, struct err *err)
{
    float *grad = NULL;
    TRY(fsdp_grad_begin(&rank->fsdp, unit, NULL, &grad, err));
    for (int64_t i = 0; i < rank->fsdp.units[unit].shard * rank->fsdp.shards; i++)
        grad[i] = value;
    return fsdp_grad_end(&rank->fsdp, unit, NULL, err);
}

static int reduce_wrong(const struct rank *rank, int64_t unit, float want)
{
    int wrong = 0;
    for (int64_t i = 0; i < rank->fsdp.units[unit].shard; i++)
        wrong += rank->fsdp.units[unit].grad[i] != want;
    return wrong;
}

/* A layer's gradient is reduced beside gathers, up to the next begin; another's at once. */
static int reduce_play(struct rank *rank, struct err *err)
{
    struct fsdp *fsdp = &rank->fsdp;
    const void *weights = NULL;
    float mine = (float)rank->number + 1, sum = 6; /* of three ranks */
    int wrong = 0;
    TRY(fsdp_grad_zero(fsdp, NULL, err));
    TRY(fsdp_prefetch(fsdp, 1, NULL, err));
    TRY(reduce_fill(rank, 2, mine, err));
    wrong += fsdp->reducing != 2 || fsdp->under_way; /* the gather is waited for alone */
    TRY(fsdp_gather(fsdp, 1, NULL, &weights, err));
    TRY(fsdp_prefetch(fsdp, 2, NULL, err));
    wrong += fsdp->reducing != 2;
    TRY(reduce_fill(rank, 1, 2 * mine, err));
    wrong += fsdp->reducing != 1 || reduce_wrong(rank, 2, sum);
    TRY(fsdp_grad_settle(fsdp, NULL, err));
    wrong += fsdp->reducing != -1 || reduce_wrong(rank, 1, 2 * sum);
    TRY(reduce_fill(rank, 0, mine, err));
    wrong += fsdp->reducing != -1 || reduce_wrong(rank, 0, sum);
    TRY(reduce_fill(rank, 2, mine, err)); /* of another micro-step */
    TRY(fsdp_grad_finish(fsdp, NULL, err));
    wrong += fsdp->reducing != -1 || reduce_wrong(rank, 2, 2 * sum);
    return wrong == 0 ? 0 : err_set(err, ERR_INTERNAL, "%d gradients or states differ", wrong);
}

static int prefetch_rank(const struct launch_plan *plan, int number)
{
    struct err err = {0};
    struct rank rank;
    if (freopen("/dev/null", "w", stdout) == NULL)
        return 3;
    int rc = rank_open(&rank, plan, number, &err);
    if (rc == 0)
        rc = prefetch_play(&rank, &err);
    if (rc == 0)
        rc = reduce_play(&rank, &err);
    if (rc != 0)
        (void)fprintf(stderr, "rank %d: %s\n", number, err.text);
    rank_close(&rank);
    return rc == 0 ? 0 : 1;
}

static void test_prefetch(void **state)
{
    struct parity_scene scene;
    open_scene(&scene, true, false, 12);
    scene.plan.world = 3;
    (void)snprintf(scene.plan.shm_name, sizeof scene.plan.shm_name, "/ithaca-prefetch-%d",
                   (int)getpid());
    for (int host = 0; host < 2; host++) {
        scene.plan.spec.states = host ? JOB_states_HOST : JOB_states_DEVICE;
        (void)fflush(NULL);
        pid_t ranks[3];
        for (int r = 0; r < 3; r++) {
            ranks[r] = fork();
            if (ranks[r] == 0)
                _exit(prefetch_rank(&scene.plan, r));
        }
        for (int r = 0; r < 3; r++) {
            int status = 0;
            assert_int_equal(waitpid(ranks[r], &status, 0), ranks[r]);
            assert_int_equal(status, 0);
        }
    }
    parity_close(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_divides, testing_free),
        cmocka_unit_test_teardown(test_does_not_divide, testing_free),
        cmocka_unit_test_teardown(test_layouts, testing_free),
        cmocka_unit_test_teardown(test_prefetch, testing_free),
        cmocka_unit_test_teardown(test_rerun, testing_free),
        cmocka_unit_test_teardown(test_nonfinite, testing_free),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* fsdp: any number of ranks trains the same model. 1, 2, 3 and 4 ranks (and 5, which divides
 * nothing here) with one global batch: gradients of step 1 and weights after 5 steps, tensor by
 * tensor, against one rank; trained tokens exactly; the same run twice, bit for bit.
 *
 * Ranks are forked processes over shared memory. Rank 0 leaves what it gathered in memory shared
 * with the test. Adam's eps is 1e-3: with a tiny one the sign of gradients near zero would decide.
 */
#include "common/dataset.h"
#include "common/io.h"
#include "common/json.h"
#include "common/mem.h"
#include "common/rng.h"
#include "tests/lib/testing.h"
#include "worker/model_init.h"
#include "worker/rank.h"
#include "worker/step.h"

#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    STEPS = 5,
    EXAMPLES = 60,
    SEQ_LEN = 64,
    VOCAB = 83,
    PARAMETERS_MAX = 1 << 17,
    WORLD_MAX = 5
};
#define PARITY_ERROR_MAX 1e-5

struct outcome {
    double loss[STEPS], norm[STEPS];
    int64_t trained[STEPS], tokens[STEPS];
    bool updated[STEPS];
    enum err_code code;            /* that ended rank 0, or ERR_NONE */
    float grads[PARAMETERS_MAX];   /* of step 1, the table's tensors one after the other */
    float weights[PARAMETERS_MAX]; /* after the last step */
};

struct scene {
    struct launch_plan plan;
    struct model_config config;
    char folder[64];
    bool good; /* of the last run: every rank ended well */
};

static const struct model_config shape = {.family = MODEL_FAMILY_LLAMA,
                                          .vocab_size = VOCAB,
                                          .hidden_size = 40,
                                          .intermediate_size = 56,
                                          .layers = 2,
                                          .heads = 4,
                                          .kv_heads = 2,
                                          .head_dim = 10,
                                          .context_max = 256,
                                          .rms_norm_eps = 1e-5,
                                          .rope_theta = 10000,
                                          .initializer_range = 0.2,
                                          .tie_embeddings = true};

static void give_up(const char *what, const struct err *err)
{
    fail_msg("%s: %s; ITHACA_TEST_SEED=%" PRIu64, what, err->text, testing_seed());
}

/* Examples of unequal lengths, some with hardly a trained token. */
static void write_tokens(const char *path)
{
    struct err err = {0};
    struct dataset_writer *writer = NULL;
    if (dataset_writer_new(path, VOCAB, &writer, &err) != 0)
        give_up("tokens", &err);
    for (int e = 0; e < EXAMPLES; e++) {
        int32_t ids[SEQ_LEN];
        uint8_t trained[SEQ_LEN];
        int64_t count =
            2 + (int64_t)rng_below(testing_seed(), RNG_STREAM_TEST + 1, (uint64_t)e, SEQ_LEN - 2);
        for (int64_t t = 0; t < count; t++) {
            uint64_t at = (uint64_t)(e * SEQ_LEN + t);
            ids[t] = (int32_t)rng_below(testing_seed(), RNG_STREAM_TEST + 2, at, VOCAB);
            trained[t] =
                rng_below(testing_seed(), RNG_STREAM_TEST + 3, at, 10) < (e % 3 == 0 ? 1u : 7u);
        }
        if (dataset_writer_add(writer, ids, trained, count, &err) != 0)
            give_up("tokens", &err);
    }
    if (dataset_writer_commit(writer, &err) != 0)
        give_up("tokens", &err);
    dataset_writer_free(writer);
}

static void make_spec(struct job_spec *spec, int64_t sequences)
{
    static const char text[] =
        "{\"model\":\"m\",\"training_file\":\"file-a\",\"seed\":3,\"ithaca\":{\"seq_len\":64,"
        "\"max_steps\":5,\"optimizer\":{\"learning_rate\":0.01,\"warmup_steps\":2,\"eps\":1e-3,"
        "\"weight_decay\":0.1,\"clip\":1.0}}}";
    struct err err = {0};
    json_t *json = NULL;
    if (json_parse(text, strlen(text), "spec", &json, &err) != 0 ||
        job_spec_parse(json, spec, &err) != 0)
        give_up("spec", &err);
    json_decref(json);
    spec->sequences = sequences;
    spec->grad_accum = 0; /* one sequence a rank and micro-step */
    spec->recompute = JOB_recompute_NONE;
    spec->tile_mlp = spec->tile_loss = 0;
}

static void open_scene(struct scene *scene, bool tied, bool qwen3, int64_t sequences)
{
    struct err err = {0};
    memset(scene, 0, sizeof *scene);
    (void)snprintf(scene->folder, sizeof scene->folder, "/tmp/ithaca-parity-XXXXXX");
    assert_non_null(mkdtemp(scene->folder));
    scene->config = shape;
    scene->config.tie_embeddings = tied;
    scene->config.qk_norm = qwen3;
    scene->config.family = qwen3 ? MODEL_FAMILY_QWEN3 : MODEL_FAMILY_LLAMA;
    scene->config.head_dim = qwen3 ? 16 : 10;
    struct launch_plan *plan = &scene->plan;
    *plan = (struct launch_plan){.job_id = "parity",
                                 .attempt = 1,
                                 .world = 1,
                                 .heartbeat_limit_ms = 10000,
                                 .coll_timeout_ms = 30000,
                                 .orphan_limit_ms = 10000,
                                 .threads = 1,
                                 .job_dir = mem_strdup(scene->folder),
                                 .model_dir = mem_strdup(scene->folder)};
    make_spec(&plan->spec, sequences);
    CLEANUP(mem_free_ptr) char *tokens = mem_printf("%s/tokens", scene->folder);
    CLEANUP(mem_free_ptr) char *train = mem_printf("%s/train.tok", tokens);
    if (io_make_dirs(tokens, 0700, &err) != 0 ||
        model_init_weights(&scene->config, scene->folder, 7, &err) != 0)
        give_up("folder", &err);
    write_tokens(train);
}

static void close_scene(struct scene *scene)
{
    struct err err = {0};
    launch_plan_done(&scene->plan);
    if (io_remove_tree(scene->folder, &err) != 0)
        give_up("folder", &err);
}

/* All of the units' masters or gradients, without padding, in the order of the table. */
static int gather(struct rank *rank, bool grads, float *ret, struct err *err)
{
    for (int64_t unit = 0; unit < rank->fsdp.unit_count; unit++) {
        const float *full = NULL;
        TRY(grads ? fsdp_gather_grad(&rank->fsdp, unit, NULL, &full, err)
                  : fsdp_gather_master(&rank->fsdp, unit, NULL, &full, err));
        for (int64_t r = rank->fsdp.units[unit].row_first; r < rank->fsdp.units[unit].row_last;
             r++) {
            const struct model_shape_row *row = &rank->shape.rows[r];
            if (rank->number == 0)
                memcpy(ret, full + row->offset, (size_t)row->elements * sizeof *ret);
            ret += row->elements;
        }
    }
    return 0;
}

static int train(struct rank *rank, struct outcome *outcome, struct err *err)
{
    for (int64_t step = 1; step <= STEPS; step++) {
        struct step_result result;
        TRY(step_gradients(rank, step, &result, err));
        if (step == 1)
            TRY(gather(rank, true, outcome->grads, err));
        TRY(step_update(rank, step, &result, err));
        if (rank->number != 0)
            continue;
        outcome->loss[step - 1] = result.loss;
        outcome->norm[step - 1] = result.norm;
        outcome->trained[step - 1] = result.trained;
        outcome->tokens[step - 1] = result.tokens;
        outcome->updated[step - 1] = result.updated;
    }
    return gather(rank, false, outcome->weights, err);
}

static int rank_main(const struct launch_plan *plan, int number, struct outcome *outcome)
{
    struct err err = {0};
    struct rank rank;
    int rc = rank_open(&rank, plan, number, &err);
    if (rc == 0)
        rc = train(&rank, outcome, &err);
    if (number == 0)
        outcome->code = err.code;
    if (rc != 0) {
        (void)fprintf(stderr, "rank %d of %u: %s\n", number, plan->world, err.text);
        rank_fail(&rank, &err);
    }
    rank_close(&rank);
    return rc == 0 ? 0 : 1;
}

/* Runs all steps on `world` ranks; scene->good says whether every rank reached the end. */
static struct outcome *try_run(struct scene *scene, uint32_t world)
{
    struct outcome *outcome =
        mmap(NULL, sizeof *outcome, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(outcome != MAP_FAILED);
    scene->plan.world = world;
    (void)snprintf(scene->plan.shm_name, sizeof scene->plan.shm_name, "/ithaca-parity-%d",
                   (int)getpid());
    pid_t ranks[WORLD_MAX];
    assert_true(world <= WORLD_MAX);
    (void)fflush(NULL);
    for (uint32_t r = 0; r < world; r++) {
        ranks[r] = fork();
        assert_true(ranks[r] >= 0);
        if (ranks[r] == 0)
            _exit(rank_main(&scene->plan, (int)r, outcome));
    }
    scene->good = true;
    for (uint32_t r = 0; r < world; r++) {
        int status = 0;
        assert_int_equal(waitpid(ranks[r], &status, 0), ranks[r]);
        scene->good = scene->good && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    }
    return outcome;
}

static struct outcome *run(struct scene *scene, uint32_t world)
{
    struct outcome *outcome = try_run(scene, world);
    if (!scene->good)
        fail_msg("%u ranks: a rank failed; ITHACA_TEST_SEED=%" PRIu64, world, testing_seed());
    return outcome;
}

static void release(struct outcome *outcome)
{
    assert_int_equal(munmap(outcome, sizeof *outcome), 0);
}

static void compare(const struct scene *scene, const char *what, const float *got,
                    const float *want)
{
    struct err err = {0};
    struct model_shape table = {0};
    if (model_shape_build(&scene->config, &table, &err) != 0)
        give_up("shape", &err);
    int64_t at = 0;
    for (int64_t r = 0; r < table.row_count; r++) {
        const struct model_shape_row *row = &table.rows[r];
        assert_true(at + row->elements <= PARAMETERS_MAX);
        double *reference = testing_zeros(row->elements);
        for (int64_t i = 0; i < row->elements; i++)
            reference[i] = (double)want[at + i];
        char name[160];
        (void)snprintf(name, sizeof name, "%u ranks: %s of %s", scene->plan.world, what, row->name);
        testing_close(name, got + at, reference, NULL, row->elements, PARITY_ERROR_MAX);
        at += row->elements;
    }
    model_shape_done(&table);
}

static void check_same(const struct scene *scene, const struct outcome *got,
                       const struct outcome *want)
{
    for (int step = 0; step < STEPS; step++) {
        assert_int_equal(got->trained[step], want->trained[step]);
        assert_int_equal(got->tokens[step], want->tokens[step]);
        assert_true(want->trained[step] > 0);
        assert_true(fabs(got->loss[step] - want->loss[step]) < 1e-5);
        assert_true(fabs(got->norm[step] / want->norm[step] - 1) < 1e-5);
    }
    compare(scene, "gradients", got->grads, want->grads);
    compare(scene, "weights", got->weights, want->weights);
}

static void check_worlds(struct scene *scene, const uint32_t *worlds, size_t count)
{
    struct outcome *one = run(scene, 1);
    assert_true(one->norm[0] > 0);
    for (size_t i = 0; i < count; i++) {
        struct outcome *many = run(scene, worlds[i]);
        check_same(scene, many, one);
        release(many);
    }
    release(one);
}

static void test_divides(void **state)
{
    (void)state;
    struct scene scene;
    open_scene(&scene, true, false, 12);
    check_worlds(&scene, (const uint32_t[]){2, 3, 4}, 3);
    close_scene(&scene);
}

static void test_does_not_divide(void **state)
{
    (void)state;
    struct scene scene;
    open_scene(&scene, false, true, 10);
    check_worlds(&scene, (const uint32_t[]){3, 4}, 2);
    close_scene(&scene);
    open_scene(&scene, true, true, 12);
    check_worlds(&scene, (const uint32_t[]){5}, 1);
    close_scene(&scene);
    open_scene(&scene, true, false, 1); /* most ranks have nothing at all */
    check_worlds(&scene, (const uint32_t[]){3}, 1);
    close_scene(&scene);
}

/* Several sequences in a micro-step, recomputation, tiles, no sharding: the same training. */
static void test_layouts(void **state)
{
    (void)state;
    struct scene scene;
    open_scene(&scene, true, true, 12);
    struct outcome *one = run(&scene, 1);
    for (int layout = 0; layout < 4; layout++) {
        struct job_spec *spec = &scene.plan.spec;
        spec->grad_accum = layout == 0 ? 2 : layout == 1 ? 1 : 0;
        spec->recompute = layout % 2 == 0 ? JOB_recompute_INPUT : JOB_recompute_NONE;
        spec->tile_mlp = layout == 3 ? 0 : 23;
        spec->tile_loss = 19;
        spec->fsdp = layout < 2;
        struct outcome *other = run(&scene, 2);
        check_same(&scene, other, one);
        release(other);
    }
    release(one);
    close_scene(&scene);
}

static void test_rerun(void **state)
{
    (void)state;
    struct scene scene;
    open_scene(&scene, true, false, 12);
    struct outcome *first = run(&scene, 3), *second = run(&scene, 3);
    testing_same_bits("rerun", first, second, (int64_t)sizeof *first);
    release(first);
    release(second);
    close_scene(&scene);
}

/* A rate that ruins the weights in step 1: `stop` ends the job by name, `skip` updates no more. */
static void test_nonfinite(void **state)
{
    (void)state;
    struct scene scene;
    open_scene(&scene, true, false, 12);
    scene.plan.spec.learning_rate = 1e36;
    scene.plan.spec.warmup_steps = 0;
    struct outcome *stopped = try_run(&scene, 2);
    assert_false(scene.good);
    assert_int_equal(stopped->code, ERR_NONFINITE);
    scene.plan.spec.on_nonfinite = JOB_on_nonfinite_SKIP;
    struct outcome *skipped = run(&scene, 2);
    for (int step = 0; step < STEPS; step++)
        assert_int_equal(skipped->updated[step], step == 0);
    for (int64_t i = 0; i < PARAMETERS_MAX; i++)
        assert_true(isfinite(skipped->weights[i]));
    release(stopped);
    release(skipped);
    close_scene(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_divides, testing_free),
        cmocka_unit_test_teardown(test_does_not_divide, testing_free),
        cmocka_unit_test_teardown(test_layouts, testing_free),
        cmocka_unit_test_teardown(test_rerun, testing_free),
        cmocka_unit_test_teardown(test_nonfinite, testing_free),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

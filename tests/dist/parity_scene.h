/* parity_scene: the same training on any layout of ranks must give the same numbers. A tiny model,
 * a token file and a launch plan in a folder in memory; ranks are forked processes; rank 0 leaves
 * what it gathered in memory shared with the test. Adam's eps is 1e-3: with a tiny one the sign of
 * gradients near zero would decide.
 *
 *     parity_open(&scene, &config, PARITY_DATA_MIXED, sequences);
 *     struct outcome *one = parity_run(&scene, 1);
 *     scene.plan.spec.ring = 2;                       any field that must not matter
 *     parity_check(&scene, parity_run(&scene, 2), one); */
#pragma once
#include "common/dataset.h"
#include "common/io.h"
#include "common/json.h"
#include "common/lora_shape.h"
#include "common/mem.h"
#include "common/rng.h"
#include "tests/lib/cmocka.h"
#include "tests/lib/testing.h"
#include "worker/eval.h"
#include "worker/model_init.h"
#include "worker/ops.h"
#include "worker/rank.h"
#include "worker/step.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    PARITY_STEPS = 5,
    PARITY_EXAMPLES_MAX = 60,
    PARITY_TOKENS_MAX = 8200, /* of an example */
    PARITY_VOCAB = 83,
    PARITY_PARAMETERS_MAX = 1 << 19,
    PARITY_WORLD_MAX = 8
};
#define PARITY_ERROR_MAX 1e-5

enum parity_data {
    PARITY_DATA_MIXED,  /* any length, some with hardly a trained token */
    PARITY_DATA_LONG,   /* documents of a whole sequence, whose length divides nothing */
    PARITY_DATA_TINY,   /* 1 to 7 tokens: shorter than the number of ranks */
    PARITY_DATA_PROMPT, /* long prompts, three trained tokens at the end, or none at all */
    PARITY_DATA_COUNT
};

struct outcome {
    double loss[PARITY_STEPS], norm[PARITY_STEPS];
    int64_t trained[PARITY_STEPS], tokens[PARITY_STEPS], correct[PARITY_STEPS];
    bool updated[PARITY_STEPS];
    struct eval_result eval;              /* after the last step */
    struct err err;                       /* that ended rank 0, or none */
    float grads[PARITY_PARAMETERS_MAX];   /* of step 1, the table's tensors one after the other */
    float weights[PARITY_PARAMETERS_MAX]; /* after the last step */
};

struct parity_scene {
    struct launch_plan plan;
    struct model_config config;
    char folder[64];
    const struct ops *ops;             /* instead of the device's, or NULL */
    void (*opened)(struct rank *rank); /* called by every rank before its first step, or NULL */
    bool replay_anew;                  /* under recompute attention, at any length */
    const struct launch_plan *before;  /* a job to run first in the same processes, or NULL */
    bool strict;                       /* buffers apart, NaN where none is planned (arena.h) */
    bool good;                         /* of the last run: every rank ended well */
};

static inline void parity_give_up(const char *what, const struct err *err)
{
    fail_msg("%s: %s; ITHACA_TEST_SEED=%" PRIu64, what, err->text, testing_seed());
}

static inline int64_t parity_draw(int64_t stream, int64_t at, int64_t below)
{
    return (int64_t)rng_below(testing_seed(), RNG_STREAM_TEST + (uint64_t)stream, (uint64_t)at,
                              (uint64_t)below);
}

static inline int64_t parity_seq_len(enum parity_data data)
{
    static const int64_t lengths[] = {[PARITY_DATA_MIXED] = 64,
                                      [PARITY_DATA_LONG] = 65,
                                      [PARITY_DATA_TINY] = 24,
                                      [PARITY_DATA_PROMPT] = 63};
    return lengths[data];
}

/* Lengths of examples, and the share of trained tokens in tenths (from -tail on). */
static inline void parity_example(enum parity_data data, int64_t e, int64_t *ret_length,
                                  int64_t *ret_tenths, int64_t *ret_from)
{
    int64_t longest = parity_seq_len(data);
    *ret_from = 0;
    *ret_tenths = e % 3 == 0 ? 1 : 7;
    if (data == PARITY_DATA_MIXED)
        *ret_length = 2 + parity_draw(1, e, longest - 2);
    if (data == PARITY_DATA_LONG)
        *ret_length = longest;
    if (data == PARITY_DATA_TINY)
        *ret_length = 1 + parity_draw(1, e, 7);
    if (data != PARITY_DATA_PROMPT)
        return;
    *ret_length = e % 4 == 1 ? 7 : longest - e % 2;
    *ret_tenths = e % 4 == 2 ? 0 : 10;
    *ret_from = *ret_length - 3;
}

static inline void parity_add_example(struct dataset_writer *writer, int64_t e, int64_t length,
                                      int64_t tenths, int64_t from)
{
    struct err err = {0};
    int32_t ids[PARITY_TOKENS_MAX];
    uint8_t trained[PARITY_TOKENS_MAX];
    assert_true(length <= PARITY_TOKENS_MAX);
    for (int64_t t = 0; t < length; t++) {
        ids[t] = (int32_t)parity_draw(2, e * PARITY_TOKENS_MAX + t, PARITY_VOCAB);
        trained[t] = t >= from && parity_draw(3, e * PARITY_TOKENS_MAX + t, 10) < tenths;
    }
    if (dataset_writer_add(writer, ids, trained, length, &err) != 0)
        parity_give_up("tokens", &err);
}

static inline struct dataset_writer *parity_writer(const struct parity_scene *scene,
                                                   const char *name)
{
    struct err err = {0};
    struct dataset_writer *writer = NULL;
    CLEANUP(mem_free_ptr) char *tokens = mem_printf("%s/tokens", scene->folder);
    CLEANUP(mem_free_ptr) char *path = mem_printf("%s/%s", tokens, name);
    if (io_make_dirs(tokens, 0700, &err) != 0 ||
        dataset_writer_new(path, PARITY_VOCAB, &writer, &err) != 0)
        parity_give_up("tokens", &err);
    return writer;
}

static inline void parity_commit(struct dataset_writer *writer)
{
    struct err err = {0};
    if (dataset_writer_commit(writer, &err) != 0)
        parity_give_up("tokens", &err);
    dataset_writer_free(writer);
}

static inline void parity_tokens(const struct parity_scene *scene, const char *name,
                                 enum parity_data data, int64_t first, int64_t count)
{
    struct dataset_writer *writer = parity_writer(scene, name);
    for (int64_t e = first; e < first + count; e++) {
        int64_t length = 0, tenths = 0, from = 0;
        parity_example(data, e, &length, &tenths, &from);
        parity_add_example(writer, e, length, tenths, from);
    }
    parity_commit(writer);
}

static inline void parity_spec(struct job_spec *spec, int64_t seq_len, int64_t sequences)
{
    CLEANUP(mem_free_ptr)
    char *text = mem_printf(
        "{\"model\":\"m\",\"training_file\":\"file-a\",\"seed\":3,\"ithaca\":{\"seq_len\":%lld,"
        "\"max_steps\":5,\"optimizer\":{\"learning_rate\":0.01,\"warmup_steps\":2,\"eps\":1e-3,"
        "\"weight_decay\":0.1,\"clip\":1.0}}}",
        (long long)seq_len);
    struct err err = {0};
    json_t *json = NULL;
    if (json_parse(text, strlen(text), "spec", &json, &err) != 0 ||
        job_spec_parse(json, spec, &err) != 0)
        parity_give_up("spec", &err);
    json_decref(json);
    spec->sequences = sequences;
    spec->grad_accum = 0; /* one sequence a rank and micro-step */
    spec->context_kind = JOB_context_kind_NONE;
    spec->ulysses = spec->ring = 1;
    spec->recompute = JOB_recompute_NONE;
    spec->tile_mlp = spec->tile_loss = 0;
}

/* Without tokens. */
static inline void parity_open_bare(struct parity_scene *scene, const struct model_config *config,
                                    int64_t seq_len, int64_t sequences)
{
    struct err err = {0};
    memset(scene, 0, sizeof *scene);
    (void)snprintf(scene->folder, sizeof scene->folder, "/dev/shm/ithaca-parity-XXXXXX");
    assert_non_null(mkdtemp(scene->folder));
    scene->config = *config;
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
    parity_spec(&plan->spec, seq_len, sequences);
    if (model_init_weights(&scene->config, scene->folder, 7, &err) != 0)
        parity_give_up("folder", &err);
}

static inline void parity_open(struct parity_scene *scene, const struct model_config *config,
                               enum parity_data data, int64_t sequences)
{
    parity_open_bare(scene, config, parity_seq_len(data), sequences);
    parity_tokens(scene, "train.tok", data, 0, data == PARITY_DATA_TINY ? 60 : 24);
    parity_tokens(scene, "valid.tok", data, 70, 5);
}

static inline void parity_close(struct parity_scene *scene)
{
    struct err err = {0};
    launch_plan_done(&scene->plan);
    if (io_remove_tree(scene->folder, &err) != 0)
        parity_give_up("folder", &err);
}

static inline bool parity_starts_at_zero(const struct rank *rank, const struct model_shape_row *row)
{
    size_t length = strlen(row->name);
    if (rank->plan->spec.lora)
        return row->index % 2 == 1; /* B */
    return length > 5 && strcmp(row->name + length - 5, ".bias") == 0;
}

/* Biases and the adapters' B start at zero, so that a bias is no more than its updates, and A has
 * no gradient: they get values. */
static inline int parity_start(struct rank *rank, struct err *err)
{
    struct fsdp *fsdp = rank->trained;
    for (int64_t unit = 0; unit < fsdp->unit_count; unit++) {
        int64_t r = fsdp->units[unit].row_first;
        struct fsdp_piece piece;
        while (fsdp_next_piece(fsdp, unit, &r, &piece))
            for (int64_t i = 0; i < piece.count && parity_starts_at_zero(rank, piece.row); i++) {
                float value = 0.1f * rng_normal(7, RNG_STREAM_TEST + 50 + piece.row->index,
                                                (uint64_t)(piece.row_element + i));
                float *at = fsdp->units[unit].master + piece.shard_element + i;
                TRY(rank->device->dev->copy(rank->device, NULL, at, &value, sizeof value, err));
                TRY(rank->device->dev->sync(rank->device, NULL, err));
            }
    }
    fsdp_weights_changed(fsdp);
    return 0;
}

/* All of the trained units' masters or gradients, without padding, in the order of the table. */
static inline int parity_gather(struct rank *rank, bool grads, float *ret, struct err *err)
{
    const struct device_ops *dev = rank->device->dev;
    struct fsdp *fsdp = rank->trained;
    for (int64_t unit = 0; unit < fsdp->unit_count; unit++) {
        const float *full = NULL;
        TRY(grads ? fsdp_gather_grad(fsdp, unit, NULL, &full, err)
                  : fsdp_gather_master(fsdp, unit, NULL, &full, err));
        for (int64_t r = fsdp->units[unit].row_first; r < fsdp->units[unit].row_last; r++) {
            const struct model_shape_row *row = &fsdp->shape->rows[r];
            if (rank->number == 0)
                TRY(dev->copy(rank->device, NULL, ret, full + row->offset,
                              (size_t)row->elements * sizeof *ret, err));
            ret += row->elements;
        }
        TRY(dev->sync(rank->device, NULL, err));
    }
    return 0;
}

static inline int parity_train(struct rank *rank, struct outcome *outcome, struct err *err)
{
    for (int64_t step = 1; step <= PARITY_STEPS; step++) {
        struct step_result result;
        TRY(step_gradients(rank, step, &result, err));
        if (step == 1)
            TRY(parity_gather(rank, true, outcome->grads, err));
        TRY(step_update(rank, step, &result, err));
        rank_check_memory(rank); /* what is held is what was planned, to the byte */
        if (rank->number != 0)
            continue;
        outcome->loss[step - 1] = result.loss;
        outcome->norm[step - 1] = result.norm;
        outcome->trained[step - 1] = result.trained;
        outcome->tokens[step - 1] = result.tokens;
        outcome->correct[step - 1] = result.correct;
        outcome->updated[step - 1] = result.updated;
    }
    struct eval_result eval = {0};
    if (rank->valid.data.examples > 0)
        TRY(eval_run(rank, &eval, err));
    if (rank->number == 0)
        outcome->eval = eval;
    return parity_gather(rank, false, outcome->weights, err);
}

static inline int parity_rank(const struct parity_scene *scene, const struct launch_plan *plan,
                              int number, struct outcome *outcome)
{
    struct err err = {0};
    struct rank rank;
    int rc = rank_open(&rank, plan, number, &err);
    if (rc == 0 && scene->ops != NULL)
        rank.device->ops = scene->ops;
    if (rc == 0 && scene->opened != NULL)
        scene->opened(&rank);
    if (rc == 0)
        rank.model.options.replay_anew = scene->replay_anew; /* into the first buffer there is */
    if (rc == 0)
        rc = parity_start(&rank, &err);
    if (rc == 0)
        rc = parity_train(&rank, outcome, &err);
    if (number == 0)
        outcome->err = err;
    if (rc != 0) {
        (void)fprintf(stderr, "rank %d of %u: %s\n", number, plan->world, err.text);
        rank_fail(&rank, &err);
    }
    rank_close(&rank);
    return rc == 0 ? 0 : 1;
}

static inline int parity_process(const struct parity_scene *scene, int number, void *context)
{
    struct outcome *outcome = context;
    if (freopen("/dev/null", "w", stdout) == NULL)
        return 3;
    arena_strict(scene->strict);
    if (scene->before != NULL && parity_rank(scene, scene->before, number, outcome) != 0)
        return 2;
    memset(outcome, 0, number == 0 ? sizeof *outcome : 0);
    return parity_rank(scene, &scene->plan, number, outcome);
}

static inline struct outcome *parity_memory(void)
{
    struct outcome *outcome =
        mmap(NULL, sizeof *outcome, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(outcome != MAP_FAILED);
    return outcome;
}

/* What a rank does in its process; the exit status. */
typedef int parity_play(const struct parity_scene *scene, int number, void *context);

/* Plays `world` ranks, each in a process of its own; whether every one ended with 0. */
static inline bool parity_fork(struct parity_scene *scene, uint32_t world, parity_play *play,
                               void *context)
{
    bool good = true;
    scene->plan.world = world;
    (void)snprintf(scene->plan.shm_name, sizeof scene->plan.shm_name, "/ithaca-parity-%d",
                   (int)getpid());
    pid_t ranks[PARITY_WORLD_MAX];
    assert_true(world <= PARITY_WORLD_MAX);
    (void)fflush(NULL);
    for (uint32_t r = 0; r < world; r++) {
        ranks[r] = fork();
        assert_true(ranks[r] >= 0);
        if (ranks[r] == 0)
            _exit(play(scene, (int)r, context));
    }
    for (uint32_t r = 0; r < world; r++) {
        int status = 0;
        assert_int_equal(waitpid(ranks[r], &status, 0), ranks[r]);
        good = good && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    }
    return good;
}

/* Runs all steps on `world` ranks; scene->good says whether every rank reached the end. */
static inline struct outcome *parity_try(struct parity_scene *scene, uint32_t world)
{
    struct outcome *outcome = parity_memory();
    scene->good = parity_fork(scene, world, parity_process, outcome);
    return outcome;
}

static inline struct outcome *parity_run(struct parity_scene *scene, uint32_t world)
{
    struct outcome *outcome = parity_try(scene, world);
    if (!scene->good)
        fail_msg("%u ranks: a rank failed; ITHACA_TEST_SEED=%" PRIu64, world, testing_seed());
    return outcome;
}

static inline void parity_release(struct outcome *outcome)
{
    assert_int_equal(munmap(outcome, sizeof *outcome), 0);
}

struct parity_worst {
    double error; /* over PARITY_ERROR_MAX: they differ; infinite when counts do */
    char what[160];
};

static inline void parity_note(struct parity_worst *worst, double error, const char *what,
                               const char *of)
{
    if (error <= worst->error) /* NaN is worse than all */
        return;
    worst->error = error == error ? error : (double)INFINITY;
    (void)snprintf(worst->what, sizeof worst->what, "%s of %s", what, of);
}

/* The table of what is trained. */
static inline struct model_shape parity_shape(const struct parity_scene *scene)
{
    struct err err = {0};
    struct model_shape base = {0}, adapters = {0};
    if (model_shape_build(&scene->config, &base, &err) != 0)
        parity_give_up("shape", &err);
    if (!scene->plan.spec.lora)
        return base;
    if (lora_shape_build(&base, &scene->plan.spec, &adapters, &err) != 0)
        parity_give_up("shape", &err);
    model_shape_done(&base);
    return adapters;
}

static inline void parity_compare_tensors(const struct parity_scene *scene, const char *what,
                                          const float *got, const float *want,
                                          struct parity_worst *worst)
{
    struct model_shape table = parity_shape(scene);
    int64_t at = 0;
    for (int64_t r = 0; r < table.row_count; r++) {
        const struct model_shape_row *row = &table.rows[r];
        assert_true(at + row->elements <= PARITY_PARAMETERS_MAX);
        double off = 0, size = 0;
        for (int64_t i = at; i < at + row->elements; i++) {
            off += ((double)got[i] - (double)want[i]) * ((double)got[i] - (double)want[i]);
            size += (double)want[i] * (double)want[i];
        }
        parity_note(worst, off == 0 ? 0 : sqrt(off / size), what, row->name);
        at += row->elements;
    }
    model_shape_done(&table);
}

/* How far a run is from another: counts exactly, losses to 1e-5, tensors by their relative error.
 */
static inline struct parity_worst parity_compare(const struct parity_scene *scene,
                                                 const struct outcome *got,
                                                 const struct outcome *want)
{
    struct parity_worst worst = {0};
    for (int step = 0; step < PARITY_STEPS; step++) {
        bool same = got->trained[step] == want->trained[step] &&
                    got->tokens[step] == want->tokens[step] &&
                    got->updated[step] == want->updated[step];
        parity_note(&worst, same ? 0 : (double)INFINITY, "counts", "a step");
        parity_note(&worst, fabs(got->loss[step] - want->loss[step]), "loss", "a step");
        if (want->norm[step] > 0)
            parity_note(&worst, fabs(got->norm[step] / want->norm[step] - 1), "norm", "a step");
    }
    parity_compare_tensors(scene, "gradients", got->grads, want->grads, &worst);
    parity_compare_tensors(scene, "weights", got->weights, want->weights, &worst);
    parity_note(&worst, got->eval.trained == want->eval.trained ? 0 : (double)INFINITY, "counts",
                "the evaluation");
    parity_note(&worst, fabs(got->eval.loss - want->eval.loss), "loss", "the evaluation");
    for (int i = 0; i < POSITION_BUCKETS; i++) {
        parity_note(&worst, fabs(got->eval.positions.loss[i] - want->eval.positions.loss[i]),
                    "loss by position", "the evaluation");
        if (got->eval.positions.trained[i] != want->eval.positions.trained[i])
            parity_note(&worst, (double)INFINITY, "counts by position", "the evaluation");
    }
    return worst;
}

static inline void parity_check(const struct parity_scene *scene, const char *what,
                                const struct outcome *got, const struct outcome *want)
{
    struct parity_worst worst = parity_compare(scene, got, want);
    if (!(worst.error <= PARITY_ERROR_MAX))
        fail_msg("%s, %u ranks: %s is off by %.3g; ITHACA_TEST_SEED=%" PRIu64, what,
                 scene->plan.world, worst.what, worst.error, testing_seed());
}

/* train_scene: a tiny model, a token file and a launch plan in a folder in memory, and ranks as
 * forked processes that play a part with it. What rank 0 prints (metrics, events) comes back as
 * text; bigger things the test reads from checkpoints.
 *
 *     struct train_scene scene;
 *     train_scene_open(&scene, "\"max_steps\":10", NULL);
 *     char *out = train_scene_run(&scene, 2, play, NULL);     asserts that all ranks end with 0
 */
#pragma once
#include "common/clock.h"
#include "common/dataset.h"
#include "common/io.h"
#include "common/json.h"
#include "common/mem.h"
#include "common/rng.h"
#include "tests/lib/cmocka.h"
#include "tests/lib/testing.h"
#include "worker/checkpoint.h"
#include "worker/checkpoint_read.h"
#include "worker/model_init.h"
#include "worker/rank.h"
#include "worker/train.h"

#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SCENE_WORLD_MAX = 8, SCENE_VOCAB = 83, SCENE_SEQ_LEN = 64, SCENE_EXAMPLES = 30 };

struct train_scene {
    char folder[64]; /* base model, and jobs below */
    struct launch_plan plan;
    struct model_shape shape;
};

typedef int train_play(struct rank *rank, void *context, struct err *err);

static const struct model_config train_scene_model = {.family = MODEL_FAMILY_QWEN3,
                                                      .vocab_size = SCENE_VOCAB,
                                                      .hidden_size = 24,
                                                      .intermediate_size = 40,
                                                      .layers = 2,
                                                      .heads = 2,
                                                      .kv_heads = 1,
                                                      .head_dim = 12,
                                                      .context_max = 4096,
                                                      .rms_norm_eps = 1e-5,
                                                      .rope_theta = 10000,
                                                      .initializer_range = 0.2,
                                                      .tie_embeddings = true,
                                                      .qk_norm = true};

/* Token t of example e, from the seed; the first of an example is a prompt. */
static inline int32_t train_scene_token(int64_t e, int64_t t)
{
    uint64_t at = (uint64_t)e * 4096 + (uint64_t)t;
    return (int32_t)rng_below(testing_seed(), RNG_STREAM_TEST + 2, at, SCENE_VOCAB);
}

/* Examples of the lengths given, the last trained[e] tokens of each trained. */
static inline void train_scene_tokens(const struct train_scene *scene, const char *name,
                                      const int64_t *lengths, const int64_t *trained, int64_t count)
{
    struct err err = {0};
    struct dataset_writer *writer = NULL;
    CLEANUP(mem_free_ptr) char *dir = io_join(scene->plan.job_dir, "tokens");
    MUST_WORK(io_make_dirs(dir, 0700, &err), &err);
    CLEANUP(mem_free_ptr) char *path = io_join(dir, name);
    MUST_WORK(dataset_writer_new(path, SCENE_VOCAB, &writer, &err), &err);
    for (int64_t e = 0; e < count; e++) {
        int32_t ids[4096];
        uint8_t flags[4096];
        for (int64_t t = 0; t < lengths[e]; t++) {
            ids[t] = train_scene_token(e, t);
            flags[t] = t >= lengths[e] - trained[e];
        }
        MUST_WORK(dataset_writer_add(writer, ids, flags, lengths[e], &err), &err);
    }
    MUST_WORK(dataset_writer_commit(writer, &err), &err);
    dataset_writer_free(writer);
}

/* Examples of unequal lengths, some with hardly a trained token. */
static inline void train_scene_many(const struct train_scene *scene, const char *name)
{
    int64_t lengths[SCENE_EXAMPLES], trained[SCENE_EXAMPLES];
    for (int64_t e = 0; e < SCENE_EXAMPLES; e++) {
        uint64_t seed = testing_seed();
        lengths[e] =
            3 + (int64_t)rng_below(seed, RNG_STREAM_TEST + 1, (uint64_t)e, SCENE_SEQ_LEN - 3);
        trained[e] = e % 4 == 0 ? 1 : lengths[e] / 2 + 1;
    }
    train_scene_tokens(scene, name, lengths, trained, SCENE_EXAMPLES);
}

/* The spec: `fields` are members of `ithaca`, "" for none. May be called again. */
static inline void train_scene_spec(struct train_scene *scene, const char *fields)
{
    struct err err = {0};
    json_t *json = NULL;
    CLEANUP(mem_free_ptr)
    char *text = mem_printf(
        "{\"model\":\"m\",\"training_file\":\"file-a\",\"seed\":3,\"ithaca\":{%s}}", fields);
    MUST_WORK(json_parse(text, strlen(text), "spec", &json, &err), &err);
    job_spec_done(&scene->plan.spec);
    MUST_WORK(job_spec_parse(json, &scene->plan.spec, &err), &err);
    json_decref(json);
    struct job_spec *spec = &scene->plan.spec;
    spec->recompute = JOB_recompute_NONE;
    spec->tile_mlp = spec->tile_loss = spec->seq_len;
}

static inline void train_scene_open(struct train_scene *scene, const char *fields)
{
    struct err err = {0};
    memset(scene, 0, sizeof *scene);
    (void)snprintf(scene->folder, sizeof scene->folder, "/dev/shm/ithaca-train-XXXXXX");
    assert_non_null(mkdtemp(scene->folder));
    scene->plan = (struct launch_plan){.job_id = "scene",
                                       .attempt = 1,
                                       .world = 1,
                                       .heartbeat_limit_ms = 10000,
                                       .coll_timeout_ms = 30000,
                                       .orphan_limit_ms = 10000,
                                       .threads = 1,
                                       .job_dir = mem_printf("%s/job", scene->folder),
                                       .model_dir = mem_strdup(scene->folder)};
    train_scene_spec(scene, fields);
    MUST_WORK(model_init_weights(&train_scene_model, scene->folder, 7, &err), &err);
    MUST_WORK(model_shape_build(&train_scene_model, &scene->shape, &err), &err);
    train_scene_many(scene, "train.tok");
}

static inline void train_scene_close(struct train_scene *scene)
{
    struct err err = {0};
    MUST_WORK(io_remove_tree(scene->folder, &err), &err);
    launch_plan_done(&scene->plan);
    model_shape_done(&scene->shape);
}

/* The next attempt goes on from this checkpoint; -1: from the start. */
static inline void train_scene_resume(struct train_scene *scene, int64_t step)
{
    mem_free(scene->plan.resume_from);
    scene->plan.resume_from = step < 0 ? NULL : checkpoint_dir(scene->plan.job_dir, step);
    scene->plan.steps_done = step < 0 ? 0 : step;
}

static inline int train_scene_rank(const struct train_scene *scene, int number, train_play *play,
                                   void *context, int out_fd)
{
    struct err err = {0};
    struct rank rank;
    if (number == 0)
        (void)dup2(out_fd, STDOUT_FILENO);
    else if (freopen("/dev/null", "w", stdout) == NULL)
        return 3;
    int rc = rank_open(&rank, &scene->plan, number, &err);
    if (rc == 0)
        rc = play(&rank, context, &err);
    if (rc != 0) {
        (void)fprintf(stderr, "rank %d of %u: %s\n", number, scene->plan.world, err.text);
        rank_fail(&rank, &err);
    }
    rank_close(&rank);
    (void)fflush(NULL);
    return rc == 0 ? 0 : err_code_exit(err.code);
}

static inline int train_scene_start(struct train_scene *scene, uint32_t world, train_play *play,
                                    void *context, pid_t *ret_pids)
{
    char path[96];
    struct err err = {0};
    CLEANUP(mem_free_ptr) char *attempt = launch_plan_attempt_dir(&scene->plan);
    MUST_WORK(io_make_dirs(attempt, 0700, &err), &err);
    (void)snprintf(path, sizeof path, "%s/out", scene->folder);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0 && world <= SCENE_WORLD_MAX);
    scene->plan.world = world;
    (void)snprintf(scene->plan.shm_name, sizeof scene->plan.shm_name, "/ithaca-train-%d",
                   (int)getpid());
    (void)fflush(NULL);
    for (uint32_t r = 0; r < world; r++) {
        ret_pids[r] = fork();
        assert_true(ret_pids[r] >= 0);
        if (ret_pids[r] == 0)
            _exit(train_scene_rank(scene, (int)r, play, context, fd));
    }
    return fd;
}

/* What rank 0 printed; every rank must end with `status`. The caller mem_free()s. */
static inline char *train_scene_run_to(struct train_scene *scene, uint32_t world, train_play *play,
                                       void *context, int status)
{
    pid_t pids[SCENE_WORLD_MAX];
    struct err err = {0};
    struct buf text;
    int fd = train_scene_start(scene, world, play, context, pids);
    bool good = true;
    for (uint32_t r = 0; r < world; r++) {
        int ended = 0;
        assert_int_equal(waitpid(pids[r], &ended, 0), pids[r]);
        good = good && WIFEXITED(ended) && WEXITSTATUS(ended) == status;
    }
    (void)close(fd);
    char path[96];
    (void)snprintf(path, sizeof path, "%s/out", scene->folder);
    buf_init(&text, 1 << 24);
    MUST_WORK(io_read_file(path, 1 << 24, &text, &err), &err);
    if (!good)
        fail_msg("%u ranks: not all ended with %d; ITHACA_TEST_SEED=%" PRIu64 "\n%s", world, status,
                 testing_seed(), buf_str(&text));
    char *steal = mem_strdup(buf_str(&text));
    buf_done(&text);
    return steal;
}

static inline char *train_scene_run(struct train_scene *scene, uint32_t world, train_play *play,
                                    void *context)
{
    return train_scene_run_to(scene, world, play, context, 0);
}

/* The value of a metric in a step, as printed; "" when it is not there. */
static inline const char *train_scene_metric(const char *out, int64_t step, const char *metric)
{
    static char value[64];
    char line[64], key[64];
    (void)snprintf(line, sizeof line, "metrics step=%" PRId64 " ", step);
    (void)snprintf(key, sizeof key, " %s=", metric);
    for (const char *at = out; (at = strstr(at, line)) != NULL; at++) {
        const char *end = strchr(at, '\n'), *found = strstr(at, key);
        if (end == NULL || found == NULL || found > end)
            continue;
        (void)snprintf(value, sizeof value, "%.*s", (int)strcspn(found + strlen(key), " \n"),
                       found + strlen(key));
        return value;
    }
    return "";
}

/* The newest checkpoint that is valid with all its hashes; -1: none. */
static inline int64_t train_scene_newest(const struct train_scene *scene)
{
    struct err err = {0};
    CLEANUP(mem_free_ptr) int64_t *steps = NULL;
    size_t count = 0;
    MUST_WORK(checkpoint_list(scene->plan.job_dir, &steps, &count, &err), &err);
    for (size_t i = 0; i < count; i++) {
        struct checkpoint_manifest manifest;
        CLEANUP(mem_free_ptr) char *dir = checkpoint_dir(scene->plan.job_dir, steps[i]);
        if (checkpoint_manifest_read(dir, &manifest, &err) == 0 &&
            checkpoint_check_hashes(dir, &manifest, 0, 1, &err) == 0)
            return steps[i];
    }
    return -1;
}

static inline size_t train_scene_count(const struct train_scene *scene)
{
    struct err err = {0};
    CLEANUP(mem_free_ptr) int64_t *steps = NULL;
    size_t count = 0;
    MUST_WORK(checkpoint_list(scene->plan.job_dir, &steps, &count, &err), &err);
    return count;
}

/* Whether anything called *.tmp lies in the checkpoints' folder. */
static inline bool train_scene_has_temp(const struct train_scene *scene)
{
    CLEANUP(mem_free_ptr)
    char *command = mem_printf("ls %s/checkpoints 2>/dev/null | grep -q tmp", scene->plan.job_dir);
    int status = 0;
    pid_t pid = fork();
    if (pid == 0) {
        (void)execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(2);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* All masters, m or v of a checkpoint, padding left out, tensor after tensor; testing_free()d. */
static inline float *train_scene_state(const struct train_scene *scene, const char *dir,
                                       enum checkpoint_part part)
{
    struct err err = {0};
    struct checkpoint_reader reader = {0};
    float *all = testing_poison(scene->shape.parameters), *at = all;
    MUST_WORK(checkpoint_reader_open(dir, &scene->shape, &reader, &err), &err);
    for (int64_t r = 0; r < scene->shape.row_count; r++) {
        const struct model_shape_row *row = &scene->shape.rows[r];
        MUST_WORK(
            checkpoint_reader_read(&reader, row->unit, part, row->offset, row->elements, at, &err),
            &err);
        at += row->elements;
    }
    assert_int_equal(at - all, scene->shape.parameters);
    checkpoint_reader_close(&reader);
    return all;
}

/* Two checkpoints: the same bits, or within `bound` of each other. */
static inline void train_scene_compare(const struct train_scene *scene, const char *got,
                                       const char *want, double bound)
{
    static const char *const names[] = {"master", "m", "v"};
    for (int part = 0; part < CHECKPOINT_PARTS; part++) {
        float *a = train_scene_state(scene, got, (enum checkpoint_part)part);
        float *b = train_scene_state(scene, want, (enum checkpoint_part)part);
        int64_t count = scene->shape.parameters;
        double *reference = testing_zeros(count);
        for (int64_t i = 0; i < count; i++)
            reference[i] = (double)b[i];
        if (bound == 0)
            testing_same_bits(names[part], a, b, count * (int64_t)sizeof *a);
        else
            testing_close(names[part], a, reference, NULL, count, bound);
    }
}

/* Trains to the end and saves the last step, which a run by itself does not. */
static inline int play_to_end(struct rank *rank, void *context, struct err *err)
{
    enum train_end end;
    TRY(train_run(rank, &end, err));
    return checkpoint_save(rank, err);
}

/* stack: cases that other people's programs met (lengths that do not divide, state of another
 * model, examples seen twice, means of means, neighbours in a sequence, tiles) under shared
 * sequences, exchanges under attention, and a rank that stands still. The numbers are those of
 * plain training on one rank; test_stack_parity walks all combinations. */
#include "common/clock.h"
#include "tests/dist/parity_scene.h"

#include <signal.h>

static const struct model_config small = {.family = MODEL_FAMILY_LLAMA,
                                          .vocab_size = PARITY_VOCAB,
                                          .hidden_size = 32,
                                          .intermediate_size = 48,
                                          .layers = 2,
                                          .heads = 8,
                                          .kv_heads = 4,
                                          .head_dim = 4,
                                          .context_max = 256,
                                          .rms_norm_eps = 1e-5,
                                          .rope_theta = 10000,
                                          .initializer_range = 0.2};

static const struct {
    const char *name;
    uint32_t world;
    int64_t ring, ulysses;
} layouts[] = {
    {"data 4", 4, 1, 1},
    {"ulysses 2", 2, 1, 2},
    {"ring 2", 2, 2, 1},
    {"ulysses 4", 4, 1, 4},
    {"ring 4", 4, 4, 1},
    {"ring 2, ulysses 2", 4, 2, 2},
    {"data 2, ulysses 2", 4, 1, 2},
    {"ulysses 8", 8, 1, 8},
    {"ring 4, ulysses 2", 8, 4, 2},
    {"ring 8", 8, 8, 1},
};
enum { LAYOUTS = sizeof layouts / sizeof layouts[0] };

static void lay_out(struct parity_scene *scene, int layout)
{
    scene->plan.spec.ring = layouts[layout].ring;
    scene->plan.spec.ulysses = layouts[layout].ulysses;
}

struct example {
    int64_t seed, length, trained; /* the last `trained` tokens */
};

static void write_examples(const struct parity_scene *scene, const struct example *examples,
                           int64_t count)
{
    struct dataset_writer *writer = parity_writer(scene, "train.tok");
    for (int64_t e = 0; e < count; e++)
        parity_add_example(writer, examples[e].seed, examples[e].length, 10,
                           examples[e].length - examples[e].trained);
    parity_commit(writer);
}

/* Runs every layout and compares; returns the run on one rank. */
static struct outcome *check_layouts(struct parity_scene *scene)
{
    struct outcome *one = parity_run(scene, 1);
    for (int i = 0; i < LAYOUTS; i++) {
        lay_out(scene, i);
        struct outcome *many = parity_run(scene, layouts[i].world);
        parity_check(scene, layouts[i].name, many, one);
        parity_release(many);
    }
    return one;
}

/* R22: lengths that divide nothing, down to a single token; R27: no target is lost at a cut; R28: a
 * step without trained tokens, and one whose prompt fills all ranks but the last. */
static void test_lengths(void **state)
{
    static const struct example examples[] = {{1, 1, 1}, {2, 7, 5}, {3, 63, 3}, {4, 65, 65}};
    struct parity_scene scene;
    parity_open_bare(&scene, &small, 65, 1);
    scene.plan.spec.packing = false;
    write_examples(&scene, examples, 4);
    struct outcome *one = check_layouts(&scene);
    int seen = 0;
    for (int step = 0; step < PARITY_STEPS; step++) {
        assert_int_equal(one->updated[step], one->tokens[step] > 1);
        assert_int_equal(one->trained[step], one->tokens[step] == 1    ? 0
                                             : one->tokens[step] == 7  ? 5
                                             : one->tokens[step] == 63 ? 3
                                                                       : 64);
        assert_true(one->tokens[step] > 1 || (one->loss[step] == 0 && one->norm[step] == 0));
        seen |= 1 << (one->tokens[step] & 7); /* 1, 7, 63, 65: 1, 7, 7, 1 */
    }
    assert_int_equal(seen, 1 << 1 | 1 << 7);
    parity_release(one);
    parity_close(&scene);
}

/* R22 at the lengths it was met at, by hand (--long: ten seconds of a processor). */
static void test_long_lengths(void **state)
{
    static const struct example examples[] = {{1, 8191, 8000}, {2, 8193, 8193}};
    struct model_config config = small;
    config.layers = config.kv_heads = 1;
    config.heads = 2;
    config.context_max = 1 << 14;
    struct parity_scene scene;
    parity_open_bare(&scene, &config, 8193, 1);
    scene.plan.spec.packing = false;
    scene.plan.spec.tile_mlp = 1000;
    scene.plan.coll_timeout_ms = 600000;
    write_examples(&scene, examples, 2);
    struct outcome *one = parity_run(&scene, 1);
    for (int step = 0; step < PARITY_STEPS; step++)
        assert_int_equal(one->trained[step], one->tokens[step] == 8191 ? 8000 : 8192);
    for (int i = 0; i < LAYOUTS; i++) {
        if (layouts[i].ulysses > 2)
            continue;
        lay_out(&scene, i);
        struct outcome *many = parity_run(&scene, layouts[i].world);
        parity_check(&scene, layouts[i].name, many, one);
        parity_release(many);
    }
    parity_release(one);
    parity_close(&scene);
}

/* R25: what a job leaves in its process changes nothing for the next: the same bits. */
static void test_after_another_job(void **state)
{
    struct model_config first = small, second = small;
    first.heads = 6;
    first.kv_heads = 3;
    second.heads = 12;
    struct parity_scene before, scene;
    parity_open(&before, &first, PARITY_DATA_MIXED, 4);
    parity_open(&scene, &second, PARITY_DATA_LONG, 4);
    before.plan.spec.ring = 4;
    before.plan.world = 4;
    (void)snprintf(before.plan.shm_name, sizeof before.plan.shm_name, "/ithaca-before-%d",
                   (int)getpid());
    scene.plan.spec.ulysses = 4;
    struct outcome *alone = parity_run(&scene, 4);
    scene.before = &before.plan;
    struct outcome *after = parity_run(&scene, 4);
    testing_same_bits("outcome", alone, after, (int64_t)sizeof *alone);
    parity_release(alone);
    parity_release(after);
    parity_close(&scene);
    parity_close(&before);
}

/* R26: eight examples, a step of eight sequences: each is seen once, however many ranks share it;
 * R29, R32: norm, clipping and the loss that is shown are those of one rank. */
static void test_examples_once(void **state)
{
    struct example examples[8];
    int64_t tokens = 0, trained = 0;
    for (int64_t e = 0; e < 8; e++) {
        examples[e] = (struct example){e, 20 + 3 * e, 10 + e};
        tokens += examples[e].length;
        trained += examples[e].trained;
    }
    struct parity_scene scene;
    parity_open_bare(&scene, &small, 48, 8);
    scene.plan.spec.packing = false;
    scene.plan.spec.clip = 0.05; /* acts in every step */
    write_examples(&scene, examples, 8);
    struct outcome *one = check_layouts(&scene);
    for (int step = 0; step < PARITY_STEPS; step++) {
        assert_int_equal(one->tokens[step], tokens);
        assert_int_equal(one->trained[step], trained);
        assert_true(one->norm[step] > 0.05);
    }
    parity_release(one);
    parity_close(&scene);
}

/* R30: one example with many trained tokens, three with few: micro-steps, one packed sequence and
 * ranks weigh each token alike. */
static void test_every_token_weighs_the_same(void **state)
{
    static const struct example examples[] = {{1, 101, 100}, {2, 12, 10}, {3, 12, 10}, {4, 15, 10}};
    struct parity_scene scene;
    parity_open_bare(&scene, &small, 200, 4);
    scene.plan.spec.packing = false;
    scene.plan.spec.grad_accum = 4;
    write_examples(&scene, examples, 4);
    struct outcome *micro_steps = check_layouts(&scene);
    assert_int_equal(micro_steps->trained[0], 130);
    scene.plan.spec.packing = true;
    scene.plan.spec.sequences = scene.plan.spec.grad_accum = 1;
    for (int i = 0; i < LAYOUTS; i++) {
        lay_out(&scene, i);
        struct outcome *packed = parity_run(&scene, layouts[i].world);
        parity_check(&scene, "packed", packed, micro_steps);
        parity_release(packed);
    }
    parity_release(micro_steps);
    parity_close(&scene);
}

/* R33: another text before it, or none (every other layout), leaves a document's loss as it is. */
static void test_neighbours(void **state)
{
    static const struct example texts[][2] = {{{1, 30, 0}, {9, 25, 20}}, {{2, 30, 0}, {9, 25, 20}}};
    for (int i = 0; i < LAYOUTS; i++) {
        double loss[3];
        int count = i % 2 == 0 ? 3 : 2;
        for (int text = 0; text < count; text++) {
            struct parity_scene scene;
            parity_open_bare(&scene, &small, 57, 1);
            write_examples(&scene, text < 2 ? texts[text] : &texts[0][1], text < 2 ? 2 : 1);
            lay_out(&scene, i);
            struct outcome *outcome = parity_run(&scene, layouts[i].world);
            assert_int_equal(outcome->tokens[0], text < 2 ? 55 : 25);
            assert_int_equal(outcome->trained[0], 20);
            loss[text] = outcome->loss[0];
            parity_release(outcome);
            parity_close(&scene);
        }
        for (int text = 1; text < count; text++)
            assert_true(fabs(loss[0] - loss[text]) < 1e-6);
    }
}

/* R35: 1, 3 and 64 tiles, the last ragged, ranks with unequal lengths. */
static void test_tiles(void **state)
{
    struct parity_scene scene;
    parity_open(&scene, &small, PARITY_DATA_MIXED, 4);
    scene.plan.spec.packing = false;
    struct outcome *one = parity_run(&scene, 1);
    for (int64_t tile = 0; tile <= 11; tile = tile == 0 ? 1 : tile + 10)
        for (int i = 0; i < LAYOUTS; i += 3) {
            lay_out(&scene, i);
            scene.plan.spec.tile_mlp = scene.plan.spec.tile_loss = tile;
            struct outcome *tiled = parity_run(&scene, layouts[i].world);
            parity_check(&scene, "tiled", tiled, one);
            parity_release(tiled);
        }
    parity_release(one);
    parity_close(&scene);
}

/* overlap, buffers of their own for the next stage: the same bits, by ring and data ranks, with K/V
 * heads that change between stages and that stay, kept or projected again. */
static void test_overlap(void **state)
{
    static const struct {
        uint32_t world;
        int64_t ring, ulysses, kv_heads;
        enum job_recompute recompute;
    } cases[] = {{2, 1, 2, 4, JOB_recompute_NONE},
                 {2, 1, 2, 1, JOB_recompute_ATTENTION},
                 {4, 2, 2, 4, JOB_recompute_INPUT}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct parity_scene scene;
        struct model_config config = small;
        config.kv_heads = cases[i].kv_heads;
        parity_open(&scene, &config, PARITY_DATA_MIXED, 4);
        struct job_spec *spec = &scene.plan.spec;
        spec->context_kind = JOB_context_kind_UPIPE;
        spec->heads_per_stage = 1;
        spec->ring = cases[i].ring;
        spec->ulysses = cases[i].ulysses;
        spec->recompute = cases[i].recompute;
        spec->keep_input_every = 2;
        struct outcome *off = parity_run(&scene, cases[i].world);
        assert_true(off->norm[0] > 0);
        spec->overlap = JOB_overlap_ON;
        struct outcome *on = parity_run(&scene, cases[i].world);
        testing_same_bits("outcome", on, off, (int64_t)sizeof *on);
        parity_release(off);
        parity_release(on);
        parity_close(&scene);
    }
}

/* What is under way while attention runs, as one rank sees it. */
static struct spy {
    const struct ops *ops;        /* the device's own */
    const struct coll_ops *calls; /* of the exchange */
    const struct fsdp *fsdp;
    bool exchange;                       /* started and not waited for */
    int forward, backward;               /* attention calls */
    int forward_beside, backward_beside; /* while an exchange was under way */
    int gather_beside;                   /* forward, while a unit's gather was */
} spy;

static int spy_start(struct coll *coll, struct stream *stream, const struct coll_call *call,
                     struct err *err)
{
    spy.exchange = true;
    return spy.calls->start(coll, stream, call, err);
}

static int spy_wait(struct coll *coll, struct stream *stream, struct err *err)
{
    spy.exchange = false;
    return spy.calls->wait(coll, stream, err);
}

static int spy_attention(struct device *device, struct stream *stream,
                         const struct ops_attention *args, struct err *err)
{
    spy.forward++;
    spy.forward_beside += spy.exchange;
    spy.gather_beside += spy.fsdp->under_way;
    return spy.ops->attention(device, stream, args, err);
}

static int spy_attention_bwd(struct device *device, struct stream *stream,
                             const struct ops_attention_bwd *args, struct err *err)
{
    spy.backward++;
    spy.backward_beside += spy.exchange;
    return spy.ops->attention_bwd(device, stream, args, err);
}

/* One step with everybody watched. */
static int spy_rank(const struct launch_plan *plan, int number, bool overlap)
{
    struct rank rank;
    struct err err = {0};
    struct step_result result;
    if (freopen("/dev/null", "w", stdout) == NULL || rank_open(&rank, plan, number, &err) != 0)
        return 3;
    struct coll *exchange = rank.model.context.options.ulysses;
    spy = (struct spy){.ops = rank.device->ops, .calls = exchange->ops, .fsdp = &rank.fsdp};
    struct ops ops = *spy.ops;
    struct coll_ops calls = *spy.calls;
    ops.attention = spy_attention;
    ops.attention_bwd = spy_attention_bwd;
    calls.start = spy_start;
    calls.wait = spy_wait;
    rank.device->ops = &ops;
    exchange->ops = &calls;
    int rc = step_gradients(&rank, 1, &result, &err);
    rank.device->ops = spy.ops;
    exchange->ops = spy.calls;
    rank_close(&rank);
    int calls_want = 2 * 4, beside = overlap ? 2 * 3 : 0; /* layers, stages */
    bool good = rc == 0 && spy.forward == calls_want && spy.backward == calls_want &&
                spy.forward_beside == beside && spy.backward_beside == beside &&
                spy.gather_beside == calls_want;
    if (!good)
        (void)fprintf(stderr, "rank %d: %d %d calls, beside exchanges %d %d, gathers %d: %s\n",
                      number, spy.forward, spy.backward, spy.forward_beside, spy.backward_beside,
                      spy.gather_beside, err.text);
    return good ? 0 : 1;
}

/* overlap: attention of every stage but the last runs while the next stage's exchange is under way;
 * and always while the next unit is gathered. */
static void test_what_is_under_way(void **state)
{
    struct parity_scene scene;
    parity_open(&scene, &small, PARITY_DATA_LONG, 1);
    struct job_spec *spec = &scene.plan.spec;
    spec->context_kind = JOB_context_kind_UPIPE;
    spec->ulysses = 2;
    spec->heads_per_stage = 1;
    scene.plan.world = 2;
    (void)snprintf(scene.plan.shm_name, sizeof scene.plan.shm_name, "/ithaca-spy-%d",
                   (int)getpid());
    for (int overlap = 0; overlap < 2; overlap++) {
        pid_t ranks[2];
        spec->overlap = overlap ? JOB_overlap_ON : JOB_overlap_OFF;
        (void)fflush(NULL);
        for (int r = 0; r < 2; r++) {
            ranks[r] = fork();
            if (ranks[r] == 0)
                _exit(spy_rank(&scene.plan, r, overlap != 0));
        }
        for (int r = 0; r < 2; r++) {
            int status = 0;
            assert_int_equal(waitpid(ranks[r], &status, 0), ranks[r]);
            assert_int_equal(status, 0);
        }
    }
    parity_close(&scene);
}

enum { STILL_WORLD = 4, STILL = 3, STILL_TIMEOUT_MS = 1500 };
struct still {
    struct err err[STILL_WORLD];
};

static int still_rank(const struct launch_plan *plan, int number, struct still *still)
{
    struct rank rank;
    struct step_result result;
    if (freopen("/dev/null", "w", stdout) == NULL)
        return 3;
    int rc = rank_open(&rank, plan, number, &still->err[number]);
    if (rc == 0)
        rc = step_gradients(&rank, 1, &result, &still->err[number]);
    if (rc == 0 && number == STILL)
        (void)raise(SIGSTOP);
    if (rc == 0)
        rc = step_gradients(&rank, 2, &result, &still->err[number]);
    if (rc != 0)
        rank_fail(&rank, &still->err[number]);
    rank_close(&rank);
    return rc == 0 ? 0 : 1;
}

/* A rank that stands still: its groups notice by their deadline and name it, the others are let go.
 */
static void test_rank_stands_still(void **state)
{
    struct parity_scene scene;
    parity_open(&scene, &small, PARITY_DATA_MIXED, 4);
    lay_out(&scene, 5);
    scene.plan.world = STILL_WORLD;
    scene.plan.coll_timeout_ms = STILL_TIMEOUT_MS;
    (void)snprintf(scene.plan.shm_name, sizeof scene.plan.shm_name, "/ithaca-still-%d",
                   (int)getpid());
    struct still *still =
        mmap(NULL, sizeof *still, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(still != MAP_FAILED);
    pid_t ranks[STILL_WORLD];
    (void)fflush(NULL);
    int64_t start = clock_monotonic_ns();
    for (int r = 0; r < STILL_WORLD; r++) {
        ranks[r] = fork();
        if (ranks[r] == 0)
            _exit(still_rank(&scene.plan, r, still));
    }
    bool named = false;
    for (int r = 0; r < STILL_WORLD; r++) {
        int status = 0;
        if (r == STILL)
            continue;
        assert_int_equal(waitpid(ranks[r], &status, 0), ranks[r]);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1);
        enum err_code code = still->err[r].code;
        assert_true(code == ERR_COLL_TIMEOUT || code == ERR_COLL_ABORTED);
        named = named ||
                (code == ERR_COLL_TIMEOUT &&
                 strstr(still->err[r].text, "not arrived within 1500 ms: rank 3 (pid") != NULL);
    }
    assert_true((clock_monotonic_ns() - start) / 1000000 < 20 * STILL_TIMEOUT_MS);
    assert_true(named);
    (void)kill(ranks[STILL], SIGKILL);
    assert_int_equal(waitpid(ranks[STILL], NULL, 0), ranks[STILL]);
    assert_int_equal(munmap(still, sizeof *still), 0);
    parity_close(&scene);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest longer[] = {
        cmocka_unit_test_teardown(test_long_lengths, testing_free),
    };
    if (argc > 1 && strcmp(argv[1], "--long") == 0)
        return cmocka_run_group_tests(longer, NULL, NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_lengths, testing_free),
        cmocka_unit_test_teardown(test_after_another_job, testing_free),
        cmocka_unit_test_teardown(test_examples_once, testing_free),
        cmocka_unit_test_teardown(test_every_token_weighs_the_same, testing_free),
        cmocka_unit_test_teardown(test_neighbours, testing_free),
        cmocka_unit_test_teardown(test_tiles, testing_free),
        cmocka_unit_test_teardown(test_overlap, testing_free),
        cmocka_unit_test_teardown(test_what_is_under_way, testing_free),
        cmocka_unit_test_teardown(test_rank_stands_still, testing_free),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

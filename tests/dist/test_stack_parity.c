/* stack: every legal way of sharing a sequence, of recomputing, tiling, packing and accumulating
 * computes the same: loss, gradients of step 1, gradient norm, weights after 5 steps and evaluation
 * against plain training on one rank, trained tokens exactly.
 *
 * Every other point runs with buffers apart and NaN in what the memory plan says is not needed, the
 * others with buffers upon each other as planned; all hold the planned bytes and no more.
 *
 * A point of the matrix has a value for each of sixteen parameters. ctest runs a sample in which
 * every two values that can occur together do (pairwise), another one each time. By hand:
 *     test_stack_parity --complete [--shard I/N]
 * walks every model, layout and recompute (3714 points), tile, data, grad_accum, fsdp,
 * overlap, replay, states and lora taking turns; a shard, 0 <= I < N, is those points whose number
 * is I mod N, so that N processes share the walk. A broken operation must be found: the last test
 * breaks each one that only this test guards.
 */
#include "common/mesh.h"
#include "tests/dist/parity_scene.h"

enum { SEQUENCES = 3, SEQUENCES_COMPLETE = 5, PARAMETERS = 16, VALUES_MAX = 10 };

#define MODEL(name_, h_, k_, d_, ...)                                                              \
    {                                                                                              \
        name_,                                                                                     \
        {                                                                                          \
            .vocab_size = PARITY_VOCAB, .hidden_size = 32, .intermediate_size = 48, .layers = 3,   \
            .heads = h_, .kv_heads = k_, .head_dim = d_, .context_max = 256, .rms_norm_eps = 1e-5, \
            .rope_theta = 10000, .initializer_range = 0.2, __VA_ARGS__                             \
        }                                                                                          \
    }
static const struct {
    const char *name;
    struct model_config config;
} models[] = {
    MODEL("MHA", 8, 8, 4, .family = MODEL_FAMILY_LLAMA),
    MODEL("GQA 8/2", 8, 2, 4, .family = MODEL_FAMILY_LLAMA),
    MODEL("MQA", 8, 1, 4, .family = MODEL_FAMILY_LLAMA),
    MODEL("12/4", 12, 4, 4, .family = MODEL_FAMILY_LLAMA),
    MODEL("14/2", 14, 2, 4, .family = MODEL_FAMILY_LLAMA),
    MODEL("wide heads", 4, 2, 12, .family = MODEL_FAMILY_LLAMA),
    MODEL("tied", 8, 4, 4, .family = MODEL_FAMILY_LLAMA, .tie_embeddings = true),
    MODEL("qk-norm", 8, 2, 6, .family = MODEL_FAMILY_QWEN3, .qk_norm = true),
    MODEL("biases, scaled rope", 8, 4, 4, .family = MODEL_FAMILY_LLAMA, .qkv_bias = true,
          .o_bias = true,
          .rope = {.kind = MODEL_ROPE_YARN,
                   .factor = 4,
                   .original_context = 32,
                   .beta_fast = 4,
                   .beta_slow = 1,
                   .attention_factor = 1.3}),
};
enum { MODELS = sizeof models / sizeof models[0] };

enum {
    MODEL_OF,
    WORLD,
    RING,
    ULYSSES,
    STAGE,
    RECOMPUTE,
    TILE_MLP,
    DATA,
    MICRO,
    FSDP,
    OVERLAP,
    REPLAY,
    STATES,
    LORA,
    OFFLOAD,
    STREAM
};
static const struct {
    const char *name;
    int count;
    int64_t values[VALUES_MAX];
} parameters[PARAMETERS] = {
    [MODEL_OF] = {"model", MODELS, {0, 1, 2, 3, 4, 5, 6, 7, 8}},
    [WORLD] = {"ranks", 4, {1, 2, 4, 8}},
    [RING] = {"ring", 4, {1, 2, 4, 8}},
    [ULYSSES] = {"ulysses", 5, {1, 2, 4, 7, 8}},
    [STAGE] = {"heads_per_stage", 6, {0, 1, 2, 3, 4, 7}}, /* 0: kind ulysses, all at once */
    [RECOMPUTE] = {"recompute", 6, {0, 1, 2, 3, 4, 5}},
    [TILE_MLP] = {"tile", 4, {0, 1, 7, 23}},
    [DATA] = {"data", PARITY_DATA_COUNT, {0, 1, 2, 3}},
    [MICRO] = {"grad_accum", 3, {0, 1, 2}},
    [FSDP] = {"fsdp", 2, {1, 0}},
    [OVERLAP] = {"overlap", 2, {0, 1}},
    [REPLAY] = {"replay anew", 2, {0, 1}},
    [STATES] = {"states", 3, {JOB_states_DEVICE, JOB_states_HOST_OPTIMIZER, JOB_states_HOST}},
    [LORA] = {"lora", 3, {0, 1, 2}},
    [OFFLOAD] = {"offload", 5, {0, 1, 2, 3, 4}},
    [STREAM] = {"stream_residual", 2, {0, 1}},
};
struct point {
    int64_t at[PARAMETERS]; /* values */
};

static const struct {
    enum job_recompute recompute;
    int64_t keep_input_every;
} recomputes[] = {{JOB_recompute_NONE, 1},
                  {JOB_recompute_INPUT, 1},
                  {JOB_recompute_INPUT_AND_ATTENTION, 1},
                  {JOB_recompute_ATTENTION, 1},
                  {JOB_recompute_ATTENTION, 2},
                  {JOB_recompute_ATTENTION, 3}};

static const struct {
    int64_t r, modules;
    double dropout;
} loras[] = {{0}, /* all weights are trained */
             {.r = 3, .modules = (1 << JOB_lora_module_COUNT) - 1, .dropout = 0.3},
             {.r = 8,
              .modules = 1 << JOB_lora_module_Q | 1 << JOB_lora_module_V | 1 << JOB_lora_module_O |
                         1 << JOB_lora_module_DOWN}};
enum { LORAS = sizeof loras / sizeof loras[0] };

/* Of three layers: those that leave the device, and those that go to the file. */
static const struct {
    enum job_offload offload;
    int64_t layers, file_layers;
} offloads[] = {{JOB_offload_NONE, 0, 0},
                {JOB_offload_HOST, 0, 0},
                {JOB_offload_FILE, 0, 0},
                {JOB_offload_HOST, 2, 0},
                {JOB_offload_FILE, 2, 1}};

/* There is a next stage whose exchange may be early. */
static bool overlaps(const struct point *p)
{
    const struct model_config *c = &models[p->at[MODEL_OF]].config;
    return p->at[ULYSSES] > 1 && p->at[STAGE] > 0 && c->heads / p->at[ULYSSES] / p->at[STAGE] > 1;
}

static bool replays(const struct point *p)
{
    return recomputes[p->at[RECOMPUTE]].keep_input_every > 1;
}

static bool legal(const struct point *p)
{
    const struct model_config *c = &models[p->at[MODEL_OF]].config;
    return (p->at[OVERLAP] == 0 || overlaps(p)) && (p->at[REPLAY] == 0 || replays(p)) &&
           p->at[WORLD] % (p->at[RING] * p->at[ULYSSES]) == 0 &&
           mesh_ulysses_legal(c->heads, c->kv_heads, p->at[ULYSSES]) &&
           (p->at[STAGE] == 0 ||
            mesh_stage_legal(c->heads, c->kv_heads, p->at[ULYSSES], p->at[STAGE]));
}

/* ---- one point ---- */

static int64_t sequences = SEQUENCES; /* of a step; no number of ranks above 1 divides them */
static struct outcome *references[MODELS][PARITY_DATA_COUNT][LORAS];

static void open_point(struct parity_scene *scene, const struct point *p)
{
    parity_open(scene, &models[p->at[MODEL_OF]].config, (enum parity_data)p->at[DATA], sequences);
    scene->plan.coll_timeout_ms = 120000;
    struct job_spec *spec = &scene->plan.spec;
    spec->lora = p->at[LORA] > 0;
    spec->lora_r = loras[p->at[LORA]].r;
    spec->lora_modules = loras[p->at[LORA]].modules;
    spec->lora_dropout = loras[p->at[LORA]].dropout;
}

static struct outcome *reference(struct parity_scene *scene, const struct point *p)
{
    struct outcome **place = &references[p->at[MODEL_OF]][p->at[DATA]][p->at[LORA]];
    if (*place == NULL) {
        *place = parity_run(scene, 1);
        assert_true((*place)->norm[0] > 0 && (*place)->eval.trained > 0);
    }
    return *place;
}

static void apply(struct job_spec *spec, const struct point *p)
{
    spec->ring = p->at[RING];
    spec->ulysses = p->at[ULYSSES];
    spec->context_kind = p->at[STAGE] > 0     ? JOB_context_kind_UPIPE
                         : p->at[ULYSSES] > 1 ? JOB_context_kind_ULYSSES
                         : p->at[RING] > 1    ? JOB_context_kind_RING
                                              : JOB_context_kind_NONE;
    spec->heads_per_stage = p->at[STAGE];
    spec->recompute = recomputes[p->at[RECOMPUTE]].recompute;
    spec->keep_input_every = recomputes[p->at[RECOMPUTE]].keep_input_every;
    spec->tile_mlp = spec->tile_loss = p->at[TILE_MLP];
    spec->grad_accum = p->at[MICRO];
    spec->fsdp = p->at[FSDP] != 0;
    spec->overlap = p->at[OVERLAP] != 0 ? JOB_overlap_ON : JOB_overlap_OFF;
    spec->offload = offloads[p->at[OFFLOAD]].offload;
    spec->offload_layers = offloads[p->at[OFFLOAD]].layers;
    spec->file_layers = offloads[p->at[OFFLOAD]].file_layers;
    spec->stream_residual = p->at[STREAM] != 0 ? JOB_toggle_ON : JOB_toggle_OFF;
    spec->states = (enum job_states)p->at[STATES];
}

static void describe(const struct point *p, char *text, size_t size)
{
    int length = snprintf(text, size, "%s", models[p->at[MODEL_OF]].name);
    for (int i = 1; i < PARAMETERS; i++)
        length += snprintf(text + length, size - (size_t)length, ", %s %lld", parameters[i].name,
                           (long long)p->at[i]);
}

static struct parity_worst run_point(const struct point *p, const struct ops *ops)
{
    struct parity_scene scene;
    open_point(&scene, p);
    struct outcome *want = reference(&scene, p);
    apply(&scene.plan.spec, p);
    static int64_t runs;
    scene.strict = ops == NULL && runs++ % 2 == 0;
    mem_layout_segment_limit(runs / 2 % 2 == 0 ? 0 : MEM_SEGMENT_BYTES); /* away, and at hand */
    scene.replay_anew = p->at[REPLAY] != 0;
    scene.ops = ops;
    struct outcome *got = parity_try(&scene, (uint32_t)p->at[WORLD]);
    struct parity_worst worst = {.error = (double)INFINITY, .what = "a rank failed"};
    if (scene.good)
        worst = parity_compare(&scene, got, want);
    parity_release(got);
    parity_close(&scene);
    return worst;
}

static bool check_point(const struct point *p, double *largest)
{
    struct parity_worst worst = run_point(p, NULL);
    *largest = worst.error > *largest ? worst.error : *largest;
    if (worst.error <= PARITY_ERROR_MAX)
        return true;
    char text[256];
    describe(p, text, sizeof text);
    print_error("%s: %s is off by %.3g; ITHACA_TEST_SEED=%" PRIu64 "\n", text, worst.what,
                worst.error, testing_seed());
    return false;
}

/* ---- the sample ---- */

static bool covered[PARAMETERS][VALUES_MAX][PARAMETERS][VALUES_MAX];

static int pairs_of(const int *index, bool mark)
{
    int fresh = 0;
    for (int i = 0; i < PARAMETERS; i++)
        for (int j = i + 1; j < PARAMETERS; j++) {
            bool *pair = &covered[i][index[i]][j][index[j]];
            fresh += !*pair;
            *pair = *pair || mark;
        }
    return fresh;
}

/* A legal point from random values; its places in the tables in index. */
static struct point draw(int64_t number, int *index)
{
    struct point p;
    do {
        for (int i = 0; i < PARAMETERS; i++) {
            index[i] = (int)parity_draw(20 + i, number, parameters[i].count);
            p.at[i] = parameters[i].values[index[i]];
        }
        number += 1000003; /* until it is legal */
    } while (!legal(&p));
    return p;
}

static void test_sample(void **state)
{
    enum { CANDIDATES = 200, IDLE_MAX = 10 };
    int points = 0, idle = 0, bad = 0;
    double largest = 0;
    for (int64_t round = 0; idle < IDLE_MAX; round++) {
        struct point best = {0};
        int best_index[PARAMETERS], best_fresh = 0;
        for (int64_t c = 0; c < CANDIDATES; c++) {
            int index[PARAMETERS];
            struct point p = draw(round * CANDIDATES + c, index);
            int fresh = pairs_of(index, false);
            if (fresh <= best_fresh)
                continue;
            best_fresh = fresh;
            best = p;
            memcpy(best_index, index, sizeof index);
        }
        idle = best_fresh == 0 ? idle + 1 : 0;
        if (best_fresh == 0)
            continue;
        (void)pairs_of(best_index, true);
        bad += !check_point(&best, &largest);
        points++;
    }
    print_message("%d points, largest error %.3g\n", points, largest);
    assert_int_equal(bad, 0);
}

/* ---- broken on purpose ---- */

static struct ops broken;
static const struct ops *whole;

#define BREAK(op, ...)                                                  \
    static int break_##op(struct device *device, struct stream *stream, \
                          const struct ops_##op *args, struct err *err) \
    {                                                                   \
        struct ops_##op wrong = *args;                                  \
        __VA_ARGS__                                                     \
        return whole->op(device, stream, &wrong, err);                  \
    }
BREAK(attention_merge, wrong.heads = args->heads - 1;)
BREAK(attention_delta, wrong.rows = args->rows / 2;)
BREAK(unpack, wrong.copies = 1;)
BREAK(attention, wrong.scale *= args->kv_rows > 0 ? 1.001f : 1.0f;)
BREAK(attention_bwd, wrong.scale *= 1.001f;)
BREAK(rope, wrong.inverse = false;)
BREAK(embed_bwd, wrong.tokens = args->tokens / 2;)
BREAK(dropout, wrong.feature = args->feature + (args->heads > 1);)

static void test_breaking_is_found(void **state)
{
    struct err err = {0};
    struct device *device = NULL;
    assert_int_equal(device_cpu_open(1, &device, &err), 0);
    whole = device->ops;
    /* MQA: ranks share a K/V head; ring and Ulysses, in stages. */
    struct point p = {
        {2, 4, 2, 2, 2, 2, 7, PARITY_DATA_MIXED, 1, 1, 0, 0, JOB_states_HOST, 0, 1, 1}};
    assert_true(legal(&p));
    double largest = 0;
    assert_true(check_point(&p, &largest));
#define FIND(op)                                                                    \
    do {                                                                            \
        broken = *whole;                                                            \
        broken.op = break_##op;                                                     \
        struct parity_worst worst = run_point(&p, &broken);                         \
        print_message(#op " broken: %s is off by %.3g\n", worst.what, worst.error); \
        assert_true(worst.error > PARITY_ERROR_MAX && isfinite(worst.error));       \
    } while (0)
    FIND(attention_merge);
    FIND(attention_delta);
    FIND(unpack);
    FIND(attention);
    FIND(attention_bwd);
    FIND(rope);
    FIND(embed_bwd);
    p.at[LORA] = 1;
    assert_true(check_point(&p, &largest));
    FIND(dropout);
    device->dev->close(device);
}

/* ---- all of it ---- */

/* Tile and what follows it of a point: drawn, the same every time, so that all values come by under
 * every recompute, and pairs of them in great number. */
static void spread(struct point *p, int64_t layout)
{
    uint64_t at = (uint64_t)(layout * 7 + p->at[RECOMPUTE]);
    for (int i = TILE_MLP; i < PARAMETERS; i++)
        p->at[i] = parameters[i].values[rng_below(1, RNG_STREAM_TEST + (uint64_t)i, at,
                                                  (uint64_t)parameters[i].count)];
    p->at[OVERLAP] = overlaps(p) ? p->at[OVERLAP] : 0;
    p->at[REPLAY] = replays(p) ? p->at[REPLAY] : 0;
}

static int run_complete(int64_t shard, int64_t shards)
{
    int64_t layouts = 0, number = 0, points = 0, bad = 0;
    double largest = 0;
    int index[TILE_MLP] = {0};
    for (int i = 0; i >= 0;) {
        struct point p = {0};
        for (int j = 0; j < TILE_MLP; j++)
            p.at[j] = parameters[j].values[index[j]];
        layouts += index[RECOMPUTE] == 0 && legal(&p);
        spread(&p, layouts);
        if (legal(&p) && number++ % shards == shard) {
            points++;
            bad += !check_point(&p, &largest);
        }
        for (i = TILE_MLP - 1; i >= 0 && ++index[i] == parameters[i].count; i--)
            index[i] = 0;
    }
    print_message("shard %" PRId64 "/%" PRId64 ": %" PRId64 " of %" PRId64 " points, %" PRId64
                  " bad, largest error %.3g; ITHACA_TEST_SEED=%" PRIu64 "\n",
                  shard, shards, points, number, bad, largest, testing_seed());
    return bad == 0 ? 0 : 1;
}

/* --complete [--shard I/N]: 0 when the arguments are that. */
static int parse_complete(int argc, char **argv, int64_t *ret_shard, int64_t *ret_shards)
{
    char end;
    *ret_shard = 0;
    *ret_shards = 1;
    if (strcmp(argv[1], "--complete") != 0 || (argc != 2 && argc != 4))
        return -1;
    if (argc == 2)
        return 0;
    return strcmp(argv[2], "--shard") == 0 &&
                   sscanf(argv[3], "%" SCNd64 "/%" SCNd64 "%c", ret_shard, ret_shards, &end) == 2 &&
                   *ret_shard >= 0 && *ret_shard < *ret_shards
               ? 0
               : -1;
}

int main(int argc, char **argv)
{
    int64_t shard, shards;
    if (argc > 1 && parse_complete(argc, argv, &shard, &shards) != 0) {
        (void)fprintf(stderr, "usage: %s [--complete [--shard I/N]], 0 <= I < N\n", argv[0]);
        return 2;
    }
    if (argc > 1) {
        sequences = SEQUENCES_COMPLETE;
        return run_complete(shard, shards);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_sample, testing_free),
        cmocka_unit_test_teardown(test_breaking_is_found, testing_free),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Training on GPUs against the same training on the CPU: bf16 with fp32 sums against fp32, so
 * within bf16's error. Loss, gradients of step 1 tensor by tensor, weights after 5 steps,
 * evaluation; one rank under every recomputation, and with a second GPU every layout of two; some
 * of them with states on the host. Skipped without a GPU. */
#include "tests/lib/cuda_ranks.h"

/* Largest errors seen on an H200 stand beside; both are relative. */
#define LOSS_ERROR_MAX 0.01
#define GRAD_ERROR_MAX 0.03 /* of a tensor's norm */
#define NORM_ERROR_MAX 0.02 /* of gradients: how far a tensor's norm may be off */
#define COSINE_MIN 0.999    /* and their direction */

static struct model_config model(enum model_family family, int64_t kv_heads, bool tied)
{
    struct model_config config = cuda_ranks_model(family, 2);
    config.kv_heads = kv_heads;
    config.tie_embeddings = tied;
    return config;
}

/* How far tensors are off, each figure that of the worst; NaN is the worst of all. */
struct distance {
    double error; /* of the difference, relative */
    double norm;  /* relative */
    double turn;  /* 1 - cosine */
    char name[96];
};

static struct distance tensor_distance(const float *got, const float *want, int64_t count)
{
    double error = 0, dot = 0, got_squares = 0, squares = 0;
    for (int64_t i = 0; i < count; i++) {
        double a = (double)got[i], b = (double)want[i];
        error += (a - b) * (a - b);
        dot += a * b;
        got_squares += a * a;
        squares += b * b;
    }
    if (squares == 0) /* adapters' A before the first update */
        return (struct distance){.error = sqrt(error)};
    return (struct distance){.error = sqrt(error / squares),
                             .norm = fabs(sqrt(got_squares / squares) - 1),
                             .turn = 1 - dot / sqrt(got_squares * squares)};
}

static double worse(double a, double b)
{
    return isnan(a) || b <= a ? a : b;
}

static struct distance worst_tensor(const struct parity_scene *scene, const float *got,
                                    const float *want)
{
    struct model_shape shape = parity_shape(scene);
    struct distance worst = {.error = 0};
    for (int64_t r = 0; r < shape.row_count; r++) {
        struct distance one = tensor_distance(got, want, shape.rows[r].elements);
        if (!(one.error <= worst.error))
            (void)snprintf(worst.name, sizeof worst.name, "%s", shape.rows[r].name);
        worst.error = worse(worst.error, one.error);
        worst.norm = worse(worst.norm, one.norm);
        worst.turn = worse(worst.turn, one.turn);
        got += shape.rows[r].elements;
        want += shape.rows[r].elements;
    }
    model_shape_done(&shape);
    return worst;
}

/* Prints how far a run is from the CPU's; false when that is too far. */
static bool compare(const struct parity_scene *scene, const char *what, const struct outcome *gpu,
                    const struct outcome *cpu)
{
    double loss = fabs(gpu->eval.loss / cpu->eval.loss - 1);
    bool counts = gpu->eval.trained == cpu->eval.trained;
    if (!scene->good) {
        printf("%-48s %s\n", what, gpu->err.text);
        return false;
    }
    for (int step = 0; step < PARITY_STEPS; step++) {
        double error = fabs(gpu->loss[step] / cpu->loss[step] - 1);
        loss = worse(loss, error);
        counts = counts && gpu->trained[step] == cpu->trained[step] &&
                 gpu->tokens[step] == cpu->tokens[step];
    }
    struct distance grads = worst_tensor(scene, gpu->grads, cpu->grads);
    struct distance weights = worst_tensor(scene, gpu->weights, cpu->weights);
    bool close = loss <= LOSS_ERROR_MAX && grads.error <= GRAD_ERROR_MAX &&
                 grads.norm <= NORM_ERROR_MAX && grads.turn <= 1 - COSINE_MIN &&
                 weights.error <= GRAD_ERROR_MAX;
    printf("%-48s loss %.2g, gradients %.2g (%s; norm %.2g, 1 - cosine %.2g), weights %.2g (%s)"
           "%s%s\n",
           what, loss, grads.error, grads.name, grads.norm, grads.turn, weights.error, weights.name,
           close ? "" : " TOO FAR", counts ? "" : " OTHER COUNTS");
    return close && counts;
}

struct layout {
    const char *name;
    uint32_t world;
    enum job_context_kind kind;
    int64_t ulysses, ring, heads_per_stage, tile, keep_input_every;
    enum job_recompute recompute;
    bool whole; /* fsdp: false */
};

static const struct layout layouts[] = {
    {"plain", 1, JOB_context_kind_NONE, 1, 1, 0, 0, 1, JOB_recompute_NONE, false},
    {"input, tiles of 24", 1, JOB_context_kind_NONE, 1, 1, 0, 24, 1, JOB_recompute_INPUT, false},
    {"input_and_attention", 1, JOB_context_kind_NONE, 1, 1, 0, 40, 1,
     JOB_recompute_INPUT_AND_ATTENTION, false},
    {"attention, every 2nd input", 1, JOB_context_kind_NONE, 1, 1, 0, 40, 2,
     JOB_recompute_ATTENTION, false},
    {"upipe on one rank", 1, JOB_context_kind_UPIPE, 1, 1, 1, 24, 1, JOB_recompute_INPUT, false},
    {"fsdp 2", 2, JOB_context_kind_NONE, 1, 1, 0, 24, 1, JOB_recompute_INPUT, false},
    {"data 2, not sharded", 2, JOB_context_kind_NONE, 1, 1, 0, 0, 1, JOB_recompute_NONE, true},
    {"ulysses 2", 2, JOB_context_kind_ULYSSES, 2, 1, 0, 24, 1, JOB_recompute_INPUT, false},
    {"upipe 2, u 1", 2, JOB_context_kind_UPIPE, 2, 1, 1, 24, 1, JOB_recompute_INPUT, false},
    {"upipe 2, u 1, attention kept", 2, JOB_context_kind_UPIPE, 2, 1, 1, 24, 2,
     JOB_recompute_ATTENTION, false},
    {"ring 2", 2, JOB_context_kind_RING, 1, 2, 0, 24, 1, JOB_recompute_INPUT, false},
    {"ring 2, nothing recomputed", 2, JOB_context_kind_RING, 1, 2, 0, 0, 1, JOB_recompute_NONE,
     false},
};

static void set_layout(struct job_spec *spec, const struct layout *layout)
{
    spec->context_kind = layout->kind;
    spec->ulysses = layout->ulysses;
    spec->ring = layout->ring;
    spec->heads_per_stage = layout->heads_per_stage;
    spec->recompute = layout->recompute;
    spec->keep_input_every = layout->keep_input_every;
    spec->tile_mlp = spec->tile_loss = layout->tile == 0 ? spec->seq_len : layout->tile;
    spec->fsdp = !layout->whole;
}

/* A layout on GPUs beside the CPU's plain run; true where there are too few. */
static bool run_layout(struct parity_scene *scene, const struct layout *layout,
                       enum job_states states, const struct outcome *cpu)
{
    static const char *const names[JOB_states_COUNT] = {[JOB_states_AUTO] = "",
                                                        [JOB_states_DEVICE] = "",
                                                        [JOB_states_HOST_OPTIMIZER] =
                                                            ", states host_optimizer",
                                                        [JOB_states_HOST] = ", states host"};
    static const char *const offloads[JOB_offload_COUNT] = {[JOB_offload_AUTO] = "",
                                                            [JOB_offload_NONE] = "",
                                                            [JOB_offload_HOST] = ", offload host",
                                                            [JOB_offload_FILE] = ", offload file"};
    char what[128];
    struct job_spec *spec = &scene->plan.spec;
    if (layout->world > (uint32_t)cuda_ranks_gpus)
        return true;
    set_layout(spec, layout);
    spec->states = states;
    (void)snprintf(what, sizeof what, "%s%s%s%s%s", layout->name, names[states],
                   offloads[spec->offload], spec->offload_layers > 0 ? " of one layer" : "",
                   spec->stream_residual == JOB_toggle_ON ? ", stream_residual" : "");
    struct outcome *gpu = parity_try(scene, layout->world);
    bool good = compare(scene, what, gpu, cpu);
    parity_release(gpu);
    return good;
}

/* r: rank of adapters of all modules, 0 for none. */
static void play_lora(const struct model_config *config, enum parity_data data, int64_t r,
                      double dropout)
{
    enum { STATES_EVERY = 3 }; /* layouts whose states are moved to the host */
    struct parity_scene scene;
    parity_open(&scene, config, data, 4);
    scene.plan.spec.lora = r > 0;
    scene.plan.spec.lora_r = r;
    scene.plan.spec.lora_dropout = dropout;
    set_layout(&scene.plan.spec, &layouts[0]);
    bool good = true;
    struct outcome *cpu = parity_run(&scene, 1);
    scene.plan.device = LAUNCH_CUDA;
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
        good = run_layout(&scene, &layouts[i], JOB_states_DEVICE, cpu) && good;
        if (i % STATES_EVERY != 0) /* plain, attention, not sharded, attention kept */
            continue;
        good = run_layout(&scene, &layouts[i], JOB_states_HOST_OPTIMIZER, cpu) && good;
        good = run_layout(&scene, &layouts[i], JOB_states_HOST, cpu) && good;
    }
    parity_release(cpu);
    parity_close(&scene);
    assert_true(good);
}

static void play(const struct model_config *config, enum parity_data data)
{
    play_lora(config, data, 0, 0);
}

/* What leaves the device, in every layout. */
static void test_offload(void **state)
{
    static const struct {
        enum job_offload offload;
        int64_t layers;
        enum job_toggle streamed;
    } ways[] = {{JOB_offload_HOST, 0, JOB_toggle_OFF}, {JOB_offload_HOST, 1, JOB_toggle_OFF},
                {JOB_offload_FILE, 0, JOB_toggle_OFF}, {JOB_offload_NONE, 0, JOB_toggle_ON},
                {JOB_offload_HOST, 0, JOB_toggle_ON},  {JOB_offload_FILE, 1, JOB_toggle_ON}};
    struct model_config config = model(MODEL_FAMILY_QWEN3, 2, false);
    struct parity_scene scene;
    parity_open(&scene, &config, PARITY_DATA_MIXED, 4);
    set_layout(&scene.plan.spec, &layouts[0]);
    bool good = true;
    struct outcome *cpu = parity_run(&scene, 1);
    scene.plan.device = LAUNCH_CUDA;
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++)
        for (size_t w = 0; w < sizeof ways / sizeof ways[0]; w++) {
            scene.plan.spec.offload = ways[w].offload;
            scene.plan.spec.offload_layers = ways[w].layers;
            scene.plan.spec.stream_residual = ways[w].streamed;
            good = run_layout(&scene, &layouts[i], JOB_states_DEVICE, cpu) && good;
        }
    parity_release(cpu);
    parity_close(&scene);
    assert_true(good);
}

static void test_lora(void **state)
{
    struct model_config config = model(MODEL_FAMILY_LLAMA, 2, false);
    play_lora(&config, PARITY_DATA_MIXED, 16, 0);
    config = model(MODEL_FAMILY_QWEN3, 4, true);
    play_lora(&config, PARITY_DATA_MIXED, 8, 0.3);
    config = model(MODEL_FAMILY_QWEN2, 2, false);
    play_lora(&config, PARITY_DATA_LONG, 3, 0.1); /* rows that no vector fits */
}

static void test_llama(void **state)
{
    struct model_config config = model(MODEL_FAMILY_LLAMA, 2, false);
    play(&config, PARITY_DATA_MIXED);
}

static void test_qwen2_tied(void **state)
{
    struct model_config config = model(MODEL_FAMILY_QWEN2, 4, true);
    play(&config, PARITY_DATA_LONG);
}

static void test_qwen3(void **state)
{
    struct model_config config = model(MODEL_FAMILY_QWEN3, 2, false);
    play(&config, PARITY_DATA_MIXED);
}

static void test_qwen3_short_documents(void **state)
{
    struct model_config config = model(MODEL_FAMILY_QWEN3, 2, true);
    play(&config, PARITY_DATA_TINY);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lora),  cmocka_unit_test(test_offload),
        cmocka_unit_test(test_llama), cmocka_unit_test(test_qwen2_tied),
        cmocka_unit_test(test_qwen3), cmocka_unit_test(test_qwen3_short_documents),
    };
    (void)cuda_ranks_begin(argc, argv, 1); /* outcomes have memory of their own */
    if (cuda_ranks_gpus == 0)
        return CUDA_RANKS_SKIPPED;
    printf("%d GPU%s\n", cuda_ranks_gpus, cuda_ranks_gpus == 1 ? "" : "s");
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* states: where they live changes nothing. With master, m and v, or gradients too, on the host, a
 * run has the bits of the run with all of them on the device: losses, norms, gradients of step 1,
 * weights after 5 steps, evaluation; however many ranks, micro-steps and ways of recomputing, with
 * one chunk for a shard or many, on streams that copy at once and as late as they may; operations
 * never see memory of the host. Both arenas hold the planned bytes and no more, which every step
 * asserts, every other layout with NaN in what the plan gives up. */
#include "tests/dist/parity_scene.h"
#include "tests/lib/lazy_device.h"
#include "tests/lib/op_guard.h"

static struct model_config model(int64_t hidden, bool tied)
{
    return (struct model_config){.family = MODEL_FAMILY_QWEN2,
                                 .vocab_size = hidden > 16 ? 700 : PARITY_VOCAB,
                                 .hidden_size = hidden,
                                 .intermediate_size = 3 * hidden,
                                 .layers = 2,
                                 .heads = 4,
                                 .kv_heads = 2,
                                 .head_dim = hidden / 4,
                                 .context_max = 256,
                                 .rms_norm_eps = 1e-5,
                                 .rope_theta = 10000,
                                 .initializer_range = 0.2,
                                 .qkv_bias = true,
                                 .tie_embeddings = tied};
}

struct layout {
    const char *what;
    uint32_t world;
    bool wide, tied, replicated, lora;
    int64_t grad_accum; /* as in the spec: 0, a sequence a rank and micro-step */
    int64_t ulysses, ring, heads_per_stage;
    enum job_recompute recompute;
    int64_t tile;
};
static const struct layout layouts[] = {
    {"one rank", 1, .grad_accum = 1},
    {"one rank, tied, accumulating", 1, .tied = true},
    {"one rank, many chunks", 1, .wide = true, .tied = true, .recompute = JOB_recompute_INPUT},
    {"two ranks", 2, .grad_accum = 1, .tied = true},
    {"three ranks, which divide nothing", 3, .tile = 23},
    {"two ranks, many chunks, accumulating", 2, .wide = true, .tied = true},
    {"every rank holds everything", 2, .replicated = true, .grad_accum = 1},
    {"the same, many chunks, accumulating", 3, .wide = true, .replicated = true, .tied = true},
    {"adapters, accumulating", 2, .lora = true},
    {"adapters, every rank holds everything", 2, .replicated = true, .lora = true},
    {"ulysses", 2, .ulysses = 2, .recompute = JOB_recompute_INPUT_AND_ATTENTION},
    {"upipe and ring, replaying", 4, .ulysses = 2, .ring = 2, .heads_per_stage = 1, .tied = true,
     .recompute = JOB_recompute_ATTENTION},
};

static void open_layout(struct parity_scene *scene, const struct layout *layout)
{
    struct model_config config = model(layout->wide ? 64 : 16, layout->tied);
    parity_open(scene, &config, PARITY_DATA_MIXED, 6);
    struct job_spec *spec = &scene->plan.spec;
    spec->fsdp = !layout->replicated;
    spec->lora = layout->lora;
    spec->lora_r = 4;
    spec->lora_modules = (1 << JOB_lora_module_COUNT) - 1;
    spec->grad_accum = layout->grad_accum;
    spec->ulysses = layout->ulysses > 0 ? layout->ulysses : 1;
    spec->ring = layout->ring > 0 ? layout->ring : 1;
    spec->heads_per_stage = layout->heads_per_stage;
    spec->context_kind = layout->heads_per_stage > 0 ? JOB_context_kind_UPIPE
                         : layout->ulysses > 0       ? JOB_context_kind_ULYSSES
                                                     : JOB_context_kind_NONE;
    spec->recompute = layout->recompute > 0 ? layout->recompute : JOB_recompute_NONE;
    spec->keep_input_every = layout->recompute == JOB_recompute_ATTENTION ? 2 : 1;
    spec->tile_mlp = spec->tile_loss = layout->tile;
}

/* What the plan says of a run: host bytes of its rank, chunks of the largest shard. */
static void plan_of(const struct parity_scene *scene, uint32_t world, struct mem_plan *ret,
                    int64_t *ret_chunks)
{
    struct err err = {0};
    struct model_shape shape;
    struct mem_request request = {.shape = &shape,
                                  .spec = &scene->plan.spec,
                                  .world = (int)world,
                                  .backend = MEM_BACKEND_CPU};
    if (model_shape_build(&scene->config, &shape, &err) != 0 ||
        mem_plan_build(&request, ret, &err) != 0)
        parity_give_up("plan", &err);
    int64_t largest = 0;
    for (int64_t unit = 0; unit < shape.unit_count; unit++) {
        int64_t shard = mem_layout_shard(&shape, unit, ret->layout.shards);
        largest = shard > largest ? shard : largest;
    }
    int64_t chunk = mem_layout_state_chunk(largest);
    *ret_chunks = (largest + chunk - 1) / chunk;
    model_shape_done(&shape);
}

static void check_plan(const struct parity_scene *scene, const struct layout *layout)
{
    struct mem_plan memory;
    int64_t chunks = 0, states = 0;
    plan_of(scene, layout->world, &memory, &chunks);
    for (int64_t i = 0; i < memory.count; i++) {
        const struct mem_buffer *b = &memory.buffers[i];
        bool grad = b->name == MEM_GRAD;
        if (b->name == MEM_MASTER || b->name == MEM_MOMENT1 || b->name == MEM_MOMENT2 || grad) {
            bool host = !grad || scene->plan.spec.states == JOB_states_HOST;
            assert_int_equal(b->arena, host ? MEM_ARENA_HOST : MEM_ARENA_DEVICE);
            states += host ? mem_buffer_room(b) : 0;
        }
    }
    assert_int_equal(memory.arena_bytes[MEM_ARENA_HOST], states);
    assert_true(layout->wide ? chunks > 2 : chunks == 1);
    mem_plan_done(&memory);
}

static void lazy_opened(struct rank *rank)
{
    op_guard_opened(rank);
    lazy_device_wrap(rank->device);
}

static void test_same_bits(void **state)
{
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
        const struct layout *layout = &layouts[i];
        struct parity_scene scene;
        open_layout(&scene, layout);
        scene.plan.spec.states = JOB_states_DEVICE;
        struct outcome *want = parity_run(&scene, layout->world);
        assert_true(want->norm[0] > 0 && want->updated[PARITY_STEPS - 1]);
        for (int host = i % 3 == 2 ? 0 : 1; host < 2; host++) { /* each third both ways */
            bool late = (i + (size_t)host) % 2 == 0;
            scene.opened = late ? lazy_opened : op_guard_opened;
            scene.strict = !late; /* copies that are put off outlast a phase */
            scene.plan.spec.states = host == 0 ? JOB_states_HOST_OPTIMIZER : JOB_states_HOST;
            check_plan(&scene, layout);
            struct outcome *got = parity_run(&scene, layout->world);
            testing_same_bits(layout->what, got, want, (int64_t)sizeof *got);
            parity_release(got);
        }
        parity_release(want);
        parity_close(&scene);
    }
}

/* A step without trained tokens and one whose gradient is not finite update nothing, there too. */
static void test_skipped(void **state)
{
    struct parity_scene scene;
    struct outcome *outcomes[2];
    open_layout(&scene, &layouts[3]);
    scene.plan.spec.learning_rate = 1e36;
    scene.plan.spec.warmup_steps = 0;
    scene.plan.spec.on_nonfinite = JOB_on_nonfinite_SKIP;
    for (int host = 0; host < 2; host++) {
        scene.plan.spec.states = host == 0 ? JOB_states_DEVICE : JOB_states_HOST;
        outcomes[host] = parity_run(&scene, 2);
        for (int step = 0; step < PARITY_STEPS; step++)
            assert_int_equal(outcomes[host]->updated[step], step == 0);
    }
    assert_memory_equal(outcomes[0]->weights, outcomes[1]->weights, sizeof outcomes[0]->weights);
    for (int host = 0; host < 2; host++)
        parity_release(outcomes[host]);
    parity_close(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_same_bits, testing_free),
        cmocka_unit_test_teardown(test_skipped, testing_free),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

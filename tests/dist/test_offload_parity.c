/* offload: tensors that leave the device change no bit. Every recomputation, with layers on the
 * device, the host and in the file, and with a streamed residual, against the same job that keeps
 * all on its device; operations never see memory of the host. */
#include "tests/dist/parity_scene.h"
#include "tests/lib/lazy_device.h"
#include "tests/lib/op_guard.h"

static const struct model_config small = {.family = MODEL_FAMILY_QWEN3,
                                          .vocab_size = PARITY_VOCAB,
                                          .hidden_size = 32,
                                          .intermediate_size = 48,
                                          .layers = 5,
                                          .heads = 4,
                                          .kv_heads = 2,
                                          .head_dim = 6,
                                          .context_max = 256,
                                          .rms_norm_eps = 1e-5,
                                          .rope_theta = 10000,
                                          .initializer_range = 0.2,
                                          .qk_norm = true};

static const struct {
    const char *name;
    enum job_recompute recompute;
    int64_t keep_input_every;
    bool anew;
} recomputes[] = {{"none", JOB_recompute_NONE, 1, false},
                  {"input", JOB_recompute_INPUT, 1, false},
                  {"input_and_attention", JOB_recompute_INPUT_AND_ATTENTION, 1, false},
                  {"attention", JOB_recompute_ATTENTION, 1, false},
                  {"attention, every 2nd input", JOB_recompute_ATTENTION, 2, false},
                  {"attention, every 3rd input, anew", JOB_recompute_ATTENTION, 3, true},
                  {"attention, every 4th input", JOB_recompute_ATTENTION, 4, false}};
enum { RECOMPUTES = sizeof recomputes / sizeof recomputes[0] };

/* Of five layers. */
static const struct {
    const char *name;
    enum job_offload offload;
    int64_t layers, file_layers;
    bool streamed;
} aways[] = {{"host", JOB_offload_HOST, 0, 0, false},
             {"host, 3 layers", JOB_offload_HOST, 3, 0, false},
             {"file", JOB_offload_FILE, 0, 0, false},
             {"file, 4 layers, 2 of them on the host", JOB_offload_FILE, 4, 2, false},
             {"streamed", JOB_offload_NONE, 0, 0, true},
             {"streamed, host, 2 layers", JOB_offload_HOST, 2, 0, true},
             {"streamed, file, 3 layers", JOB_offload_FILE, 3, 3, true}};
enum { AWAYS = sizeof aways / sizeof aways[0] };

static void lazy_opened(struct rank *rank)
{
    op_guard_opened(rank);
    lazy_device_wrap(rank->device);
}

/* ---- the same bits ---- */

static struct outcome *run(struct parity_scene *scene, int recompute, uint32_t world, int64_t tile)
{
    struct job_spec *spec = &scene->plan.spec;
    spec->recompute = recomputes[recompute].recompute;
    spec->keep_input_every = recomputes[recompute].keep_input_every;
    scene->replay_anew = recomputes[recompute].anew;
    spec->tile_mlp = tile;
    spec->tile_loss = tile == 0 ? 0 : tile + 2; /* chunks hold the larger */
    spec->context_kind = world > 1 ? JOB_context_kind_UPIPE : JOB_context_kind_NONE;
    spec->ulysses = world;
    spec->heads_per_stage = world > 1 ? 1 : 0;
    spec->lora = recompute % 2 == 1; /* adapters, every other time */
    spec->lora_r = spec->lora ? 3 : 0;
    spec->lora_dropout = spec->lora ? 0.2 : 0;
    return parity_run(scene, world);
}

static void check_bits(const char *recompute, const char *away, const struct outcome *got,
                       const struct outcome *want)
{
    bool same = memcmp(got->loss, want->loss, sizeof want->loss) == 0 &&
                memcmp(got->norm, want->norm, sizeof want->norm) == 0 &&
                memcmp(&got->eval, &want->eval, sizeof want->eval) == 0 &&
                memcmp(got->grads, want->grads, sizeof want->grads) == 0 &&
                memcmp(got->weights, want->weights, sizeof want->weights) == 0;
    if (!same)
        fail_msg("recompute %s, offload %s: other numbers; ITHACA_TEST_SEED=%" PRIu64, recompute,
                 away, testing_seed());
}

static void test_same_bits(void **state)
{
    static const int64_t tiles[] = {0, 7, 16};
    enum { EACH = 3 }; /* of the ways, for a recomputation; another choice each time */
    for (int r = 0; r < RECOMPUTES; r++) {
        struct parity_scene scene;
        enum parity_data data = (enum parity_data)parity_draw(30, r, PARITY_DATA_COUNT);
        uint32_t world = 1 + (uint32_t)parity_draw(31, r, 2);
        int64_t tile = tiles[parity_draw(32, r, 3)];
        parity_open(&scene, &small, data, 3);
        struct outcome *want = run(&scene, r, world, tile);
        assert_true(want->norm[0] > 0);
        for (int64_t i = 0, first = parity_draw(33, r, AWAYS); i < EACH; i++) {
            int64_t a = (first + 2 * i) % AWAYS;
            scene.plan.spec.offload = aways[a].offload;
            scene.plan.spec.offload_layers = aways[a].layers;
            scene.plan.spec.file_layers = aways[a].file_layers;
            scene.plan.spec.stream_residual = aways[a].streamed ? JOB_toggle_ON : JOB_toggle_OFF;
            mem_layout_segment_limit(i % 2 == 0 ? 0 : MEM_SEGMENT_BYTES); /* away, and at hand */
            scene.opened = i == 0 ? op_guard_opened : lazy_opened;
            scene.strict = i == 0; /* copies that are put off outlast a phase */
            struct outcome *got = run(&scene, r, world, tile);
            check_bits(recomputes[r].name, aways[a].name, got, want);
            parity_release(got);
        }
        parity_release(want);
        parity_close(&scene);
    }
}

/* The guard finds what it is for. */
static void guard_breaks(struct rank *rank)
{
    op_guard_opened(rank);
    rank->model.offload.options.streamed = false; /* x is taken where it lies */
}

static void test_guard(void **state)
{
    struct parity_scene scene;
    parity_open(&scene, &small, PARITY_DATA_MIXED, 2);
    scene.plan.spec.stream_residual = JOB_toggle_ON;
    scene.opened = guard_breaks;
    parity_release(parity_try(&scene, 1));
    assert_false(scene.good);
    parity_close(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_same_bits, testing_free),
        cmocka_unit_test_teardown(test_guard, testing_free),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

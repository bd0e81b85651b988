/* A rehearsal: one process plays rank 0 of a node. It holds, to the byte, what a rank of the true
 * node holds (rank_check_memory() after every step), uses no buffer where it is not planned (strict
 * arenas give NaN), and comes to its end whatever the layout and however many layers work. */
#include "tests/dist/parity_scene.h"

static const struct model_config config = {.family = MODEL_FAMILY_QWEN3,
                                           .vocab_size = PARITY_VOCAB,
                                           .hidden_size = 32,
                                           .intermediate_size = 48,
                                           .layers = 6,
                                           .heads = 8,
                                           .kv_heads = 2,
                                           .head_dim = 8,
                                           .context_max = 256,
                                           .rms_norm_eps = 1e-5,
                                           .rope_theta = 10000,
                                           .initializer_range = 0.2,
                                           .qk_norm = true};

struct rehearsal {
    int64_t world;
    enum job_context_kind kind;
    int64_t ulysses, ring, heads_per_stage;
    enum job_recompute recompute;
    int64_t keep_input_every, layers;
    enum job_offload offload;
    enum job_states states;
};

static const struct rehearsal rehearsals[] = {
    {8, JOB_context_kind_UPIPE, 8, 1, 1, JOB_recompute_ATTENTION, 2, 2, JOB_offload_HOST,
     JOB_states_DEVICE},
    {8, JOB_context_kind_UPIPE, 4, 2, 1, JOB_recompute_INPUT, 1, 1, JOB_offload_NONE,
     JOB_states_HOST},
    {4, JOB_context_kind_ULYSSES, 4, 1, 2, JOB_recompute_INPUT_AND_ATTENTION, 1, 3,
     JOB_offload_HOST, JOB_states_HOST_OPTIMIZER},
    {4, JOB_context_kind_RING, 1, 4, 8, JOB_recompute_NONE, 1, 0, JOB_offload_NONE,
     JOB_states_DEVICE},
    {2, JOB_context_kind_NONE, 1, 1, 8, JOB_recompute_ATTENTION, 3, 1, JOB_offload_NONE,
     JOB_states_DEVICE},
};

static void rehearse(struct parity_scene *scene, const struct rehearsal *what)
{
    struct job_spec *spec = &scene->plan.spec;
    spec->rehearse = true;
    spec->rehearse_world = spec->gpus = what->world;
    spec->rehearse_layers = what->layers;
    spec->context_kind = what->kind;
    spec->ulysses = what->ulysses;
    spec->ring = what->ring;
    spec->heads_per_stage = what->heads_per_stage;
    spec->recompute = what->recompute;
    spec->keep_input_every = what->keep_input_every;
    spec->offload = what->offload;
    spec->states = what->states;
    spec->tile_mlp = spec->tile_loss = 5;
}

/* Gradients of the layers that are left out stay zero, those of the others do not. */
static void check_layers(const struct rehearsal *what, const float *grads)
{
    struct err err = {0};
    struct model_shape shape;
    int64_t out = what->layers == 0 ? 0 : config.layers - what->layers;
    out -= out % what->keep_input_every;
    assert_int_equal(model_shape_build(&config, &shape, &err), 0);
    for (int64_t r = 0; r < shape.row_count; r++) {
        const struct model_shape_row *row = &shape.rows[r];
        double sum = 0;
        for (int64_t i = 0; i < row->elements; i++)
            sum += fabs((double)*grads++);
        bool idle =
            strncmp(row->name, "model.layers.", 13) == 0 && strtoll(row->name + 13, NULL, 10) < out;
        if (!(idle ? sum == 0 : sum > 0 && isfinite(sum)))
            fail_msg("%s: |gradient| %g", row->name, sum);
    }
    model_shape_done(&shape);
}

static void test_layouts(void **state)
{
    for (size_t i = 0; i < sizeof rehearsals / sizeof rehearsals[0]; i++) {
        struct parity_scene scene;
        parity_open(&scene, &config, PARITY_DATA_LONG, 8);
        scene.strict = true;
        rehearse(&scene, &rehearsals[i]);
        struct outcome *outcome = parity_run(&scene, 1);
        for (int step = 0; step < PARITY_STEPS; step++) {
            assert_true(isfinite(outcome->loss[step]) && isfinite(outcome->norm[step]));
            assert_true(outcome->updated[step]);
        }
        check_layers(&rehearsals[i], outcome->grads);
        parity_release(outcome);
        parity_close(&scene);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test_teardown(test_layouts, testing_free)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

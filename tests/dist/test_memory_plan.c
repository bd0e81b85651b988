/* The memory that a job was admitted with is the memory its ranks take: the digest in the launch
 * plan is held against the worker's own, and what a rank holds on its device is the planned peak.
 */
#include "tests/dist/parity_scene.h"

static const struct model_config config = {.family = MODEL_FAMILY_LLAMA,
                                           .vocab_size = PARITY_VOCAB,
                                           .hidden_size = 32,
                                           .intermediate_size = 48,
                                           .layers = 3,
                                           .heads = 4,
                                           .kv_heads = 2,
                                           .head_dim = 8,
                                           .context_max = 256,
                                           .rms_norm_eps = 1e-5,
                                           .rope_theta = 10000,
                                           .initializer_range = 0.2};

static void plan_of(const struct parity_scene *scene, int world, struct mem_plan *ret)
{
    struct err err = {0};
    struct model_shape shape;
    struct mem_request request = {
        .shape = &shape, .spec = &scene->plan.spec, .world = world, .backend = MEM_BACKEND_CPU};
    assert_int_equal(model_shape_build(&config, &shape, &err), 0);
    assert_int_equal(mem_plan_build(&request, ret, &err), 0);
    model_shape_done(&shape);
}

static void test_digest(void **state)
{
    struct parity_scene scene;
    struct mem_plan memory;
    parity_open(&scene, &config, PARITY_DATA_MIXED, 4);
    scene.plan.spec.ulysses = 2;
    scene.plan.spec.context_kind = JOB_context_kind_ULYSSES;
    scene.plan.spec.recompute = JOB_recompute_INPUT;
    plan_of(&scene, 2, &memory);
    (void)snprintf(scene.plan.memory_digest, sizeof scene.plan.memory_digest, "%s", memory.digest);
    parity_release(parity_run(&scene, 2)); /* rank_check_memory() after every step */

    /* Of another length. */
    scene.plan.spec.seq_len += 2;
    struct outcome *outcome = parity_try(&scene, 2);
    assert_false(scene.good);
    assert_int_equal(outcome->err.code, ERR_PROTOCOL);
    assert_non_null(strstr(outcome->err.text, memory.digest));
    parity_release(outcome);
    mem_plan_done(&memory);
    parity_close(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test_teardown(test_digest, testing_free)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Device memory is taken before `ready` and never after: every call that takes memory of the
 * driver, by whomever, is counted (cuda_watch.h) in training and evaluation of several layouts.
 * And what the whole device holds is what was planned, within 1% or 256 MiB, never more. Skipped
 * without a GPU, which must be nobody else's, and under sanitizers. */
#include "tests/lib/cuda_ranks.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
int main(void)
{
    printf("skipped: calls cannot be counted under a sanitizer\n");
    return CUDA_RANKS_SKIPPED;
}
#else
#include "tests/lib/cuda_watch.h"

#define SLACK_BYTES ((int64_t)256 << 20) /* that a plan may exceed what is used by, or 1% */

/* What a rank saw, in memory shared with the test. */
static struct seen {
    struct cuda_watch watch;
    int64_t ready, end; /* bytes of the whole device, by all its users */
    int64_t planned;
} * seen;

static int train(const struct parity_scene *scene, int number, void *outcome)
{
    struct err err = {0};
    struct rank rank;
    struct seen *my = &seen[number];
    cuda_watch_on = &my->watch;
    int rc = rank_open(&rank, &scene->plan, number, &err);
    if (rc == 0) {
        my->planned = rank.memory.peak_device_bytes;
        my->ready = rank.device->dev->bytes_taken(rank.device);
        __atomic_store_n(&my->watch.ready, 1, __ATOMIC_RELEASE);
        rc = parity_train(&rank, outcome, &err);
        my->end = rank.device->dev->bytes_taken(rank.device);
        __atomic_store_n(&my->watch.ready, 0, __ATOMIC_RELEASE);
    }
    if (rc != 0) {
        (void)fprintf(stderr, "rank %d: %s\n", number, err.text);
        rank_fail(&rank, &err);
    }
    rank_close(&rank);
    return rc == 0 ? 0 : 1;
}

/* Whether the rank took nothing late, and no more than planned, nor much less. */
static bool check(const char *what, int number)
{
    const struct seen *rank = &seen[number];
    const struct cuda_watch *watch = &rank->watch;
    int64_t slack = rank->planned / 100 > SLACK_BYTES ? rank->planned / 100 : SLACK_BYTES;
    printf("%-36s rank %d: calls %d, after ready %d%s%s; device MiB %.1f at ready, %+.1f at the "
           "end, %+.1f planned\n",
           what, number, watch->early, watch->late, watch->late > 0 ? ", last " : "", watch->last,
           (double)rank->ready * 0x1p-20, (double)(rank->end - rank->ready) * 0x1p-20,
           (double)(rank->planned - rank->end) * 0x1p-20);
    assert_true(watch->early > 0); /* it does count */
    return watch->late == 0 && rank->end <= rank->planned && rank->planned - rank->end <= slack;
}

static bool run(struct parity_scene *scene, const char *what, int world)
{
    struct outcome *outcome = parity_memory();
    bool good = true;
    memset(seen, 0, CUDA_RANKS_MAX * sizeof *seen);
    assert_true(parity_fork(scene, (uint32_t)world, train, outcome));
    for (int r = 0; r < world; r++)
        good = check(what, r) && good;
    parity_release(outcome);
    return good;
}

static void open_scene(struct parity_scene *scene, enum parity_data data)
{
    struct model_config config = cuda_ranks_model(MODEL_FAMILY_QWEN3, 3);
    parity_open(scene, &config, data, 4);
    scene->plan.device = LAUNCH_CUDA;
    scene->plan.spec.states = JOB_states_DEVICE;
    scene->plan.spec.offload = JOB_offload_NONE;
}

static void test_one_rank(void **state)
{
    bool good = true;
    for (int data = 0; data < PARITY_DATA_COUNT; data++) {
        struct parity_scene scene;
        open_scene(&scene, (enum parity_data)data);
        struct job_spec *spec = &scene.plan.spec;
        good = run(&scene, "plain", 1) && good;
        spec->recompute = JOB_recompute_INPUT;
        spec->tile_mlp = spec->tile_loss = 24;
        good = run(&scene, "input, tiles", 1) && good;
        spec->recompute = JOB_recompute_ATTENTION;
        spec->states = JOB_states_HOST;
        spec->offload = JOB_offload_HOST;
        good = run(&scene, "attention, states and offload host", 1) && good;
        spec->states = JOB_states_DEVICE;
        spec->lora = true;
        spec->lora_r = 4;
        good = run(&scene, "lora", 1) && good;
        parity_close(&scene);
    }
    assert_true(good);
}

static void test_two_ranks(void **state)
{
    bool good = true;
    struct parity_scene scene;
    if (cuda_ranks_gpus < 2)
        skip();
    open_scene(&scene, PARITY_DATA_MIXED);
    struct job_spec *spec = &scene.plan.spec;
    good = run(&scene, "fsdp 2", 2) && good;
    spec->fsdp = false;
    good = run(&scene, "data 2, not sharded", 2) && good;
    spec->fsdp = true;
    spec->context_kind = JOB_context_kind_ULYSSES;
    spec->ulysses = 2;
    good = run(&scene, "ulysses 2", 2) && good;
    spec->context_kind = JOB_context_kind_UPIPE;
    spec->heads_per_stage = 1;
    spec->recompute = JOB_recompute_ATTENTION;
    good = run(&scene, "upipe 2, u 1", 2) && good;
    spec->context_kind = JOB_context_kind_RING;
    spec->ulysses = 1;
    spec->ring = 2;
    spec->heads_per_stage = 0;
    spec->recompute = JOB_recompute_INPUT;
    good = run(&scene, "ring 2", 2) && good;
    parity_close(&scene);
    assert_true(good);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_one_rank),
                                       cmocka_unit_test(test_two_ranks)};
    seen = cuda_ranks_begin(argc, argv, sizeof *seen);
    if (cuda_ranks_gpus == 0)
        return CUDA_RANKS_SKIPPED;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
#endif

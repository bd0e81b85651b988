/* A kernel of a rank writes where no memory is: the rank's step fails with the driver's reason, its
 * peer is let go, and the next job has the GPUs as if nothing had been. Skipped without a GPU.
 * Nothing else may run on the GPUs: the driver notes an XID 31 of the process. */
#include "tests/lib/cuda_ranks.h"

enum {
    FAULT_STEP = 2,
    COLL_TIMEOUT_MS = 4000, /* after which a rank gives its peer up: there is no keeper here */
    ALARM_S = 60            /* after which a process is taken to hang */
};

/* Of each rank, in memory shared with the test. */
static struct seen {
    int64_t steps; /* that went well */
    struct err err;
} * seen;

static const struct ops *sound; /* the device's own */
static bool armed;

static int faulty_swiglu(struct device *device, struct stream *stream,
                         const struct ops_swiglu *args, struct err *err)
{
    struct ops_swiglu bad = *args;
    if (armed)
        bad.out = (char *)NULL + 4096; /* aligned, and nobody's */
    return sound->swiglu(device, stream, &bad, err);
}

static int train(const struct parity_scene *scene, int number, void *context)
{
    const int *victim = context; /* -1: none */
    struct seen *my = &seen[number];
    struct ops faulty;
    struct rank rank;
    struct step_result result;
    (void)alarm(ALARM_S);
    armed = false;
    int rc = rank_open(&rank, &scene->plan, number, &my->err);
    if (rc == 0) {
        sound = rank.device->ops;
        faulty = *sound;
        faulty.swiglu = faulty_swiglu;
        rank.device->ops = &faulty;
    }
    for (int64_t step = 1; step <= PARITY_STEPS && rc == 0; step++) {
        armed = step == FAULT_STEP && number == *victim;
        rc = step_run(&rank, step, &result, &my->err);
        my->steps += rc == 0;
    }
    if (rc != 0)
        rank_fail(&rank, &my->err);
    rank_close(&rank);
    return rc == 0 ? 0 : 1;
}

static void play(uint32_t world, int victim)
{
    struct model_config config = cuda_ranks_model(MODEL_FAMILY_LLAMA, 2);
    struct parity_scene scene;
    int nobody = -1;
    parity_open(&scene, &config, PARITY_DATA_LONG, 4);
    scene.plan.device = LAUNCH_CUDA;
    scene.plan.spec.states = JOB_states_DEVICE;
    scene.plan.spec.offload = JOB_offload_NONE;
    scene.plan.coll_timeout_ms = COLL_TIMEOUT_MS;
    memset(seen, 0, CUDA_RANKS_MAX * sizeof *seen);
    assert_false(parity_fork(&scene, world, train, &victim));
    for (uint32_t r = 0; r < world; r++) {
        printf("rank %u: %lld steps, then: %s\n", r, (long long)seen[r].steps, seen[r].err.text);
        assert_int_equal(seen[r].steps, FAULT_STEP - 1);
        assert_int_not_equal(seen[r].err.code, 0); /* it came to its own end */
    }
    assert_int_equal(seen[victim].err.code, ERR_DEVICE);
    assert_non_null(strstr(seen[victim].err.text, "illegal memory access"));
    memset(seen, 0, CUDA_RANKS_MAX * sizeof *seen);
    assert_true(parity_fork(&scene, world, train, &nobody));
    for (uint32_t r = 0; r < world; r++)
        assert_int_equal(seen[r].steps, PARITY_STEPS);
    parity_close(&scene);
}

static void test_one_rank(void **state)
{
    play(1, 0);
}

static void test_two_ranks(void **state)
{
    if (cuda_ranks_gpus < 2)
        skip();
    play(2, 1);
    play(2, 0);
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

/* A profile on GPUs: kernels and copies are told with times inside their steps and phases, on the
 * clock of the host; among two ranks NCCL's kernels are collectives; after a profile nothing is
 * told any more, and another can be taken. Skipped without a GPU, and, saying so, without CUPTI. */
#include "common/clock.h"
#include "tests/lib/cuda_ranks.h"
#include "worker/profile.h"

enum { STEPS = 7 };

/* What a rank saw, in memory shared with the test. */
static struct seen {
    struct profile_head head;
    int64_t kinds[PROFILE_KIND_COUNT];
    int64_t outside;           /* kernels and copies beyond every step by more than CLOCK_NS */
    int64_t step_ns, phase_ns; /* sums */
    int64_t kernel_ns;
    int64_t host_ns;      /* of the same steps, by the host's clock around them */
    int64_t second_count; /* kernels of a second profile, of one step */
} * seen;
enum { CLOCK_NS = 100000 }; /* the two clocks are told together that well */

static bool is_outside(const struct profile_file *file, const struct profile_event *event)
{
    for (int64_t i = 0; i < file->head.count; i++) {
        const struct profile_event *step = &file->events[i];
        if (step->kind == PROFILE_STEP && event->begin_ns >= step->begin_ns - CLOCK_NS &&
            event->end_ns <= step->end_ns + CLOCK_NS)
            return false;
    }
    return true;
}

static void look(const struct profile_file *file, struct seen *my)
{
    my->head = file->head;
    for (int64_t i = 0; i < file->head.count; i++) {
        const struct profile_event *event = &file->events[i];
        int64_t ns = event->end_ns - event->begin_ns;
        my->kinds[event->kind]++;
        my->step_ns += event->kind == PROFILE_STEP ? ns : 0;
        my->phase_ns += event->kind == PROFILE_PHASE ? ns : 0;
        my->kernel_ns += event->kind == PROFILE_KERNEL ? ns : 0;
        if (event->kind == PROFILE_KERNEL || event->kind == PROFILE_COLLECTIVE)
            my->outside += is_outside(file, event);
    }
}

/* Steps `first` to `last` with a profile. */
static int profiled(struct rank *rank, int64_t first, int64_t last, struct seen *my,
                    struct err *err)
{
    const struct profile_options options = {.rank = (uint32_t)rank->number,
                                            .world = rank->plan->world,
                                            .attempt = 1,
                                            .events_max = LIMIT_PROFILE_EVENTS};
    const struct profile_file *file = NULL;
    struct profile *profile = NULL;
    struct step_result result;
    TRY(profile_new(rank->device, &rank->exposed, rank->record, &options, &profile, err));
    rank->device->profile = profile;
    int64_t began_ns = clock_monotonic_ns();
    for (int64_t step = first; step <= last; step++)
        TRY(step_run(rank, step, &result, err));
    my->host_ns = clock_monotonic_ns() - began_ns;
    rank->device->profile = NULL;
    TRY(profile_stop(profile, &file, err));
    look(file, my);
    profile_free(profile);
    return 0;
}

static int train(const struct parity_scene *scene, int number, void *context)
{
    struct err err = {0};
    struct rank rank;
    struct step_result result;
    struct seen second = {.host_ns = 0};
    int rc = rank_open(&rank, &scene->plan, number, &err);
    for (int64_t step = 1; step <= 2 && rc == 0; step++) /* libraries start */
        rc = step_run(&rank, step, &result, &err);
    if (rc == 0)
        rc = profiled(&rank, 3, 5, &seen[number], &err);
    if (rc == 0)
        rc = step_run(&rank, 6, &result, &err);
    if (rc == 0)
        rc = profiled(&rank, STEPS, STEPS, &second, &err);
    seen[number].second_count = second.kinds[PROFILE_KERNEL];
    if (rc != 0) {
        (void)fprintf(stderr, "rank %d: %s\n", number, err.text);
        rank_fail(&rank, &err);
    }
    rank_close(&rank);
    return rc == 0 ? 0 : 1;
}

static void check(int number, int world)
{
    const struct seen *my = &seen[number];
    printf("rank %d: %lld kernels, %lld copies, %lld collectives; %.3f ms in 3 steps, %.3f by the "
           "host, kernels %.3f; %lld outside; second %lld kernels%s%s\n",
           number, (long long)my->kinds[PROFILE_KERNEL], (long long)my->kinds[PROFILE_COPY],
           (long long)my->kinds[PROFILE_COLLECTIVE], (double)my->step_ns * 1e-6,
           (double)my->host_ns * 1e-6, (double)my->kernel_ns * 1e-6, (long long)my->outside,
           (long long)my->second_count, my->head.untraced[0] != '\0' ? "; untraced: " : "",
           my->head.untraced);
    assert_int_equal(my->kinds[PROFILE_STEP], 3);
    assert_true(my->step_ns > 0 && my->step_ns <= my->host_ns);
    assert_true(my->phase_ns > my->step_ns / 2 && my->phase_ns <= my->step_ns);
    assert_int_equal(my->head.dropped, 0);
    if (my->head.untraced[0] != '\0')
        return;
    assert_true(my->kinds[PROFILE_KERNEL] > 300 && my->kinds[PROFILE_COPY] > 0);
    assert_int_equal(my->outside, 0);
    /* No kernel takes less than half a microsecond; steps that meet new shapes are long. */
    assert_true(my->kernel_ns > 500 * my->kinds[PROFILE_KERNEL] && my->kernel_ns < my->step_ns);
    assert_true((my->kinds[PROFILE_COLLECTIVE] > 0) == (world > 1));
    int64_t third = my->kinds[PROFILE_KERNEL] / 3;
    assert_true(my->second_count > third / 2 && my->second_count < third * 2);
}

static void run(int world)
{
    struct model_config config = cuda_ranks_model(MODEL_FAMILY_LLAMA, 3);
    struct parity_scene scene;
    parity_open(&scene, &config, PARITY_DATA_MIXED, 4);
    scene.plan.device = LAUNCH_CUDA;
    scene.plan.spec.max_steps = STEPS;
    memset(seen, 0, CUDA_RANKS_MAX * sizeof *seen);
    bool good = parity_fork(&scene, (uint32_t)world, train, NULL);
    parity_close(&scene);
    assert_true(good);
    for (int r = 0; r < world; r++)
        check(r, world);
}

static void test_one_rank(void **state)
{
    run(1);
}

static void test_two_ranks(void **state)
{
    if (cuda_ranks_gpus < 2)
        printf("one GPU: two ranks are not run\n");
    else
        run(2);
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

/* The figures that the stack must reach, by the plan: 8B on 8 ranks of 80 GB cards (upipe, ulysses
 * 8, one head a stage, recompute attention with every eighth input kept, offload to the host, tiles
 * chosen), the way `ithaca plan` computes them. */
#include "common/mem_card.h"
#include "common/mem_estimate.h"
#include "tests/lib/long_job.h"

enum { MI = 1 << 20 };

struct target {
    int64_t seq_len, gpus;
    enum job_states states;
    bool streamed;
    enum mem_backend backend;
    const char *card;
    double gib; /* at most; 0: what the card has */
};

static struct job_spec asked(const struct target *t)
{
    struct job_spec spec = long_job(t->seq_len);
    spec.gpus = spec.ulysses = t->gpus;
    spec.sequences = 8;
    spec.grad_accum = spec.ring = spec.tile_mlp = spec.tile_loss = JOB_AUTO;
    spec.states = t->states;
    spec.stream_residual = t->streamed ? JOB_toggle_ON : JOB_toggle_OFF;
    return spec;
}

static const struct target targets[] = {
    {3 * MI, 8, JOB_states_DEVICE, false, MEM_BACKEND_CUDA, "80GB", 42},
    {5 * MI, 8, JOB_states_DEVICE, false, MEM_BACKEND_CUDA, "80GB", 55},
    {3 * MI, 8, JOB_states_DEVICE, false, MEM_BACKEND_CUDA_OWN, "80GB", 39},
    {5 * MI, 8, JOB_states_DEVICE, false, MEM_BACKEND_CUDA_OWN, "80GB", 50},
    {7 * MI, 8, JOB_states_DEVICE, false, MEM_BACKEND_CUDA, "80GB", 0},
    {10 * MI, 8, JOB_states_HOST, true, MEM_BACKEND_CUDA, "80GB", 0},
    {1 * MI, 1, JOB_states_HOST, false, MEM_BACKEND_CUDA, "80GB", 0},
    {5 * MI / 2, 1, JOB_states_HOST, false, MEM_BACKEND_CUDA, "141GB", 0},
};

static void test_targets(void **state)
{
    struct err err = {0};
    struct model_shape shape;
    int bad = 0;
    long_job_shape(&shape);
    for (size_t i = 0; i < sizeof targets / sizeof targets[0]; i++) {
        const struct target *t = &targets[i];
        struct job_spec spec = asked(t);
        struct mem_ask ask = {
            .shape = &shape, .spec = &spec, .backend = t->backend, .ranks_max = 8, .planned = true};
        struct mem_estimate estimate;
        assert_int_equal(mem_card_bytes(t->card, &ask.device_bytes, &err), 0);
        MUST_WORK(mem_estimate_make(&ask, &estimate, &err), &err);
        double gib = (double)estimate.plan.peak_device_bytes * 0x1p-30;
        double most = t->gib > 0 ? t->gib : (double)ask.device_bytes * 0x1p-30;
        print_message("%lldK tokens, %lld ranks, %s: %.2f GiB of %.1f, most in %s\n",
                      (long long)(t->seq_len >> 10), (long long)t->gpus,
                      t->backend == MEM_BACKEND_CUDA ? "cuDNN" : "own kernels", gib, most,
                      mem_phase_name(estimate.plan.peak_phase));
        bad += gib > most || !estimate.fits;
        mem_estimate_done(&estimate);
    }
    assert_int_equal(bad, 0);
    model_shape_done(&shape);
}

/* By the plan the settings named first are not far from what is possible: the longest that fits. */
static void test_longest(void **state)
{
    struct err err = {0};
    struct model_shape shape;
    const struct target t = {10 * MI, 8, JOB_states_HOST, true, MEM_BACKEND_CUDA, "80GB", 0};
    struct job_spec spec = asked(&t);
    struct mem_ask ask = {
        .shape = &shape, .spec = &spec, .backend = t.backend, .ranks_max = 8, .planned = true};
    int64_t longest = 0;
    long_job_shape(&shape);
    assert_int_equal(mem_card_bytes("80GB", &ask.device_bytes, &err), 0);
    assert_int_equal(mem_estimate_longest(&ask, &longest, &err), 0);
    print_message("the longest: %lldK tokens\n", (long long)(longest >> 10));
    assert_true(longest >= 10 * MI && longest % 1024 == 0);
    model_shape_done(&shape);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_targets),
                                       cmocka_unit_test(test_longest)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

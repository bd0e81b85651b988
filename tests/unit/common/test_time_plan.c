/* Steps worked out by hand: FLOPs of an 8B model, what overlaps, collectives, both conventions of
 * MFU. */
#include "common/mem_estimate.h"
#include "common/time_plan.h"
#include "tests/lib/long_job.h"

#include <math.h>

enum { S = 131072, H = 4096, F = 14336, V = 128256, L = 32, HEADS = 32, KV = 8, D = 128 };

static struct model_shape shape;

/* 8 ranks share one sequence of 128K tokens, a head a rank and stage. */
static struct job_spec asked(void)
{
    struct job_spec spec = long_job(S);
    spec.keep_input_every = 1;
    spec.offload = JOB_offload_NONE;
    return spec;
}

static struct mem_layout layout_of(const struct job_spec *spec, enum mem_backend backend)
{
    const struct mem_request request = {
        .shape = &shape, .spec = spec, .world = (int)spec->gpus, .backend = backend};
    return mem_layout_make(&request);
}

static double sum(const struct time_work *work, enum time_op op, enum time_phase phase)
{
    double all = 0;
    for (int i = 0; i < work->count; i++)
        if (work->items[i].op == op && work->items[i].phase == phase)
            all += work->items[i].calls * work->items[i].work;
    return all;
}

static void near(double got, double want)
{
    if (fabs(got - want) > 1e-9 * fabs(want))
        fail_msg("%.17g, not %.17g", got, want);
}

static void test_flops(void **state)
{
    struct time_work work;
    struct job_spec spec = asked();
    struct mem_layout layout = layout_of(&spec, MEM_BACKEND_CUDA);
    const struct time_job job = {
        .layout = &layout, .shape = &shape, .micro_steps = 1, .seq_len = S};
    time_work_make(&job, &work);
    double tokens = S / 8.0, q = HEADS * D, kv = KV * D;
    double layer = 2 * tokens * (H * q + 2 * H * kv + q * H + 3.0 * H * F); /* forward */
    near(sum(&work, TIME_GEMM_Y, TIME_PHASE_FORWARD), L * layer);
    double pairs = (double)S * (S + 1) / 2;
    near(time_work_pairs(&job), pairs);
    near(sum(&work, TIME_ATTENTION, TIME_PHASE_FORWARD), L * 4.0 * D * pairs * (HEADS / 8.0));
    near(sum(&work, TIME_ATTENTION_BWD, TIME_PHASE_BACKWARD), L * 10.0 * D * pairs * (HEADS / 8.0));
    assert_true(sum(&work, TIME_ATTENTION, TIME_PHASE_RECOMPUTE) == 0); /* O is kept */
    /* Weight gradients take as much as forward; inputs' too, O's in dO = d_mid Wo. */
    near(sum(&work, TIME_GEMM_DW, TIME_PHASE_BACKWARD), L * layer);
    near(sum(&work, TIME_GEMM_DX, TIME_PHASE_BACKWARD), L * layer);
    /* Again: q, k, v, O Wo, gate and up. */
    near(sum(&work, TIME_GEMM_Y, TIME_PHASE_RECOMPUTE), L * (layer - 2 * tokens * (double)H * F));
    near(sum(&work, TIME_GEMM_Y, TIME_PHASE_LOSS), 2 * tokens * (double)H * V);
    /* A rank receives 7 of 8 parts: q, O, dO, dq in bf16 by head, k and v once a K/V head twice,
     * dk and dv in fp32; delta. */
    double head = (double)S * D * 7 / 8, forward = head * 2 * (4 + 4 + 2 * 1);
    near(sum(&work, TIME_ALL_TO_ALL, TIME_PHASE_FORWARD), L * forward);
    near(sum(&work, TIME_ALL_TO_ALL, TIME_PHASE_RECOMPUTE), L * (forward - head * 2 * 4));
    near(sum(&work, TIME_ALL_TO_ALL, TIME_PHASE_BACKWARD),
         L * (head * 2 * (4 + 4) + head * 4 * 2 + (double)S * 4 * 4 * 7 / 8));
}

static void test_recompute(void **state)
{
    struct time_work work;
    struct job_spec spec = asked();
    spec.recompute = JOB_recompute_INPUT;
    spec.grad_accum = 3;
    struct mem_layout layout = layout_of(&spec, MEM_BACKEND_CUDA);
    struct time_job job = {.layout = &layout, .shape = &shape, .micro_steps = 3, .seq_len = S};
    time_work_make(&job, &work);
    near(sum(&work, TIME_ATTENTION, TIME_PHASE_RECOMPUTE),
         sum(&work, TIME_ATTENTION, TIME_PHASE_FORWARD));
    job.document_tokens = 1024;
    near(time_work_pairs(&job), (double)S * 1025 / 2);
}

/* One second for each PFLOP of products, all else free but for what a test adds. */
static struct time_rates rates_of(bool beside)
{
    struct time_rates rates = {
        .backend = MEM_BACKEND_CUDA, .ranks = 8, .beside = beside, .peak_flops = 2e15};
    time_rates_add(&rates, TIME_GEMM_Y, (struct time_point){.size = 1, .width = 1, .rate = 1e15});
    return rates;
}

static void test_seconds(void **state)
{
    struct time_plan plan;
    struct time_rates rates = rates_of(true);
    struct job_spec spec = asked();
    struct mem_layout layout = layout_of(&spec, MEM_BACKEND_CUDA);
    const struct time_job job = {
        .layout = &layout, .shape = &shape, .micro_steps = 1, .seq_len = S};
    time_plan_make(&job, 1, &rates, &plan);
    double tokens = S / 8.0, q = HEADS * D, kv = KV * D;
    double layer = 2 * tokens * (H * q + 2 * H * kv + q * H + 3.0 * H * F);
    double head = 6 * tokens * (double)H * V;
    double again = layer - 2 * tokens * (double)H * F;
    near(plan.step_s, (L * (3 * layer + again) + head) / 1e15);
    near(plan.seconds[TIME_PHASE_LOSS][TIME_PART_PRODUCTS], head / 1e15);
    near(time_plan_layers_s(&plan, 0.25), (L / 4.0 * (3 * layer + again) + head) / 1e15);
    near(plan.tokens_per_s, S / plan.step_s);
    double pairs = (double)S * (S + 1) / 2;
    double weights = 8 * (L * 3 * layer + head);
    near(plan.flops_causal, weights + 12.0 * L * HEADS * D * pairs);
    near(plan.flops_full, weights + 12.0 * L * H * (double)S * S);
    near(plan.mfu_causal, plan.flops_causal / (8 * 2e15 * plan.step_s));
    near(plan.mfu_full, plan.flops_full / (8 * 2e15 * plan.step_s));
    rates.peak_flops = 0;
    time_plan_make(&job, 1, &rates, &plan);
    assert_true(isnan(plan.mfu_causal) && isnan(plan.mfu_full));
}

/* Of the model, whatever a layout does: 6 a weight and token, 4 where it is frozen; 12 a pair. */
static void test_model_flops(void **state)
{
    double q = HEADS * D, kv = KV * D, tokens = 1000, pairs = 500500;
    double weights = L * (2.0 * H * q + 2.0 * H * kv + 3.0 * H * F) + (double)H * V;
    double attention = 12.0 * L * q * pairs;
    near(time_plan_flops(&shape.config, false, tokens, pairs), 6 * weights * tokens + attention);
    near(time_plan_flops(&shape.config, true, tokens, pairs), 4 * weights * tokens + attention);
}

/* Head and update are not of the layers: they stay whole. */
static void test_layers(void **state)
{
    struct time_plan plan;
    struct time_rates rates = rates_of(true);
    struct job_spec spec = asked();
    struct mem_layout layout = layout_of(&spec, MEM_BACKEND_CUDA);
    const struct time_job job = {
        .layout = &layout, .shape = &shape, .micro_steps = 1, .seq_len = S};
    time_rates_add(&rates, TIME_ADAMW, (struct time_point){.size = 1, .width = 1, .rate = 1e9});
    time_plan_make(&job, 1, &rates, &plan);
    double head = 0, update = 0;
    for (int part = 0; part < TIME_PART_COUNT; part++) {
        head += plan.seconds[TIME_PHASE_LOSS][part];
        update += plan.seconds[TIME_PHASE_UPDATE][part];
    }
    assert_true(head > 0 && update > 0);
    near(time_plan_layers_s(&plan, 1), plan.step_s);
    near(time_plan_layers_s(&plan, 0), head + update);
    near(time_plan_layers_s(&plan, 0.5), (plan.step_s + head + update) / 2);
}

/* A copy beside the work is free until it is longer; without streams it always counts. */
static void test_beside(void **state)
{
    struct time_plan none, some, longer, serial;
    struct job_spec spec = asked();
    struct mem_layout plain = layout_of(&spec, MEM_BACKEND_CUDA);
    spec.offload = JOB_offload_HOST;
    struct mem_layout kept = layout_of(&spec, MEM_BACKEND_CUDA);
    struct time_job job = {.layout = &plain, .shape = &shape, .micro_steps = 1, .seq_len = S};
    struct time_rates rates = rates_of(true);
    time_plan_make(&job, 1, &rates, &none);
    job.layout = &kept;
    double act = S / 8.0 * 2, bytes = L * (act * H + act * HEADS * D + S / 8.0 * HEADS * 4);
    const double forward = none.seconds[TIME_PHASE_FORWARD][TIME_PART_PRODUCTS];
    double backward = none.step_s - forward - none.seconds[TIME_PHASE_LOSS][TIME_PART_PRODUCTS];
    struct time_rates slow = rates;
    time_rates_add(&rates, TIME_TO_HOST,
                   (struct time_point){.size = 1, .width = 1, .rate = 2 * bytes / forward});
    time_plan_make(&job, 1, &rates, &some);
    near(some.step_s, none.step_s);
    double rate = bytes / (2 * backward);
    time_rates_add(&slow, TIME_TO_HOST, (struct time_point){.size = 1, .width = 1, .rate = rate});
    time_plan_make(&job, 1, &slow, &longer);
    near(longer.step_s, none.step_s + 2 * bytes / rate - forward - backward);
    slow.beside = false;
    time_plan_make(&job, 1, &slow, &serial);
    near(serial.step_s, none.step_s + 2 * bytes / rate);
    near(serial.seconds[TIME_PHASE_FORWARD][TIME_PART_COPIES], bytes / rate);
}

/* What collectives take in all, and what of it a step waits for: all of it where nothing runs
 * beside the work, and never less than what the step is longer. */
static void test_network(void **state)
{
    struct time_plan none, slow, serial;
    struct job_spec spec = asked();
    spec.overlap = JOB_overlap_ON;
    struct mem_layout layout = layout_of(&spec, MEM_BACKEND_CUDA);
    const struct time_job job = {
        .layout = &layout, .shape = &shape, .micro_steps = 1, .seq_len = S};
    struct time_rates rates = rates_of(true);
    time_plan_make(&job, 1, &rates, &none);
    assert_true(none.network_s == 0 && none.network_wait_s == 0);
    time_rates_add(&rates, TIME_ALL_GATHER,
                   (struct time_point){.size = 1, .width = 1, .rate = 1e11});
    time_plan_make(&job, 1, &rates, &slow);
    near(slow.network_wait_s, slow.step_s - none.step_s);
    assert_true(slow.network_s > slow.network_wait_s && slow.network_wait_s > 0);
    struct time_plan slower; /* gathers take longer than the work that they run beside */
    struct time_rates late = rates_of(true);
    time_rates_add(&late, TIME_ALL_GATHER, (struct time_point){.size = 1, .width = 1, .rate = 1e9});
    time_plan_make(&job, 1, &late, &slower);
    near(slower.network_wait_s, slower.step_s - none.step_s);
    assert_true(slower.seconds[TIME_PHASE_FORWARD][TIME_PART_EXCHANGE] > 0);
    assert_true(slower.seconds[TIME_PHASE_FORWARD][TIME_PART_COPIES] == 0);
    rates.beside = false;
    time_plan_make(&job, 1, &rates, &serial);
    near(serial.network_s, slow.network_s);
    near(serial.network_wait_s, serial.network_s);
    near(serial.network_s, serial.step_s - none.step_s);
}

/* What was measured of a layer on one H200 as rank 0 of 8 (tests/bench/results/2026-11-29-h200.md):
 * the table of that card gives it within a tenth. */
static void test_measured(void **state)
{
    static const struct {
        int64_t seq_len;
        int64_t heads_per_stage; /* of 4: 4 is all */
        enum job_recompute recompute;
        double forward_ms, backward_ms;
    } measured[] = {{131072, 1, JOB_recompute_INPUT, 43.8, 148.8},
                    {131072, 4, JOB_recompute_INPUT, 41.6, 145.8},
                    {131072, 1, JOB_recompute_ATTENTION, 44.0, 115.1},
                    {524288, 1, JOB_recompute_INPUT, 613.5, 1987.3}};
    struct time_rates rates;
    time_rates_table(MEM_BACKEND_CUDA, "NVIDIA H200", 8, &rates);
    for (size_t i = 0; i < sizeof measured / sizeof measured[0]; i++) {
        struct time_plan plan;
        double phases[TIME_PHASE_COUNT] = {0};
        struct job_spec spec = asked();
        spec.seq_len = measured[i].seq_len;
        spec.heads_per_stage = measured[i].heads_per_stage;
        spec.recompute = measured[i].recompute;
        struct mem_layout layout = layout_of(&spec, MEM_BACKEND_CUDA);
        const struct time_job job = {
            .layout = &layout, .shape = &shape, .micro_steps = 1, .seq_len = spec.seq_len};
        time_plan_make(&job, 1, &rates, &plan);
        for (int phase = 0; phase < TIME_PHASE_COUNT; phase++)
            for (int part = 0; part < TIME_PART_COUNT; part++)
                phases[phase] += plan.seconds[phase][part] * 1e3 / L;
        double backward = phases[TIME_PHASE_RECOMPUTE] + phases[TIME_PHASE_BACKWARD];
        print_message("%lld tokens: forward %.1f ms, measured %.1f; backward %.1f, %.1f\n",
                      (long long)spec.seq_len, phases[TIME_PHASE_FORWARD], measured[i].forward_ms,
                      backward, measured[i].backward_ms);
        assert_true(fabs(phases[TIME_PHASE_FORWARD] / measured[i].forward_ms - 1) < 0.1);
        assert_true(fabs(backward / measured[i].backward_ms - 1) < 0.1);
    }
}

int main(void)
{
    long_job_shape(&shape);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_flops),       cmocka_unit_test(test_recompute),
        cmocka_unit_test(test_seconds),     cmocka_unit_test(test_beside),
        cmocka_unit_test(test_network),     cmocka_unit_test(test_measured),
        cmocka_unit_test(test_model_flops), cmocka_unit_test(test_layers)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    model_shape_done(&shape);
    return failed;
}

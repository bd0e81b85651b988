/* mem_plan: sizes worked out by hand, rules on random plans, the digest, refusals, time. */
#include "common/mem_plan.h"

#include "common/clock.h"
#include "common/mem.h"
#include "common/mem_place.h"
#include "common/model_published.h"
#include "common/rng.h"
#include "tests/lib/long_job.h"
#include "tests/lib/testing.h"

#include <inttypes.h>
#include <stdlib.h>

enum { MI = 1 << 20 };
#define GIB ((int64_t)1 << 30)

static void shape_of(const char *name, struct model_shape *ret)
{
    struct err err = {0};
    const struct model_config *config = model_published_find(name);
    assert_non_null(config);
    assert_int_equal(model_shape_build(config, ret, &err), 0);
}

static void plan_make(const struct model_shape *shape, const struct job_spec *spec,
                      enum mem_backend backend, struct mem_plan *ret)
{
    struct err err = {0};
    struct mem_request request = {
        .shape = shape, .spec = spec, .world = (int)spec->gpus, .backend = backend};
    if (mem_plan_build(&request, ret, &err) != 0)
        fail_msg("%s; ITHACA_TEST_SEED=%" PRIu64, err.text, testing_seed());
}

static int64_t bytes_of(const struct mem_plan *plan, enum mem_arena arena, enum mem_name name,
                        int32_t index)
{
    const struct mem_buffer *buffer = mem_plan_find(plan, arena, name, index);
    return buffer == NULL ? -1 : buffer->bytes;
}

static void test_worked_sizes(void **state)
{
    struct model_shape shape;
    struct mem_plan plan;
    struct job_spec spec = long_job(3 * MI);
    long_job_shape(&shape);
    plan_make(&shape, &spec, MEM_BACKEND_CUDA, &plan);
    /* A unit, one bf16 (T, h): 3 GiB. A stage tensor, bf16 (1, S, d): a quarter of it. */
    assert_int_equal(plan.layout.tokens, 3 * MI / 8);
    assert_int_equal(bytes_of(&plan, MEM_ARENA_DEVICE, MEM_X, MEM_AT_WORK), 3 * GIB);
    assert_int_equal(bytes_of(&plan, MEM_ARENA_DEVICE, MEM_DX, 0), 3 * GIB);
    assert_int_equal(bytes_of(&plan, MEM_ARENA_DEVICE, MEM_O, MEM_AT_WORK), 3 * GIB);
    assert_int_equal(bytes_of(&plan, MEM_ARENA_DEVICE, MEM_DK, 0), 3 * GIB / 4);
    assert_int_equal(bytes_of(&plan, MEM_ARENA_DEVICE, MEM_STAGE_Q, 0), 3 * GIB / 4);
    assert_int_equal(bytes_of(&plan, MEM_ARENA_DEVICE, MEM_STAGE_K, 0), 3 * GIB / 4);
    assert_int_equal(bytes_of(&plan, MEM_ARENA_DEVICE, MEM_STAGE_DQ, 0), 3 * GIB / 2);
    assert_int_equal(bytes_of(&plan, MEM_ARENA_DEVICE, MEM_STAGE_DELTA, 0), 3 * MI * 4);
    /* cuDNN's, of a call's 256K rows: O's stand-in, dq in fp32 and bf16, dk, dv: six stage tensors
     * of such a call, and little more. Forward's parts: O in fp32 and bf16, LSE. */
    int64_t scratch = bytes_of(&plan, MEM_ARENA_DEVICE, MEM_ATTENTION_BWD_SCRATCH, 0);
    assert_true(scratch >= 6 * GIB / 16 && scratch < 6 * GIB / 16 + 4 * MI);
    assert_int_equal(bytes_of(&plan, MEM_ARENA_DEVICE, MEM_ATTENTION_PARTS, 0),
                     MI / 32 * (128 * 6 + 4));
    /* A layer: 218112000 parameters, in bf16 twice, its gradient in fp32 (0.81 GiB). */
    assert_int_equal(bytes_of(&plan, MEM_ARENA_DEVICE, MEM_GATHERED_LAYER, 1), 436224000);
    assert_int_equal(bytes_of(&plan, MEM_ARENA_DEVICE, MEM_GRAD_LAYER, 0), 872448000);
    /* 16 bytes for each of 8030261248 parameters over 8 ranks: 15.0 GiB. */
    assert_int_equal(plan.peak_category[MEM_CATEGORY_STATES], INT64_C(8030261248) / 8 * 16);
    /* Logits of 1024 tokens, and their gradient in bf16. */
    assert_int_equal(bytes_of(&plan, MEM_ARENA_DEVICE, MEM_TILE_LOGITS, 0), 1024 * 128256 * 4);
    assert_int_equal(bytes_of(&plan, MEM_ARENA_DEVICE, MEM_TILE_DLOGITS, 0), 1024 * 128256 * 2);
    /* Kept on the host: O and LSE of 32 layers, the input of every eighth. */
    assert_int_equal(plan.arena_bytes[MEM_ARENA_HOST],
                     32 * (3 * GIB + INT64_C(3) * MI * 4 * 4) + 4 * 3 * GIB);
    assert_null(mem_plan_find(&plan, MEM_ARENA_HOST, MEM_X, 1));
    /* Eight bytes of a page table on the device for each 4 KiB of it. */
    assert_int_equal(bytes_of(&plan, MEM_ARENA_DRIVER, MEM_HOST_PAGES, 0),
                     plan.arena_bytes[MEM_ARENA_HOST] / 512);
    assert_int_equal(plan.peak_phase, MEM_PHASE_BWD_ATTENTION);
    /* x, d_mid and O; q, k, v, dO and in fp32 dq, dk, dv; dk and dv of all heads are not there yet.
     */
    assert_int_equal(plan.peak_category[MEM_CATEGORY_RESIDUAL], 6 * GIB);
    assert_int_equal(plan.peak_category[MEM_CATEGORY_ATTENTION],
                     3 * GIB + 10 * 3 * GIB / 4 + INT64_C(3) * MI * (16 + 4));
    assert_true(plan.gap_bytes < GIB);
    mem_plan_done(&plan);
    model_shape_done(&shape);
}

static const struct model_config tiny = {.vocab_size = 100,
                                         .hidden_size = 32,
                                         .intermediate_size = 48,
                                         .layers = 3,
                                         .heads = 4,
                                         .kv_heads = 2,
                                         .head_dim = 8,
                                         .rms_norm_eps = 1e-5,
                                         .rope_theta = 1e4,
                                         .tie_embeddings = true};

/* One rank in fp32, everything kept: what a laptop trains with. */
static void test_plain(void **state)
{
    struct err err = {0};
    struct model_shape shape;
    struct mem_plan plan;
    struct job_spec spec = {.gpus = 1, .seq_len = 50, .sequences = 8, .fsdp = true};
    assert_int_equal(model_shape_build(&tiny, &shape, &err), 0);
    plan_make(&shape, &spec, MEM_BACKEND_CPU, &plan);
    assert_int_equal(plan.layout.slots, 1);
    for (int32_t l = 0; l < 3; l++) {
        assert_int_equal(bytes_of(&plan, MEM_ARENA_DEVICE, MEM_X, l), 50 * 32 * 4);
        assert_int_equal(bytes_of(&plan, MEM_ARENA_DEVICE, MEM_X_MID, l), 50 * 32 * 4);
        assert_int_equal(bytes_of(&plan, MEM_ARENA_DEVICE, MEM_K, l), 50 * 2 * 8 * 4);
        assert_int_equal(bytes_of(&plan, MEM_ARENA_DEVICE, MEM_LSE, l), 50 * 4 * 4);
        assert_int_equal(bytes_of(&plan, MEM_ARENA_DEVICE, MEM_GATE, l), 50 * 48 * 4);
    }
    /* Weights are the master, gradients go straight to it: nothing is gathered. */
    assert_null(mem_plan_find(&plan, MEM_ARENA_DEVICE, MEM_GATHERED_LAYER, 0));
    assert_null(mem_plan_find(&plan, MEM_ARENA_DEVICE, MEM_GRAD_LAYER, 0));
    assert_null(mem_plan_find(&plan, MEM_ARENA_DEVICE, MEM_STAGE_Q, 0));
    assert_null(mem_plan_find(&plan, MEM_ARENA_DEVICE, MEM_STAGE_SEND, 0));
    assert_null(mem_plan_find(&plan, MEM_ARENA_DEVICE, MEM_DRIVER, 0));
    assert_null(mem_plan_find(&plan, MEM_ARENA_DEVICE, MEM_TILE_DLOGITS, 0));
    assert_int_equal(plan.arena_bytes[MEM_ARENA_HOST], 0);
    assert_int_equal(plan.peak_device_bytes, plan.arena_bytes[MEM_ARENA_DEVICE]);
    mem_plan_done(&plan);

    /* Four sequences a micro-step: eight of them in two. */
    spec.grad_accum = 2;
    plan_make(&shape, &spec, MEM_BACKEND_CPU, &plan);
    assert_int_equal(plan.layout.slots, 4);
    assert_int_equal(plan.layout.tokens, 200);
    mem_plan_done(&plan);
    model_shape_done(&shape);
}

static void test_kinds_of_recompute(void **state)
{
    struct err err = {0};
    struct model_shape shape;
    struct mem_plan plan;
    struct job_spec spec = {.gpus = 1, .seq_len = 64, .fsdp = true, .tile_mlp = 16};
    assert_int_equal(model_shape_build(&tiny, &shape, &err), 0);
    spec.recompute = JOB_recompute_INPUT;
    plan_make(&shape, &spec, MEM_BACKEND_CPU, &plan);
    assert_null(mem_plan_find(&plan, MEM_ARENA_DEVICE, MEM_O, 0));
    assert_non_null(mem_plan_find(&plan, MEM_ARENA_DEVICE, MEM_O, MEM_AT_WORK));
    assert_true(plan.phases >> MEM_PHASE_AGAIN_ATTENTION & 1);
    mem_plan_done(&plan);
    spec.recompute = JOB_recompute_ATTENTION;
    spec.keep_input_every = 2;
    plan_make(&shape, &spec, MEM_BACKEND_CPU, &plan);
    assert_non_null(mem_plan_find(&plan, MEM_ARENA_DEVICE, MEM_X, 0));
    assert_null(mem_plan_find(&plan, MEM_ARENA_DEVICE, MEM_X, 1));
    assert_non_null(mem_plan_find(&plan, MEM_ARENA_DEVICE, MEM_X, 2));
    assert_non_null(mem_plan_find(&plan, MEM_ARENA_DEVICE, MEM_X_SEGMENT, 0));
    assert_null(mem_plan_find(&plan, MEM_ARENA_DEVICE, MEM_X_SEGMENT, 1));
    assert_non_null(mem_plan_find(&plan, MEM_ARENA_DEVICE, MEM_O, 1));
    assert_int_equal(bytes_of(&plan, MEM_ARENA_DEVICE, MEM_GATE, MEM_AT_WORK), 16 * 48 * 4);
    assert_false(plan.phases >> MEM_PHASE_AGAIN_ATTENTION & 1);
    assert_true(plan.phases >> MEM_PHASE_REPLAY & 1);
    mem_plan_done(&plan);
    model_shape_done(&shape);
}

/* ---- rules ---- */

static int64_t draw(uint64_t round, uint64_t what, int64_t low, int64_t high)
{
    return low + (int64_t)rng_below(testing_seed(), what, round, (uint64_t)(high - low + 1));
}

static struct job_spec random_spec(uint64_t round, const struct model_config *config)
{
    struct job_spec spec = {.fsdp = draw(round, 1, 0, 3) > 0,
                            .gpus = (int64_t)1 << draw(round, 2, 0, 3),
                            .seq_len = draw(round, 3, 2, 5000),
                            .sequences = draw(round, 4, 1, 9),
                            .grad_accum = draw(round, 5, -1, 3),
                            .recompute = (enum job_recompute)draw(round, 6, 0, 4),
                            .keep_input_every = draw(round, 7, 1, config->layers),
                            .tile_mlp = draw(round, 8, -1, 600),
                            .tile_loss = draw(round, 9, -1, 600),
                            .offload = (enum job_offload)draw(round, 10, 0, 3),
                            .states = (enum job_states)draw(round, 11, 0, 3),
                            .stream_residual = (enum job_toggle)draw(round, 12, 0, 2),
                            .overlap = (enum job_overlap)draw(round, 18, 0, 2),
                            .lora = draw(round, 19, 0, 1) != 0,
                            .lora_r = draw(round, 20, 1, 300),
                            .lora_modules = draw(round, 21, 1, 127),
                            .lora_dropout = (double)draw(round, 22, 0, 1) * 0.1,
                            .ring = 1,
                            .ulysses = 1};
    spec.ulysses = (int64_t)1 << draw(round, 13, 0, 3);
    while (spec.gpus % spec.ulysses != 0 ||
           !mesh_ulysses_legal(config->heads, config->kv_heads, spec.ulysses))
        spec.ulysses /= 2;
    spec.ring = draw(round, 14, 0, 1) ? spec.gpus / spec.ulysses : 1;
    spec.heads_per_stage = draw(round, 15, 1, config->heads);
    while (!mesh_stage_legal(config->heads, config->kv_heads, spec.ulysses, spec.heads_per_stage))
        spec.heads_per_stage--;
    spec.context_kind = draw(round, 16, 0, 1) ? JOB_context_kind_UPIPE : JOB_context_kind_ULYSSES;
    return spec;
}

static void check_rules(const struct mem_plan *plan)
{
    int64_t device = plan->arena_bytes[MEM_ARENA_DEVICE] + plan->arena_bytes[MEM_ARENA_DRIVER];
    int64_t at_peak = 0, most = 0;
    for (int c = 0; c < MEM_CATEGORY_COUNT; c++)
        at_peak += plan->peak_category[c];
    for (int p = 0; p < MEM_PHASE_COUNT; p++) {
        most = plan->phase_bytes[p] > most ? plan->phase_bytes[p] : most;
        assert_true((plan->phases >> p & 1) || plan->phase_bytes[p] == 0);
    }
    assert_int_equal(at_peak, plan->phase_bytes[plan->peak_phase]);
    assert_int_equal(at_peak, most);
    assert_int_equal(plan->peak_device_bytes, device);
    assert_int_equal(at_peak + plan->gap_bytes, device);
    for (int64_t i = 0; i < plan->count; i++) {
        const struct mem_buffer *b = &plan->buffers[i];
        assert_ptr_equal(mem_plan_find(plan, b->arena, b->name, b->index), b);
        assert_true(mem_buffer_first(b) <= mem_buffer_last(b));
        assert_true(b->offset + b->bytes <= plan->arena_bytes[b->arena]);
    }
    for (int arena = 0; arena < MEM_ARENA_COUNT; arena++)
        assert_true(mem_place_check(plan->buffers, plan->count, (enum mem_arena)arena,
                                    plan->arena_bytes[arena]));
}

static void test_random_plans(void **state)
{
    static const char *const names[] = {"llama3.2-1b", "qwen2.5-0.5b", "qwen3-0.6b", "llama3-8b"};
    double waste = 0;
    enum { ROUNDS = 400 };
    for (uint64_t round = 0; round < ROUNDS; round++) {
        struct model_shape shape;
        struct mem_plan plan, again;
        shape_of(names[round % 4], &shape);
        struct job_spec spec = random_spec(round, &shape.config);
        enum mem_backend backend = (enum mem_backend)draw(round, 17, 0, MEM_BACKEND_COUNT - 1);
        plan_make(&shape, &spec, backend, &plan);
        check_rules(&plan);
        plan_make(&shape, &spec, backend, &again);
        assert_string_equal(plan.digest, again.digest);
        mem_plan_done(&again);
        spec.seq_len += 512;
        plan_make(&shape, &spec, backend, &again);
        assert_string_not_equal(plan.digest, again.digest);
        waste += (double)plan.gap_bytes / (double)plan.peak_device_bytes;
        mem_plan_done(&again);
        mem_plan_done(&plan);
        model_shape_done(&shape);
    }
    print_message("%.2f%% of the blocks is unused at the peak\n", 100 * waste / ROUNDS);
}

/* What takes memory off the device does. */
static void test_less(void **state)
{
    struct model_shape shape;
    struct mem_plan plan;
    struct job_spec spec = long_job(MI);
    long_job_shape(&shape);
    int64_t last = INT64_MAX;
    spec.offload = JOB_offload_NONE;
    for (int step = 0; step < 5; step++) {
        if (step == 1)
            spec.offload = JOB_offload_HOST;
        if (step == 2)
            spec.states = JOB_states_HOST_OPTIMIZER;
        if (step == 3)
            spec.states = JOB_states_HOST;
        if (step == 4)
            spec.stream_residual = JOB_toggle_ON;
        plan_make(&shape, &spec, MEM_BACKEND_CUDA, &plan);
        assert_true(plan.peak_device_bytes < last);
        last = plan.peak_device_bytes;
        mem_plan_done(&plan);
    }
    /* A file in place of host memory: the same on the device, hardly anything on the host. */
    spec = long_job(MI);
    spec.offload = JOB_offload_FILE;
    plan_make(&shape, &spec, MEM_BACKEND_CUDA, &plan);
    assert_true(plan.arena_bytes[MEM_ARENA_FILE] > 32 * GIB);
    assert_true(plan.arena_bytes[MEM_ARENA_HOST] < GIB);
    mem_plan_done(&plan);
    model_shape_done(&shape);
}

/* ---- refusals, failures, time ---- */

static void test_refusals(void **state)
{
    struct err err = {0};
    struct model_shape shape;
    struct mem_plan plan;
    long_job_shape(&shape);
    /* Four heads of 4M tokens: 2^31 elements. */
    struct job_spec spec = long_job(4 * MI);
    spec.heads_per_stage = 4;
    struct mem_request request = {
        .shape = &shape, .spec = &spec, .world = 8, .backend = MEM_BACKEND_CUDA};
    struct mem_layout layout = mem_layout_make(&request);
    assert_int_equal(mem_layout_check(&layout, &err), -ERR_UNSUPPORTED);
    assert_string_equal(err.field, "ithaca.context_parallel.heads_per_stage");
    request.backend = MEM_BACKEND_CUDA_OWN;
    layout = mem_layout_make(&request);
    assert_int_equal(mem_layout_check(&layout, &err), 0);
    request.backend = MEM_BACKEND_CUDA;
    spec.seq_len = 4 * MI - 8;
    layout = mem_layout_make(&request);
    assert_int_equal(mem_layout_check(&layout, &err), 0);
    /* More than can be counted. */
    spec.seq_len = 16 * MI;
    spec.sequences = 65536;
    spec.grad_accum = 1;
    spec.recompute = JOB_recompute_NONE;
    shape.config.intermediate_size = 1 << 22;
    shape.config.layers = 1024;
    spec.tile_mlp = JOB_AUTO;
    assert_int_equal(mem_plan_build(&request, &plan, &err), -ERR_DOES_NOT_FIT);
    assert_string_equal(err.field, "ithaca.seq_len");
    model_shape_done(&shape);
}

static void test_no_memory(void **state)
{
    struct err err = {0};
    struct model_shape shape;
    struct job_spec spec = long_job(MI);
    long_job_shape(&shape);
    struct mem_request request = {
        .shape = &shape, .spec = &spec, .world = 8, .backend = MEM_BACKEND_CUDA};
    int64_t live = mem_live(), n = 1;
    for (;; n++) {
        struct mem_plan plan;
        mem_fault_after(n);
        int rc = mem_plan_build(&request, &plan, &err);
        if (rc == 0) {
            mem_plan_done(&plan);
            break;
        }
        assert_int_equal(rc, -ERR_NOMEM);
        assert_int_equal(mem_live(), live);
    }
    mem_fault_after(0);
    assert_true(n > 5);
    model_shape_done(&shape);
}

static int64_t plan_ns(const struct model_shape *shape, const struct job_spec *spec)
{
    struct mem_plan plan;
    int64_t best = INT64_MAX;
    for (int i = 0; i < 5; i++) {
        int64_t start = clock_monotonic_ns();
        plan_make(shape, spec, MEM_BACKEND_CUDA, &plan);
        int64_t took = clock_monotonic_ns() - start;
        best = took < best ? took : best;
        mem_plan_done(&plan);
    }
    return best;
}

/* The daemon makes some hundred plans for an answer that advises. */
static void test_time(void **state)
{
    struct model_shape shape, deep;
    struct err err = {0};
    struct job_spec spec = long_job(10 * MI);
    shape_of("qwen3-32b", &shape);
    assert_int_equal(shape.config.layers, 64);
    struct model_config config = shape.config;
    config.layers = LIMIT_LAYERS;
    assert_int_equal(model_shape_build(&config, &deep, &err), 0);
    int64_t usual = plan_ns(&shape, &spec), deepest = plan_ns(&deep, &spec);
    print_message("a plan of 10M tokens: 64 layers %.2f ms, %d layers %.2f ms\n",
                  (double)usual * 1e-6, LIMIT_LAYERS, (double)deepest * 1e-6);
    assert_true(usual < 100 * 1000 * 1000);
    assert_true(deepest < 100 * 1000 * 1000);
    model_shape_done(&shape);
    model_shape_done(&deep);
}

static void test_phase_names(void **state)
{
    for (int p = 0; p < MEM_PHASE_COUNT; p++)
        assert_int_equal(mem_phase_find(mem_phase_name((enum mem_phase)p)), p);
    assert_int_equal(mem_phase_find("forward"), MEM_PHASE_COUNT); /* of a step, not of the plan */
    assert_int_equal(mem_phase_find(""), MEM_PHASE_COUNT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_worked_sizes),
                                       cmocka_unit_test(test_plain),
                                       cmocka_unit_test(test_kinds_of_recompute),
                                       cmocka_unit_test(test_random_plans),
                                       cmocka_unit_test(test_less),
                                       cmocka_unit_test(test_refusals),
                                       cmocka_unit_test(test_no_memory),
                                       cmocka_unit_test(test_time),
                                       cmocka_unit_test(test_phase_names)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

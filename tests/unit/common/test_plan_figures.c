/* mem_plan, time_plan: plans of every kind of job, to the byte, and what their steps do. Planned
 * bytes are held against measured ones on GPUs only (tests/dist/test_cuda_memory.c), planned work
 * by tests/dist/test_time_work.c; a machine without a GPU cannot tell that a plan says too much,
 * but here a plan that comes out otherwise shows. */
#include "common/mem_plan.h"

#include "common/model_published.h"
#include "common/time_plan.h"
#include "tests/lib/cmocka.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *what, *model;
    enum mem_backend backend;
    struct job_spec spec;
    const char *bytes; /* of device, host, file, driver; digest: sizes, places, phases */
    const char *times; /* seconds of each phase at the rates of rates_make(); of the network */
} plans[] = {
    /* A row is a job, its fields, its figures. */
    /* clang-format off */
    {"one GPU, everything kept", "qwen2.5-0.5b", MEM_BACKEND_CUDA,
     {.fsdp = true, .gpus = 1, .sequences = 1, .seq_len = 8192},
     "14612595200 0 0 721420288 68ae4f3584d1991e5609af08ba895ecd",
     "0.162152166 0.114581774 0 0.290796826 0.047791216 0"},
    {"one CPU, packed micro-steps", "qwen3-0.6b", MEM_BACKEND_CPU,
     {.fsdp = true, .gpus = 1, .seq_len = 1000, .sequences = 9, .grad_accum = 2},
     "18278275072 0 0 0 f39b88dd1848da848eb49388713f067b",
     "0.276811563 0.161656903 0 0.556919891 0.0574578831 0"},
    {"data ranks, a whole model each", "llama3.2-1b", MEM_BACKEND_CUDA,
     {.gpus = 4, .sequences = 10, .grad_accum = 3, .seq_len = 4096,
      .recompute = JOB_recompute_INPUT},
     "21707531520 0 0 1526726656 9b26447c6a025b3ee1412cb03e056b35",
     "0.511383585 0.303414833 0.341055549 0.840883107 0.126037916 0.012314076"},
    {"shards of eight, MLP in tiles", "llama3-8b", MEM_BACKEND_CUDA,
     {.fsdp = true, .gpus = 8, .sequences = 8, .seq_len = 32768, .tile_mlp = 4096,
      .tile_loss = 2048},
     "61105591552 0 0 1526726656 d9bb8fac09e4e3304260fd1d30bd95e7",
     "10.5208921 1.48410905 3.88978203 18.708415 0.075492474 0.0925610453"},
    {"Ulysses, forward again", "llama3-8b", MEM_BACKEND_CUDA,
     {.fsdp = true, .gpus = 8, .ulysses = 8, .sequences = 1, .seq_len = 524288,
      .recompute = JOB_recompute_INPUT, .tile_mlp = 8192},
     "41371907328 0 0 3154116608 5d1791332b8df1a54112352694f6a6bd",
     "90.7060413 3.02207521 86.3661138 191.933851 0.075492474 0.287286283"},
    {"Ulysses of two, attention kept", "qwen3-0.6b", MEM_BACKEND_CUDA,
     {.fsdp = true, .gpus = 2, .ulysses = 2, .sequences = 1, .seq_len = 262144,
      .recompute = JOB_recompute_ATTENTION, .keep_input_every = 4},
     "32312728832 0 0 1946157056 7283af62b171ffdbe922907e7ee630c4",
     "36.4988798 2.03097112 3.14883989 80.3342889 0.0233904704 0.11639653"},
    {"stages, in turn", "llama3-8b", MEM_BACKEND_CUDA,
     {.fsdp = true, .gpus = 4, .ulysses = 4, .sequences = 1, .seq_len = 1048576,
      .context_kind = JOB_context_kind_UPIPE, .heads_per_stage = 1,
      .recompute = JOB_recompute_ATTENTION, .keep_input_every = 8, .tile_mlp = 16384},
     "122084537600 0 0 2348810240 b360984879f466229821db79c5552936",
     "650.765064 12.0380539 223.033007 1397.87004 0.147640652 0.73264272"},
    {"stages, K/V heads shared by them", "llama3-8b", MEM_BACKEND_CUDA,
     {.fsdp = true, .gpus = 2, .ulysses = 2, .sequences = 1, .seq_len = 131072,
      .context_kind = JOB_context_kind_UPIPE, .heads_per_stage = 2,
      .recompute = JOB_recompute_ATTENTION, .keep_input_every = 1},
     "110331270400 0 0 1946157056 5e8414594d31833974a8c423bd3b8497",
     "36.6681106 3.03000746 12.3832305 69.1620505 0.288882726 0.15926298"},
    {"stages, overlapped", "llama3-8b", MEM_BACKEND_CUDA,
     {.fsdp = true, .gpus = 4, .ulysses = 4, .sequences = 1, .seq_len = 262144,
      .context_kind = JOB_context_kind_UPIPE, .heads_per_stage = 1, .overlap = JOB_overlap_ON,
      .recompute = JOB_recompute_ATTENTION, .keep_input_every = 2},
     "70157161728 0 0 2348810240 62af6f5d23e0150325d14a0034165b6b",
     "55.1401077 3.0246837 18.3091633 110.73636 0.147640652 0.23479881"},
    {"stages, overlapped, forward again", "qwen3-32b", MEM_BACKEND_CUDA,
     {.fsdp = true, .gpus = 8, .ulysses = 8, .sequences = 1, .seq_len = 262144,
      .context_kind = JOB_context_kind_UPIPE, .heads_per_stage = 1, .overlap = JOB_overlap_ON,
      .recompute = JOB_recompute_INPUT, .offload = JOB_offload_HOST},
     "78496353536 21474836480 0 3196059648 5b548894e5343864fde95b3ed71e5f5f",
     "112.234803 2.22740277 108.48779 229.158349 0.302866462 0.807470139"},
    {"ring of two", "llama3-8b", MEM_BACKEND_CUDA,
     {.fsdp = true, .gpus = 2, .ring = 2, .sequences = 1, .seq_len = 65536,
      .recompute = JOB_recompute_ATTENTION, .keep_input_every = 1},
     "88429671680 0 0 1946157056 cba3b17ffa762e94c02277390edc0ed2",
     "13.0972523 1.52777909 5.45364158 24.3812026 0.288882726 0.095720768"},
    {"ring of four, data beside it", "qwen3-0.6b", MEM_BACKEND_CUDA,
     {.fsdp = true, .gpus = 8, .ring = 4, .sequences = 4, .seq_len = 100000,
      .recompute = JOB_recompute_INPUT},
     "4917513728 0 0 2147483648 058f17c38d7a4c2448cb4af875fa0bf4",
     "6.66378804 0.782498728 6.44588835 14.2343795 0.00613789193 0.177820119"},
    {"ring by Ulysses, overlapped", "llama3-8b", MEM_BACKEND_CUDA,
     {.fsdp = true, .gpus = 8, .ring = 2, .ulysses = 4, .sequences = 1, .seq_len = 1048576,
      .context_kind = JOB_context_kind_UPIPE, .heads_per_stage = 1, .overlap = JOB_overlap_ON,
      .recompute = JOB_recompute_ATTENTION, .keep_input_every = 8, .offload = JOB_offload_HOST,
      .tile_mlp = 16384},
     "25390028032 39191576576 0 2844786688 36ca99bdcd6926d8e01e0e4e58b87cc9",
     "334.408108 6.02653196 117.327456 717.924796 0.075492474 1.12726549"},
    {"ring by Ulysses on CPUs", "qwen2.5-0.5b", MEM_BACKEND_CPU,
     {.fsdp = true, .gpus = 4, .ring = 2, .ulysses = 2, .sequences = 1, .seq_len = 4096},
     "5156730112 0 0 0 dfe179a17786845a4c7c9936706d2f03",
     "0.0280373993 0.0202458609 0 0.0613072044 0.00997045434 0.009346204"},
    {"some layers to the host", "llama3.2-1b", MEM_BACKEND_CUDA,
     {.fsdp = true, .gpus = 2, .ulysses = 2, .sequences = 1, .seq_len = 131072,
      .recompute = JOB_recompute_ATTENTION, .keep_input_every = 4, .offload = JOB_offload_HOST,
      .offload_layers = 6},
     "20441519360 2197815296 0 1950449664 a40ba58b7bb89417d1017d06652ba071",
     "7.33797374 1.58600695 2.77198786 14.9624044 0.0461630152 0.0357656517"},
    {"all is kept, on the host", "llama3.2-1b", MEM_BACKEND_CUDA,
     {.fsdp = true, .gpus = 1, .sequences = 1, .seq_len = 20000, .offload = JOB_offload_HOST,
      .offload_layers = 9},
     "29830673152 9239040000 0 739465472 d601037f7b7dc465df5bba89d237b6b1",
     "0.995878138 0.483214292 0 1.76853166 0.11372384 0"},
    {"some layers to a file", "llama3-8b", MEM_BACKEND_CUDA,
     {.fsdp = true, .gpus = 8, .ulysses = 8, .sequences = 1, .seq_len = 3000000,
      .context_kind = JOB_context_kind_UPIPE, .heads_per_stage = 1,
      .recompute = JOB_recompute_ATTENTION, .keep_input_every = 8, .offload = JOB_offload_FILE,
      .file_layers = 12, .tile_mlp = 16384},
     "35711236096 69080903680 43584012288 3289040384 c5581f7ccba880c9653526aa8678d32f",
     "2388.8504 17.2099713 331.724426 5247.60158 0.075492474 1.1220345"},
    {"the residual streamed", "llama3-8b", MEM_BACKEND_CUDA,
     {.fsdp = true, .gpus = 8, .ulysses = 8, .sequences = 1, .seq_len = 5000000,
      .context_kind = JOB_context_kind_UPIPE, .heads_per_stage = 1,
      .recompute = JOB_recompute_ATTENTION, .keep_input_every = 8, .offload = JOB_offload_FILE,
      .stream_residual = JOB_toggle_ON, .states = JOB_states_HOST, .tile_mlp = 16384},
     "22097128704 26837426176 186880098304 3206533632 6c0ee3a200d5868dbc50139d0515a15d",
     "6416.78673 28.6840649 552.917126 14157.8962 0.123904955 1.73926845"},
    {"optimizer on the host", "llama3-8b", MEM_BACKEND_CUDA,
     {.fsdp = true, .gpus = 1, .sequences = 1, .seq_len = 32768, .recompute = JOB_recompute_INPUT,
      .offload = JOB_offload_HOST, .tile_mlp = 4096, .states = JOB_states_HOST_OPTIMIZER},
     "37122790656 104953069568 0 926406912 3c11e6f21cc6de25ab7c3f5bcf0639d3",
     "10.5299501 1.51085897 8.21274248 18.5115644 0.991452115 0"},
    {"all states on the host, on CPUs", "qwen3-0.6b", MEM_BACKEND_CPU,
     {.fsdp = true, .gpus = 2, .sequences = 2, .seq_len = 2048,
      .recompute = JOB_recompute_ATTENTION, .keep_input_every = 3, .states = JOB_states_HOST},
     "2667650304 4768399360 0 0 d401176722054e8ea2010f5c824d8a0b",
     "0.0616442424 0.0380000753 0.06083573 0.14190749 0.0382727512 0.00771802696"},
    {"adapters", "llama3-8b", MEM_BACKEND_CUDA,
     {.fsdp = true, .gpus = 8, .ulysses = 8, .sequences = 1, .seq_len = 131072,
      .recompute = JOB_recompute_ATTENTION, .keep_input_every = 4, .tile_mlp = 8192, .lora = true,
      .lora_r = 16, .lora_modules = 127},
     "11128248576 0 0 3154116608 cb6548111b3f5a8157bbf131dab79899",
     "8.96653 0.550954737 5.07214522 14.8165063 0.000484313304 0.100050322"},
    {"adapters with dropout, one GPU", "qwen2.5-0.5b", MEM_BACKEND_CUDA,
     {.fsdp = true, .gpus = 1, .sequences = 1, .seq_len = 16384, .lora = true, .lora_r = 8,
      .lora_modules = 5, .lora_dropout = 0.1, .states = JOB_states_HOST},
     "12769616896 8650752 0 721437184 6fc5af3a913c5f97ef660de86e97f5a3",
     "0.377548438 0.172521686 0 0.565233534 8.51118301e-05 0"},
    {"parts of tiles, adapters of all products, with dropout", "llama3.2-1b", MEM_BACKEND_CUDA,
     {.fsdp = true, .gpus = 2, .sequences = 2, .seq_len = 10001, .tile_mlp = 3000, .tile_loss = 700,
      .recompute = JOB_recompute_ATTENTION, .keep_input_every = 3, .lora = true, .lora_r = 8,
      .lora_modules = 127, .lora_dropout = 0.1},
     "3742201344 0 0 1526726656 9b2f412d9449a10442471e4872a60bea",
     "0.465623785 0.180979936 0.489499911 0.602287105 0.000259565294 0.00513033826"},
    {"the same in stages, forward again", "llama3.2-1b", MEM_BACKEND_CUDA,
     {.fsdp = true, .gpus = 4, .ulysses = 4, .sequences = 1, .seq_len = 40001, .tile_mlp = 3000,
      .context_kind = JOB_context_kind_UPIPE, .heads_per_stage = 1,
      .recompute = JOB_recompute_INPUT, .lora = true, .lora_r = 8, .lora_modules = 127,
      .lora_dropout = 0.1},
     "3002965504 0 0 2348810240 8600c1f6a267b47432f1be4cf88b2093",
     "0.701561197 0.178769211 0.688237632 1.00716417 0.000133487436 0.015362884"},
    {"segments at hand, and on two kinds of places", "llama3.2-1b", MEM_BACKEND_CUDA,
     {.fsdp = true, .gpus = 1, .sequences = 1, .seq_len = 30001, .tile_mlp = 4096,
      .recompute = JOB_recompute_ATTENTION, .keep_input_every = 4, .offload = JOB_offload_FILE,
      .offload_layers = 10, .file_layers = 5},
     "23173880064 823647488 879398912 723028992 5e294ca7e8d50760e4d902c383c6576d",
     "1.64460143 0.723338136 1.27700297 3.04696658 0.11372384 0"},
    {"the residual streamed, all else at hand", "qwen2.5-0.5b", MEM_BACKEND_CUDA,
     {.fsdp = true, .gpus = 8, .ulysses = 2, .ring = 4, .sequences = 1, .seq_len = 2000000,
      .recompute = JOB_recompute_ATTENTION, .keep_input_every = 6, .tile_mlp = 5000,
      .stream_residual = JOB_toggle_ON},
     "16956562944 2688000000 0 2572164096 14c81e4d4bdf4a03cbd20f2ce21a18fb",
     "183.939563 3.45804559 11.0527003 406.0677 0.00510947042 0.135342499"},
    {"the residual streamed, away in segments", "llama3-8b", MEM_BACKEND_CUDA,
     {.fsdp = true, .gpus = 8, .ulysses = 8, .sequences = 1, .seq_len = 900000,
      .recompute = JOB_recompute_ATTENTION, .keep_input_every = 16, .tile_mlp = 5000,
      .offload = JOB_offload_HOST, .offload_layers = 20, .stream_residual = JOB_toggle_ON},
     "37646816512 36230400000 0 3224879360 14dc9f9802e3c79d8f16071f47097a69",
     "243.740763 5.17803055 30.2004192 524.91279 0.075492474 0.390144416"},
    /* clang-format on */
};

static void plan_make(const char *model, enum mem_backend backend, const struct job_spec *spec,
                      struct mem_plan *ret)
{
    struct err err = {0};
    struct model_shape shape;
    struct mem_request request = {
        .shape = &shape, .spec = spec, .world = (int)spec->gpus, .backend = backend};
    assert_int_equal(model_shape_build(model_published_find(model), &shape, &err), 0);
    if (mem_plan_build(&request, ret, &err) != 0)
        fail_msg("%s", err.text);
    model_shape_done(&shape);
}

/* Another rate for each operation, twice as much for large ones. Nothing runs beside anything, so
 * that all of it shows. */
static void rates_make(enum mem_backend backend, struct time_rates *ret)
{
    *ret = (struct time_rates){.backend = backend};
    for (int op = 0; op < TIME_OP_COUNT; op++) {
        bool products = time_op_part((enum time_op)op) <= TIME_PART_PRODUCTS; /* FLOPs */
        double rate = (op + 5) * (products ? 1e13 : 1e10);
        time_rates_add(ret, (enum time_op)op, (struct time_point){1 << 6, 1, rate});
        time_rates_add(ret, (enum time_op)op, (struct time_point){1 << 30, 1, 2 * rate});
    }
}

static void times_make(size_t row, const struct mem_plan *plan, char *ret, size_t size)
{
    struct err err = {0};
    struct model_shape shape;
    struct time_rates rates;
    struct time_plan time;
    const struct job_spec *spec = &plans[row].spec;
    int64_t ranks = plan->layout.mesh.data, each = (spec->sequences + ranks - 1) / ranks;
    assert_int_equal(model_shape_build(model_published_find(plans[row].model), &shape, &err), 0);
    const struct time_job job = {.layout = &plan->layout,
                                 .shape = &shape,
                                 .micro_steps =
                                     (each + plan->layout.slots - 1) / plan->layout.slots,
                                 .seq_len = spec->seq_len};
    rates_make(plans[row].backend, &rates);
    time_plan_make(&job, spec->sequences, &rates, &time);
    size_t at = 0;
    for (int phase = 0; phase < TIME_PHASE_COUNT; phase++) {
        double seconds = 0;
        for (int part = 0; part < TIME_PART_COUNT; part++)
            seconds += time.seconds[phase][part];
        at += (size_t)snprintf(ret + at, size - at, "%.9g ", seconds);
    }
    (void)snprintf(ret + at, size - at, "%.9g", time.network_s);
    model_shape_done(&shape);
}

static int check(size_t row, const char *of, const char *got, const char *want)
{
    if (strcmp(got, want) == 0)
        return 0;
    print_message("%s: %s\n    was \"%s\"\n    is  \"%s\"\n", plans[row].what, of, want, got);
    return 1;
}

static void test_figures(void **state)
{
    int changed = 0;
    for (size_t i = 0; i < sizeof plans / sizeof plans[0]; i++) {
        struct mem_plan plan;
        char bytes[160], times[160];
        plan_make(plans[i].model, plans[i].backend, &plans[i].spec, &plan);
        (void)snprintf(bytes, sizeof bytes, "%" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %s",
                       plan.arena_bytes[MEM_ARENA_DEVICE], plan.arena_bytes[MEM_ARENA_HOST],
                       plan.arena_bytes[MEM_ARENA_FILE], plan.arena_bytes[MEM_ARENA_DRIVER],
                       plan.digest);
        times_make(i, &plan, times, sizeof times);
        changed += check(i, "bytes of device, host, file, driver; digest", bytes, plans[i].bytes) +
                   check(i, "seconds of each phase, of the network", times, plans[i].times);
        mem_plan_done(&plan);
    }
    if (changed > 0)
        fail_msg(
            "%d lines of plans[] changed; where that is meant, put each \"is\" for its \"was\"",
            changed);
}

/* Settings that have no bearing where others are as they are. */
static void test_without_bearing(void **state)
{
#define SPEC(...)                                                             \
    {                                                                         \
        .fsdp = true, .gpus = 2, .sequences = 4, .seq_len = 4096, __VA_ARGS__ \
    }
    static const struct {
        struct job_spec spec, same;
    } pairs[] = {
        {SPEC(.tile_mlp = 8192), SPEC(.tile_mlp = 4096)}, /* there are 4096 tokens */
        {SPEC(.tile_mlp = 4096), SPEC(.tile_mlp = 0)},
        {SPEC(.tile_loss = 5000), SPEC(.tile_loss = 4096)},
        {SPEC(.tile_loss = 0), SPEC(.tile_loss = MEM_TILE_LOSS_TOKENS)},
        {SPEC(.grad_accum = 3), SPEC(.grad_accum = 0)}, /* of two sequences a rank */
        {SPEC(.grad_accum = 2), SPEC(.grad_accum = 0)},
        {SPEC(.recompute = JOB_recompute_AUTO), SPEC(.recompute = JOB_recompute_NONE)},
        {SPEC(.recompute = JOB_recompute_INPUT, .keep_input_every = 4),
         SPEC(.recompute = JOB_recompute_INPUT)},
        {SPEC(.recompute = JOB_recompute_ATTENTION, .keep_input_every = 1),
         SPEC(.recompute = JOB_recompute_ATTENTION)},
        {SPEC(.offload = JOB_offload_HOST, .offload_layers = 24),
         SPEC(.offload = JOB_offload_HOST)},
        {SPEC(.offload = JOB_offload_HOST, .offload_layers = 99),
         SPEC(.offload = JOB_offload_HOST)},
        {SPEC(.offload_layers = 3), SPEC(.offload_layers = 0)},
        {SPEC(.offload = JOB_offload_HOST, .file_layers = 3), SPEC(.offload = JOB_offload_HOST)},
        {SPEC(.ulysses = 2, .context_kind = JOB_context_kind_ULYSSES, .heads_per_stage = 1),
         SPEC(.ulysses = 2, .context_kind = JOB_context_kind_ULYSSES)},
        {SPEC(.ulysses = 2, .context_kind = JOB_context_kind_UPIPE),
         SPEC(.ulysses = 2, .context_kind = JOB_context_kind_ULYSSES)},
        {SPEC(.overlap = JOB_overlap_ON), SPEC(.ulysses = 1)},
        {SPEC(.ulysses = 2, .overlap = JOB_overlap_ON), SPEC(.ulysses = 2)}, /* one stage */
        {SPEC(.lora_r = 8, .lora_dropout = 0.1), SPEC(.lora = false)},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        struct mem_plan plan, same;
        plan_make("qwen2.5-0.5b", MEM_BACKEND_CUDA, &pairs[i].spec, &plan);
        plan_make("qwen2.5-0.5b", MEM_BACKEND_CUDA, &pairs[i].same, &same);
        if (strcmp(plan.digest, same.digest) != 0)
            fail_msg("pair %zu differs", i);
        mem_plan_done(&plan);
        mem_plan_done(&same);
    }
}

/* A segment's inputs lie at hand up to a limit of bytes, the limit itself included. */
static void test_segment_limit(void **state)
{
    const struct job_spec spec = SPEC(.recompute = JOB_recompute_ATTENTION, .keep_input_every = 4);
    const int64_t segment = INT64_C(3) * 4096 * 896 * 2; /* tokens, hidden_size, bf16 */
    for (int64_t less = 0; less < 2; less++) {
        struct mem_plan plan;
        mem_layout_segment_limit(segment - less);
        plan_make("qwen2.5-0.5b", MEM_BACKEND_CUDA, &spec, &plan);
        assert_int_equal(plan.layout.segment_at_hand, less == 0);
        mem_plan_done(&plan);
    }
    mem_layout_segment_limit(MEM_SEGMENT_BYTES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_figures),
                                       cmocka_unit_test(test_without_bearing),
                                       cmocka_unit_test(test_segment_limit)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

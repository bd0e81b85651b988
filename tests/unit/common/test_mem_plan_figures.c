/* mem_plan: plans of every kind of job, to the byte. Planned bytes are held against measured ones
 * on GPUs only (tests/dist/test_cuda_memory.c); a machine without one cannot tell that a plan says
 * too much, but here a plan that comes out otherwise shows. Where that is meant, the failure says
 * the new figures. */
#include "common/mem_plan.h"

#include "common/model_published.h"
#include "tests/lib/cmocka.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *what, *model;
    enum mem_backend backend;
    struct job_spec spec;
    const char *figures; /* bytes of device, host, file, driver; digest: sizes, places, phases */
} plans[] = {
    /* clang-format off: a row is a job, its fields, its figures */
    {"one GPU, everything kept",
     "qwen2.5-0.5b",
     MEM_BACKEND_CUDA,
     {.fsdp = true, .gpus = 1, .sequences = 1, .seq_len = 8192},
     "14612595200 0 0 721420288 68ae4f3584d1991e5609af08ba895ecd"},
    {"one CPU, packed micro-steps",
     "qwen3-0.6b",
     MEM_BACKEND_CPU,
     {.fsdp = true, .gpus = 1, .seq_len = 1000, .sequences = 9, .grad_accum = 2},
     "18278275072 0 0 0 f39b88dd1848da848eb49388713f067b"},
    {"data ranks, a whole model each",
     "llama3.2-1b",
     MEM_BACKEND_CUDA,
     {.gpus = 4,
      .sequences = 10,
      .grad_accum = 3,
      .seq_len = 4096,
      .recompute = JOB_recompute_INPUT},
     "21707531520 0 0 1526726656 9b26447c6a025b3ee1412cb03e056b35"},
    {"shards of eight, MLP in tiles",
     "llama3-8b",
     MEM_BACKEND_CUDA,
     {.fsdp = true,
      .gpus = 8,
      .sequences = 8,
      .seq_len = 32768,
      .tile_mlp = 4096,
      .tile_loss = 2048},
     "61105591552 0 0 1526726656 d9bb8fac09e4e3304260fd1d30bd95e7"},
    {"Ulysses, forward again",
     "llama3-8b",
     MEM_BACKEND_CUDA,
     {.fsdp = true,
      .gpus = 8,
      .ulysses = 8,
      .sequences = 1,
      .seq_len = 524288,
      .recompute = JOB_recompute_INPUT,
      .tile_mlp = 8192},
     "41371907328 0 0 3154116608 5d1791332b8df1a54112352694f6a6bd"},
    {"Ulysses of two, attention kept",
     "qwen3-0.6b",
     MEM_BACKEND_CUDA,
     {.fsdp = true,
      .gpus = 2,
      .ulysses = 2,
      .sequences = 1,
      .seq_len = 262144,
      .recompute = JOB_recompute_ATTENTION,
      .keep_input_every = 4},
     "32312728832 0 0 1946157056 7283af62b171ffdbe922907e7ee630c4"},
    {"stages, in turn",
     "llama3-8b",
     MEM_BACKEND_CUDA,
     {.fsdp = true,
      .gpus = 4,
      .ulysses = 4,
      .sequences = 1,
      .seq_len = 1048576,
      .context_kind = JOB_context_kind_UPIPE,
      .heads_per_stage = 1,
      .recompute = JOB_recompute_ATTENTION,
      .keep_input_every = 8,
      .tile_mlp = 16384},
     "122084537600 0 0 2348810240 b360984879f466229821db79c5552936"},
    {"stages, K/V heads shared by them",
     "llama3-8b",
     MEM_BACKEND_CUDA,
     {.fsdp = true,
      .gpus = 2,
      .ulysses = 2,
      .sequences = 1,
      .seq_len = 131072,
      .context_kind = JOB_context_kind_UPIPE,
      .heads_per_stage = 2,
      .recompute = JOB_recompute_ATTENTION,
      .keep_input_every = 1},
     "110331270400 0 0 1946157056 5e8414594d31833974a8c423bd3b8497"},
    {"stages, overlapped",
     "llama3-8b",
     MEM_BACKEND_CUDA,
     {.fsdp = true,
      .gpus = 4,
      .ulysses = 4,
      .sequences = 1,
      .seq_len = 262144,
      .context_kind = JOB_context_kind_UPIPE,
      .heads_per_stage = 1,
      .overlap = JOB_overlap_ON,
      .recompute = JOB_recompute_ATTENTION,
      .keep_input_every = 2},
     "70157161728 0 0 2348810240 62af6f5d23e0150325d14a0034165b6b"},
    {"stages, overlapped, forward again",
     "qwen3-32b",
     MEM_BACKEND_CUDA,
     {.fsdp = true,
      .gpus = 8,
      .ulysses = 8,
      .sequences = 1,
      .seq_len = 262144,
      .context_kind = JOB_context_kind_UPIPE,
      .heads_per_stage = 1,
      .overlap = JOB_overlap_ON,
      .recompute = JOB_recompute_INPUT,
      .offload = JOB_offload_HOST},
     "78496353536 21474836480 0 3196059648 5b548894e5343864fde95b3ed71e5f5f"},
    {"ring of two",
     "llama3-8b",
     MEM_BACKEND_CUDA,
     {.fsdp = true,
      .gpus = 2,
      .ring = 2,
      .sequences = 1,
      .seq_len = 65536,
      .recompute = JOB_recompute_ATTENTION,
      .keep_input_every = 1},
     "88429671680 0 0 1946157056 cba3b17ffa762e94c02277390edc0ed2"},
    {"ring of four, data beside it",
     "qwen3-0.6b",
     MEM_BACKEND_CUDA,
     {.fsdp = true,
      .gpus = 8,
      .ring = 4,
      .sequences = 4,
      .seq_len = 100000,
      .recompute = JOB_recompute_INPUT},
     "4917513728 0 0 2147483648 058f17c38d7a4c2448cb4af875fa0bf4"},
    {"ring by Ulysses, overlapped",
     "llama3-8b",
     MEM_BACKEND_CUDA,
     {.fsdp = true,
      .gpus = 8,
      .ring = 2,
      .ulysses = 4,
      .sequences = 1,
      .seq_len = 1048576,
      .context_kind = JOB_context_kind_UPIPE,
      .heads_per_stage = 1,
      .overlap = JOB_overlap_ON,
      .recompute = JOB_recompute_ATTENTION,
      .keep_input_every = 8,
      .offload = JOB_offload_HOST,
      .tile_mlp = 16384},
     "25390028032 39191576576 0 2844786688 36ca99bdcd6926d8e01e0e4e58b87cc9"},
    {"ring by Ulysses on CPUs",
     "qwen2.5-0.5b",
     MEM_BACKEND_CPU,
     {.fsdp = true, .gpus = 4, .ring = 2, .ulysses = 2, .sequences = 1, .seq_len = 4096},
     "5156730112 0 0 0 dfe179a17786845a4c7c9936706d2f03"},
    {"some layers to the host",
     "llama3.2-1b",
     MEM_BACKEND_CUDA,
     {.fsdp = true,
      .gpus = 2,
      .ulysses = 2,
      .sequences = 1,
      .seq_len = 131072,
      .recompute = JOB_recompute_ATTENTION,
      .keep_input_every = 4,
      .offload = JOB_offload_HOST,
      .offload_layers = 6},
     "20441519360 2197815296 0 1950449664 a40ba58b7bb89417d1017d06652ba071"},
    {"all is kept, on the host",
     "llama3.2-1b",
     MEM_BACKEND_CUDA,
     {.fsdp = true,
      .gpus = 1,
      .sequences = 1,
      .seq_len = 20000,
      .offload = JOB_offload_HOST,
      .offload_layers = 9},
     "29830673152 9239040000 0 739465472 d601037f7b7dc465df5bba89d237b6b1"},
    {"some layers to a file",
     "llama3-8b",
     MEM_BACKEND_CUDA,
     {.fsdp = true,
      .gpus = 8,
      .ulysses = 8,
      .sequences = 1,
      .seq_len = 3000000,
      .context_kind = JOB_context_kind_UPIPE,
      .heads_per_stage = 1,
      .recompute = JOB_recompute_ATTENTION,
      .keep_input_every = 8,
      .offload = JOB_offload_FILE,
      .file_layers = 12,
      .tile_mlp = 16384},
     "35711236096 69080903680 43584012288 3289040384 c5581f7ccba880c9653526aa8678d32f"},
    {"the residual streamed",
     "llama3-8b",
     MEM_BACKEND_CUDA,
     {.fsdp = true,
      .gpus = 8,
      .ulysses = 8,
      .sequences = 1,
      .seq_len = 5000000,
      .context_kind = JOB_context_kind_UPIPE,
      .heads_per_stage = 1,
      .recompute = JOB_recompute_ATTENTION,
      .keep_input_every = 8,
      .offload = JOB_offload_FILE,
      .stream_residual = JOB_toggle_ON,
      .states = JOB_states_HOST,
      .tile_mlp = 16384},
     "22097128704 26837426176 186880098304 3206533632 6c0ee3a200d5868dbc50139d0515a15d"},
    {"optimizer on the host",
     "llama3-8b",
     MEM_BACKEND_CUDA,
     {.fsdp = true,
      .gpus = 1,
      .sequences = 1,
      .seq_len = 32768,
      .recompute = JOB_recompute_INPUT,
      .offload = JOB_offload_HOST,
      .tile_mlp = 4096,
      .states = JOB_states_HOST_OPTIMIZER},
     "37122790656 104953069568 0 926406912 3c11e6f21cc6de25ab7c3f5bcf0639d3"},
    {"all states on the host, on CPUs",
     "qwen3-0.6b",
     MEM_BACKEND_CPU,
     {.fsdp = true,
      .gpus = 2,
      .sequences = 2,
      .seq_len = 2048,
      .recompute = JOB_recompute_ATTENTION,
      .keep_input_every = 3,
      .states = JOB_states_HOST},
     "2667650304 4768399360 0 0 d401176722054e8ea2010f5c824d8a0b"},
    {"adapters",
     "llama3-8b",
     MEM_BACKEND_CUDA,
     {.fsdp = true,
      .gpus = 8,
      .ulysses = 8,
      .sequences = 1,
      .seq_len = 131072,
      .recompute = JOB_recompute_ATTENTION,
      .keep_input_every = 4,
      .tile_mlp = 8192,
      .lora = true,
      .lora_r = 16,
      .lora_modules = 127},
     "11128248576 0 0 3154116608 cb6548111b3f5a8157bbf131dab79899"},
    {"adapters with dropout, one GPU",
     "qwen2.5-0.5b",
     MEM_BACKEND_CUDA,
     {.fsdp = true,
      .gpus = 1,
      .sequences = 1,
      .seq_len = 16384,
      .lora = true,
      .lora_r = 8,
      .lora_modules = 5,
      .lora_dropout = 0.1,
      .states = JOB_states_HOST},
     "12769616896 8650752 0 721437184 6fc5af3a913c5f97ef660de86e97f5a3"},
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

static void test_figures(void **state)
{
    int changed = 0;
    for (size_t i = 0; i < sizeof plans / sizeof plans[0]; i++) {
        struct mem_plan plan;
        char figures[160];
        plan_make(plans[i].model, plans[i].backend, &plans[i].spec, &plan);
        (void)snprintf(
            figures, sizeof figures, "%" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %s",
            plan.arena_bytes[MEM_ARENA_DEVICE], plan.arena_bytes[MEM_ARENA_HOST],
            plan.arena_bytes[MEM_ARENA_FILE], plan.arena_bytes[MEM_ARENA_DRIVER], plan.digest);
        if (strcmp(figures, plans[i].figures) != 0) {
            print_message("%s:\n    is  %s\n    was %s\n", plans[i].what, figures,
                          plans[i].figures);
            changed++;
        }
        mem_plan_done(&plan);
    }
    assert_int_equal(changed, 0);
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

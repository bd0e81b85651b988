/* mem_plan: adapters, by hand: what is frozen and what is trained, what stages and tiles need, what
 * dropout adds, what is not there. */
#include "common/mem_plan.h"

#include "common/lora_shape.h"
#include "common/mem.h"
#include "common/mem_estimate.h"
#include "tests/lib/long_job.h"

static struct model_shape shape; /* Llama 3 8B: 32 layers, h 4096, f 14336, K*d 1024 */
static struct err err;

static struct job_spec spec_of(int64_t gpus, int64_t modules)
{
    return (struct job_spec){.gpus = gpus,
                             .seq_len = 1 << 20,
                             .sequences = 1,
                             .context_kind = JOB_context_kind_UPIPE,
                             .ulysses = gpus,
                             .ring = 1,
                             .heads_per_stage = 1,
                             .fsdp = true,
                             .recompute = JOB_recompute_INPUT,
                             .tile_mlp = 16384,
                             .tile_loss = 1024,
                             .states = JOB_states_DEVICE,
                             .lora = true,
                             .lora_r = 16,
                             .lora_modules = modules};
}
enum { ALL = (1 << JOB_lora_module_COUNT) - 1, TOKENS = 1 << 17 };

static void plan_make(const struct job_spec *spec, enum mem_backend backend, struct mem_plan *ret)
{
    struct mem_request request = {
        .shape = &shape, .spec = spec, .world = (int)spec->gpus, .backend = backend};
    MUST_WORK(mem_plan_build(&request, ret, &err), &err);
}

static int64_t bytes_of(const struct mem_plan *plan, enum mem_arena arena, enum mem_name name,
                        int32_t index)
{
    const struct mem_buffer *buffer = mem_plan_find(plan, arena, name, index);
    return buffer == NULL ? -1 : buffer->bytes;
}
#define ON_DEVICE(name, index) bytes_of(&plan, MEM_ARENA_DEVICE, MEM_##name, index)

static void test_states(void **state)
{
    struct mem_plan plan;
    struct job_spec spec = spec_of(8, ALL);
    plan_make(&spec, MEM_BACKEND_CUDA, &plan);
    const int64_t a_layer = 16 * (2 * (4096 + 4096) + 2 * (4096 + 1024) + 3 * (4096 + 14336));
    int64_t frozen = 0;
    for (int32_t unit = 0; unit < 34; unit++)
        frozen += ON_DEVICE(FROZEN, unit);
    assert_true(frozen >= 2 * shape.parameters / 8 && frozen < 2 * shape.parameters / 8 + 34 * 128);
    assert_int_equal(ON_DEVICE(FROZEN, 34), -1);
    for (int32_t layer = 0; layer < 32; layer++) {
        assert_int_equal(ON_DEVICE(MASTER, layer), a_layer / 8 * 4);
        assert_int_equal(ON_DEVICE(GRAD, layer), a_layer / 8 * 4);
    }
    assert_int_equal(ON_DEVICE(MASTER, 32), -1);
    assert_int_equal(ON_DEVICE(GATHERED_LORA, 1), a_layer * 2);
    assert_int_equal(ON_DEVICE(GRAD_LAYER, 0), a_layer * 4);
    assert_int_equal(ON_DEVICE(UNIT_F32, 0), a_layer * 4);
    assert_int_equal(ON_DEVICE(GRAD_EMBED, 0), -1);
    assert_int_equal(ON_DEVICE(GRAD_TAIL, 0), -1);
    assert_int_equal(lora_shape_parameters(&shape, &spec), 32 * a_layer);
    mem_plan_done(&plan);
}

/* One rank: what is frozen is used where it lies. */
static void test_one_rank(void **state)
{
    struct mem_plan plan;
    struct job_spec spec = spec_of(1, 1 << JOB_lora_module_Q);
    spec.states = JOB_states_HOST;
    plan_make(&spec, MEM_BACKEND_CUDA, &plan);
    assert_int_equal(ON_DEVICE(GATHERED_LAYER, 0), -1);
    assert_int_equal(ON_DEVICE(GATHERED_EMBED, 0), -1);
    assert_int_equal(ON_DEVICE(MASTER, 0), -1); /* on the host */
    assert_int_equal(bytes_of(&plan, MEM_ARENA_HOST, MEM_MASTER, 0), 2 * 16 * 4096 * 4);
    assert_int_equal(ON_DEVICE(GATHERED_LORA, 0), 2 * 16 * 4096 * 2);
    mem_plan_done(&plan);
}

static void test_work(void **state)
{
    struct mem_plan plan;
    struct job_spec spec = spec_of(8, ALL);
    plan_make(&spec, MEM_BACKEND_CUDA, &plan);
    assert_int_equal(ON_DEVICE(LORA_QKV, JOB_lora_module_Q), (int64_t)TOKENS * 16 * 2);
    assert_int_equal(ON_DEVICE(LORA_QKV, JOB_lora_module_V), (int64_t)TOKENS * 16 * 2);
    assert_int_equal(ON_DEVICE(LORA_O, 0), (int64_t)TOKENS * 16 * 2);
    assert_int_equal(ON_DEVICE(LORA_U, 0), 16384 * 16 * 2);
    assert_int_equal(ON_DEVICE(LORA_X, 0), -1); /* without dropout */
    assert_int_equal(ON_DEVICE(NUMBERS, 0), -1);
    mem_plan_done(&plan);
    spec.lora_dropout = 0.1;
    plan_make(&spec, MEM_BACKEND_CUDA, &plan);
    assert_int_equal(ON_DEVICE(LORA_X, 0), (int64_t)16384 * 14336 * 2); /* down_proj's input */
    assert_int_equal(ON_DEVICE(NUMBERS, 0), (int64_t)TOKENS * 8);
    mem_plan_done(&plan);
    spec.lora_modules = 1 << JOB_lora_module_K | 1 << JOB_lora_module_UP;
    plan_make(&spec, MEM_BACKEND_CUDA, &plan);
    assert_int_equal(ON_DEVICE(LORA_X, 0), (int64_t)16384 * 4096 * 2);
    assert_int_equal(ON_DEVICE(LORA_QKV, JOB_lora_module_Q), -1);
    assert_int_equal(ON_DEVICE(LORA_QKV, JOB_lora_module_K), (int64_t)TOKENS * 16 * 2);
    assert_int_equal(ON_DEVICE(LORA_O, 0), -1);
    mem_plan_done(&plan);
}

/* Against training all of it: 14 of 16 bytes a parameter and the gradient of a layer are gone. */
static void test_less_than_the_model(void **state)
{
    struct mem_plan whole, adapters;
    struct job_spec spec = spec_of(8, ALL);
    plan_make(&spec, MEM_BACKEND_CUDA, &adapters);
    spec.lora = false;
    plan_make(&spec, MEM_BACKEND_CUDA, &whole);
    double saved = (double)(whole.peak_device_bytes - adapters.peak_device_bytes);
    double states = 14 * (double)shape.parameters / 8;
    print_message("8B at 1M on 8 ranks: %.2f GiB, adapters %.2f GiB\n",
                  (double)whole.peak_device_bytes * 0x1p-30,
                  (double)adapters.peak_device_bytes * 0x1p-30);
    assert_true(saved > states && saved < states + 2 * 0x1p30);
    mem_plan_done(&whole);
    mem_plan_done(&adapters);
}

static void test_disk(void **state)
{
    struct job_spec spec = spec_of(8, ALL);
    int64_t trained = lora_shape_parameters(&shape, &spec);
    spec.lora_export = JOB_lora_export_ADAPTER;
    assert_int_equal(mem_disk_bytes(&shape, &spec, 3), trained * (3 * 12 + 4));
    spec.lora_export = JOB_lora_export_BOTH;
    assert_int_equal(mem_disk_bytes(&shape, &spec, 3),
                     trained * (3 * 12 + 4) + shape.parameters * 4);
    spec.lora_export = JOB_lora_export_MERGED;
    assert_int_equal(mem_disk_bytes(&shape, &spec, 3), trained * 3 * 12 + shape.parameters * 4);
    spec.lora = false;
    assert_int_equal(mem_disk_bytes(&shape, &spec, 2), shape.parameters * (2 * 12 + 4));
    assert_int_equal(mem_disk_bytes(&shape, &spec, INT64_MAX / 12), INT64_MAX);
}

static int build_shape(void **state)
{
    long_job_shape(&shape);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_states), cmocka_unit_test(test_one_rank),
        cmocka_unit_test(test_work),   cmocka_unit_test(test_less_than_the_model),
        cmocka_unit_test(test_disk),
    };
    int failed = cmocka_run_group_tests(tests, build_shape, NULL);
    model_shape_done(&shape);
    return failed;
}

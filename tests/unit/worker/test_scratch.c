/* scratch: what the plan has is reserved and lent with its bytes; what it has not is not. */
#include "tests/lib/cmocka.h"
#include "worker/scratch.h"

#include <string.h>

static struct loan {
    void *memory;
    size_t bytes;
} loans[DEVICE_SCRATCH_COUNT];

static void lend(struct device *device, enum device_scratch kind, void *memory, size_t bytes)
{
    loans[kind] = (struct loan){memory, bytes};
}

static void test_lent_as_planned(void **state)
{
    struct device *cpu = NULL;
    struct err err = {0};
    struct arena arena;
    struct scratch scratch;
    struct mem_buffer buffers[] = {
        {.name = MEM_GEMM_SCRATCH, .arena = MEM_ARENA_DEVICE, .phases = 1, .bytes = 300},
        {.name = MEM_ATTENTION_BWD_SCRATCH,
         .arena = MEM_ARENA_DEVICE,
         .phases = 2,
         .bytes = 1000,
         .offset = 512},
    };
    struct mem_plan plan = {
        .buffers = buffers, .count = 2, .arena_bytes = {[MEM_ARENA_DEVICE] = 1536}};
    memset(loans, 0, sizeof loans);
    assert_int_equal(device_cpu_open(1, &cpu, &err), 0);
    struct device_ops spy = *cpu->dev;
    spy.lend_scratch = lend;
    struct device device = {.dev = &spy, .ops = cpu->ops};
    arena_init(&arena, cpu, &plan);
    assert_int_equal(scratch_reserve(&scratch, &arena, &err), 0);
    assert_int_equal(arena_commit(&arena, &err), 0); /* all that is planned is reserved */
    scratch_lend(&scratch, &device);
    assert_int_equal(loans[DEVICE_SCRATCH_GEMM].bytes, 300);
    assert_int_equal(loans[DEVICE_SCRATCH_ATTENTION_BWD].bytes, 1000);
    assert_int_equal((char *)loans[DEVICE_SCRATCH_ATTENTION_BWD].memory -
                         (char *)loans[DEVICE_SCRATCH_GEMM].memory,
                     512);
    assert_null(loans[DEVICE_SCRATCH_ATTENTION].memory);
    assert_null(loans[DEVICE_SCRATCH_OP].memory);
    arena_done(&arena);
    cpu->dev->close(cpu);
}

static void test_without_a_plan(void **state)
{
    struct device *cpu = NULL;
    struct err err = {0};
    struct arena arena;
    struct scratch scratch;
    assert_int_equal(device_cpu_open(1, &cpu, &err), 0);
    arena_init(&arena, cpu, NULL);
    assert_int_equal(scratch_reserve(&scratch, &arena, &err), 0);
    for (int kind = 0; kind < DEVICE_SCRATCH_COUNT; kind++)
        assert_int_equal(scratch.bytes[kind], 0);
    arena_done(&arena);
    cpu->dev->close(cpu);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lent_as_planned),
        cmocka_unit_test(test_without_a_plan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

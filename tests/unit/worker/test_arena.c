/* arena: pointers are filled at the commit, aligned, apart, inside their block; afterwards
 * reserving is a bug. */
#include "worker/arena.h"

#include "common/mem.h"
#include "common/must.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { SLOTS = 200 };

static struct device *open_device(void)
{
    struct device *device = NULL;
    struct err err = {0};
    assert_int_equal(device_cpu_open(1, &device, &err), 0);
    return device;
}

static void test_layout(void **state)
{
    (void)state;
    struct device *device = open_device();
    struct arena arena;
    struct err err = {0};
    unsigned char *slots[SLOTS];
    int64_t sum = 0;
    arena_init(&arena, device, NULL);
    for (int i = 0; i < SLOTS; i++) {
        assert_int_equal(
            arena_reserve(&arena, (enum mem_name)(i % MEM_NAME_COUNT), i, &slots[i], i, &err), 0);
        sum += (i + MEM_ALIGN_BYTES - 1) / MEM_ALIGN_BYTES * MEM_ALIGN_BYTES;
    }
    assert_int_equal(arena_bytes(&arena), sum);
    assert_int_equal(device->dev->bytes_in_use(device), 0); /* nothing before the commit */
    assert_int_equal(arena_commit(&arena, &err), 0);
    assert_true(device->dev->bytes_in_use(device) >= sum);
    for (int i = 0; i < SLOTS; i++) {
        assert_int_equal((uintptr_t)slots[i] % 64, 0);
        memset(slots[i], i, (size_t)i);
    }
    for (int i = 0; i < SLOTS; i++) /* no buffer lies on another */
        for (int j = 0; j < i; j++)
            assert_int_equal(slots[i][j], i);
    arena_done(&arena);
    assert_int_equal(device->dev->bytes_in_use(device), 0);
    device->dev->close(device);
}

static void test_sealed(void **state)
{
    (void)state;
    (void)fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct device *device = open_device();
        struct arena arena;
        struct err err = {0};
        void *slot;
        arena_init(&arena, device, NULL);
        (void)arena_commit(&arena, &err);
        (void)arena_reserve(&arena, MEM_DX, 0, &slot, 1, &err);
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

static void test_no_memory(void **state)
{
    (void)state;
    struct device *device = open_device();
    for (int64_t after = 1;; after++) {
        struct arena arena;
        struct err err = {0};
        void *slots[SLOTS];
        int rc = 0;
        arena_init(&arena, device, NULL);
        mem_fault_after(after);
        for (int i = 0; i < SLOTS && rc == 0; i++)
            rc = arena_reserve(&arena, MEM_X, i, &slots[i], 100, &err);
        if (rc == 0)
            rc = arena_commit(&arena, &err);
        mem_fault_after(0);
        arena_done(&arena);
        assert_int_equal(device->dev->bytes_in_use(device), 0);
        if (rc == 0 && after > 1)
            break;
        assert_true(rc == -ERR_NOMEM || rc == -ERR_DOES_NOT_FIT);
    }
    struct arena arena;
    struct err err = {0};
    void *slot;
    arena_init(&arena, device, NULL);
    assert_int_equal(arena_reserve(&arena, MEM_DX, 0, &slot, INT64_MAX / 2, &err), 0);
    assert_int_equal(arena_reserve(&arena, MEM_DX, 0, &slot, INT64_MAX / 2, &err),
                     -ERR_DOES_NOT_FIT);
    arena_done(&arena);
    device->dev->close(device);
}

/* ---- by a plan ---- */

static const struct model_config tiny = {.vocab_size = 100,
                                         .hidden_size = 32,
                                         .intermediate_size = 48,
                                         .layers = 3,
                                         .heads = 4,
                                         .kv_heads = 2,
                                         .head_dim = 8};

static void make_plan(struct mem_plan *plan)
{
    struct err err = {0};
    struct model_shape shape;
    struct job_spec spec = {.gpus = 2, .seq_len = 64, .sequences = 2, .fsdp = true, .ulysses = 2};
    struct mem_request request = {
        .shape = &shape, .spec = &spec, .world = 2, .backend = MEM_BACKEND_CPU};
    assert_int_equal(model_shape_build(&tiny, &shape, &err), 0);
    assert_int_equal(mem_plan_build(&request, plan, &err), 0);
    model_shape_done(&shape);
}

/* Every buffer of a plan, the one numbered `wrong` with a byte more or left out. */
static int reserve_all(struct arena *arena, const struct mem_plan *plan, void **slots,
                       int64_t wrong, bool left_out, struct err *err)
{
    for (int64_t i = 0; i < plan->count; i++) {
        const struct mem_buffer *b = &plan->buffers[i];
        if (i == wrong && left_out)
            continue;
        TRY(arena_reserve(arena, b->name, b->index, &slots[i], b->bytes + (i == wrong), err));
    }
    return arena_commit(arena, err);
}

static void test_plan(void **state)
{
    (void)state;
    struct device *device = open_device();
    struct mem_plan plan;
    struct arena arena;
    struct err err = {0};
    make_plan(&plan);
    void **slots = mem_new((size_t)plan.count, sizeof *slots);
    assert_non_null(slots);
    arena_init(&arena, device, &plan);
    assert_int_equal(reserve_all(&arena, &plan, slots, -1, false, &err), 0);
    assert_int_equal(arena_bytes(&arena), plan.peak_device_bytes);
    assert_int_equal(device->dev->bytes_in_use(device), plan.peak_device_bytes);
    int64_t sum = 0;
    for (int64_t i = 0; i < plan.count; i++) {
        assert_ptr_equal(slots[i], (char *)arena.block + plan.buffers[i].offset);
        sum += plan.buffers[i].bytes;
    }
    assert_true(sum > plan.peak_device_bytes); /* some lie upon others */
    arena_done(&arena);
    for (int64_t wrong = 0; wrong < plan.count; wrong++)
        for (int left_out = 0; left_out < 2; left_out++) {
            arena_init(&arena, device, &plan);
            int rc = reserve_all(&arena, &plan, slots, wrong, left_out, &err);
            assert_int_equal(rc, -ERR_INTERNAL);
            const char *name = mem_name_text(plan.buffers[wrong].name);
            assert_true(left_out || strstr(err.text, name) != NULL);
            arena_done(&arena);
        }
    arena_init(&arena, device, &plan);
    assert_int_equal(arena_reserve(&arena, MEM_RING_K, 0, slots, 1, &err), -ERR_INTERNAL);
    arena_done(&arena);
    mem_free(slots);
    mem_plan_done(&plan);
    device->dev->close(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plan),
        cmocka_unit_test(test_layout),
        cmocka_unit_test(test_sealed),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

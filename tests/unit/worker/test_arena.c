/* arena: pointers are filled at the commit, aligned, apart, inside their block; afterwards
 * reserving is a bug. */
#include "worker/arena.h"

#include "common/mem.h"
#include "common/must.h"
#include "tests/lib/cmocka.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

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
    assert_int_equal(arena_bytes(&arena, MEM_ARENA_DEVICE), sum);
    assert_int_equal(arena_bytes(&arena, MEM_ARENA_HOST), 0);
    assert_int_equal(arena_where(&arena, MEM_DX, 0), MEM_ARENA_DEVICE);
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

static void make_plan(struct mem_plan *plan, enum job_states states, enum job_offload offload)
{
    struct err err = {0};
    struct model_shape shape;
    struct job_spec spec = {.gpus = 2,
                            .seq_len = 64,
                            .sequences = 2,
                            .fsdp = true,
                            .ulysses = 2,
                            .states = states,
                            .offload = offload};
    struct mem_request request = {
        .shape = &shape, .spec = &spec, .world = 2, .backend = MEM_BACKEND_CPU};
    assert_int_equal(model_shape_build(&tiny, &shape, &err), 0);
    assert_int_equal(mem_plan_build(&request, plan, &err), 0);
    model_shape_done(&shape);
}

/* Every buffer of a plan but those in files, the one numbered `wrong` with a byte more or left out.
 */
static int reserve_all(struct arena *arena, const struct mem_plan *plan, void **slots,
                       int64_t wrong, bool left_out, struct err *err)
{
    for (int64_t i = 0; i < plan->count; i++) {
        const struct mem_buffer *b = &plan->buffers[i];
        if (b->arena == MEM_ARENA_FILE || (i == wrong && left_out))
            continue;
        TRY(arena_reserve(arena, b->name, b->index, &slots[i], b->bytes + (i == wrong), err));
    }
    return arena_commit(arena, err);
}

/* Blocks as planned, taken to the byte, every buffer at its place. */
static void check_plan(const struct arena *arena, const struct mem_plan *plan, void **slots)
{
    const struct device_ops *dev = arena->device->dev;
    int64_t sum = 0;
    assert_int_equal(dev->bytes_in_use(arena->device), plan->arena_bytes[MEM_ARENA_DEVICE]);
    assert_int_equal(dev->host_bytes_in_use(arena->device), plan->arena_bytes[MEM_ARENA_HOST]);
    for (int where = 0; where <= MEM_ARENA_HOST; where++)
        assert_int_equal(arena_bytes(arena, (enum mem_arena)where), plan->arena_bytes[where]);
    for (int64_t i = 0; i < plan->count; i++) {
        const struct mem_buffer *b = &plan->buffers[i];
        assert_int_equal(arena_where(arena, b->name, b->index), b->arena);
        if (b->arena == MEM_ARENA_FILE)
            continue;
        assert_ptr_equal(slots[i], (char *)arena->blocks[b->arena].memory + b->offset);
        sum += b->arena == MEM_ARENA_DEVICE ? b->bytes : 0;
        for (int64_t at = 0; b->arena == MEM_ARENA_HOST && at < b->bytes; at++)
            assert_int_equal(((char *)slots[i])[at], 0);
    }
    assert_true(sum > plan->peak_device_bytes); /* some lie upon others */
}

static void play_plan(enum job_states states, enum job_offload offload, bool host)
{
    struct device *device = open_device();
    struct mem_plan plan;
    struct arena arena;
    struct err err = {0};
    make_plan(&plan, states, offload);
    void **slots = mem_new((size_t)plan.count, sizeof *slots);
    assert_non_null(slots);
    arena_init(&arena, device, &plan);
    assert_int_equal(reserve_all(&arena, &plan, slots, -1, false, &err), 0);
    check_plan(&arena, &plan, slots);
    assert_int_equal(arena_where(&arena, MEM_RING_K, 0), MEM_ARENA_COUNT);
    assert_true((arena_bytes(&arena, MEM_ARENA_HOST) > 0) == host);
    arena_done(&arena);
    assert_int_equal(device->dev->bytes_in_use(device), 0);
    assert_int_equal(device->dev->host_bytes_in_use(device), 0);
    for (int64_t wrong = 0; wrong < plan.count; wrong++)
        for (int left_out = 0; left_out < 2; left_out++) {
            if (plan.buffers[wrong].arena == MEM_ARENA_FILE)
                continue;
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

static void test_plan(void **state)
{
    play_plan(JOB_states_DEVICE, JOB_offload_NONE, false);
    play_plan(JOB_states_HOST_OPTIMIZER, JOB_offload_NONE, true);
    play_plan(JOB_states_HOST, JOB_offload_HOST, true);
    play_plan(JOB_states_DEVICE, JOB_offload_FILE, true);
}

/* The second block cannot be had: neither is held, and the sentence says which and how much. */
static void test_no_host_memory(void **state)
{
    struct device *device = open_device();
    struct mem_plan plan;
    make_plan(&plan, JOB_states_HOST, JOB_offload_NONE);
    void **slots = mem_new((size_t)plan.count, sizeof *slots);
    assert_non_null(slots);
    bool seen = false;
    for (int64_t after = 1;; after++) {
        struct arena arena;
        struct err err = {0};
        arena_init(&arena, device, &plan);
        mem_fault_after(after);
        int rc = reserve_all(&arena, &plan, slots, -1, false, &err);
        mem_fault_after(0);
        arena_done(&arena);
        assert_int_equal(device->dev->bytes_in_use(device), 0);
        assert_int_equal(device->dev->host_bytes_in_use(device), 0);
        if (rc == 0)
            break;
        assert_int_equal(rc, -ERR_NOMEM);
        char asked[64];
        (void)snprintf(asked, sizeof asked, "%lld bytes asked for",
                       (long long)plan.arena_bytes[MEM_ARENA_HOST]);
        seen = seen || (strstr(err.text, "the rank's host memory: ") != NULL &&
                        strstr(err.text, asked) != NULL);
    }
    assert_true(seen);
    mem_free(slots);
    mem_plan_done(&plan);
    device->dev->close(device);
}

/* Strictly, buffers of both blocks are apart, and lose their contents outside their phases. */
static void test_strict(void **state)
{
    struct device *device = open_device();
    struct mem_plan plan;
    struct arena arena;
    struct err err = {0};
    make_plan(&plan, JOB_states_HOST, JOB_offload_HOST);
    void **slots = mem_new((size_t)plan.count, sizeof *slots);
    assert_non_null(slots);
    arena_strict(true);
    arena_init(&arena, device, &plan);
    assert_int_equal(reserve_all(&arena, &plan, slots, -1, false, &err), 0);
    arena_strict(false);
    for (int where = 0; where <= MEM_ARENA_HOST; where++)
        assert_true(arena_bytes(&arena, (enum mem_arena)where) >= plan.arena_bytes[where]);
    for (int64_t i = 0; i < plan.count; i++)
        memset(slots[i], (int)(i % 100), (size_t)plan.buffers[i].bytes);
    arena_enter(&arena, MEM_PHASE_UPDATE);
    int64_t given_up[MEM_ARENA_HOST + 1] = {0};
    for (int64_t i = 0; i < plan.count; i++) {
        const struct mem_buffer *b = &plan.buffers[i];
        bool kept = (b->phases & ((uint64_t)1 << MEM_PHASE_UPDATE)) != 0;
        for (int64_t at = 0; at < b->bytes; at++)
            assert_int_equal(((unsigned char *)slots[i])[at], kept ? i % 100 : 0xff);
        given_up[b->arena] += !kept;
    }
    assert_true(given_up[MEM_ARENA_DEVICE] > 0 && given_up[MEM_ARENA_HOST] > 0);
    arena_done(&arena);
    mem_free(slots);
    mem_plan_done(&plan);
    device->dev->close(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plan),           cmocka_unit_test(test_layout),
        cmocka_unit_test(test_sealed),         cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_no_host_memory), cmocka_unit_test(test_strict),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

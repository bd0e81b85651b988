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
    arena_init(&arena, device);
    for (int i = 0; i < SLOTS; i++) {
        assert_int_equal(
            arena_reserve(&arena, (enum arena_kind)(i % ARENA_COUNT), &slots[i], i, &err), 0);
        sum += (i + ARENA_ALIGN_BYTES - 1) / ARENA_ALIGN_BYTES * ARENA_ALIGN_BYTES;
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
        arena_init(&arena, device);
        (void)arena_commit(&arena, &err);
        (void)arena_reserve(&arena, ARENA_TILES, &slot, 1, &err);
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
        arena_init(&arena, device);
        mem_fault_after(after);
        for (int i = 0; i < SLOTS && rc == 0; i++)
            rc = arena_reserve(&arena, ARENA_TILES, &slots[i], 100, &err);
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
    arena_init(&arena, device);
    assert_int_equal(arena_reserve(&arena, ARENA_TILES, &slot, INT64_MAX / 2, &err), 0);
    assert_int_equal(arena_reserve(&arena, ARENA_TILES, &slot, INT64_MAX / 2, &err),
                     -ERR_DOES_NOT_FIT);
    arena_done(&arena);
    device->dev->close(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layout),
        cmocka_unit_test(test_sealed),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* offload_file: random pieces come back as they were written, by io_uring and by plain calls; space
 * is taken at the open; errors name file, place and bytes; nothing is left. */
#include "worker/offload_file.h"

#include "common/io.h"
#include "common/mem.h"
#include "common/mem_buffer.h"
#include "common/rng.h"
#include "tests/lib/cmocka.h"
#include "tests/lib/testing.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { PAGE = MEM_FILE_ALIGN_BYTES, PAGES = 24, PIECE_PAGES = 5 };

static char folder[64], path[96];

static int make_folder(void **state)
{
    (void)snprintf(folder, sizeof folder, "/tmp/ithaca-offload-file-XXXXXX"); /* on a disk */
    if (mkdtemp(folder) == NULL)
        return -1;
    (void)snprintf(path, sizeof path, "%s/kept-0", folder);
    return 0;
}

static int remove_folder(void **state)
{
    struct err err;
    return io_remove_tree(folder, &err);
}

static struct offload_file *open_file(int64_t pages)
{
    struct err err = {0};
    struct offload_file *file = NULL;
    MUST_WORK(offload_file_open(path, pages * PAGE, &file, &err), &err);
    assert_false(io_exists(path)); /* it has no name */
    return file;
}

static int64_t draw(uint64_t stream, int64_t at, int64_t below)
{
    return (int64_t)rng_below(testing_seed(), RNG_STREAM_TEST + stream, (uint64_t)at,
                              (uint64_t)below);
}

static char *memory_of(int slot)
{
    static _Alignas(PAGE) char memory[OFFLOAD_FILE_SLOTS][PIECE_PAGES * PAGE];
    return memory[slot];
}

static void must_wait(struct offload_file *file, int slot)
{
    struct err err = {0};
    if (offload_file_wait(file, slot, &err) != 0)
        fail_msg("%s; ITHACA_TEST_SEED=%" PRIu64, err.text, testing_seed());
}

/* Pages hold their number of the write; several pieces under way that do not touch. */
static void play(bool plain)
{
    struct err err = {0};
    char want[PAGES] = {0};
    offload_file_plain(plain);
    struct offload_file *file = open_file(PAGES);
    assert_int_equal(strncmp(offload_file_how(file), "plain", 5) == 0, plain);
    for (int64_t n = 1; n < 120; n++) {
        int slot = (int)(n % OFFLOAD_FILE_SLOTS);
        int64_t quarter = PAGES / OFFLOAD_FILE_SLOTS; /* a slot's own pages */
        int64_t pages = 1 + draw(1, n, PIECE_PAGES), first = draw(2, n, quarter - pages + 1);
        int64_t offset = (slot * quarter + first) * PAGE;
        must_wait(file, slot);
        char *memory = memory_of(slot);
        enum offload_file_way way = n % 8 < 4 ? OFFLOAD_FILE_WRITE : OFFLOAD_FILE_READ;
        memset(memory, way == OFFLOAD_FILE_WRITE ? (int)n : 0xee, (size_t)(pages * PAGE));
        assert_int_equal(offload_file_start(file, slot, way, memory, offset, pages * PAGE, &err),
                         0);
        if (way == OFFLOAD_FILE_WRITE) {
            memset(want + offset / PAGE, (int)n, (size_t)pages);
            continue;
        }
        must_wait(file, slot);
        for (int64_t i = 0; i < pages; i++) {
            char of = want[offset / PAGE + i];
            assert_int_equal(memory[i * PAGE], of);
            assert_int_equal(memory[i * PAGE + PAGE - 1], of);
        }
    }
    offload_file_close(file); /* with pieces under way */
    offload_file_plain(false);
}

static void test_pieces(void **state)
{
    play(false);
    play(true);
}

static void test_errors(void **state)
{
    for (int plain = 0; plain < 2; plain++) {
        struct err err = {0};
        offload_file_plain(plain != 0);
        struct offload_file *file = open_file(PAGES);
        offload_file_fault_after(2, EIO);
        for (int slot = 0; slot < 3; slot++)
            assert_int_equal(offload_file_start(file, slot, OFFLOAD_FILE_WRITE, memory_of(slot),
                                                slot * PAGE, PAGE, &err),
                             0);
        must_wait(file, 0);
        assert_int_equal(offload_file_wait(file, 1, &err), -ERR_IO);
        char want[192];
        (void)snprintf(want, sizeof want, "%s: writing of 4096 bytes at 4096: %s", path,
                       strerror(EIO));
        assert_string_equal(err.text, want);
        must_wait(file, 1); /* told once */
        must_wait(file, 2);
        offload_file_fault_after(1, ENOSPC);
        assert_int_equal(
            offload_file_start(file, 0, OFFLOAD_FILE_READ, memory_of(0), 0, PAGE, &err), 0);
        assert_int_equal(offload_file_wait(file, 0, &err), -ERR_NO_SPACE);
        /* Beyond its end there is nothing. */
        assert_int_equal(
            offload_file_start(file, 0, OFFLOAD_FILE_READ, memory_of(0), PAGES * PAGE, PAGE, &err),
            0);
        assert_int_equal(offload_file_wait(file, 0, &err), -ERR_IO);
        offload_file_close(file);
    }
    offload_file_plain(false);
}

/* A disk that is too small is found at the open. */
static void test_no_room(void **state)
{
    struct err err = {0};
    struct offload_file *file = NULL;
    struct rlimit old, limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    limit = (struct rlimit){.rlim_cur = 8 * PAGE, .rlim_max = old.rlim_max};
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    int rc = offload_file_open(path, 9 * PAGE, &file, &err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_true(rc < 0);
    assert_non_null(strstr(err.text, "kept-0: 36864 bytes for kept tensors: "));
    assert_false(io_exists(path));
    (void)snprintf(path, sizeof path, "%s/none/kept-0", folder);
    assert_true(offload_file_open(path, PAGE, &file, &err) < 0);
    assert_non_null(strstr(err.text, path));
    offload_file_close(NULL);
    (void)snprintf(path, sizeof path, "%s/kept-0", folder);
}

static void test_no_memory(void **state)
{
    int64_t live = mem_live(), n = 1;
    for (;; n++) {
        struct err err = {0};
        struct offload_file *file = NULL;
        mem_fault_after(n);
        int rc = offload_file_open(path, PAGE, &file, &err);
        mem_fault_after(0);
        if (rc == 0) {
            offload_file_close(file);
            break;
        }
        assert_int_equal(rc, -ERR_NOMEM);
        assert_int_equal(mem_live(), live);
    }
    assert_int_equal(mem_live(), live);
    assert_int_equal(n, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_pieces, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_errors, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_no_room, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_no_memory, make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

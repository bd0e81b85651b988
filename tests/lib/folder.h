/* folder: one for a test, made before it and removed after it, when nothing may be left in memory.
 * For cmocka programs, which include this once.
 *
 *     const struct CMUnitTest tests[] = {FOLDER_TEST(test_one), FOLDER_TEST(test_other)};
 *     return cmocka_run_group_tests(tests, folder_open, folder_close);   (or one for all tests) */
#pragma once
#include "common/io.h"
#include "common/mem.h"
#include "tests/lib/cmocka.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char folder[64]; /* its path: in memory, where there is such a place */

static inline int folder_open(void **state)
{
    (void)snprintf(folder, sizeof folder, "%s/ithaca-test-XXXXXX",
                   access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    return mkdtemp(folder) != NULL ? 0 : -1;
}

static inline int folder_close(void **state)
{
    struct err err;
    assert_int_equal(mem_live(), 0);
    return io_remove_tree(folder, &err);
}

#define FOLDER_TEST(function) cmocka_unit_test_setup_teardown(function, folder_open, folder_close)

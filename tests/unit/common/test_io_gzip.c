/* io_gzip: what is written is read back; nothing is there before the commit, or after an abort, or
 * where the folder is not. */
#include "common/io_gzip.h"

#include "common/io_stream.h"
#include "common/mem.h"
#include "tests/lib/cmocka.h"
#include "tests/lib/testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINES = 20000 };

static void test_written_is_read(void **state)
{
    struct err err = {0};
    struct io_gzip out;
    struct io_stream in;
    char line[64], folder[] = "/tmp/ithaca-gzip-XXXXXX", read[64];
    int64_t bytes = 0;
    size_t got = 0;
    assert_non_null(mkdtemp(folder));
    CLEANUP(mem_free_ptr) char *path = io_join(folder, "a.gz");
    assert_int_equal(io_gzip_create(&out, path, &err), 0);
    for (int i = 0; i < LINES; i++) {
        (void)snprintf(line, sizeof line, "%08d the same again\n", i);
        assert_int_equal(io_gzip_write(&out, line, strlen(line), &err), 0);
    }
    assert_int_equal(io_gzip_write(&out, line, 0, &err), 0);
    assert_false(io_exists(path));
    assert_int_equal(io_gzip_commit(&out, &err), 0);
    io_gzip_abort(&out);
    assert_int_equal(io_file_size(path, &bytes, &err), 0);
    assert_true(bytes > 0 && bytes < (int64_t)(LINES * strlen(line)) / 4);
    assert_int_equal(io_stream_open(&in, path, &err), 0);
    for (int i = 0; i < LINES; i++) {
        (void)snprintf(line, sizeof line, "%08d the same again\n", i);
        size_t length = 0;
        while (length < strlen(line)) {
            assert_int_equal(io_stream_read(&in, read + length, strlen(line) - length, &got, &err),
                             0);
            assert_true(got > 0);
            length += got;
        }
        assert_memory_equal(read, line, strlen(line));
    }
    assert_int_equal(io_stream_read(&in, read, sizeof read, &got, &err), 0);
    assert_int_equal(got, 0);
    io_stream_close(&in);
    assert_int_equal(io_remove_tree(folder, &err), 0);
}

static void test_nothing_is_left(void **state)
{
    struct err err = {0};
    struct io_gzip out;
    char folder[] = "/tmp/ithaca-gzip-XXXXXX";
    assert_non_null(mkdtemp(folder));
    CLEANUP(mem_free_ptr) char *path = io_join(folder, "a.gz");
    CLEANUP(mem_free_ptr) char *nowhere = io_join(folder, "b/a.gz");
    assert_int_equal(io_gzip_create(&out, path, &err), 0);
    assert_int_equal(io_gzip_write(&out, "text", 4, &err), 0);
    io_gzip_abort(&out);
    assert_int_equal(rmdir(folder), 0); /* it is empty */
    assert_true(io_gzip_create(&out, nowhere, &err) != 0);
    io_gzip_abort(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_written_is_read),
                                       cmocka_unit_test(test_nothing_is_left)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* rank_log: what a rank prints is in its file, up to the limit and no further, whatever the disk
 * does; nobody waits for anybody. */
#include "worker/rank_log.h"

#include "common/io.h"
#include "common/mem.h"
#include "tests/lib/folder.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char path[96];
static struct err err;

static int setup(void **state)
{
    if (folder_open(state) != 0)
        return -1;
    (void)snprintf(path, sizeof path, "%s/rank-0.log", folder);
    return 0;
}

static void expect_file(const char *text)
{
    CLEANUP(buf_done) struct buf bytes;
    buf_init(&bytes, 1 << 24);
    assert_int_equal(io_read_file(path, 1 << 24, &bytes, &err), 0);
    assert_string_equal(buf_str(&bytes), text);
}

static void print(int fd, const char *text)
{
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
}

static void test_as_printed(void **state)
{
    struct rank_log log;
    struct stat info;
    int fd = -1;
    assert_int_equal(io_write_file(path, "an old attempt", 14, 0644, &err), 0);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rank_log_open(&log, path, 1000, &fd, &err), 0);
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
    assert_int_equal(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    rank_log_pump(&log); /* nothing has come: returns at once */
    expect_file("");
    print(fd, "one\n");
    rank_log_pump(&log);
    expect_file("one\n");
    print(fd, "two");
    rank_log_close(&log, ""); /* the other end is open still, and is not waited for */
    expect_file("one\ntwo");
    assert_int_equal(log.pipe_fd, -1);
    assert_int_equal(log.file_fd, -1);
    rank_log_pump(&log); /* closed: nothing happens */
    rank_log_close(&log, "");
    (void)close(fd);
    assert_int_equal(rank_log_open(&log, path, 1000, &fd, &err), 0);
    (void)close(fd);
    rank_log_pump(&log);
    assert_int_equal(log.pipe_fd, -1); /* the rank is gone */
    rank_log_close(&log, "");
    expect_file(""); /* a new file each time */
}

#define MARK "\n[the log's limit is reached: later output is dropped]\n"

static void test_limit(void **state)
{
    struct rank_log log;
    int fd = -1;
    assert_int_equal(rank_log_open(&log, path, 10, &fd, &err), 0);
    print(fd, "0123456789"); /* just fits */
    rank_log_pump(&log);
    expect_file("0123456789");
    assert_int_equal(log.dropped, 0);
    print(fd, "abc");
    rank_log_pump(&log);
    print(fd, "defgh");
    rank_log_pump(&log);
    expect_file("0123456789" MARK); /* said once */
    print(fd, "ij");
    rank_log_close(&log, "");
    expect_file("0123456789" MARK "[10 bytes of output were dropped]\n");
    (void)close(fd);
    assert_int_equal(rank_log_open(&log, path, 3, &fd, &err), 0);
    print(fd, "within one piece");
    rank_log_pump(&log);
    rank_log_close(&log, "");
    expect_file("wit" MARK "[13 bytes of output were dropped]\n");
    (void)close(fd);
    assert_int_equal(rank_log_open(&log, path, 0, &fd, &err), 0);
    print(fd, "x");
    rank_log_close(&log, "");
    expect_file(MARK "[1 bytes of output were dropped]\n");
    (void)close(fd);
}

/* More than a pipe holds, in pieces; closing takes what is left in it. */
static void test_much(void **state)
{
    enum { PIECE = 50000, PIECES = 9 };
    struct rank_log log;
    int fd = -1;
    CLEANUP(mem_free_ptr) char *text = mem_new(1, PIECE * PIECES + 1);
    for (int i = 0; i < PIECE * PIECES; i++)
        text[i] = (char)('a' + i % 19);
    assert_int_equal(rank_log_open(&log, path, 1 << 20, &fd, &err), 0);
    for (int i = 0; i < PIECES; i++) {
        assert_int_equal(write(fd, text + i * PIECE, PIECE), PIECE);
        if (i + 1 < PIECES)
            rank_log_pump(&log);
    }
    rank_log_close(&log, "");
    (void)close(fd);
    expect_file(text);
}

/* A full disk: bytes are dropped and counted, and the rank still never waits. */
static void test_full_disk(void **state)
{
    struct rank_log log;
    int fd = -1;
    assert_int_equal(rank_log_open(&log, "/dev/full", 1000, &fd, &err), 0);
    print(fd, "0123456789");
    rank_log_pump(&log);
    assert_int_equal(log.dropped, 10);
    assert_int_equal(log.bytes_left, 990);
    rank_log_close(&log, "");
    (void)close(fd);
}

static void test_no_file(void **state)
{
    struct rank_log log;
    int fd = -7;
    char absent[128];
    (void)snprintf(absent, sizeof absent, "%s/absent/rank-0.log", folder);
    assert_int_equal(rank_log_open(&log, absent, 1000, &fd, &err), -ERR_NOT_FOUND);
    assert_non_null(strstr(err.text, absent));
    assert_int_equal(fd, -7);
    rank_log_pump(&log); /* what was not opened may be closed */
    rank_log_close(&log, "");
}

#define LOG_TEST(function) cmocka_unit_test_setup_teardown(function, setup, folder_close)

int main(void)
{
    const struct CMUnitTest tests[] = {
        LOG_TEST(test_as_printed), LOG_TEST(test_limit),   LOG_TEST(test_much),
        LOG_TEST(test_full_disk),  LOG_TEST(test_no_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* io: whole files or none, and nothing outside of what was asked for is removed. */
#include "common/io.h"
#include "common/mem.h"
#include "tests/lib/cmocka.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* What io asks the kernel for, in its order, in place of the C library's: 'f' a file is synced, 'd'
 * a folder is, 'r' a rename. */
static char calls[64];

static void note(char call)
{
    size_t length = strlen(calls);
    if (length + 1 < sizeof calls)
        calls[length] = call;
}

int fsync(int fd)
{
    struct stat info;
    note(fstat(fd, &info) == 0 && S_ISDIR(info.st_mode) ? 'd' : 'f');
    return (int)syscall(SYS_fsync, fd);
}

int renameat2(int from_fd, const char *from, int to_fd, const char *to, unsigned flags)
{
    note('r');
    return (int)syscall(SYS_renameat2, from_fd, from, to_fd, to, flags);
}

static char test_dir[] = "/tmp/test_io-XXXXXX";

static int setup(void **state)
{
    return mkdtemp(test_dir) != NULL ? 0 : -1;
}

static int teardown(void **state)
{
    struct err err;
    return io_remove_tree(test_dir, &err);
}

/* A path in the test's folder; one at a time. */
static const char *in(const char *name)
{
    static char path[4][256];
    static int next;
    char *out = path[next++ % 4];
    (void)snprintf(out, sizeof path[0], "%s/%s", test_dir, name);
    return out;
}

static int entries(const char *path)
{
    DIR *folder = opendir(path);
    assert_non_null(folder);
    int count = 0;
    const struct dirent *entry;
    while ((entry = readdir(folder)) != NULL)
        count += entry->d_name[0] != '.';
    (void)closedir(folder);
    return count;
}

static void assert_content(const char *path, const char *wanted)
{
    struct err err;
    struct buf text;
    buf_init(&text, 1 << 20);
    MUST_WORK(io_read_file(path, 1 << 20, &text, &err), &err);
    assert_string_equal(buf_str(&text), wanted);
    buf_done(&text);
}

static void test_write_replaces_whole(void **state)
{
    struct err err;
    struct stat info;
    assert_int_equal(io_write_file(in("a"), "old", 3, 0600, &err), 0);
    assert_int_equal(io_write_file(in("a"), "newer", 5, 0600, &err), 0);
    assert_content(in("a"), "newer");
    assert_int_equal(stat(in("a"), &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
    assert_int_equal(entries(test_dir), 1); /* no temporary is left */
    int64_t bytes;
    assert_int_equal(io_file_size(in("a"), &bytes, &err), 0);
    assert_int_equal(bytes, 5);
    assert_true(io_exists(in("a")));
    assert_int_equal(unlink(in("a")), 0);
    assert_false(io_exists(in("a")));
    assert_int_equal(io_file_size(in("a"), &bytes, &err), -ERR_NOT_FOUND);
}

static void test_not_there_until_commit(void **state)
{
    struct err err;
    struct io_file file;
    assert_int_equal(io_file_create(&file, in("b"), 0644, &err), 0);
    assert_int_equal(fcntl(file.fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    assert_int_equal(io_write_full(file.fd, "x", 1, &err), 0);
    assert_false(io_exists(in("b")));
    assert_int_equal(io_file_commit(&file, &err), 0);
    assert_content(in("b"), "x");
    io_file_abort(&file); /* after commit: nothing happens */
    assert_true(io_exists(in("b")));
    assert_int_equal(unlink(in("b")), 0);
}

static void test_abort_leaves_nothing(void **state)
{
    struct err err;
    struct io_file file;
    assert_int_equal(io_write_file(in("c"), "old", 3, 0600, &err), 0);
    assert_int_equal(io_file_create(&file, in("c"), 0600, &err), 0);
    assert_int_equal(io_write_full(file.fd, "half", 4, &err), 0);
    io_file_abort(&file);
    io_file_abort(&file);
    assert_int_equal(entries(test_dir), 1);
    assert_content(in("c"), "old");
    assert_int_equal(unlink(in("c")), 0);
    assert_int_equal(mem_live(), 0);
}

/* What an earlier process of this pid left behind is neither in the way nor touched. */
static void test_leftovers_of_the_same_pid(void **state)
{
    struct err err;
    struct io_file file;
    unsigned number = 0;
    assert_int_equal(io_file_create(&file, in("f"), 0600, &err), 0);
    assert_int_equal(sscanf(strrchr(file.temp_path, '-'), "-%u", &number), 1);
    io_file_abort(&file);
    char name[64];
    for (unsigned i = 1; i <= 3; i++) {
        (void)snprintf(name, sizeof name, "f.tmp-%ld-%u", (long)getpid(), number + i);
        int fd = open(in(name), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        assert_true(fd >= 0);
        (void)close(fd);
    }
    assert_int_equal(io_write_file(in("f"), "new", 3, 0600, &err), 0);
    assert_content(in("f"), "new");
    assert_int_equal(entries(test_dir), 4);
    struct err ignored;
    assert_int_equal(io_remove_tree(test_dir, &ignored), 0);
    assert_int_equal(mkdir(test_dir, 0700), 0);
    assert_int_equal(mem_live(), 0);
}

static void test_failures_leave_nothing(void **state)
{
    struct err err;
    assert_int_equal(io_write_file(in("no/such/folder"), "x", 1, 0600, &err), -ERR_NOT_FOUND);
    assert_non_null(strstr(err.text, "no/such/folder"));
    assert_int_equal(mkdir(in("d"), 0700), 0); /* a folder is in the way of the rename */
    assert_int_equal(io_write_file(in("d"), "x", 1, 0600, &err), -ERR_IO);
    assert_int_equal(entries(test_dir), 1);
    assert_int_equal(rmdir(in("d")), 0);
    for (int64_t fault = 1; fault <= 2; fault++) {
        mem_fault_after(fault);
        assert_int_equal(io_write_file(in("e"), "x", 1, 0600, &err), -ERR_NOMEM);
        mem_fault_after(0);
        assert_int_equal(entries(test_dir), 0);
    }
    assert_int_equal(mem_live(), 0);
}

static void test_read_limits(void **state)
{
    struct err err;
    struct buf text;
    assert_int_equal(io_write_file(in("f"), "12345", 5, 0600, &err), 0);
    buf_init(&text, 100);
    assert_int_equal(io_read_file(in("f"), 5, &text, &err), 0);
    buf_clear(&text);
    assert_int_equal(io_read_file(in("f"), 4, &text, &err), -ERR_TOO_LARGE);
    assert_int_equal(io_read_file(in("none"), 4, &text, &err), -ERR_NOT_FOUND);
    assert_int_equal(io_read_file(test_dir, 4, &text, &err), -ERR_IO);
    buf_done(&text);
    int fd = open(in("f"), O_RDONLY | O_CLOEXEC);
    char bytes[8] = {0};
    assert_int_equal(io_read_full(fd, bytes, 3, &err), 0);
    assert_string_equal(bytes, "123");
    assert_int_equal(io_read_full(fd, bytes, 3, &err), -ERR_IO);
    assert_non_null(strstr(err.text, "1 bytes early"));
    assert_int_equal(io_pread_full(fd, bytes, 2, 3, &err), 0);
    assert_memory_equal(bytes, "45", 2);
    assert_int_equal(io_pread_full(fd, bytes, 2, 4, &err), -ERR_IO);
    assert_int_equal(io_write_full(fd, "x", 1, &err), -ERR_IO); /* opened for reading */
    (void)close(fd);
    assert_int_equal(unlink(in("f")), 0);
}

static void test_make_dirs(void **state)
{
    struct err err;
    assert_int_equal(io_make_dirs(in("g/h/i"), 0700, &err), 0);
    assert_int_equal(io_make_dirs(in("g/h/i"), 0700, &err), 0);
    assert_int_equal(io_make_dirs(in("g/h//j/"), 0700, &err), 0);
    assert_true(io_exists(in("g/h/i")));
    assert_true(io_exists(in("g/h/j")));
    assert_int_equal(io_write_file(in("g/file"), "", 0, 0600, &err), 0);
    assert_int_equal(io_make_dirs(in("g/file"), 0700, &err), -ERR_IO);
    assert_non_null(strstr(err.text, "not a folder"));
    assert_int_not_equal(io_make_dirs(in("g/file/x"), 0700, &err), 0);
    assert_int_equal(io_remove_tree(in("g"), &err), 0);
}

static void test_remove_tree_does_not_follow_links(void **state)
{
    struct err err;
    assert_int_equal(io_make_dirs(in("outside/deep"), 0700, &err), 0);
    assert_int_equal(io_write_file(in("outside/deep/kept"), "x", 1, 0600, &err), 0);
    assert_int_equal(io_make_dirs(in("tree/a/b"), 0700, &err), 0);
    assert_int_equal(io_write_file(in("tree/a/file"), "x", 1, 0600, &err), 0);
    assert_int_equal(symlink(in("outside"), in("tree/a/b/link")), 0);
    assert_int_equal(symlink(in("outside/deep/kept"), in("tree/filelink")), 0);
    assert_int_equal(symlink("..", in("tree/up")), 0);
    assert_int_equal(symlink("nowhere", in("tree/dangling")), 0);
    assert_int_equal(io_remove_tree(in("tree"), &err), 0);
    assert_false(io_exists(in("tree")));
    assert_content(in("outside/deep/kept"), "x");
    assert_int_equal(symlink(in("outside"), in("toplink")), 0); /* the tree itself is a link */
    assert_int_equal(io_remove_tree(in("toplink"), &err), 0);
    assert_content(in("outside/deep/kept"), "x");
    assert_int_equal(io_remove_tree(in("outside"), &err), 0);
    assert_int_equal(io_remove_tree(in("outside"), &err), 0); /* absent is fine */
    assert_int_equal(entries(test_dir), 0);
}

static void make_dir_with(const char *name, const char *content)
{
    struct err err;
    char file[96];
    (void)snprintf(file, sizeof file, "%s/x", name);
    assert_int_equal(io_make_dirs(in(name), 0700, &err), 0);
    assert_int_equal(io_write_file(in(file), content, strlen(content), 0600, &err), 0);
}

static void test_replace_dir(void **state)
{
    struct err err;
    char temp[256], path[256];
    (void)snprintf(temp, sizeof temp, "%s", in("new.tmp"));
    (void)snprintf(path, sizeof path, "%s", in("new"));
    make_dir_with("new.tmp", "1");
    assert_int_equal(io_replace_dir(temp, path, &err), 0); /* nothing there yet */
    assert_content(in("new/x"), "1");
    make_dir_with("new.tmp", "2");
    assert_int_equal(io_replace_dir(temp, path, &err), 0);
    assert_content(in("new/x"), "2");
    assert_int_equal(entries(test_dir), 1);
    assert_int_equal(io_replace_dir(temp, path, &err), -ERR_NOT_FOUND);
    assert_content(in("new/x"), "2");
    assert_int_equal(io_remove_tree(path, &err), 0);
}

/* Field case R51: what has its name is on the disk, and so is the name. */
static void test_synced_before_and_after_the_rename(void **state)
{
    struct err err;
    memset(calls, 0, sizeof calls);
    assert_int_equal(io_write_file(in("durable"), "x", 1, 0600, &err), 0);
    assert_string_equal(calls, "frd");
    assert_int_equal(io_make_dirs(in("durable.tmp"), 0700, &err), 0);
    memset(calls, 0, sizeof calls);
    assert_int_equal(io_replace_dir(in("durable.tmp"), in("durable.dir"), &err), 0);
    assert_string_equal(calls, "rd"); /* what is in it was synced when it was written */
    assert_int_equal(unlink(in("durable")), 0);
    assert_int_equal(rmdir(in("durable.dir")), 0);
}

/* The n-th write, sync or rename fails: never a torn file, never one left over. */
static void test_fault_injection(void **state)
{
    struct err err;
    assert_int_equal(io_write_file(in("w"), "old", 3, 0600, &err), 0);
    int failed = 0;
    for (;; failed++) {
        io_fault_after(failed + 1);
        int rc = io_write_file(in("w"), "new", 3, 0600, &err);
        io_fault_after(0);
        assert_int_equal(entries(test_dir), 1);
        if (rc == 0)
            break;
        assert_int_equal(rc, -ERR_NO_SPACE);
        assert_content(in("w"), failed < 3 ? "old" : "new"); /* the last is the folder's sync */
    }
    assert_int_equal(failed, 4);
    assert_content(in("w"), "new");
    assert_int_equal(unlink(in("w")), 0);
}

static void test_join_and_hash(void **state)
{
    char *path = io_join("a", "b");
    assert_string_equal(path, "a/b");
    mem_free(path);
    char hex[IO_HASH_BYTES];
    io_hash("", 0, hex); /* XXH3-128 of nothing, seed 0 */
    assert_string_equal(hex, "99aa06d3014798d86001c324468d497f");
    char other[IO_HASH_BYTES];
    io_hash("a", 1, other);
    assert_int_equal(strlen(other), 32);
    assert_string_not_equal(hex, other);
    char bytes[3000];
    struct io_hasher *hasher = io_hasher_new();
    memset(bytes, 'x', sizeof bytes);
    assert_non_null(hasher);
    for (size_t at = 0; at < sizeof bytes; at += 1000) /* in pieces it is the same */
        io_hasher_add(hasher, bytes + at, 1000);
    io_hasher_hex(hasher, hex);
    io_hasher_free(hasher);
    io_hash(bytes, sizeof bytes, other);
    assert_string_equal(hex, other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_write_replaces_whole),
        cmocka_unit_test(test_not_there_until_commit),
        cmocka_unit_test(test_abort_leaves_nothing),
        cmocka_unit_test(test_leftovers_of_the_same_pid),
        cmocka_unit_test(test_failures_leave_nothing),
        cmocka_unit_test(test_read_limits),
        cmocka_unit_test(test_make_dirs),
        cmocka_unit_test(test_remove_tree_does_not_follow_links),
        cmocka_unit_test(test_replace_dir),
        cmocka_unit_test(test_synced_before_and_after_the_rename),
        cmocka_unit_test(test_fault_injection),
        cmocka_unit_test(test_join_and_hash),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

/* rank_process: a program that starts, with its arguments and its log, and every way in which it
 * does not; no descriptor is left. What a rank inherits, and its end: tests/dist/test_keeper.c. */
#include "worker/rank_process.h"

#include "common/io.h"
#include "common/mem.h"
#include "tests/lib/folder.h"

#include <dirent.h>
#include <string.h>
#include <sys/wait.h>

static struct err err;
static char *environment[] = {"GREETING=hello", NULL};

static int descriptors(void)
{
    int count = 0;
    DIR *stream = opendir("/proc/self/fd");
    assert_non_null(stream);
    while (readdir(stream) != NULL)
        count++;
    (void)closedir(stream);
    return count;
}

/* A script in the folder. */
static char *script(const char *name, const char *text, mode_t mode)
{
    char *path = io_join(folder, name);
    assert_int_equal(io_write_file(path, text, strlen(text), mode, &err), 0);
    return path;
}

static void test_starts(void **state)
{
    CLEANUP(mem_free_ptr)
    char *program =
        script("program", "#!/bin/sh\necho \"$@\"; echo \"$GREETING $HOME\" >&2; exit 7\n", 0700);
    const struct rank_command command = {
        .program = program, .attempt_dir = folder, .env = environment, .log_bytes_max = 1000};
    struct rank_process process = {.pid = 0};
    int before = descriptors(), status = 0;
    MUST_WORK(rank_process_start(&process, &command, 12, &err), &err);
    assert_true(process.pid > 0);
    assert_int_equal(waitpid(process.pid, &status, 0), process.pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 7);
    rank_log_close(&process.log, "");
    assert_int_equal(descriptors(), before);
    CLEANUP(mem_free_ptr) char *log = io_join(folder, "rank-12.log");
    CLEANUP(mem_free_ptr) char *said = mem_printf("--rank 12 --attempt-dir %s\nhello \n", folder);
    CLEANUP(buf_done) struct buf text;
    buf_init(&text, 10000);
    assert_int_equal(io_read_file(log, 10000, &text, &err), 0);
    assert_string_equal(buf_str(&text), said); /* both streams, and no environment but ours */
}

static void expect_no_start(const char *program, const char *attempt_dir, const char *says)
{
    const struct rank_command command = {
        .program = program, .attempt_dir = attempt_dir, .env = environment, .log_bytes_max = 1000};
    struct rank_process process = {.log = {.pipe_fd = -1, .file_fd = -1}};
    int before = descriptors();
    int rc = rank_process_start(&process, &command, 0, &err);
    if (rc == 0 || strstr(err.text, says) == NULL)
        fail_msg("%s: %d %s", program, rc, err.text);
    assert_int_equal(process.pid, 0);
    rank_log_close(&process.log, "");
    while (waitpid(-1, NULL, 0) > 0) /* the keeper reaps what did not become the program */
        continue;
    assert_int_equal(descriptors(), before);
}

static void test_does_not_start(void **state)
{
    CLEANUP(mem_free_ptr) char *no_program = script("no-program", "\x01\x02", 0700);
    CLEANUP(mem_free_ptr) char *interpreter = script("odd", "#!/nonexistent/sh\n", 0700);
    CLEANUP(mem_free_ptr) char *absent = io_join(folder, "absent");
    expect_no_start("/nonexistent/worker", folder, "execute /nonexistent/worker: No such file");
    expect_no_start(no_program, folder, "Exec format error");
    expect_no_start(interpreter, folder, "No such file");
    expect_no_start(folder, folder, "Permission denied"); /* a folder */
    expect_no_start("/bin/true", absent, "rank-0.log");
}

static void test_no_memory(void **state)
{
    const struct rank_command command = {
        .program = "/bin/true", .attempt_dir = folder, .env = environment};
    struct rank_process process = {.pid = 0};
    mem_fault_after(1);
    assert_int_equal(rank_process_start(&process, &command, 0, &err), -ERR_NOMEM);
    mem_fault_after(0);
    assert_int_equal(process.pid, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {FOLDER_TEST(test_starts), FOLDER_TEST(test_does_not_start),
                                       FOLDER_TEST(test_no_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

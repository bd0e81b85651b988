/* main of ithaca-worker, the program itself: its roles' command lines, its exit statuses, and the
 * one line that says what went wrong. */
#include "common/err.h"
#include "common/io.h"
#include "common/mem.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[64];
static char *program;
static char *said; /* stdout and stderr of the last run */

/* Runs it with up to seven arguments; its exit status, or 1000 and the signal. */
static int run(const char *const arguments[])
{
    struct err err;
    char *argv[9] = {program};
    int count = 0;
    CLEANUP(mem_free_ptr) char *out = io_join(folder, "out");
    while (arguments[count] != NULL && count < 7) {
        argv[count + 1] = (char *)(uintptr_t)arguments[count];
        count++;
    }
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        int fd = open(out, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
        (void)dup2(null, STDIN_FILENO);
        (void)dup2(fd, STDOUT_FILENO);
        (void)dup2(fd, STDERR_FILENO);
        (void)execv(program, argv);
        _exit(126);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    CLEANUP(buf_done) struct buf text;
    buf_init(&text, 1 << 20);
    assert_int_equal(io_read_file(out, 1 << 20, &text, &err), 0);
    mem_free(said);
    said = mem_strdup(buf_str(&text));
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

#define RUN(...) run((const char *const[]){__VA_ARGS__, NULL})

static void test_command_lines(void **state)
{
    (void)state;
    static const char *const wrong[][8] = {
        {NULL},
        {"--help", NULL},
        {"--rank", "0", NULL},
        {"--rank", "0", "--dir", "/tmp", NULL},
        {"--keep", NULL},
        {"--keep", "/tmp", "more", NULL},
        {"--prepare", NULL},
        {"--init-model", "tiny-llama", NULL},
        {"--init-model", "tiny-llama", "/tmp/x", "--seed", NULL},
        {"--init-model", "tiny-llama", "/tmp/x", "--speed", "1", NULL},
        {"--export", "a", "b", NULL},
        {"--sample", NULL},
        {"--version", "please", NULL},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        int status = run(wrong[i]);
        if (status != err_code_exit(ERR_USAGE) || strstr(said, "usage: ithaca-worker") == NULL)
            fail_msg("line %zu: %d: %s", i, status, said);
        assert_ptr_equal(strchr(said, '\n'), said + strlen(said) - 1); /* one line */
    }
    assert_int_equal(RUN("--version"), 0);
    assert_string_equal(said, "ithaca-worker " ITHACA_VERSION "\n");
}

static void test_numbers(void **state)
{
    (void)state;
    static const char *const wrong[] = {"", "x", "-1", "1x", "64", "99999999999999999999"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        int status = RUN("--rank", wrong[i], "--attempt-dir", folder);
        if (status != err_code_exit(ERR_USAGE) || strstr(said, "from 0 to 63") == NULL)
            fail_msg("\"%s\": %d: %s", wrong[i], status, said);
    }
    CLEANUP(mem_free_ptr) char *model = io_join(folder, "model");
    assert_int_equal(RUN("--init-model", "tiny-llama", model, "--seed", "-3"),
                     err_code_exit(ERR_USAGE));
    assert_false(io_exists(model));
}

/* What a role's own failure becomes. */
static void test_roles_that_fail(void **state)
{
    (void)state;
    struct err err;
    CLEANUP(mem_free_ptr) char *absent = io_join(folder, "absent");
    CLEANUP(mem_free_ptr) char *words = io_join(folder, "last-words-3");
    CLEANUP(buf_done) struct buf text;
    buf_init(&text, 10000);
    assert_int_equal(RUN("--rank", "3", "--attempt-dir", folder), err_code_exit(ERR_NOT_FOUND));
    assert_memory_equal(said, "ithaca-worker: ", 15);
    assert_non_null(strstr(said, "plan.json"));
    assert_int_equal(io_read_file(words, 10000, &text, &err), 0); /* for the keeper */
    assert_non_null(strstr(buf_str(&text), "plan.json"));
    CLEANUP(mem_free_ptr) char *plan = io_join(folder, "plan.json");
    assert_int_equal(io_write_file(plan, "{}", 2, 0600, &err), 0);
    assert_int_not_equal(RUN("--rank", "0", "--attempt-dir", folder), 0); /* no plan of ours */
    assert_int_equal(RUN("--keep", absent), err_code_exit(ERR_NOT_FOUND));
    assert_int_equal(RUN("--prepare", absent), err_code_exit(ERR_NOT_FOUND));
    assert_int_equal(RUN("--export", absent, absent, absent), err_code_exit(ERR_NOT_FOUND));
    assert_int_equal(RUN("--init-model", "no-llama", absent), err_code_exit(ERR_NOT_FOUND));
    assert_int_equal(RUN("--sample", absent), err_code_exit(ERR_BAD_JSON)); /* stdin is empty */
    assert_int_equal(RUN("--init-model", "tiny-llama", folder), err_code_exit(ERR_IN_USE));
}

static int setup(void **state)
{
    (void)state;
    (void)snprintf(folder, sizeof folder, "/dev/shm/ithaca-main-XXXXXX");
    return mkdtemp(folder) != NULL ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    struct err err;
    mem_free(said);
    said = NULL;
    return io_remove_tree(folder, &err);
}

#define MAIN_TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        MAIN_TEST(test_command_lines),
        MAIN_TEST(test_numbers),
        MAIN_TEST(test_roles_that_fail),
    };
    const char *build = getenv("ITHACA_BUILD_DIR"); /* ctest says it */
    if (build == NULL)
        return 77;
    program = mem_printf("%s/worker/ithaca-worker", build);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    mem_free(program);
    return failed;
}

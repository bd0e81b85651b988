/* program: runs one of our programs as a user does, and keeps what it said. For cmocka programs;
 * ctest names the build by ITHACA_BUILD_DIR.
 *
 *     program_open("worker/ithaca-worker");
 *     assert_int_equal(PROGRAM("--version"), 0);
 *     assert_string_equal(program.out, "ithaca-worker 0.1.0\n");
 *     program_close(); */
#pragma once
#include "common/err.h"
#include "common/io.h"
#include "common/mem.h"
#include "tests/lib/cmocka.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PROGRAM_ARGUMENTS = 10 };

static struct {
    char folder[64]; /* of the running test; HOME of the program */
    char *path;
    char *out; /* stdout of the last run */
    char *err; /* stderr */
} program;

static inline void program_open(const char *name)
{
    const char *build = getenv("ITHACA_BUILD_DIR");
    if (build == NULL)
        skip();
    (void)snprintf(program.folder, sizeof program.folder, "/dev/shm/ithaca-program-XXXXXX");
    assert_non_null(mkdtemp(program.folder));
    program.path = io_join(build, name);
    (void)setenv("HOME", program.folder, 1);
}

static inline void program_close(void)
{
    struct err err;
    if (program.path != NULL)
        assert_int_equal(io_remove_tree(program.folder, &err), 0);
    mem_free(program.path);
    mem_free(program.out);
    mem_free(program.err);
    program.path = program.out = program.err = NULL;
}

static inline char *program_said(const char *name)
{
    struct err err;
    CLEANUP(mem_free_ptr) char *path = io_join(program.folder, name);
    CLEANUP(buf_done) struct buf text;
    buf_init(&text, 1 << 24);
    assert_int_equal(io_read_file(path, 1 << 24, &text, &err), 0);
    return mem_strdup(buf_str(&text));
}

static inline int program_fd(const char *name)
{
    CLEANUP(mem_free_ptr) char *path = io_join(program.folder, name);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    return fd;
}

/* Its exit status, or 1000 and the signal. stdout_fd -1: kept in program.out. */
static inline int program_run(int stdout_fd, const char *const arguments[])
{
    char *argv[PROGRAM_ARGUMENTS + 2] = {program.path};
    for (int i = 0; arguments[i] != NULL && i < PROGRAM_ARGUMENTS; i++)
        argv[i + 1] = (char *)(uintptr_t)arguments[i];
    int out = program_fd("stdout"), errors = program_fd("stderr");
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)dup2(null, STDIN_FILENO);
        (void)dup2(stdout_fd >= 0 ? stdout_fd : out, STDOUT_FILENO);
        (void)dup2(errors, STDERR_FILENO);
        (void)execv(program.path, argv);
        _exit(126);
    }
    (void)close(out);
    (void)close(errors);
    (void)close(null);
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    mem_free(program.out);
    mem_free(program.err);
    program.out = program_said("stdout");
    program.err = program_said("stderr");
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

#define PROGRAM(...) program_run(-1, (const char *const[]){__VA_ARGS__, NULL})

/* One line to stderr that says this. */
static inline void program_expect_line(const char *says)
{
    if (strstr(program.err, says) == NULL ||
        strchr(program.err, '\n') != program.err + strlen(program.err) - 1)
        fail_msg("\"%s\" is not in one line: %s", says, program.err);
}

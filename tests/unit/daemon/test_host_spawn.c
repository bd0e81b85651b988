/* host_spawn: the daemon does not wait until its child is the program; what the child cannot run it
 * says, and it has nothing of ours. Files, sessions, ends: tests/unit/daemon/test_host_posix.c. */
#include "daemon/host_spawn.h"

#include "common/clock.h"
#include "common/io.h"
#include "common/mem.h"
#include "tests/lib/cmocka.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct fixture {
    char dir[64], program[96], output[96];
    struct err err;
};

static int setup(void **state)
{
    struct fixture *f = mem_new(1, sizeof *f);
    (void)snprintf(f->dir, sizeof f->dir, "/tmp/test_host_spawn.XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    (void)snprintf(f->program, sizeof f->program, "%s/program", f->dir);
    (void)snprintf(f->output, sizeof f->output, "%s/out", f->dir);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(io_remove_tree(f->dir, &f->err), 0);
    mem_free(f);
    assert_int_equal(mem_live(), 0);
    return 0;
}

static pid_t spawn_argv(struct fixture *f, const char *const argv[])
{
    const char *const envp[] = {NULL};
    const struct host_spawn child = {.argv = argv, .envp = envp, .output_path = f->output};
    pid_t pid = 0;
    if (host_spawn_child(&child, &pid, &f->err) != 0)
        fail_msg("%s", f->err.text);
    return pid;
}

static pid_t spawn(struct fixture *f, const char *text)
{
    if (text != NULL)
        assert_int_equal(io_write_file(f->program, text, strlen(text), 0700, &f->err), 0);
    return spawn_argv(f, (const char *const[]){f->program, NULL});
}

static int status_of(pid_t pid)
{
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void assert_said(struct fixture *f, const char *words)
{
    CLEANUP(buf_done) struct buf text;
    buf_init(&text, 1000);
    assert_int_equal(io_read_file(f->output, 1000, &text, &f->err), 0);
    if (strstr(buf_str(&text), words) == NULL)
        fail_msg("the output lacks \"%s\": %s", words, buf_str(&text));
}

/* A lease on the program's file holds up the child in exec, for as long as a machine without a free
 * processor might. */
static void test_nobody_waits_for_exec(void **state)
{
    struct fixture *f = *state;
    const char *script = "#!/bin/sh\nexit 7\n";
    assert_int_equal(io_write_file(f->program, script, strlen(script), 0700, &f->err), 0);
    int fd = open(f->program, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    (void)signal(SIGIO, SIG_IGN); /* "somebody wants it" */
    if (fcntl(fd, F_SETLEASE, F_WRLCK) != 0) {
        (void)close(fd);
        skip(); /* this file system has none */
    }
    int64_t begun_ms = clock_monotonic_ms();
    pid_t pid = spawn(f, NULL);
    assert_true(clock_monotonic_ms() - begun_ms < 10000); /* a lease is waited for 45 s */
    assert_int_equal(waitpid(pid, NULL, WNOHANG), 0);
    assert_int_equal(fcntl(fd, F_SETLEASE, F_UNLCK), 0);
    (void)close(fd);
    assert_int_equal(status_of(pid), 7);
}

static void test_what_cannot_run_says_so(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(status_of(spawn(f, "\177ELF, but no program")), HOST_SPAWN_STATUS);
    assert_said(f, f->program);
    assert_said(f, "cannot be run: Exec format error");
}

/* Whatever this process has open, ignores or blocks, and whichever of 0, 1 and 2 it lacks. */
static void test_a_child_has_nothing_of_ours(void **state)
{
    struct fixture *f = *state;
    sigset_t term, before;
    const int open_to_children = 77; /* not CLOEXEC */
    assert_int_equal(dup2(STDERR_FILENO, open_to_children), open_to_children);
    int input = dup(STDIN_FILENO);
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    assert_int_equal(sigprocmask(SIG_BLOCK, &term, &before), 0);
    (void)signal(SIGPIPE, SIG_IGN);
    (void)close(STDIN_FILENO);
    pid_t pid = spawn(f, "#!/bin/sh\n"
                         "cat && test -e /proc/$$/fd/2 -a ! -e /proc/$$/fd/77\n");
    int status = status_of(pid);
    static const char *const grep[] = {"/bin/grep", "-E", "Sig(Blk|Ign)", "/proc/self/status",
                                       NULL};
    int signals = status_of(spawn_argv(f, grep)); /* without a shell, which has its own mask */
    assert_int_equal(dup2(input, STDIN_FILENO), STDIN_FILENO);
    (void)close(input);
    (void)close(open_to_children);
    (void)signal(SIGPIPE, SIG_DFL);
    assert_int_equal(sigprocmask(SIG_SETMASK, &before, NULL), 0);
    assert_int_equal(status, 0);
    assert_int_equal(signals, 0);
    assert_said(f, "SigBlk:\t0000000000000000");
    assert_said(f, "SigIgn:\t0000000000000000");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_nobody_waits_for_exec, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_cannot_run_says_so, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_child_has_nothing_of_ours, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

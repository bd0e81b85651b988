/* keeper_scene: an attempt's folder, a keeper as a forked process, and what it left. The test is
 * the subreaper of its keepers, so whatever one leaves behind becomes the test's own child and is
 * noticed. */
#pragma once
#include "common/clock.h"
#include "common/exit_report.h"
#include "common/io.h"
#include "common/mem.h"
#include "tests/dist/stub_rank.h"
#include "tests/lib/cmocka.h"
#include "worker/keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    GRACE_MS = 300,
    PATIENCE_MS = 20000, /* a keeper that takes longer is stuck */
    LOG_BYTES = 100000,  /* limit of a rank's log here */
    STATUS_LEAK = 99,    /* of a keeper that leaked memory or descriptors */
};

static char folder[64];   /* of the running test */
static char shm_name[64]; /* exists before each keeper runs */

static void stub(int rank, const char *words)
{
    char path[128];
    struct err err;
    (void)snprintf(path, sizeof path, "%s/stub-%d", folder, rank);
    assert_int_equal(io_write_file(path, words, strlen(words), 0600, &err), 0);
}

static int setup(void **state)
{
    (void)snprintf(folder, sizeof folder, "/tmp/ithaca-test-keeper-XXXXXX");
    if (mkdtemp(folder) == NULL)
        return -1;
    int fd = shm_open(shm_name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    return fd >= 0 ? close(fd) : -1;
}

static int teardown(void **state)
{
    struct err err;
    (void)shm_unlink(shm_name);
    return io_remove_tree(folder, &err);
}

static struct keeper_options options_for(uint32_t world)
{
    return (struct keeper_options){
        .attempt_dir = folder,
        .program = "/proc/self/exe",
        .shm_name = shm_name,
        .world = world,
        .threads = 3,
        .gpus = "",
        .log_bytes_max = LOG_BYTES,
        .failed_grace_ms = GRACE_MS,
        .stop_grace_ms = GRACE_MS,
        .kill_wait_ms = 5000,
    };
}

/* The keeper's process: what it hands back becomes the exit status. */
static pid_t start_keeper(const struct keeper_options *options, int64_t fault_after)
{
    (void)fflush(NULL);
    pid_t keeper = fork();
    assert_true(keeper >= 0);
    if (keeper != 0)
        return keeper;
    struct err err = {0};
    int before = open_descriptors();
    mem_fault_after(fault_after);
    int rc = keeper_run(options, &err);
    mem_fault_after(0);
    if (rc != 0)
        (void)fprintf(stderr, "keeper: %s\n", err.text);
    if (mem_live() != 0 || open_descriptors() != before)
        _exit(STATUS_LEAK);
    _exit(err_code_exit((enum err_code) - rc));
}

static int await(pid_t pid)
{
    int status = 0;
    int64_t end_ms = clock_monotonic_ms() + PATIENCE_MS;
    while (clock_monotonic_ms() < end_ms) {
        if (waitpid(pid, &status, WNOHANG) > 0)
            return status;
        clock_sleep_ms(5);
    }
    fail_msg("process %d is stuck", (int)pid);
    return status;
}

static bool shm_is_gone(void)
{
    char path[128];
    (void)snprintf(path, sizeof path, "/dev/shm%s", shm_name);
    return access(path, F_OK) != 0;
}

/* The keeper's exit status; nothing is left of it. */
static int finish_keeper(pid_t keeper)
{
    int status = await(keeper);
    assert_true(WIFEXITED(status));
    assert_int_not_equal(WEXITSTATUS(status), STATUS_LEAK);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* nobody was left to us */
    assert_int_equal(errno, ECHILD);
    assert_true(shm_is_gone());
    return WEXITSTATUS(status);
}

static int run_keeper(const struct keeper_options *options)
{
    return finish_keeper(start_keeper(options, 0));
}

static void file_path(char path[128], const char *name)
{
    (void)snprintf(path, 128, "%s/%s", folder, name);
}

static struct exit_report report;

static void read_report(void)
{
    char path[128];
    struct err err;
    file_path(path, "exit.json");
    MUST_WORK(exit_report_read(path, &report, &err), &err);
}

static bool log_says(const char *name, const char *text)
{
    char path[128];
    struct err err;
    struct buf content;
    buf_init(&content, 1 << 21);
    file_path(path, name);
    bool found =
        io_read_file(path, 1 << 21, &content, &err) == 0 && strstr(buf_str(&content), text) != NULL;
    buf_done(&content);
    return found;
}

static void expect_exit(int rank, int status)
{
    assert_int_equal(report.ranks[rank].exit_status, status);
    assert_int_equal(report.ranks[rank].signal, 0);
}

static void expect_signal(int rank, int signal_number)
{
    assert_int_equal(report.ranks[rank].exit_status, -1);
    assert_int_equal(report.ranks[rank].signal, signal_number);
}

static void wait_until(const char *name, const char *text)
{
    int64_t end_ms = clock_monotonic_ms() + PATIENCE_MS;
    while (!log_says(name, text)) {
        if (clock_monotonic_ms() > end_ms)
            fail_msg("%s never says %s", name, text);
        clock_sleep_ms(5);
    }
}

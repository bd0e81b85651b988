/* rank_process: fork, and in the child only system calls until execve. A pipe that closes on exec
 * tells the parent: end of file is success, otherwise the child's step and errno come through. */
#include "worker/rank_process.h"

#include "common/mem.h"
#include "common/must.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

enum { RANK_START_MS = 10000 }; /* a program on a dead network disk: go on, the ladder handles it */

static const char rank_oom_score[] = "500"; /* of -1000..1000: before the keeper and the daemon */

struct rank_failure {
    char step[16]; /* what failed in the child */
    int errnum;
};

__attribute__((noreturn)) static void rank_give_up(int report_fd, const char *step)
{
    struct rank_failure failure = {.errnum = errno};
    (void)snprintf(failure.step, sizeof failure.step, "%s", step);
    (void)!write(report_fd, &failure, sizeof failure); /* the parent sees the exit status anyway */
    _exit(127);
}

__attribute__((noreturn)) static void rank_become(const struct rank_command *command, char **argv,
                                                  pid_t keeper, int output_fd, int report_fd)
{
    sigset_t none;
    sigemptyset(&none);
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != keeper)
        rank_give_up(report_fd, "tie to keeper");
    if (dup2(output_fd, STDOUT_FILENO) < 0 || dup2(output_fd, STDERR_FILENO) < 0)
        rank_give_up(report_fd, "redirect");
    if (signal(SIGPIPE, SIG_DFL) == SIG_ERR || sigprocmask(SIG_SETMASK, &none, NULL) != 0)
        rank_give_up(report_fd, "signals");
    (void)setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    int oom_fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (oom_fd >= 0)
        (void)!write(oom_fd, rank_oom_score, sizeof rank_oom_score - 1); /* a preference */
    (void)close_range(3, ~0U, CLOSE_RANGE_CLOEXEC); /* a net under CLOEXEC from birth */
    execve(command->program, argv, command->env);
    rank_give_up(report_fd, "execute");
}

/* Waits for the child to become the program. */
static int rank_confirm(const struct rank_command *command, int report_fd, struct err *err)
{
    struct rank_failure failure;
    struct pollfd poll_fd = {.fd = report_fd, .events = POLLIN};
    int ready;
    do
        ready = poll(&poll_fd, 1, RANK_START_MS);
    while (ready < 0 && errno == EINTR);
    if (ready <= 0 || read(report_fd, &failure, sizeof failure) != (ssize_t)sizeof failure)
        return 0;
    return err_set(err, ERR_RANK_START, "%s %s: %s", failure.step, command->program,
                   strerror(failure.errnum));
}

static int rank_fork(struct rank_process *process, const struct rank_command *command, char **argv,
                     int output_fd, struct err *err)
{
    int report[2];
    if (pipe2(report, O_CLOEXEC) != 0)
        return err_set(err, ERR_RANK_START, "pipe: %s", strerror(errno));
    pid_t keeper = getpid();
    pid_t pid = fork();
    if (pid == 0)
        rank_become(command, argv, keeper, output_fd, report[1]);
    int rc = 0;
    (void)close(report[1]); /* the child's end */
    if (pid < 0)
        rc = err_set(err, ERR_RANK_START, "fork: %s", strerror(errno));
    else
        rc = rank_confirm(command, report[0], err);
    (void)close(report[0]);
    if (rc == 0)
        process->pid = pid;
    return rc;
}

int rank_process_start(struct rank_process *process, const struct rank_command *command, int rank,
                       struct err *err)
{
    must(process->pid == 0 && rank >= 0);
    CLEANUP(mem_free_ptr)
    char *log_path = mem_printf("%s/rank-%d.log", command->attempt_dir, rank);
    if (log_path == NULL)
        return mem_fail(err, strlen(command->attempt_dir), "a path");
    char number[16];
    (void)snprintf(number, sizeof number, "%d", rank);
    char *argv[] = {
        "ithaca-worker", "--rank", number, "--attempt-dir", (char *)command->attempt_dir, NULL};
    int output_fd = -1;
    TRY(rank_log_open(&process->log, log_path, command->log_bytes_max, &output_fd, err));
    int rc = rank_fork(process, command, argv, output_fd, err);
    (void)close(output_fd); /* the rank's end: its log ends with it */
    return rc;
}

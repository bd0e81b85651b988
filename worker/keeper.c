/* keeper: one loop over one signalfd and the pipes of the ranks.
 *
 * Only the keeper reaps, and it is the subreaper of all that ranks start, so waitpid(-1) sees every
 * end, and a pid that has not been reaped cannot name another process: signals by pid are safe.
 * SIGCHLD is blocked and comes through the signalfd; several may merge into one, so each is
 * answered by reaping until nothing is left.
 *
 * The ladder is three times on the clock (term_ms, kill_ms, give_up_ms), far away until something
 * sets them; setting one only ever brings it nearer. */
#include "worker/keeper.h"

#include "common/cgroup.h"
#include "common/clock.h"
#include "common/exit_report.h"
#include "common/io.h"
#include "common/json.h"
#include "common/launch_plan.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/must.h"
#include "common/proc_stat.h"
#include "common/utf8.h"
#include "worker/coll.h"
#include "worker/coll_verdict.h"
#include "worker/rank_env.h"
#include "worker/rank_process.h"
#include "worker/ras_port.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    KEEPER_SWEEP_POLL_MS = 50, /* between looks at what SIGKILL has not ended yet */
    KEEPER_CALLS_BYTES = 8192, /* a rank's last collectives in its log */
};

#define KEEPER_NEVER INT64_MAX

struct keeper {
    const struct keeper_options *options;
    struct rank_process ranks[LIMIT_RANKS];
    struct exit_report report;
    int signal_fd;
    int ras_fd;         /* keeps the port of NCCL's health service; -1: none */
    int64_t term_ms;    /* when living ranks get SIGTERM */
    int64_t kill_ms;    /* when they get SIGKILL */
    int64_t give_up_ms; /* when waiting for them ends */
    bool stopping;      /* was told to */
    bool start_failed;  /* report.first_failed was never started */
};

/* ---- becoming a keeper ---- */

static int keeper_redirect(const char *path, int flags, int to_fd, struct err *err)
{
    int fd = open(path, flags | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_set_errno(err, errno, "%s", path);
    int rc = dup2(fd, to_fd) < 0 ? err_set_errno(err, errno, "%s: redirect", path) : 0;
    if (fd != to_fd)
        (void)close(fd); /* its copy lives on */
    return rc;
}

static int keeper_open_logs(const struct keeper_options *options, struct err *err)
{
    CLEANUP(mem_free_ptr) char *path = io_join(options->attempt_dir, "keeper.log");
    if (path == NULL)
        return mem_fail(err, strlen(options->attempt_dir), "a path");
    TRY(keeper_redirect("/dev/null", O_RDONLY, STDIN_FILENO, err));
    TRY(keeper_redirect(path, O_WRONLY | O_CREAT | O_APPEND, STDOUT_FILENO, err));
    return keeper_redirect(path, O_WRONLY | O_CREAT | O_APPEND, STDERR_FILENO, err);
}

/* keeper.json: pid, start time and boot id name this process and no other. */
static int keeper_write_identity(const struct keeper_options *options, struct err *err)
{
    CLEANUP(buf_done) struct buf boot_id;
    buf_init(&boot_id, 64);
    TRY(io_read_file("/proc/sys/kernel/random/boot_id", 64, &boot_id, err));
    struct proc_stat stat;
    if (proc_stat_read(getpid(), &stat) != 0)
        return err_set(err, ERR_IO, "/proc/self/stat cannot be read: is /proc mounted?");
    CLEANUP(json_unref)
    json_t *identity = json_pack("{s:i, s:I, s:s%}", "pid", (int)getpid(), "start_time",
                                 (json_int_t)stat.start_time, "boot_id", buf_str(&boot_id),
                                 strcspn(buf_str(&boot_id), "\n"));
    CLEANUP(mem_free_ptr) char *path = io_join(options->attempt_dir, "keeper.json");
    if (identity == NULL || path == NULL)
        return mem_fail(err, 256, "keeper.json");
    return json_write_file(path, identity, 0600, err);
}

static int keeper_take_signals(struct keeper *keeper, struct err *err)
{
    sigset_t mask;
    sigemptyset(&mask);
    sigaddset(&mask, SIGTERM);
    sigaddset(&mask, SIGINT);
    sigaddset(&mask, SIGHUP);
    sigaddset(&mask, SIGCHLD);
    if (sigprocmask(SIG_BLOCK, &mask, NULL) != 0 || signal(SIGPIPE, SIG_IGN) == SIG_ERR ||
        signal(SIGCHLD, SIG_DFL) == SIG_ERR) /* ignored, it would reap behind our back */
        return err_set_errno(err, errno, "signals");
    keeper->signal_fd = signalfd(-1, &mask, SFD_NONBLOCK | SFD_CLOEXEC);
    return keeper->signal_fd < 0 ? err_set_errno(err, errno, "signalfd") : 0;
}

static int keeper_become(struct keeper *keeper, struct err *err)
{
    TRY(keeper_take_signals(keeper, err));
    (void)setsid(); /* refused where it leads a group, as under a shell */
    if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0)
        return err_set_errno(err, errno, "become the subreaper");
    TRY(keeper_open_logs(keeper->options, err));
    return keeper_write_identity(keeper->options, err);
}

/* ---- the ladder ---- */

static void keeper_sooner(int64_t *time_ms, int64_t at_ms)
{
    if (at_ms < *time_ms)
        *time_ms = at_ms;
}

static uint32_t keeper_living(const struct keeper *keeper)
{
    uint32_t living = 0;
    for (uint32_t rank = 0; rank < keeper->options->world; rank++)
        living += keeper->ranks[rank].pid != 0;
    return living;
}

static void keeper_signal_ranks(const struct keeper *keeper, int signal_number)
{
    for (uint32_t rank = 0; rank < keeper->options->world; rank++)
        if (keeper->ranks[rank].pid != 0)
            (void)kill(keeper->ranks[rank].pid, signal_number); /* unreaped: it is there */
}

/* A rank failed by itself: the others shall end within the grace given. */
static void keeper_fail(struct keeper *keeper, uint32_t rank, int64_t grace_ms)
{
    if (keeper->report.first_failed >= 0 || keeper->stopping)
        return;
    int64_t now_ms = clock_monotonic_ms();
    keeper->report.first_failed = (int32_t)rank;
    keeper_sooner(&keeper->term_ms, now_ms + grace_ms);
    keeper_sooner(&keeper->kill_ms, now_ms + grace_ms + keeper->options->stop_grace_ms);
}

static void keeper_stop(struct keeper *keeper, int signal_number)
{
    if (keeper->stopping)
        return;
    log_info("keeper", "told to stop (%s)", strsignal(signal_number));
    int64_t now_ms = clock_monotonic_ms();
    keeper->stopping = true;
    if (keeper->report.stopped_by[0] == '\0')
        (void)snprintf(keeper->report.stopped_by, sizeof keeper->report.stopped_by, "daemon");
    keeper_sooner(&keeper->term_ms, now_ms);
    keeper_sooner(&keeper->kill_ms, now_ms + keeper->options->stop_grace_ms);
}

/* Does what is due. */
static void keeper_climb(struct keeper *keeper)
{
    int64_t now_ms = clock_monotonic_ms();
    if (keeper_living(keeper) == 0)
        return;
    if (now_ms >= keeper->term_ms) {
        keeper->term_ms = KEEPER_NEVER;
        log_info("keeper", "SIGTERM to %u ranks", keeper_living(keeper));
        if (keeper->report.stopped_by[0] == '\0')
            (void)snprintf(keeper->report.stopped_by, sizeof keeper->report.stopped_by,
                           "keeper_limit");
        keeper_signal_ranks(keeper, SIGTERM);
    }
    if (now_ms >= keeper->kill_ms) {
        keeper->kill_ms = KEEPER_NEVER;
        keeper->give_up_ms = now_ms + keeper->options->kill_wait_ms;
        log_warn("keeper", "SIGKILL to %u ranks", keeper_living(keeper));
        keeper_signal_ranks(keeper, SIGKILL);
    }
}

/* ---- ends ---- */

static void keeper_record_end(struct keeper *keeper, uint32_t rank, int status)
{
    struct exit_rank *end = &keeper->report.ranks[rank];
    keeper->ranks[rank].pid = 0;
    if (WIFSIGNALED(status)) {
        end->signal = WTERMSIG(status);
        log_info("keeper", "rank %u (pid %d) ended by signal %d, %s", rank, end->pid, end->signal,
                 strsignal(end->signal));
    } else {
        end->exit_status = WEXITSTATUS(status);
        log_info("keeper", "rank %u (pid %d) exited with %d", rank, end->pid, end->exit_status);
    }
    if (end->exit_status != 0)
        keeper_fail(keeper, rank, keeper->options->failed_grace_ms);
}

/* Takes every end there is; false when there is no child at all. */
static bool keeper_reap(struct keeper *keeper)
{
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
        for (uint32_t rank = 0; rank < keeper->options->world; rank++)
            if (keeper->ranks[rank].pid == pid)
                keeper_record_end(keeper, rank, status);
    return pid == 0; /* otherwise ECHILD */
}

/* Kills what ranks have started and left behind. */
static void keeper_sweep(struct keeper *keeper)
{
    int64_t give_up_ms = clock_monotonic_ms() + keeper->options->kill_wait_ms;
    while (keeper_reap(keeper)) {
        int found = proc_stat_signal_children(getpid(), SIGKILL);
        if (clock_monotonic_ms() >= give_up_ms) {
            log_error("keeper", "%d processes do not end after SIGKILL", found);
            return;
        }
        if (found > 0) /* zombies are reaped at once */
            clock_sleep_ms(KEEPER_SWEEP_POLL_MS);
    }
}

static void keeper_read_last_words(struct keeper *keeper, uint32_t rank)
{
    struct exit_rank *end = &keeper->report.ranks[rank];
    struct err ignored; /* most ranks leave none */
    CLEANUP(buf_done) struct buf words;
    buf_init(&words, LIMIT_LAST_WORDS_BYTES);
    CLEANUP(mem_free_ptr)
    char *path = mem_printf("%s/last-words-%u", keeper->options->attempt_dir, rank);
    if (path == NULL || io_read_file(path, LIMIT_LAST_WORDS_BYTES, &words, &ignored) != 0)
        return;
    buf_drop_newlines(&words);
    utf8_line(buf_str(&words), end->last_words, sizeof end->last_words);
}

/* ---- running ---- */

static void keeper_start_ranks(struct keeper *keeper, char **env)
{
    const struct keeper_options *options = keeper->options;
    const struct rank_command command = {.program = options->program,
                                         .attempt_dir = options->attempt_dir,
                                         .env = env,
                                         .log_bytes_max = options->log_bytes_max};
    for (uint32_t rank = 0; rank < options->world && !keeper->start_failed; rank++) {
        struct err err;
        struct exit_rank *end = &keeper->report.ranks[rank];
        if (rank_process_start(&keeper->ranks[rank], &command, (int)rank, &err) == 0) {
            end->pid = keeper->ranks[rank].pid;
            log_info("keeper", "rank %u started, pid %d", rank, end->pid);
            continue;
        }
        log_error("keeper", "rank %u: %s", rank, err.text);
        (void)snprintf(end->last_words, sizeof end->last_words, "%s", err.text);
        keeper->start_failed = true;
        keeper_fail(keeper, rank, 0); /* the others wait for it in vain */
    }
}

static int keeper_timeout(const struct keeper *keeper)
{
    int64_t next_ms = keeper->give_up_ms;
    keeper_sooner(&next_ms, keeper->term_ms);
    keeper_sooner(&next_ms, keeper->kill_ms);
    if (next_ms == KEEPER_NEVER)
        return -1;
    int64_t left_ms = next_ms - clock_monotonic_ms();
    return left_ms > 0 ? (int)left_ms : 0;
}

/* Waits for signals, output, or the next rung. */
static void keeper_wait(struct keeper *keeper)
{
    struct pollfd fds[1 + LIMIT_RANKS];
    struct signalfd_siginfo info;
    uint32_t world = keeper->options->world;
    fds[0] = (struct pollfd){.fd = keeper->signal_fd, .events = POLLIN};
    for (uint32_t rank = 0; rank < world; rank++) /* poll skips closed ones: -1 */
        fds[1 + rank] = (struct pollfd){.fd = keeper->ranks[rank].log.pipe_fd, .events = POLLIN};
    if (poll(fds, 1 + world, keeper_timeout(keeper)) <= 0)
        return;
    while (read(keeper->signal_fd, &info, sizeof info) == (ssize_t)sizeof info)
        if (info.ssi_signo != SIGCHLD)
            keeper_stop(keeper, (int)info.ssi_signo);
    for (uint32_t rank = 0; rank < world; rank++)
        if (fds[1 + rank].revents != 0)
            rank_log_pump(&keeper->ranks[rank].log);
}

/* All ranks have ended: what their records of collectives say. */
static void keeper_read_records(struct keeper *keeper)
{
    const struct keeper_options *options = keeper->options;
    uint32_t failed = 0;
    for (uint32_t rank = 0; rank < options->world; rank++)
        failed += keeper->report.ranks[rank].exit_status != 0;
    if (failed == 0) {
        coll_verdict_clear(options->attempt_dir, options->world);
        return;
    }
    coll_verdict_tell(options->attempt_dir, options->world, keeper->report.collective,
                      sizeof keeper->report.collective);
    if (keeper->report.collective[0] != '\0')
        log_info("keeper", "%s", keeper->report.collective);
}

static void keeper_read_place(struct keeper *keeper, uint32_t rank)
{
    struct exit_rank *end = &keeper->report.ranks[rank];
    enum wire_phase phase = WIRE_PHASE_START;
    end->has_place = coll_verdict_place(keeper->options->attempt_dir, rank, &end->step, &phase);
    end->phase = (uint32_t)phase;
}

/* The end of a rank's log: its last collectives, where it did not end by itself. */
static void keeper_close_log(struct keeper *keeper, uint32_t rank)
{
    int status = keeper->report.ranks[rank].exit_status;
    CLEANUP(buf_done) struct buf calls;
    buf_init(&calls, KEEPER_CALLS_BYTES);
    if (status != 0 && status != err_code_exit(ERR_CANCELLED))
        coll_verdict_list(keeper->options->attempt_dir, rank, &calls);
    rank_log_close(&keeper->ranks[rank].log, buf_str(&calls));
}

static void keeper_close(struct keeper *keeper)
{
    keeper_read_records(keeper);
    for (uint32_t rank = 0; rank < keeper->options->world; rank++) {
        keeper_close_log(keeper, rank);
        if (keeper->report.ranks[rank].exit_status != 0) {
            keeper_read_last_words(keeper, rank);
            keeper_read_place(keeper, rank);
        }
        if (keeper->ranks[rank].pid != 0)
            (void)snprintf(keeper->report.ranks[rank].last_words, LIMIT_LAST_WORDS_BYTES,
                           "pid %d is still there %lld ms after SIGKILL: it hangs in the kernel",
                           (int)keeper->ranks[rank].pid, (long long)keeper->options->kill_wait_ms);
    }
    if (keeper->options->shm_name[0] != '\0')
        coll_shm_unlink(keeper->options->shm_name, (int)keeper->options->world);
}

static int keeper_report(const struct keeper *keeper, struct err *err)
{
    const struct exit_report *report = &keeper->report;
    CLEANUP(mem_free_ptr) char *path = io_join(keeper->options->attempt_dir, "exit.json");
    if (path == NULL)
        return mem_fail(err, strlen(keeper->options->attempt_dir), "a path");
    TRY(exit_report_write(path, report, err));
    int32_t failed = report->first_failed;
    if (keeper->start_failed)
        return err_set(err, ERR_RANK_START, "rank %d: %s", failed,
                       report->ranks[failed].last_words);
    if (failed >= 0 && report->ranks[failed].signal != 0)
        return err_set(err, ERR_RANK_DIED, "rank %d ended by signal %d: %s", failed,
                       report->ranks[failed].signal, report->ranks[failed].last_words);
    if (failed >= 0)
        return err_set(err, ERR_RANK_DIED, "rank %d exited with %d: %s", failed,
                       report->ranks[failed].exit_status, report->ranks[failed].last_words);
    for (uint32_t rank = 0; rank < report->world; rank++)
        if (report->ranks[rank].exit_status != 0)
            return err_set(err, ERR_CANCELLED, "stopped");
    return 0;
}

/* Before anything is started. Without the group all goes on as where there are none. */
static void keeper_join(const char *cgroup)
{
    struct err err;
    if (cgroup != NULL && cgroup_join(cgroup, &err) != 0)
        log_warn("keeper", "not in the job's control group: %s", err.text);
}

static int keeper_run_ranks(struct keeper *keeper, struct err *err)
{
    TRY(keeper_become(keeper, err));
    keeper_join(keeper->options->cgroup);
    char **env = NULL;
    int ras_port = 0;
    if (keeper->options->gpus[0] != '\0' && keeper->options->world > 1) {
        TRY(ras_port_take(&keeper->ras_fd, &ras_port, err));
        log_info("keeper", "NCCL's health service (ncclras): 127.0.0.1:%d", ras_port);
    }
    TRY(rank_env_new(keeper->options->threads, keeper->options->gpus, ras_port, &env, err));
    keeper_start_ranks(keeper, env);
    rank_env_free(env);
    while (keeper_living(keeper) > 0 && clock_monotonic_ms() < keeper->give_up_ms) {
        keeper_wait(keeper);
        (void)keeper_reap(keeper); /* the loop's condition counts */
        keeper_climb(keeper);
    }
    keeper_sweep(keeper);
    keeper_close(keeper);
    return keeper_report(keeper, err);
}

int keeper_run(const struct keeper_options *options, struct err *err)
{
    must(options->world >= 1 && options->world <= LIMIT_RANKS);
    struct keeper *keeper = mem_new(1, sizeof *keeper);
    if (keeper == NULL)
        return mem_fail(err, sizeof *keeper, "the keeper");
    keeper->options = options;
    keeper->signal_fd = keeper->ras_fd = -1;
    keeper->term_ms = keeper->kill_ms = keeper->give_up_ms = KEEPER_NEVER;
    keeper->report.world = options->world;
    keeper->report.first_failed = -1;
    for (uint32_t rank = 0; rank < options->world; rank++) {
        keeper->report.ranks[rank].exit_status = -1;
        keeper->ranks[rank].log = (struct rank_log){.pipe_fd = -1, .file_fd = -1};
    }
    int rc = keeper_run_ranks(keeper, err);
    if (keeper->signal_fd >= 0)
        (void)close(keeper->signal_fd); /* nothing in it that matters now */
    if (keeper->ras_fd >= 0)
        (void)close(keeper->ras_fd); /* the port is free again */
    mem_free(keeper);
    return rc;
}

static void keeper_done_plan(struct launch_plan **plan)
{
    if (*plan != NULL)
        launch_plan_done(*plan);
    mem_free(*plan);
}

/* "GPU-a,GPU-b"; new string. */
static char *keeper_gpus(const struct launch_plan *plan)
{
    char text[LIMIT_RANKS * LIMIT_GPU_BYTES] = "";
    int length = 0;
    for (uint32_t rank = 0; plan->device == LAUNCH_CUDA && rank < plan->world; rank++)
        length += snprintf(text + length, sizeof text - (size_t)length, "%s%s", rank > 0 ? "," : "",
                           plan->gpus[rank]);
    return mem_strdup(text);
}

int keeper_main(const char *attempt_dir, struct err *err)
{
    (void)close_range(3, ~0U, 0); /* what a careless parent let through */
    CLEANUP(keeper_done_plan) struct launch_plan *plan = mem_new(1, sizeof *plan);
    if (plan == NULL)
        return mem_fail(err, sizeof *plan, "the launch plan");
    TRY(launch_plan_read(attempt_dir, plan, err));
    CLEANUP(mem_free_ptr) char *gpus = keeper_gpus(plan);
    if (gpus == NULL)
        return mem_fail(err, LIMIT_GPU_BYTES, "the names of the GPUs");
    const struct keeper_options options = {
        .attempt_dir = attempt_dir,
        .gpus = gpus,
        .program = "/proc/self/exe",
        .cgroup = plan->cgroup,
        .shm_name = plan->shm_name,
        .world = plan->world,
        .threads = plan->threads,
        .log_bytes_max = LIMIT_RANK_LOG_BYTES,
        .failed_grace_ms = KEEPER_FAILED_GRACE_MS,
        .stop_grace_ms = KEEPER_STOP_GRACE_MS,
        .kill_wait_ms = KEEPER_KILL_WAIT_MS,
    };
    return keeper_run(&options, err);
}

/* host_posix: the real host seam.
 *
 * spawn: host_spawn.h. A child's pid cannot be reused before we reap it, so it is watched by a
 * pidfd that is opened afterwards.
 *
 * Exit: the pidfd becomes readable; waitid() reaps our child. An adopted process is not our child:
 * its pidfd says only that it ended. */
#include "daemon/host.h"

#include "common/clock.h"
#include "common/mem.h"
#include "common/must.h"
#include "common/proc_stat.h"
#include "daemon/host_spawn.h"
#include "daemon/loop.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/pidfd.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

struct host_posix {
    struct host host; /* first: the seam's view */
    struct loop *loop;
    char boot_id[HOST_BOOT_ID_BYTES];
};

struct host_process {
    int pidfd;
    bool child; /* ours to reap */
    struct loop_watch *watch;
    host_exit_fn *on_exit;
    void *context;
};

static int64_t host_posix_monotonic_ms(struct host *host)
{
    (void)host;
    return clock_monotonic_ms();
}

static int64_t host_posix_wall_ms(struct host *host)
{
    (void)host;
    return clock_wall_ms();
}

static int host_posix_random(struct host *host, void *ret_bytes, size_t length, struct err *err)
{
    (void)host;
    must(length <= 256); /* so getrandom is whole and not interrupted */
    if (getrandom(ret_bytes, length, 0) != (ssize_t)length)
        return err_set_errno(err, errno, "random bytes");
    return 0;
}

static void host_process_ready(void *context, uint32_t events)
{
    (void)events;
    struct host_process *process = context;
    struct host_exit ended = {.status = -1, .signal = 0};
    if (process->child) {
        siginfo_t info = {.si_pid = 0};
        if (waitid(P_PIDFD, (id_t)process->pidfd, &info, WEXITED | WNOHANG) != 0 ||
            info.si_pid == 0)
            return;
        if (info.si_code == CLD_EXITED)
            ended.status = info.si_status;
        else
            ended.signal = info.si_status;
    }
    loop_unwatch(process->watch);
    process->watch = NULL;
    process->on_exit(process->context, &ended);
}

/* Takes over pidfd, also on failure. */
static int host_watch(struct host_posix *self, int pidfd, bool child, host_exit_fn *on_exit,
                      void *context, struct host_process **ret, struct err *err)
{
    struct host_process *process = mem_new(1, sizeof *process);
    int rc = process == NULL ? mem_fail(err, sizeof *process, "a process") : 0;
    if (rc == 0) {
        *process = (struct host_process){
            .pidfd = pidfd, .child = child, .on_exit = on_exit, .context = context};
        rc = loop_watch_fd(self->loop, pidfd, EPOLLIN, host_process_ready, process, &process->watch,
                           err);
    }
    if (rc != 0) {
        mem_free(process);
        (void)close(pidfd); /* nothing to lose */
        return rc;
    }
    *ret = process;
    return 0;
}

static int host_posix_spawn(struct host *host, const struct host_spawn *spawn,
                            struct host_process **ret, struct host_identity *ret_identity,
                            struct err *err)
{
    struct host_posix *self = (struct host_posix *)host;
    pid_t pid = 0;
    TRY(host_spawn_child(spawn, &pid, err));
    struct proc_stat stat = {.start_time = 0}; /* it is there even if it has ended: unreaped */
    bool known = proc_stat_read(pid, &stat) == 0;
    int pidfd = pidfd_open(pid, 0);
    int rc = !known || pidfd < 0 ? err_set_errno(err, errno, "watch process %d", (int)pid) : 0;
    if (rc == 0)
        rc = host_watch(self, pidfd, true, spawn->on_exit, spawn->context, ret, err);
    if (rc != 0) { /* unwatched is unwanted */
        (void)kill(pid, SIGKILL);
        (void)waitpid(pid, NULL, 0);
        return rc;
    }
    *ret_identity = (struct host_identity){.pid = pid, .start_time = stat.start_time};
    memcpy(ret_identity->boot_id, self->boot_id, sizeof self->boot_id);
    return 0;
}

static int host_posix_adopt(struct host *host, const struct host_identity *identity,
                            host_exit_fn *on_exit, void *context, struct host_process **ret,
                            struct err *err)
{
    struct host_posix *self = (struct host_posix *)host;
    if (identity->pid <= 0 || strcmp(identity->boot_id, self->boot_id) != 0)
        return err_set(err, ERR_NOT_FOUND, "process %d is of an earlier boot", identity->pid);
    int pidfd = pidfd_open(identity->pid, 0); /* first, so that the pid is pinned while we look */
    struct proc_stat stat;
    bool same = pidfd >= 0 && proc_stat_read(identity->pid, &stat) == 0 &&
                stat.start_time == identity->start_time && stat.state != 'Z';
    if (!same) {
        if (pidfd >= 0)
            (void)close(pidfd); /* nothing to lose */
        return err_set(err, ERR_NOT_FOUND, "process %d is gone", identity->pid);
    }
    return host_watch(self, pidfd, false, on_exit, context, ret, err);
}

static void host_posix_signal(struct host *host, struct host_process *process, int signal_number)
{
    (void)host;
    (void)pidfd_send_signal(process->pidfd, signal_number, NULL, 0); /* ESRCH: it has ended */
}

static void host_posix_forget(struct host *host, struct host_process *process)
{
    (void)host;
    if (process == NULL)
        return;
    loop_unwatch(process->watch);
    (void)close(process->pidfd); /* nothing to lose */
    mem_free(process);
}

static char host_posix_process_state(struct host *host, int32_t pid)
{
    (void)host;
    struct proc_stat stat;
    return proc_stat_read(pid, &stat) == 0 ? stat.state : '?';
}

static int host_posix_session_signal(struct host *host, int32_t session, int signal_number,
                                     int32_t *ret_pid)
{
    (void)host;
    must(session > 1);
    DIR *folder = opendir("/proc");
    if (folder == NULL)
        return 0;
    int found = 0;
    for (struct dirent *entry = readdir(folder); entry != NULL; entry = readdir(folder)) {
        if (!isdigit((unsigned char)entry->d_name[0]))
            continue;
        int32_t pid = (int32_t)strtol(entry->d_name, NULL, 10);
        int pidfd = pidfd_open(pid, 0); /* first, so that the signal goes to what was looked at */
        struct proc_stat stat;
        if (pidfd >= 0 && proc_stat_read(pid, &stat) == 0 && stat.session == session &&
            stat.state != 'Z') {
            found++;
            if (ret_pid != NULL)
                *ret_pid = pid;
            if (signal_number != 0)
                (void)pidfd_send_signal(pidfd, signal_number, NULL, 0); /* gone is as good */
        }
        if (pidfd >= 0)
            (void)close(pidfd); /* nothing to lose */
    }
    (void)closedir(folder); /* read only */
    return found;
}

static const struct host_ops host_posix_ops = {
    .monotonic_ms = host_posix_monotonic_ms,
    .wall_ms = host_posix_wall_ms,
    .random = host_posix_random,
    .spawn = host_posix_spawn,
    .adopt = host_posix_adopt,
    .signal = host_posix_signal,
    .forget = host_posix_forget,
    .process_state = host_posix_process_state,
    .session_signal = host_posix_session_signal,
};

int host_posix_new(struct loop *loop, struct host **ret_host, struct err *err)
{
    struct host_posix *self = mem_new(1, sizeof *self);
    if (self == NULL)
        return mem_fail(err, sizeof *self, "the host");
    self->host.ops = &host_posix_ops;
    self->loop = loop;
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t got = fd >= 0 ? read(fd, self->boot_id, sizeof self->boot_id - 1) : -1;
    int rc = got <= 0 ? err_set_errno(err, errno, "/proc/sys/kernel/random/boot_id") : 0;
    if (fd >= 0)
        (void)close(fd); /* read only */
    if (rc != 0) {
        mem_free(self);
        return rc;
    }
    self->boot_id[strcspn(self->boot_id, "\n")] = '\0';
    *ret_host = &self->host;
    return 0;
}

void host_posix_free(struct host *host)
{
    mem_free(host);
}

/* host_spawn: fork(), and in the child nothing but what is safe there while other threads might
 * hold locks. What the daemon writes until the child has left its memory costs a copy of the page:
 * a millisecond or two in all. */
#include "daemon/host_spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { HOST_SPAWN_FILES = 3 }; /* stdin, stdout, stderr */

static void host_spawn_close(int fds[HOST_SPAWN_FILES])
{
    for (int i = 0; i < HOST_SPAWN_FILES; i++)
        if (fds[i] >= 0)
            (void)close(fds[i]); /* nothing was written by us */
}

/* Above the three, whichever of these this process has, and closed by exec. */
static int host_spawn_open(const char *path, int flags)
{
    int fd = open(path, flags | O_CLOEXEC, 0600);
    if (fd < 0 || fd >= HOST_SPAWN_FILES)
        return fd;
    int above = fcntl(fd, F_DUPFD_CLOEXEC, HOST_SPAWN_FILES);
    (void)close(fd); /* nothing was written by us */
    return above;
}

static int host_spawn_open_all(const struct host_spawn *spawn, int ret_fds[HOST_SPAWN_FILES],
                               struct err *err)
{
    const int append = O_WRONLY | O_CREAT | O_APPEND;
    const char *const paths[HOST_SPAWN_FILES] = {
        spawn->input_path != NULL ? spawn->input_path : "/dev/null", spawn->output_path,
        spawn->error_path != NULL ? spawn->error_path : spawn->output_path};
    for (int i = 0; i < HOST_SPAWN_FILES; i++) {
        ret_fds[i] = host_spawn_open(paths[i], i == 0 ? O_RDONLY : append);
        if (ret_fds[i] < 0)
            return err_set_errno(err, errno, "start %s: %s", spawn->argv[0], paths[i]);
    }
    return 0;
}

static void host_spawn_say(const char *text)
{
    (void)!write(STDERR_FILENO, text, strlen(text)); /* nobody is left to tell */
}

static _Noreturn void host_spawn_run(const struct host_spawn *spawn,
                                     const int fds[HOST_SPAWN_FILES])
{
    sigset_t none;
    (void)setsid(); /* a new process is no leader of a group */
    for (int i = 1; i < NSIG; i++)
        (void)signal(i, SIG_DFL); /* fails for those that are so in any case */
    for (int i = 0; i < HOST_SPAWN_FILES; i++)
        (void)dup2(fds[i], i);                   /* both are open */
    (void)close_range(HOST_SPAWN_FILES, ~0U, 0); /* ours are CLOEXEC, inherited ones may not be */
    sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    (void)execve(spawn->argv[0], (char *const *)(uintptr_t)spawn->argv,
                 (char *const *)(uintptr_t)spawn->envp);
    const char *why = strerrordesc_np(errno);
    host_spawn_say(spawn->argv[0]);
    host_spawn_say(" cannot be run: ");
    host_spawn_say(why != NULL ? why : "unknown error");
    host_spawn_say("\n");
    _exit(HOST_SPAWN_STATUS);
}

int host_spawn_child(const struct host_spawn *spawn, pid_t *ret_pid, struct err *err)
{
    int fds[HOST_SPAWN_FILES] = {-1, -1, -1};
    if (access(spawn->argv[0], X_OK) != 0)
        return err_set_errno(err, errno, "start %s", spawn->argv[0]);
    int rc = host_spawn_open_all(spawn, fds, err);
    if (rc == 0) {
        pid_t pid = fork();
        if (pid == 0)
            host_spawn_run(spawn, fds);
        if (pid < 0)
            rc =
                errno == EAGAIN /* as many processes as there may be */
                    ? err_set(err, ERR_UNAVAILABLE, "start %s: %s", spawn->argv[0], strerror(errno))
                    : err_set_errno(err, errno, "start %s", spawn->argv[0]);
        else
            *ret_pid = pid;
    }
    host_spawn_close(fds);
    if (rc == 0 && spawn->goes_last)
        (void)setpriority(PRIO_PROCESS, (id_t)*ret_pid, 19); /* else it goes with the others */
    return rc;
}

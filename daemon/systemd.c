/* systemd: the manager sets NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID, LISTEN_FDS and
 * LISTEN_PID for the process that it starts; the PIDs tell children, who inherit the variables,
 * that they are not meant. Passed descriptors begin at 3. A socket's address, not its place or
 * name, says which of the daemon's it is, so a unit may list them in any order. */
#include "daemon/systemd.h"

#include "common/limits.h"
#include "common/log.h"
#include "common/mem.h"
#include "daemon/settings.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

enum { SYSTEMD_FIRST_FD = 3, SYSTEMD_FDS_MAX = 64, SYSTEMD_SEND_S = 1 };

/* ---- what the manager says ---- */

/* A decimal number of the environment; -1 when it is absent or none. */
static int64_t systemd_number(const char *variable)
{
    const char *text = getenv(variable);
    char *end = NULL;
    errno = 0;
    long long number = text != NULL ? strtoll(text, &end, 10) : -1;
    return text == NULL || end == text || *end != '\0' || errno != 0 || number < 0 ? -1 : number;
}

int64_t systemd_watchdog_ms(void)
{
    int64_t usec = systemd_number("WATCHDOG_USEC");
    bool others = getenv("WATCHDOG_PID") != NULL && systemd_number("WATCHDOG_PID") != getpid();
    if (usec <= 0 || others)
        return 0;
    return usec < 2000 ? 1 : usec / 2000;
}

/* ---- sockets ---- */

static int systemd_replace(char **text, const char *with, struct err *err)
{
    char *fresh = mem_strdup(with);
    if (fresh == NULL)
        return mem_fail(err, LIMIT_PATH_BYTES, "an address");
    mem_free(*text);
    *text = fresh;
    return 0;
}

static int systemd_take(struct settings *settings, int fd, struct err *err)
{
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
        struct sockaddr_un local;
        struct sockaddr_storage room;
    } address = {.any.sa_family = AF_UNSPEC};
    char text[INET6_ADDRSTRLEN];
    int listens = 0;
    socklen_t size = sizeof address - 1, listens_size = sizeof listens; /* a path ends with 0 */
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &listens_size) != 0 || listens == 0 ||
        getsockname(fd, &address.any, &size) != 0)
        return err_set(err, ERR_SETTING, "LISTEN_FDS: descriptor %d is no socket that listens", fd);
    if (fcntl(fd, F_SETFD, FD_CLOEXEC) != 0 || fcntl(fd, F_SETFL, O_RDWR | O_NONBLOCK) != 0)
        return err_set_errno(err, errno, "LISTEN_FDS: descriptor %d", fd);
    int family = address.any.sa_family;
    bool local = family == AF_UNIX && address.local.sun_path[0] == '/';
    if (!local && family != AF_INET && family != AF_INET6)
        return err_set(err, ERR_SETTING,
                       "LISTEN_FDS: descriptor %d is neither TCP nor a Unix socket with a path",
                       fd);
    int *place = local ? &settings->unix_fd : &settings->tcp_fd;
    if (*place != 0)
        return err_set(err, ERR_SETTING,
                       "LISTEN_FDS: descriptors %d and %d are both %s; ithacad takes one of each",
                       *place, fd, local ? "Unix sockets" : "TCP");
    *place = fd;
    if (local)
        return systemd_replace(&settings->socket, address.local.sun_path, err);
    const void *bytes = family == AF_INET ? (void *)&address.v4.sin_addr : &address.v6.sin6_addr;
    if (inet_ntop(family, bytes, text, sizeof text) == NULL)
        return err_set_errno(err, errno, "LISTEN_FDS: descriptor %d", fd);
    settings->port = ntohs(family == AF_INET ? address.v4.sin_port : address.v6.sin6_port);
    return systemd_replace(&settings->listen, text, err);
}

int systemd_take_sockets(struct settings *settings, struct err *err)
{
    int64_t count = systemd_number("LISTEN_FDS");
    if (count <= 0 || systemd_number("LISTEN_PID") != getpid())
        return 0;
    if (count > SYSTEMD_FDS_MAX)
        return err_set(err, ERR_SETTING, "LISTEN_FDS: ithacad takes two sockets at most");
    for (int i = 0; i < (int)count; i++)
        TRY(systemd_take(settings, SYSTEMD_FIRST_FD + i, err));
    return 0;
}

/* ---- state ---- */

/* 0 or an errno. A path that begins with '@' is a name of the abstract kind. */
static int systemd_send(const char *path, const char *state)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const struct timeval limit = {.tv_sec = SYSTEMD_SEND_S};
    size_t length = strlen(path);
    if (length < 2 || length > sizeof address.sun_path || strchr("/@", path[0]) == NULL)
        return EINVAL;
    memcpy(address.sun_path, path, length);
    if (path[0] == '@')
        address.sun_path[0] = '\0';
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return errno;
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length);
    int errnum = 0;
    if (setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) != 0 ||
        sendto(fd, state, strlen(state), MSG_NOSIGNAL, (struct sockaddr *)(void *)&address, size) <
            0)
        errnum = errno;
    (void)close(fd); /* it was sent or refused at once */
    return errnum;
}

void systemd_notify(const char *state)
{
    const char *path = getenv("NOTIFY_SOCKET");
    int errnum = path != NULL && path[0] != '\0' ? systemd_send(path, state) : 0;
    if (errnum != 0)
        log_warn("systemd", "%s does not reach %s: %s", state, path, strerror(errnum));
}

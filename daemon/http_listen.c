/* http_listen: a Unix socket is bound with a name of its own and renamed into place when group and
 * mode are right, so nobody connects before. */
#include "daemon/http_listen.h"

#include "common/limits.h"
#include "common/mem.h"
#include "daemon/settings.h"

#include <arpa/inet.h>
#include <errno.h>
#include <grp.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

void http_listen_close(int *fd)
{
    if (*fd >= 0)
        (void)close(*fd); /* a socket: nothing to lose */
    *fd = -1;
}

/* ---- TCP ---- */

static int http_listen_address(const char *listen, int port, struct sockaddr_storage *ret,
                               socklen_t *size, struct err *err)
{
    memset(ret, 0, sizeof *ret);
    struct sockaddr_in *v4 = (struct sockaddr_in *)(void *)ret;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)(void *)ret;
    if (inet_pton(AF_INET, listen, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons((uint16_t)port);
        *size = sizeof *v4;
    } else if (inet_pton(AF_INET6, listen, &v6->sin6_addr) == 1) {
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons((uint16_t)port);
        *size = sizeof *v6;
    } else {
        return err_set_field(err, ERR_SETTING, "listen",
                             "listen must be an IPv4 or IPv6 address, not \"%s\"", listen);
    }
    return 0;
}

int http_listen_tcp(const struct settings *settings, int *ret_fd, int *ret_port, struct err *err)
{
    struct sockaddr_storage address;
    socklen_t size = 0;
    const char *listen_on = settings->listen;
    if (settings->tcp_fd > 0) {
        *ret_fd = settings->tcp_fd;
        *ret_port = (int)settings->port;
        return 0;
    }
    TRY(http_listen_address(listen_on, (int)settings->port, &address, &size, err));
    CLEANUP(http_listen_close)
    int fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return err_set_errno(err, errno, "socket");
    int yes = 1;
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) != 0)
        return err_set_errno(err, errno, "SO_REUSEADDR");
    if (bind(fd, (struct sockaddr *)(void *)&address, size) != 0 || listen(fd, SOMAXCONN) != 0) {
        if (errno == EADDRINUSE)
            return err_set(err, ERR_IN_USE,
                           "%s port %lld is in use; stop what uses it or choose another --port "
                           "(0: any free one)",
                           listen_on, (long long)settings->port);
        return err_set_errno(err, errno, "listen on %s port %lld", listen_on,
                             (long long)settings->port);
    }
    if (getsockname(fd, (struct sockaddr *)(void *)&address, &size) != 0)
        return err_set_errno(err, errno, "getsockname");
    *ret_port =
        ntohs(address.ss_family == AF_INET ? ((struct sockaddr_in *)(void *)&address)->sin_port
                                           : ((struct sockaddr_in6 *)(void *)&address)->sin6_port);
    *ret_fd = fd;
    fd = -1; /* http_listen_close() sees it. NOLINT(clang-analyzer-deadcode.DeadStores) */
    return 0;
}

/* ---- Unix ---- */

static int http_listen_path(const char *path, struct sockaddr_un *ret, struct err *err)
{
    *ret = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof ret->sun_path)
        return err_set_field(err, ERR_SETTING, "socket", "socket: %s is longer than %zu bytes",
                             path, sizeof ret->sun_path - 1);
    (void)snprintf(ret->sun_path, sizeof ret->sun_path, "%s", path);
    return 0;
}

/* What lies at the path may be replaced: nothing, or a socket that nobody listens on. */
static int http_listen_may_take(const char *path, struct err *err)
{
    struct sockaddr_un address;
    struct stat info;
    if (lstat(path, &info) != 0)
        return errno == ENOENT ? 0 : err_set_errno(err, errno, "socket: %s", path);
    if (!S_ISSOCK(info.st_mode))
        return err_set_field(err, ERR_IN_USE, "socket", "socket: %s is there and is no socket",
                             path);
    TRY(http_listen_path(path, &address, err));
    CLEANUP(http_listen_close)
    int fd =
        socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); /* EAGAIN: it is busy */
    if (fd < 0)
        return err_set_errno(err, errno, "socket");
    if (connect(fd, (struct sockaddr *)(void *)&address, sizeof address) == 0 || errno == EAGAIN)
        return err_set_field(err, ERR_IN_USE, "socket", "socket: another daemon listens on %s",
                             path);
    return 0;
}

/* The group that may connect, and the mode. */
static int http_listen_permit(const struct settings *settings, const char *path, struct err *err)
{
    char *end;
    unsigned long mode = strtoul(settings->socket_mode, &end, 8);
    if (*end != '\0' || end == settings->socket_mode || mode > 0777)
        return err_set_field(err, ERR_SETTING, "socket_mode",
                             "socket_mode must be octal like 0660, not \"%s\"",
                             settings->socket_mode);
    if (settings->socket_group[0] != '\0') {
        const struct group *group = getgrnam(settings->socket_group);
        if (group == NULL)
            return err_set_field(err, ERR_SETTING, "socket_group",
                                 "socket_group: there is no group \"%s\"", settings->socket_group);
        if (chown(path, (uid_t)-1, group->gr_gid) != 0)
            return err_set_errno(err, errno, "socket_group: %s", path);
    }
    return chmod(path, (mode_t)mode) == 0 ? 0 : err_set_errno(err, errno, "socket: %s", path);
}

int http_listen_unix(const struct settings *settings, int *ret_fd, struct err *err)
{
    struct sockaddr_un address;
    if (settings->unix_fd > 0) {
        *ret_fd = settings->unix_fd;
        return 0;
    }
    TRY(http_listen_may_take(settings->socket, err));
    CLEANUP(mem_free_ptr) char *fresh = mem_printf("%s.new", settings->socket);
    if (fresh == NULL)
        return mem_fail(err, LIMIT_PATH_BYTES, "a path");
    TRY(http_listen_path(fresh, &address, err));
    CLEANUP(http_listen_close)
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return err_set_errno(err, errno, "socket");
    (void)unlink(fresh); /* of a daemon that was killed here */
    if (bind(fd, (struct sockaddr *)(void *)&address, sizeof address) != 0 ||
        listen(fd, SOMAXCONN) != 0)
        return err_set_errno(err, errno, "socket: %s", fresh);
    int rc = http_listen_permit(settings, fresh, err);
    if (rc == 0 && rename(fresh, settings->socket) != 0)
        rc = err_set_errno(err, errno, "socket: %s", settings->socket);
    if (rc != 0) {
        (void)unlink(fresh); /* nothing worse than what went wrong */
        return rc;
    }
    *ret_fd = fd;
    fd = -1; /* http_listen_close() sees it. NOLINT(clang-analyzer-deadcode.DeadStores) */
    return 0;
}

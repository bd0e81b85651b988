/* http_door: libmicrohttpd with external epoll, an instance a listening socket. Its epoll
 * descriptor sits in the loop's; MHD_run() runs in the loop's prepare hook, that is before every
 * sleep, because the library has work of its own (resumed connections, data already buffered,
 * time-outs) that no descriptor announces.
 *
 * An instance keeps its certificate for life. A renewed one is another instance's, at the other of
 * two doors to the same socket. The one before takes no more connections, ends its streams (their
 * clients come again and go on by Last-Event-ID), answers what is under way, each answer the last
 * of its connection, and is stopped when the last has gone. */
#include "common/buf.h"
#include "common/io.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/must.h"
#include "daemon/http_listen.h"
#include "daemon/http_private.h"
#include "daemon/loop.h"
#include "daemon/settings.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

int64_t http_doors_run(struct http *http)
{
    int64_t sleep_ms = -1;
    http_late_next(http);
    const bool more = http_streams_resume(http);
    for (int i = 0; i < HTTP_DOORS; i++) {
        MHD_UNSIGNED_LONG_LONG timeout_ms;
        if (http->doors[i].mhd == NULL)
            continue;
        loop_doing(http->loop, "HTTP", "connections");
        (void)MHD_run(http->doors[i].mhd); /* fails only for another kind of daemon */
        if (MHD_get_timeout(http->doors[i].mhd, &timeout_ms) != MHD_YES)
            continue;
        int64_t wait_ms = timeout_ms > INT32_MAX ? INT32_MAX : (int64_t)timeout_ms;
        sleep_ms = sleep_ms < 0 || wait_ms < sleep_ms ? wait_ms : sleep_ms;
    }
    return http->late != NULL || more ? 0 : sleep_ms;
}

static void http_ready(void *context, uint32_t events)
{
    (void)context; /* waking the loop was all: http_prepare does the work */
    (void)events;
}

static void http_log(void *context, const char *format, va_list args)
    __attribute__((format(printf, 2, 0)));
static void http_log(void *context, const char *format, va_list args)
{
    (void)context;
    char text[512];
    (void)vsnprintf(text, sizeof text, format, args);
    log_debug("http", "libmicrohttpd: %s", text);
}

static size_t http_keep_escapes(void *context, struct MHD_Connection *connection, char *text)
{
    (void)context;
    (void)connection;
    return strlen(text); /* targets are matched as sent: route.h */
}

/* tls: more options of the library, ended by MHD_OPTION_END; its first is MHD_OPTION_END where the
 * door speaks plainly. */
static int http_open_door(struct http_door *door, const struct MHD_OptionItem *tls, struct err *err)
{
    struct http *http = door->http;
    unsigned flags = MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG;
    if (tls->option != MHD_OPTION_END)
        flags |= MHD_USE_TLS;
    door->mhd = MHD_start_daemon(
        flags, 0, NULL, NULL, http_on_access, http, MHD_OPTION_EXTERNAL_LOGGER, http_log, NULL,
        MHD_OPTION_LISTEN_SOCKET, door->fd, MHD_OPTION_URI_LOG_CALLBACK, http_on_target, door,
        MHD_OPTION_UNESCAPE_CALLBACK, http_keep_escapes, NULL, MHD_OPTION_NOTIFY_COMPLETED,
        http_on_completed, NULL, MHD_OPTION_NOTIFY_CONNECTION, http_connection_notify, door,
        MHD_OPTION_CONNECTION_LIMIT, (unsigned)http->settings->connections_max,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)http->settings->idle_limit_s,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HTTP_MEMORY_BYTES, MHD_OPTION_STRICT_FOR_CLIENT,
        HTTP_STRICT, MHD_OPTION_SIGPIPE_HANDLED_BY_APP, 1, MHD_OPTION_ARRAY, tls, MHD_OPTION_END);
    if (door->mhd == NULL) {
        door->fd = -1; /* the library has closed it */
        return err_set(err, ERR_IO, "the HTTP server cannot start%s",
                       tls->option != MHD_OPTION_END ? ": tls_cert and tls_key must be a PEM "
                                                       "certificate and its PEM key"
                                                     : "");
    }
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(door->mhd, MHD_DAEMON_INFO_EPOLL_FD);
    must(info != NULL);
    return loop_watch_fd(http->loop, info->epoll_fd, EPOLLIN, http_ready, http, &door->watch, err);
}

static void http_wipe(struct buf *secret)
{
    if (secret->data != NULL)
        explicit_bzero(secret->data, secret->length);
    buf_done(secret);
}

static const char http_tls_versions[] = "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2"; /* GnuTLS's */

/* TLS where there is a certificate, else plain. */
static int http_open_tcp(struct http_door *door, struct err *err)
{
    const struct settings *settings = door->http->settings;
    CLEANUP(buf_done) struct buf certificate;
    CLEANUP(http_wipe) struct buf key;
    buf_init(&certificate, HTTP_PEM_BYTES);
    buf_init(&key, HTTP_PEM_BYTES);
    struct MHD_OptionItem tls[4] = {{.option = MHD_OPTION_END}};
    if (settings->tls_cert[0] != '\0') {
        TRY(io_read_file(settings->tls_cert, HTTP_PEM_BYTES, &certificate, err));
        TRY(io_read_secret(settings->tls_key, 007, HTTP_PEM_BYTES, &key, err));
        tls[0] = (struct MHD_OptionItem){.option = MHD_OPTION_HTTPS_MEM_CERT,
                                         .ptr_value = certificate.data};
        tls[1] = (struct MHD_OptionItem){.option = MHD_OPTION_HTTPS_MEM_KEY, .ptr_value = key.data};
        tls[2] = (struct MHD_OptionItem){.option = MHD_OPTION_HTTPS_PRIORITIES,
                                         .ptr_value = (void *)(uintptr_t)http_tls_versions};
        tls[3] = (struct MHD_OptionItem){.option = MHD_OPTION_END};
    }
    return http_open_door(door, tls, err);
}

int http_doors_open(struct http *http, struct err *err)
{
    static const struct MHD_OptionItem plain[] = {{.option = MHD_OPTION_END}};
    struct http_door *tcp = &http->doors[HTTP_DOOR_TCP], *local = &http->doors[HTTP_DOOR_UNIX];
    TRY(http_listen_tcp(http->settings, &tcp->fd, &http->port, err));
    TRY(http_open_tcp(tcp, err));
    if (http->settings->socket[0] == '\0')
        return 0;
    TRY(http_listen_unix(http->settings, &local->fd, err));
    return http_open_door(local, plain, err);
}

/* ---- closing ---- */

/* No more connections are taken; those that are there go on. */
static void http_door_shut(struct http_door *door)
{
    if (door->mhd != NULL && door->fd >= 0)
        (void)MHD_quiesce_daemon(door->mhd); /* gives the socket back: it is ours to close */
    http_listen_close(&door->fd);
}

/* Ends what is still open. */
static void http_door_close(struct http_door *door)
{
    if (door->mhd == NULL)
        return;
    (void)MHD_run(door->mhd); /* takes up what was resumed */
    loop_unwatch(door->watch);
    MHD_stop_daemon(door->mhd);
    door->mhd = NULL;
    door->watch = NULL;
}

void http_doors_shut(struct http *http)
{
    const struct http_door *local = &http->doors[HTTP_DOOR_UNIX];
    if (local->fd >= 0 && http->settings->unix_fd == 0)
        (void)unlink(http->settings->socket); /* the next daemon replaces what is left */
    for (int i = 0; i < HTTP_DOORS; i++)
        http_door_shut(&http->doors[i]);
}

void http_doors_close(struct http *http)
{
    for (int i = 0; i < HTTP_DOORS; i++)
        http_door_close(&http->doors[i]);
}

/* ---- another certificate ---- */

static void http_door_end_streams(const struct http_door *door)
{
    for (struct http_request *one = door->http->first; one != NULL; one = one->next)
        if (one->fill != NULL && one->peer != NULL && one->peer->door == door)
            http_answer_stop(one);
}

void http_doors_sweep(struct http *http)
{
    for (int i = 0; i < HTTP_DOORS; i++) {
        struct http_door *door = &http->doors[i];
        if (door->mhd == NULL || door->fd >= 0 || http->stopping)
            continue;
        http_door_end_streams(door); /* one may have been asked for since the last look */
        const union MHD_DaemonInfo *info =
            MHD_get_daemon_info(door->mhd, MHD_DAEMON_INFO_CURRENT_CONNECTIONS);
        if (info != NULL && info->num_connections == 0)
            http_door_close(door);
    }
}

int http_renew(struct http *http, struct err *err)
{
    const bool first = http->doors[HTTP_DOOR_TCP].fd >= 0;
    struct http_door *now = &http->doors[first ? HTTP_DOOR_TCP : HTTP_DOOR_TCP_OTHER];
    struct http_door *next = &http->doors[first ? HTTP_DOOR_TCP_OTHER : HTTP_DOOR_TCP];
    if (http->settings->tls_cert[0] == '\0')
        return err_set(err, ERR_BAD_STATE, "there is no certificate: tls_cert is not set");
    if (http->stopping)
        return err_set(err, ERR_UNAVAILABLE, "the daemon is stopping");
    http_doors_sweep(http);
    if (next->mhd != NULL)
        return err_set(err, ERR_BAD_STATE,
                       "requests from before the last renewal are still under way; ask again soon");
    next->fd = fcntl(now->fd, F_DUPFD_CLOEXEC, 0);
    if (next->fd < 0)
        return err_set_errno(err, errno, "the listening socket");
    int rc = http_open_tcp(next, err);
    if (rc != 0) {
        http_door_shut(next);
        http_door_close(next);
        return rc;
    }
    http_door_shut(now);
    http_doors_sweep(http);
    return 0;
}

/* http_connection: what is known of a connection between and before its requests.
 *
 * The library looks for edges only and takes a short read for the end of what there is, and it
 * forgets suspended connections altogether: of a client that left right after its last bytes, be it
 * in the middle of a head, of a body, or while its answer waits, it hears nothing. So the loop
 * watches each socket for its client's leaving. Where the library should have seen it, the socket
 * is shut: that is an edge again.
 *
 * A head that does not end is cut after the idle limit, counted from the connection's start or the
 * end of the request before: the library's own limit begins anew with each byte. So is the body of
 * a request that its head has refused. Where connections are nearly all taken, the one that has
 * waited longest for these goes when another comes: whoever opens many and says nothing keeps
 * nobody out. */
#include "common/clock.h"
#include "common/mem.h"
#include "daemon/http_private.h"
#include "daemon/loop.h"
#include "daemon/settings.h"

#include <sys/epoll.h>
#include <sys/socket.h>

static void http_connection_shut(struct http_connection *connection)
{
    connection->cut = true;
    (void)shutdown(connection->fd, SHUT_RDWR); /* fails only when that is done already */
}

/* Something of the client's waits to be read. */
static bool http_connection_has_bytes(const struct http_connection *connection)
{
    char byte;
    return recv(connection->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
}

static void http_connection_left(void *context, uint32_t events)
{
    (void)events;
    struct http_connection *connection = context;
    struct http_request *request = connection->request;
    bool handled = request != NULL && request->handled;
    if (!handled && http_connection_has_bytes(connection))
        return;                      /* the library reads on */
    loop_unwatch(connection->watch); /* it would be told for ever */
    connection->watch = NULL;
    if (handled)
        http_answer_left(request);
    else
        http_connection_shut(connection);
}

/* Best effort: without the watch a lost client is noticed at the next write, or when it is idle. */
static void http_connection_watch(struct http_connection *connection)
{
    struct err err;
    if (connection->watch == NULL)
        (void)loop_watch_fd(connection->door->http->loop, connection->fd, EPOLLRDHUP,
                            http_connection_left, connection, &connection->watch, &err);
}

/* No request of it is under way, its head is not whole, or it is refused and not yet at its end. */
static bool http_connection_waits(const struct http_connection *connection)
{
    const struct http_request *request = connection->request;
    bool refused = request != NULL && request->refused && !request->handled;
    return !connection->cut && (request == NULL || !request->begun || refused);
}

static void http_connection_make_room(const struct http_door *door)
{
    const int64_t most = door->http->settings->connections_max;
    struct http_connection *oldest = NULL;
    if (door->connections < most - most / HTTP_SPARE_PART)
        return;
    for (struct http_connection *one = door->http->connections; one != NULL; one = one->next)
        if (one->door == door && http_connection_waits(one) &&
            (oldest == NULL ||
             one->since_ms <= oldest->since_ms)) /* the list begins with the last */
            oldest = one;
    if (oldest != NULL && !http_connection_has_bytes(oldest))
        http_connection_shut(oldest);
}

static void http_connection_start(struct http_door *door, struct MHD_Connection *from, void **slot)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(from, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct http *http = door->http;
    struct http_connection *connection = info != NULL ? mem_new(1, sizeof *connection) : NULL;
    *slot = connection;
    http_connection_make_room(door);
    if (connection == NULL)
        return; /* it is served, but not watched */
    door->connections++;
    *connection = (struct http_connection){.door = door,
                                           .fd = info->connect_fd,
                                           .since_ms = clock_monotonic_ms(),
                                           .next = http->connections};
    if (connection->next != NULL)
        connection->next->previous = connection;
    http->connections = connection;
    http_connection_watch(connection);
}

static void http_connection_free(struct http_connection *connection)
{
    if (connection == NULL)
        return;
    connection->door->connections--;
    if (connection->previous != NULL)
        connection->previous->next = connection->next;
    else
        connection->door->http->connections = connection->next;
    if (connection->next != NULL)
        connection->next->previous = connection->previous;
    loop_unwatch(connection->watch);
    mem_free(connection);
}

void http_connection_notify(void *door, struct MHD_Connection *from, void **slot,
                            enum MHD_ConnectionNotificationCode code)
{
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        http_connection_start(door, from, slot);
        return;
    }
    http_connection_free(*slot);
    *slot = NULL;
}

void http_connection_begin(struct http_request *request)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(request->connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    struct http_connection *connection = info != NULL ? info->socket_context : NULL;
    request->peer = connection;
    if (connection != NULL)
        connection->request = request;
}

void http_connection_end(struct http_request *request)
{
    struct http_connection *connection = request->peer;
    if (connection == NULL)
        return;
    connection->request = NULL;
    connection->since_ms = clock_monotonic_ms();
    http_connection_watch(connection);
}

void http_connections_sweep(struct http *http)
{
    int64_t oldest_ms = clock_monotonic_ms() - http->settings->idle_limit_s * 1000;
    for (struct http_connection *one = http->connections; one != NULL; one = one->next) {
        if (http_connection_waits(one) && one->since_ms < oldest_ms &&
            !http_connection_has_bytes(one))
            http_connection_shut(one); /* bytes: it is we who are late */
    }
}

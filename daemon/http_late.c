/* http_late: requests that change something may wait for the disk, each for some milliseconds, and
 * many can be whole at once: fifty uploads that end together. The first HTTP_TURN_MS of a turn
 * they are handled as they come. Those for which no time is left stand in a line, suspended, and
 * one goes on a turn, so that between any two of them the others are served, and the ranks.
 *
 * Files go behind what brings none, for they wait for the disk longest; every other turn is that of
 * whoever has stood there longest, so that they come to it too. Nothing is done for a client that
 * leaves while it stands there. */
#include "common/clock.h"
#include "common/must.h"
#include "daemon/http_private.h"

#include <poll.h>

/* The client has sent its last byte, and may still read. Of a request that was suspended the
 * library would see that end before it asks us, and close the connection without an answer. */
static bool http_late_ends(const struct http_request *request)
{
    if (request->peer == NULL)
        return false;
    struct pollfd client = {.fd = request->peer->fd, .events = POLLRDHUP};
    return poll(&client, 1, 0) > 0;
}

bool http_late_waits(struct http_request *request)
{
    struct http *http = request->http;
    if (request->admitted || request->refused || http->stopping || !request->routed ||
        !route_changes(request->match.route))
        return false;
    if (http->late == NULL && clock_monotonic_ns() < http->turn_end_ns)
        return false;
    if (http_late_ends(request))
        return false;
    struct http_request **end = &http->late;
    while (*end != NULL)
        end = &(*end)->next_late;
    *end = request;
    request->suspended = true;
    MHD_suspend_connection(request->connection);
    return true;
}

void http_late_next(struct http *http)
{
    struct http_request **at = &http->late;
    http->turn_end_ns = clock_monotonic_ns() + HTTP_TURN_MS * INT64_C(1000000);
    if (http->late == NULL)
        return;
    http->late_turns++;
    while (http->late_turns % 2 != 0 && *at != NULL && (*at)->form != NULL)
        at = &(*at)->next_late;
    if (*at == NULL)
        at = &http->late;
    struct http_request *request = *at;
    *at = request->next_late;
    request->next_late = NULL;
    request->admitted = true;
    request->suspended = false;
    MHD_resume_connection(request->connection);
}

void http_late_end(struct http *http)
{
    must(http->stopping); /* none is put there any more */
    while (http->late != NULL)
        http_late_next(http);
}

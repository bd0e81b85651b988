/* http: requests from their first line to their end, on the library's instances (http_door.c).
 *
 * The raw target comes from the library's URI log callback, which also makes the request. A body
 * cannot be answered while it arrives: its first error is kept, the rest is dropped, and the error
 * is the answer (HTTP_DRAIN_BYTES beyond the largest body taken, we hang up). Only at the headers
 * can a request be refused without reading its body; the library then closes the connection.
 *
 * Stopping: MHD_stop_daemon aborts when a connection is suspended, so http_stop() answers or ends
 * all of those first. */
#include "daemon/http.h"

#include "common/clock.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/must.h"
#include "daemon/http_check.h"
#include "daemon/http_private.h"
#include "daemon/loop.h"
#include "daemon/settings.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include <sys/socket.h>

/* ---- a request's birth and end ---- */

/* The user at the other end of a Unix socket, as it was when it connected; -1 when unknown. */
static int64_t http_peer_uid(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct ucred peer;
    socklen_t size = sizeof peer;
    if (info == NULL || getsockopt(info->connect_fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0)
        return -1;
    return peer.uid;
}

void *http_on_target(void *context, const char *target, struct MHD_Connection *connection)
{
    const struct http_door *door = context;
    struct http *http = door->http;
    struct http_request *request = mem_new(1, sizeof *request);
    if (request == NULL)
        return NULL; /* the access callback then hangs up */
    request->target = mem_strndup(target, HTTP_TARGET_BYTES + 1);
    if (request->target == NULL) {
        mem_free(request);
        return NULL;
    }
    request->http = http;
    request->connection = connection;
    http_connection_begin(request);
    request->begun_ns = clock_monotonic_ns();
    http->stats.open++;
    request->length = -1;
    request->peer_uid = door->local ? http_peer_uid(connection) : -1;
    request->body_max = LIMIT_JSON_BODY_BYTES;
    buf_init(&request->body, LIMIT_JSON_BODY_BYTES);
    buf_init(&request->out, HTTP_STREAM_BYTES);
    (void)snprintf(request->id, sizeof request->id, "req_%016llx%08x",
                   (unsigned long long)http->id_salt, http->id_count++);
    request->next = http->first;
    if (http->first != NULL)
        http->first->previous = request;
    http->first = request;
    return request;
}

static void http_count(const struct http_request *request)
{
    struct http_stats *stats = &request->http->stats;
    int kind = request->status / 100;
    stats->open--;
    if (kind < 1 || kind >= HTTP_STATUS_CLASSES)
        return; /* the client went before its answer */
    stats->answers[request->routed ? (int)request->match.route : ROUTE_COUNT][kind]++;
    if (request->fill == NULL)
        exposition_observe(&stats->durations,
                           (double)(clock_monotonic_ns() - request->begun_ns) * 1e-9);
}

void http_on_completed(void *context, struct MHD_Connection *connection, void **slot,
                       enum MHD_RequestTerminationCode code)
{
    (void)context;
    (void)connection;
    struct http_request *request = *slot;
    if (request == NULL)
        return;
    *slot = NULL;
    log_debug("http", "%s %.200s -> %d (end %d)", request->id, request->target, request->status,
              (int)code);
    must(!request->suspended);
    http_stream_forget(request);
    http_count(request);
    http_connection_end(request);
    if (request->form != NULL)
        (void)MHD_destroy_post_processor(request->form); /* the client went half way */
    io_hasher_free(request->form_hasher);
    if (request->ended != NULL)
        request->ended(request->ended_context);
    if (request->response != NULL)
        MHD_destroy_response(request->response);
    if (request->previous != NULL)
        request->previous->next = request->next;
    else
        request->http->first = request->next;
    if (request->next != NULL)
        request->next->previous = request->previous;
    buf_done(&request->body);
    buf_done(&request->out);
    mem_free(request->target);
    mem_free(request);
}

/* ---- headers ---- */

static enum MHD_Result http_see_header(void *context, enum MHD_ValueKind kind, const char *key,
                                       const char *value)
{
    (void)kind;
    struct http_facts *facts = context;
    if (strcasecmp(key, "Host") == 0) {
        facts->hosts++;
        facts->host = value != NULL ? value : "";
    } else if (strcasecmp(key, "Content-Length") == 0) {
        facts->content_lengths++;
        facts->content_length = value != NULL ? value : "";
    } else if (strcasecmp(key, "Transfer-Encoding") == 0) {
        facts->transfer_encodings++;
        facts->transfer_encoding = value != NULL ? value : "";
    } else if (strcasecmp(key, "Content-Encoding") == 0) {
        facts->content_encoding = value != NULL ? value : "";
    } else if (strcasecmp(key, "Authorization") == 0) {
        facts->authorizations++;
    }
    return MHD_YES;
}

static int http_begin(struct http_request *request, const char *method, const char *version,
                      struct err *err)
{
    struct http *http = request->http;
    struct http_facts facts = {
        .http_1_0 = strcmp(version, "HTTP/1.1") != 0,
        .target = request->target,
    };
    (void)MHD_get_connection_values(request->connection, MHD_HEADER_KIND, http_see_header,
                                    &facts); /* returns how many there are */
    TRY(http_check(&facts, http->settings->listen, &http->settings->allowed_hosts, &request->length,
                   err));
    request->framed = true;
    if (strlen(request->target) > HTTP_TARGET_BYTES)
        return err_set(err, ERR_BAD_REQUEST, "the request target is longer than %d bytes",
                       HTTP_TARGET_BYTES);
    TRY(route_find(method, request->target, &request->match, request->allow, err));
    request->routed = true;
    if (http->stopping)
        return err_set(err, ERR_UNAVAILABLE, "the daemon is stopping");
    TRY(http->app.begin(http->app.context, request, err));
    if (request->length > request->body_max)
        return err_set(err, ERR_TOO_LARGE, "the body has %lld bytes; the limit here is %lld",
                       (long long)request->length, (long long)request->body_max);
    return 0;
}

/* ---- bodies ---- */

static enum MHD_Result http_on_part(void *context, enum MHD_ValueKind kind, const char *key,
                                    const char *filename, const char *content_type,
                                    const char *transfer_encoding, const char *bytes,
                                    uint64_t offset, size_t length)
{
    (void)kind;
    (void)content_type;
    (void)transfer_encoding;
    struct http_request *request = context;
    if (request->error.code != ERR_NONE)
        return MHD_YES; /* the rest is dropped */
    /* The library repeats offset 0 at the end of a body, without bytes: that is no new part. */
    bool same = request->part_open && strcmp(request->part_name, key) == 0;
    bool first = offset == 0 && (!same || (request->part_bytes > 0 && length > 0));
    if (strlen(key) >= sizeof request->part_name) {
        err_set(&request->error, ERR_UNKNOWN_FIELD, "a form field's name is too long");
        return MHD_YES;
    }
    if (first) {
        (void)snprintf(request->part_name, sizeof request->part_name, "%s", key);
        request->part_open = true;
        request->part_bytes = 0;
        const char *shown = filename != NULL ? filename : "";
        io_hasher_add(request->form_hasher, key, strlen(key) + 1);
        io_hasher_add(request->form_hasher, shown, strlen(shown) + 1);
    }
    io_hasher_add(request->form_hasher, bytes, length);
    request->part_bytes += (int64_t)length;
    (void)request->part(request->part_context, key, filename, first, bytes, length,
                        &request->error); /* the code in the error says it failed */
    return MHD_YES;
}

int http_request_take_form(struct http_request *request, int64_t bytes_max, http_part_fn *part,
                           void *context, struct err *err)
{
    must(request->form == NULL && !request->handled);
    request->form =
        MHD_create_post_processor(request->connection, HTTP_FORM_BUFFER, http_on_part, request);
    const char *type = http_request_header(request, "Content-Type");
    if (request->form == NULL || type == NULL ||
        strncasecmp(type, "multipart/form-data", strlen("multipart/form-data")) != 0)
        return err_set(err, ERR_BAD_REQUEST,
                       "the body must be multipart/form-data with a boundary");
    request->form_hasher = io_hasher_new();
    if (request->form_hasher == NULL)
        return mem_fail(err, 0, "a form");
    request->part = part;
    request->part_context = context;
    request->body_max = bytes_max;
    return 0;
}

static enum MHD_Result http_take_body(struct http_request *request, const char *bytes,
                                      size_t length)
{
    request->received += (int64_t)length;
    if (request->received > request->body_max && request->error.code == ERR_NONE)
        err_set(&request->error, ERR_TOO_LARGE, "the body has more than %lld bytes",
                (long long)request->body_max);
    if (request->error.code != ERR_NONE)
        return request->received > request->body_max + HTTP_DRAIN_BYTES ? MHD_NO : MHD_YES;
    if (request->form == NULL)
        buf_append(&request->body, bytes, length);
    else if (MHD_post_process(request->form, bytes, length) != MHD_YES &&
             request->error.code == ERR_NONE)
        err_set(&request->error, ERR_BAD_REQUEST, "the multipart body is malformed");
    return MHD_YES;
}

/* The whole body is here. */
static int http_handle(struct http_request *request, struct err *err)
{
    request->handled = true;
    if (request->form != NULL) {
        bool whole = MHD_destroy_post_processor(request->form) == MHD_YES;
        request->form = NULL;
        if (!whole && request->error.code == ERR_NONE)
            err_set(&request->error, ERR_BAD_REQUEST,
                    "the multipart body ends before its last boundary");
    }
    if (request->error.code != ERR_NONE) {
        *err = request->error;
        return -(int)err->code;
    }
    TRY(buf_error(&request->body, err));
    if (request->http->stopping) /* nothing may be deferred any more */
        return err_set(err, ERR_UNAVAILABLE, "the daemon is stopping");
    return request->http->app.handle(request->http->app.context, request, err);
}

/* Whether a request that is refused at its head is answered after its body: a client that is still
 * sending when we hang up loses the answer, and tells its user of a broken connection. Not where
 * the body's end is in doubt, is far away, or is not sent before we agree. */
static bool http_hears_out(const struct http_request *request, const struct err *err)
{
    bool body = request->length > 0 || http_request_header(request, "Transfer-Encoding") != NULL;
    return request->framed && body && err->code != ERR_TOO_LARGE && !request->http->stopping &&
           request->length <= HTTP_REFUSED_BYTES && http_request_header(request, "Expect") == NULL;
}

enum MHD_Result http_on_access(void *context, struct MHD_Connection *connection, const char *url,
                               const char *method, const char *version, const char *upload,
                               size_t *upload_bytes, void **slot)
{
    (void)context;
    (void)connection;
    (void)url;
    struct http_request *request = *slot;
    if (request == NULL)
        return MHD_NO;
    struct err err = {0};
    if (!request->begun) {
        request->begun = true;
        if (http_begin(request, method, version, &err) == 0)
            return MHD_YES;
        if (http_hears_out(request, &err)) {
            request->refused = true;
            request->error = err;
            request->body_max = HTTP_REFUSED_BYTES;
            return MHD_YES;
        }
        request->close = err.code == ERR_BAD_REQUEST || err.code == ERR_FORBIDDEN;
        http_answer_error(request, &err);
        return http_answer_flush(request);
    }
    if (*upload_bytes > 0) {
        enum MHD_Result result = http_take_body(request, upload, *upload_bytes);
        *upload_bytes = 0;
        return result;
    }
    if (!request->handled && http_late_waits(request))
        return MHD_YES;
    if (!request->handled && http_handle(request, &err) != 0)
        http_answer_error(request, &err);
    return http_answer_flush(request);
}

/* ---- the server ---- */

static int64_t http_prepare(void *context)
{
    return http_doors_run(context);
}

static void http_sweep(void *context)
{
    http_connections_sweep(context);
    http_doors_sweep(context);
}

static int http_start(struct http *http, struct err *err)
{
    if (getrandom(&http->id_salt, sizeof http->id_salt, 0) != sizeof http->id_salt)
        return err_set_errno(err, errno, "getrandom");
    TRY(http_doors_open(http, err));
    TRY(loop_timer_new(http->loop, http_sweep, http, &http->sweep, err));
    loop_timer_set(http->sweep, HTTP_SWEEP_MS, HTTP_SWEEP_MS);
    loop_on_prepare(http->loop, http_prepare, http);
    return 0;
}

int http_new(struct loop *loop, const struct settings *settings, const struct http_app *app,
             struct http **ret_http, struct err *err)
{
    struct http *http = mem_new(1, sizeof *http);
    if (http == NULL)
        return mem_fail(err, sizeof *http, "the HTTP server");
    *http = (struct http){.loop = loop, .settings = settings, .app = *app};
    http->woken_end = &http->woken;
    for (int i = 0; i < HTTP_DOORS; i++)
        http->doors[i] = (struct http_door){.http = http, .fd = -1, .local = i == HTTP_DOOR_UNIX};
    int rc = http_start(http, err);
    if (rc == 0)
        *ret_http = http;
    else
        http_free(http);
    return rc;
}

const struct http_stats *http_get_stats(const struct http *http)
{
    return &http->stats;
}

int http_port(const struct http *http)
{
    return http->port;
}

void http_stop(struct http *http)
{
    if (http->stopping)
        return;
    http->stopping = true;
    http_doors_shut(http);
    http_late_end(http);
    struct http_request *next;
    for (struct http_request *request = http->first; request != NULL; request = next) {
        next = request->next;
        http_answer_stop(request);
    }
}

bool http_is_idle(const struct http *http)
{
    return http->first == NULL;
}

void http_free(struct http *http)
{
    if (http == NULL)
        return;
    http_stop(http);
    http_doors_close(http);
    loop_timer_free(http->sweep);
    mem_free(http);
}

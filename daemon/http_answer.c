/* http_answer: answers, at once or later, and event streams.
 *
 * A response is made first (http_answer_*) and given to the library by http_answer_flush() from the
 * access callback, the only place where it takes one. A deferred request is suspended there until
 * its response is made, which resumes it, so that the library calls the access callback again.
 *
 * A stream's reader suspends its connection when there is nothing to send; whoever has something
 * wakes it. Of a thousand that are woken at once HTTP_WAKE_TURN go on in a turn of the loop. */
#include "common/io.h"
#include "common/mem.h"
#include "common/must.h"
#include "common/utf8.h"
#include "daemon/http_private.h"
#include "daemon/public_text.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void http_answer_resume(struct http_request *request)
{
    if (!request->suspended)
        return;
    request->suspended = false;
    MHD_resume_connection(request->connection);
}

static void http_answer_header(struct MHD_Response *response, const char *name, const char *value)
{
    /* Fails only without memory; the answer is right without the header too. */
    (void)MHD_add_response_header(response, name, value);
}

/* Takes response over; NULL (no memory) ends the connection instead. */
static void http_answer(struct http_request *request, int status, const char *content_type,
                        struct MHD_Response *response)
{
    if (request->answered) { /* the daemon's stop or the client's leaving was first */
        if (response != NULL)
            MHD_destroy_response(response);
        return;
    }
    request->answered = true;
    request->status = status;
    request->response = response;
    if (response != NULL) {
        http_answer_header(response, "Content-Type", content_type);
        http_answer_header(response, "X-Request-Id", request->id);
        if (MHD_get_response_header(response, "Cache-Control") == NULL)
            http_answer_header(response, "Cache-Control", "no-store");
        http_answer_header(response, "X-Content-Type-Options", "nosniff");
        if (request->header_name[0] != '\0')
            http_answer_header(response, request->header_name, request->header_value);
        const bool shut = request->peer != NULL && request->peer->door->fd < 0; /* http_door.c */
        if (request->close || shut)
            http_answer_header(response, "Connection", "close");
    }
    http_answer_resume(request);
}

void http_answer_printed(struct http_request *request, int status, struct buf *text)
{
    if (!request->answered && status < 300)
        request->http->app.answered(request->http->app.context, request, status, buf_str(text));
    buf_char(text, '\n');
    size_t length = text->length;
    char *bytes = buf_steal(text);
    struct MHD_Response *response =
        bytes == NULL ? NULL
                      : MHD_create_response_from_buffer_with_free_callback(length, bytes, mem_free);
    if (bytes != NULL && response == NULL)
        mem_free(bytes);
    http_answer(request, status, "application/json", response);
}

void http_answer_json(struct http_request *request, int status, json_t *body)
{
    CLEANUP(json_unref) json_t *owned = body;
    CLEANUP(buf_done) struct buf text;
    buf_init(&text, LIMIT_ANSWER_BYTES);
    struct err err = {0};
    if (owned == NULL)
        (void)mem_fail(&err, 0, "an answer");
    else
        (void)json_print(owned, &text, &err); /* its code says whether it failed */
    if (err.code != ERR_NONE)
        http_answer_error(request, &err);
    else
        http_answer_printed(request, status, &text);
}

void http_answer_plain(struct http_request *request, const char *type, const struct buf *text)
{
    struct MHD_Response *response = MHD_create_response_from_buffer(
        text->length, (void *)(uintptr_t)buf_str(text), MHD_RESPMEM_MUST_COPY);
    http_answer(request, 200, type, response);
}

#define HTTP_ANSWER_POLICY                                                      \
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; " \
    "connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"

void http_answer_page(struct http_request *request, const char *type, const char *bytes,
                      size_t length)
{
    char hash[IO_HASH_BYTES], etag[IO_HASH_BYTES + 2];
    io_hash(bytes, length, hash);
    (void)snprintf(etag, sizeof etag, "\"%s\"", hash);
    const char *has = http_request_header(request, "If-None-Match");
    bool same = has != NULL && strcmp(has, etag) == 0;
    struct MHD_Response *response = MHD_create_response_from_buffer(
        same ? 0 : length, (void *)(uintptr_t)bytes, MHD_RESPMEM_MUST_COPY);
    if (response != NULL) {
        http_answer_header(response, "ETag", etag);
        http_answer_header(response, "Cache-Control", "no-cache"); /* ask again, by the ETag */
        http_answer_header(response, "Content-Security-Policy", HTTP_ANSWER_POLICY);
        http_answer_header(response, "Referrer-Policy", "no-referrer");
    }
    http_answer(request, same ? 304 : 200, type, response);
}

/* New reference, or NULL. Sentences may quote any byte and may have been cut. */
static json_t *http_answer_text(const struct http_request *request, const char *text)
{
    char clean[ERR_TEXT_MAX];
    (void)snprintf(clean, sizeof clean, "%s", text);
    public_text(request->http->settings, clean);
    utf8_scrub(clean);
    return json_string(clean);
}

void http_answer_error(struct http_request *request, const struct err *err)
{
    int status = err_code_http(err->code);
    CLEANUP(json_unref)
    json_t *body =
        json_pack("{s:{s:o, s:s, s:o, s:s}}", "error", "message",
                  http_answer_text(request, err->text), "type", err_code_type(err->code), "param",
                  err->field[0] != '\0' ? http_answer_text(request, err->field) : json_null(),
                  "code", err_code_name(err->code));
    char *text = body == NULL ? NULL : json_dumps(body, JSON_COMPACT);
    struct MHD_Response *response =
        text == NULL ? NULL
                     : MHD_create_response_from_buffer(strlen(text), text, MHD_RESPMEM_MUST_FREE);
    if (response != NULL) {
        if (err->code == ERR_METHOD)
            http_answer_header(response, "Allow", request->allow);
        if (err->code == ERR_AUTH)
            http_answer_header(response, "WWW-Authenticate", "Bearer");
        if (status == 429 || status == 503)
            http_answer_header(response, "Retry-After", "1");
    }
    http_answer(request, status, "application/json", response);
}

void http_answer_file(struct http_request *request, int fd, int64_t bytes)
{
    must(fd >= 0 && bytes >= 0);
    struct MHD_Response *response = MHD_create_response_from_fd64((uint64_t)bytes, fd);
    if (response == NULL)
        (void)close(fd); /* only read from */
    http_answer(request, 200, "application/octet-stream", response);
}

/* ---- later ---- */

void http_answer_left(struct http_request *request)
{
    request->close = true;
    if (request->fill != NULL) {
        request->stream_ended = true;
        buf_clear(&request->out);
        request->out_taken = 0;
        http_answer_resume(request);
    } else if (!request->answered && request->gone != NULL) {
        request->gone(request->gone_context);
    }
}

void http_defer(struct http_request *request, void (*gone)(void *context), void *context)
{
    must(request->handled && !request->answered && !request->deferred);
    request->deferred = true;
    request->gone = gone;
    request->gone_context = context;
}

enum MHD_Result http_answer_flush(struct http_request *request)
{
    if (!request->answered) {
        must(request->deferred && !request->suspended);
        request->suspended = true;
        MHD_suspend_connection(request->connection);
        return MHD_YES;
    }
    if (request->response == NULL)
        return MHD_NO;
    enum MHD_Result result =
        MHD_queue_response(request->connection, (unsigned)request->status, request->response);
    MHD_destroy_response(request->response); /* the library holds its own reference */
    request->response = NULL;
    return result;
}

/* ---- streams ---- */

static ssize_t http_answer_read(void *context, uint64_t position, char *bytes, size_t length_max)
{
    (void)position;
    struct http_request *request = context;
    struct buf *out = &request->out;
    if (request->out_taken == out->length && !request->stream_ended) {
        buf_clear(out);
        request->out_taken = 0;
        request->stream_ended = !request->fill(request->fill_context, out);
        if (out->bad != ERR_NONE) { /* no memory: the client comes again with its Last-Event-ID */
            request->stream_ended = true;
            buf_clear(out);
        }
    }
    size_t left = out->length - request->out_taken;
    if (left > 0) {
        size_t taken = left < length_max ? left : length_max;
        memcpy(bytes, out->data + request->out_taken, taken);
        request->out_taken += taken;
        return (ssize_t)taken;
    }
    if (request->stream_ended)
        return MHD_CONTENT_READER_END_OF_STREAM;
    request->suspended = true;
    MHD_suspend_connection(request->connection);
    return 0;
}

void http_answer_stream(struct http_request *request, http_fill_fn *fill, void *context)
{
    request->fill = fill;
    request->fill_context = context;
    struct MHD_Response *response = MHD_create_response_from_callback(
        MHD_SIZE_UNKNOWN, HTTP_MEMORY_BYTES / 4, http_answer_read, request, NULL);
    if (response != NULL)
        http_answer_header(response, "X-Accel-Buffering", "no");
    http_answer(request, 200, "text/event-stream", response);
}

void http_stream_wake(struct http_request *request)
{
    struct http *http = request->http;
    must(request->fill != NULL);
    if (!request->suspended || request->woken)
        return; /* it goes on by itself, or will */
    request->woken = true;
    request->next_woken = NULL;
    *http->woken_end = request;
    http->woken_end = &request->next_woken;
}

void http_stream_forget(struct http_request *request)
{
    struct http *http = request->http;
    struct http_request **at = &http->woken;
    if (!request->woken)
        return;
    while (*at != request)
        at = &(*at)->next_woken;
    *at = request->next_woken;
    if (http->woken_end == &request->next_woken)
        http->woken_end = at;
    request->woken = false;
}

bool http_streams_resume(struct http *http)
{
    for (int i = 0; i < HTTP_WAKE_TURN && http->woken != NULL; i++) {
        struct http_request *request = http->woken;
        http_stream_forget(request);
        http_answer_resume(request);
    }
    return http->woken != NULL;
}

void http_answer_stop(struct http_request *request)
{
    request->close = true;
    if (request->fill != NULL) {
        request->stream_ended = true; /* what was filled is still sent */
        http_answer_resume(request);
    } else if (request->deferred && !request->answered) {
        struct err err;
        err_set(&err, ERR_UNAVAILABLE, "the daemon is stopping; ask again soon");
        http_answer_error(request, &err);
    }
}

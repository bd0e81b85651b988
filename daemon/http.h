/* http: the HTTP server over libmicrohttpd, on the daemon's loop. It owns framing, limits, request
 * checks (http_check.h), routing (route.h), the shape of errors and the headers of every answer;
 * what a route means is its app's business (api.h). No other module sees libmicrohttpd.
 *
 * A request's life: `begin` when its headers are in (may refuse it, or take a form), the body is
 * gathered (at most LIMIT_JSON_BODY_BYTES) or streamed to the form, then `handle`. A handler either
 * answers by one of http_answer_*, returns an error (which becomes the answer), or calls
 * http_defer() and answers later from a loop callback. Its `ended` hook runs exactly once, after
 * the answer was sent or when the client went; the request is gone after it.
 *
 * Clients that leave while their answer is deferred or their stream is dry are noticed at once (the
 * `gone` hook), although libmicrohttpd ignores suspended connections. */
#pragma once
#include "common/buf.h"
#include "common/err.h"
#include "common/io.h"
#include "common/json.h"
#include "daemon/auth.h"
#include "daemon/exposition.h"
#include "daemon/route.h"

#include <stdbool.h>
#include <stdint.h>

struct http;
struct http_request;
struct loop;
struct settings;

/* All required. Errors returned become the answer. */
struct http_app {
    int (*begin)(void *context, struct http_request *request, struct err *err);
    int (*handle)(void *context, struct http_request *request, struct err *err);
    /* A JSON answer of success is made; the client has not seen it yet. */
    void (*answered)(void *context, struct http_request *request, int status, const char *body);
    void *context;
};

/* Binds and listens: ERR_IN_USE when the address is taken. app is copied; settings outlive it. */
int http_new(struct loop *loop, const struct settings *settings, const struct http_app *app,
             struct http **ret_http, struct err *err);
int http_port(const struct http *http); /* the one in use */
/* Reads certificate and key again, for connections that come from now on; those that are there end
 * with the answer under way. Where they cannot be used all stays as it was. ERR_BAD_STATE: there is
 * no TLS, or requests from before the last renewal go on. */
int http_renew(struct http *http, struct err *err);
/* Takes no more connections, answers what is deferred with ERR_UNAVAILABLE, ends all streams. Run
 * the loop until http_is_idle() or a deadline, then http_free(). */
void http_stop(struct http *http);
bool http_is_idle(const struct http *http); /* no request is under way */
/* NULL is fine; cuts what is still open. The loop must not turn afterwards: its hook points here.
 */
void http_free(struct http *http);

/* What was answered, for /metrics. */
enum { HTTP_STATUS_CLASSES = 6 }; /* 1xx to 5xx by their first digit */
struct http_stats {
    int64_t answers[ROUTE_COUNT + 1][HTTP_STATUS_CLASSES]; /* the last row: of no route */
    struct exposition_histogram durations;                 /* of answers that are no streams */
    int64_t open;                                          /* requests under way */
};
const struct http_stats *http_get_stats(const struct http *http);

/* ---- a request ---- */

const struct route_match *http_request_route(const struct http_request *request);
const char *http_request_header(const struct http_request *request, const char *name); /* or NULL */
const char *http_request_id(const struct http_request *request);     /* X-Request-Id */
const char *http_request_target(const struct http_request *request); /* as sent */
/* Hash of the whole body; of a form: of its fields, whatever the boundary. */
void http_request_digest(const struct http_request *request, char ret_hex[IO_HASH_BYTES]);
/* Numeric user at the other end of the Unix socket; -1: it came by TCP. */
int64_t http_request_peer(const struct http_request *request);
const char *http_request_cookie(const struct http_request *request, const char *name); /* or NULL */
/* One more header of the answer, whichever it will be; a second one takes the first one's place. */
void http_request_set_header(struct http_request *request, const char *name, const char *value);
const struct buf *http_request_body(const struct http_request *request);
int64_t http_request_length(const struct http_request *request); /* Content-Length, or -1 */
/* Who asks, put there by `begin`; a request that nobody is behind has scope AUTH_SCOPE_NONE. */
void http_request_set_who(struct http_request *request, const struct auth_who *who);
const struct auth_who *http_request_who(const struct http_request *request);
const char *http_request_owner(const struct http_request *request); /* its user */

/* From begin: the body is multipart/form-data and goes to `part`, whole fields or pieces of them,
 * in the order they come: filename is NULL for fields that are no file, first is true at the start
 * of a part. A part's error is kept, the rest of the body is dropped, and the error is the answer.
 * Bodies over bytes_max (fields and boundaries included) are ERR_TOO_LARGE. */
typedef int http_part_fn(void *context, const char *name, const char *filename, bool first,
                         const char *bytes, size_t length, struct err *err);
int http_request_take_form(struct http_request *request, int64_t bytes_max, http_part_fn *part,
                           void *context, struct err *err);

/* One context a request: ended runs last, once. */
void http_request_on_end(struct http_request *request, void (*ended)(void *context), void *context);
void *http_request_ended_context(const struct http_request *request);

/* ---- answers: one a request; the first counts, later ones are dropped ---- */

void http_answer_json(struct http_request *request, int status, json_t *body); /* takes body over */
/* JSON that is printed already; takes what is in the buffer. */
void http_answer_printed(struct http_request *request, int status, struct buf *text);
/* The bytes of a buffer, which stays the caller's. */
void http_answer_plain(struct http_request *request, const char *type, const struct buf *text);
void http_answer_error(struct http_request *request, const struct err *err);
/* Part of a page of the dashboard; its bytes stay the caller's. With an ETag, by which a browser
 * that has it is answered 304, and a policy under which it runs nothing but what comes from here.
 */
void http_answer_page(struct http_request *request, const char *type, const char *bytes,
                      size_t length);
/* Takes the descriptor over; bytes of it from its start. */
void http_answer_file(struct http_request *request, int fd, int64_t bytes);

/* The answer comes later. gone (may be NULL) is told when the client leaves before; the request
 * lives on until it is answered: gone should answer too (http_answer_error), nobody will read it.
 */
void http_defer(struct http_request *request, void (*gone)(void *context), void *context);

/* text/event-stream. fill appends what there is to `out` (nothing: the stream sleeps until
 * http_stream_wake) and returns false when the stream ends after that. `out` is limited to
 * HTTP_STREAM_BYTES. */
enum { HTTP_STREAM_BYTES = 1 << 20 };
typedef bool http_fill_fn(void *context, struct buf *out);
void http_answer_stream(struct http_request *request, http_fill_fn *fill, void *context);
void http_stream_wake(struct http_request *request); /* there may be something; any time */

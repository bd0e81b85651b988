/* http_private: the structs shared by http.c (requests, bodies), http_door.c (the library's
 * instances), http_late.c (requests that wait for their turn), http_request.c (what a handler asks
 * of a request), http_answer.c (answers, deferral, streams) and http_connection.c (clients that
 * leave or linger). Only daemon/http*.c include it. */
#pragma once
#include "common/limits.h"
#include "daemon/http.h"

#include <microhttpd.h>

enum {
    HTTP_ID_BYTES = 32,             /* "req_" and 16 + 8 hex digits */
    HTTP_HEADER_BYTES = 256,        /* of a header that a handler adds */
    HTTP_TARGET_BYTES = 8192,       /* longest target: a page of metadata filters fits thrice */
    HTTP_DRAIN_BYTES = 16 << 20,    /* dropped beyond the largest body, before we hang up */
    HTTP_REFUSED_BYTES = 256 << 20, /* longest body that is heard to its end in vain */
    HTTP_PEM_BYTES = 1 << 20,       /* a chain of certificates; usual ones have 8 KiB */
    HTTP_FORM_BUFFER = 64 << 10,    /* of the multipart parser */
    HTTP_MEMORY_BYTES = 64 << 10,   /* of one connection: headers, and reads of half that size */
    /* Before 1.0 strictness is to refuse HTTP/1.1 without a Host, with a page of the library's own:
     * http_check() does it in our shape. Later it is a good deal more. Other requests that the
     * library cannot read (a target or headers beyond HTTP_MEMORY_BYTES, a malformed first line)
     * have its pages in any version. */
    HTTP_STRICT = MHD_VERSION >= 0x01000000,
    HTTP_WAKE_TURN = 100, /* streams that go on in one turn of the loop: some 5 ms */
    HTTP_TURN_MS = 5,     /* in which one turn of the loop begins to handle requests that write */
    HTTP_SWEEP_MS = 1000, /* between looks for connections that linger */
    HTTP_SPARE_PART = 8   /* of connections_max one in so many is kept free of idle ones */
};

/* A socket that is listened on, with an instance of the library for its connections. */
struct http_door {
    struct http *http;
    int fd;                   /* listening socket, or -1: closed, or no such door */
    bool local;               /* a Unix socket: the peer's user is known */
    struct MHD_Daemon *mhd;   /* or NULL; without fd it serves what it has to the end */
    struct loop_watch *watch; /* of the library's epoll descriptor */
    int64_t connections;      /* open ones */
};
/* Of the two for TCP one is open; the other serves what is left from before http_renew(). */
enum { HTTP_DOOR_TCP, HTTP_DOOR_TCP_OTHER, HTTP_DOOR_UNIX, HTTP_DOORS };

struct http {
    struct loop *loop;
    const struct settings *settings;
    struct http_app app;
    struct http_door doors[HTTP_DOORS];
    struct http_request *first;          /* all requests under way, doubly linked */
    struct http_connection *connections; /* all, doubly linked */
    struct loop_timer *sweep;            /* of connections and doors */
    uint64_t id_salt;                    /* random, of this daemon's life */
    uint32_t id_count;                   /* requests so far */
    int port;                            /* the one in use */
    bool stopping;                       /* http_stop was called */
    int64_t turn_end_ns;                 /* until then requests that write are handled at once */
    struct http_request *late;           /* those that wait for a turn (http_late.c) */
    int64_t late_turns;                  /* so far */
    struct http_request *woken;          /* streams with something to send, the first woken first */
    struct http_request **woken_end;     /* where the next one is put */
    struct http_stats stats;             /* since the start */
};

/* A client's connection. */
struct http_connection {
    struct http_door *door;
    struct http_connection *previous, *next;
    int fd;                       /* the library's */
    struct loop_watch *watch;     /* for the client's leaving; NULL once it was seen */
    struct http_request *request; /* under way, or NULL */
    bool cut;                     /* we have shut it; the library closes it */
    int64_t since_ms;             /* monotonic: from when on a request's head is waited for */
};

struct http_request {
    struct http *http;
    struct http_request *previous, *next;
    struct MHD_Connection *connection;
    struct http_connection *peer;  /* NULL where memory was out: nobody sees its client leave */
    char id[HTTP_ID_BYTES];        /* X-Request-Id */
    char *target;                  /* as sent, cut at HTTP_TARGET_BYTES + 1 */
    struct route_match match;      /* valid once begin was called */
    char allow[ROUTE_ALLOW_BYTES]; /* for a 405 */
    struct auth_who who;
    int64_t peer_uid;                        /* of a Unix socket's peer, or -1 */
    char header_name[HTTP_HEADER_BYTES / 4]; /* one more of the answer; "" for none */
    char header_value[HTTP_HEADER_BYTES];
    int64_t length;                 /* Content-Length, or -1 */
    int64_t received;               /* body bytes so far */
    int64_t body_max;               /* cap on them */
    struct buf body;                /* the body, unless a form takes it */
    struct MHD_PostProcessor *form; /* or NULL */
    struct io_hasher *form_hasher;  /* of a form's fields; or NULL */
    http_part_fn *part;             /* of the form */
    void *part_context;
    char part_name[64]; /* field of the part under way */
    int64_t part_bytes; /* of it, so far */
    bool part_open;     /* a part has begun */
    struct err error;   /* what was wrong with the body, code ERR_NONE: nothing */
    int64_t begun_ns;   /* monotonic time of the first line */
    bool framed;        /* where its body ends is beyond doubt: http_check() */
    bool routed;        /* match is of a route */
    bool begun;         /* headers were looked at */
    bool refused;       /* by them: the body is heard in vain */
    bool admitted;      /* its turn has come (http_late.c) */
    struct http_request *next_late;
    bool handled;   /* the handler ran */
    bool close;     /* the connection ends with the answer */
    bool suspended; /* in the library's sense: resume exactly once */
    bool deferred;  /* the handler answers later */
    bool answered;  /* response is ready, or could not be made (NULL) */
    int status;
    struct MHD_Response *response; /* owned until the library has it */
    void (*gone)(void *context);   /* of a deferred answer */
    void *gone_context;
    http_fill_fn *fill; /* of a stream, or NULL */
    void *fill_context;
    struct buf out;    /* stream bytes not yet taken by the library */
    size_t out_taken;  /* of them, taken */
    bool stream_ended; /* nothing more to fill */
    bool woken;        /* it stands in http->woken */
    struct http_request *next_woken;
    void (*ended)(void *context);
    void *ended_context;
};

/* Gives the answer to the library, or suspends the connection until there is one. */
enum MHD_Result http_answer_flush(struct http_request *request);
/* Ends a stream or refuses a deferred request, because the daemon stops. */
void http_answer_stop(struct http_request *request);

/* http_late.c */
/* A whole request that is to wait for a later turn: it is suspended now. */
bool http_late_waits(struct http_request *request);
void http_late_next(struct http *http); /* a turn begins: one of them goes on in it */
void http_late_end(struct http *http);  /* all go on, to be refused */

/* A turn begins: of the streams that were woken some go on in it; true: others are to come. */
bool http_streams_resume(struct http *http);
/* It is not woken any more. */
void http_stream_forget(struct http_request *request);

/* The client left after its request was handled. */
void http_answer_left(struct http_request *request);

/* http_connection.c: the library's callback, and where a connection's requests begin and end */
void http_connection_notify(void *door, struct MHD_Connection *from, void **slot,
                            enum MHD_ConnectionNotificationCode code);
void http_connection_begin(struct http_request *request);
void http_connection_end(struct http_request *request);
void http_connections_sweep(struct http *http); /* cuts those that linger */

/* http.c: the library's callbacks */
void *http_on_target(void *door, const char *target, struct MHD_Connection *connection);
void http_on_completed(void *context, struct MHD_Connection *connection, void **slot,
                       enum MHD_RequestTerminationCode code);
enum MHD_Result http_on_access(void *context, struct MHD_Connection *connection, const char *url,
                               const char *method, const char *version, const char *upload,
                               size_t *upload_bytes, void **slot);

/* http_door.c */
int http_doors_open(struct http *http, struct err *err); /* once */
int64_t http_doors_run(struct http *http); /* ms until the library wants a turn; -1: none */
/* Of what http_renew() has left: ends streams, stops an instance that has served its last. */
void http_doors_sweep(struct http *http);
void http_doors_shut(struct http *http);  /* no more connections */
void http_doors_close(struct http *http); /* stops all instances */

/* ingest: the job socket, where ranks connect. It decodes frames, checks HELLOs, keeps one
 * connection a rank (a newer one replaces the older), and hands the rest to its owner's functions.
 *
 * A malformed frame, a HELLO that proves nothing, a connection that says nothing for
 * INGEST_HELLO_MS: each ends that connection only. Frames that were received before (a rank sends
 * again, after a reconnect, what it knows no SEEN for) are skipped by their sequence number.
 *
 * What is sent waits in a bounded buffer; a rank that does not read loses its connection. */
#pragma once
#include "common/err.h"
#include "common/wire.h"

#include <stdbool.h>
#include <stdint.h>

enum { INGEST_HELLO_MS = 10000 };

struct ingest;
struct loop;

/* What a HELLO proved to be; `object` is the owner's. */
struct ingest_peer {
    void *object;
    uint32_t rank;
    uint32_t received_seq; /* frames up to this one were received over earlier connections */
    const char *plan_json; /* sent as the PLAN frame */
    size_t plan_length;
};

struct ingest_owner {
    void *context;
    /* Whether a HELLO is one of ours; an error ends the connection. */
    int (*hello)(void *context, const struct wire_hello *hello, struct ingest_peer *ret_peer,
                 struct err *err);
    /* A frame of a proven rank, whose seq is now received; an error ends the connection. May send,
     * may not drop. */
    int (*frame)(void *context, void *object, uint32_t rank, const struct wire_frame *frame,
                 struct err *err);
    int64_t (*now_ms)(void *context); /* monotonic */
};

/* Listens on `path` (0600); a socket file of a dead daemon is replaced. */
int ingest_new(const char *path, struct loop *loop, const struct ingest_owner *owner,
               struct ingest **ret_ingest, struct err *err);
void ingest_free(struct ingest *ingest); /* closes all connections, removes the socket file */

/* Takes a connected stream socket over, as if it had been accepted (also on failure). */
int ingest_take(struct ingest *ingest, int fd, struct err *err);

/* Sends a frame to a rank; nothing happens when it is not connected. */
void ingest_send(struct ingest *ingest, const void *object, uint32_t rank,
                 const struct wire_frame *frame);
/* Connections of an object: 0 means that all its ranks sent has been read, once they are dead. */
int ingest_count(const struct ingest *ingest, const void *object);
/* Closes the connections of an object that is going away. */
void ingest_drop(struct ingest *ingest, const void *object);
/* Closes connections that have not said HELLO in time; lets in again whom accept could not. */
void ingest_tick(struct ingest *ingest);

/* wire: frames between a rank and the daemon, over a Unix stream socket.
 *
 * Every frame is a header and a payload, all integers little-endian:
 *
 *   OFFSET SIZE MEANING
 *     0     4   magic 0x31485449 ("ITH1")
 *     4     2   type, a number of api/frames.def
 *     6     2   zero
 *     8     4   payload length in bytes, at most LIMIT_FRAME_BYTES
 *    12     4   sequence number: UP 1, 2, ... per attempt and rank, kept over reconnects; DOWN 0
 *    16     -   payload
 *
 * Validity: (1) the magic matches; (2) the type is known; (3) the length is within the limit and is
 * exactly what the type's payload takes; (4) strings are NUL-free UTF-8 within their limits; (5)
 * counts, levels, phases and metrics are within limits; (6) DOWN frames have number 0. Anything
 * else is ERR_PROTOCOL and ends the connection: there is no resynchronising.
 *
 * Payloads: struct wire_hello etc. are the decoded form; the encoding is a field after the other in
 * the order below, strings as u16 length + bytes, no padding. Encoders append a whole frame to a
 * buf; the decoder takes bytes as they come and yields whole frames. No allocation beyond the
 * buffers given. */
#pragma once
#include "common/buf.h"
#include "common/err.h"
#include "common/limits.h"
#include "common/metric.h"

#include <stdint.h>

enum wire_type {
#define X(id, number, direction, doc) WIRE_##id = number,
#include "api/frames.def"
#undef X
};

/* What a rank is doing; shown in job state, in the flight of a failure ("rank 3 died in step 12,
 * backward"). */
#define WIRE_PHASE_TABLE(X)     \
    X(START, "start")           \
    X(LOAD, "load")             \
    X(DATA, "data")             \
    X(FORWARD, "forward")       \
    X(BACKWARD, "backward")     \
    X(OPTIMIZER, "optimizer")   \
    X(EVALUATE, "evaluate")     \
    X(CHECKPOINT, "checkpoint") \
    X(EXPORT, "export")         \
    X(DONE, "done")
enum wire_phase {
#define X(id, name) WIRE_PHASE_##id,
    WIRE_PHASE_TABLE(X)
#undef X
        WIRE_PHASE_COUNT
};
const char *wire_phase_name(enum wire_phase phase);

enum { WIRE_SECRET_BYTES = 32, WIRE_METRICS_MAX = 64 };

struct wire_hello {
    char job_id[LIMIT_ID_BYTES + 1];
    uint32_t attempt; /* 1, 2, ... */
    uint32_t rank;
    uint32_t pid;
    uint8_t secret[WIRE_SECRET_BYTES]; /* of the attempt, from the keeper's environment-free
                                          hand-over */
};
struct wire_ready {
    uint64_t steps_total; /* optimizer steps of the whole job; 0: not known */
};
struct wire_heartbeat {
    uint64_t step;     /* step being worked on, 1-based; 0 before the first */
    uint32_t phase;    /* enum wire_phase */
    uint64_t coll_seq; /* collectives begun by this rank */
};
struct wire_point {
    uint16_t metric; /* enum metric_id */
    double value;    /* may be NaN or infinite: stored as null with its kind */
};
struct wire_metrics {
    uint64_t step;
    double wall_s;  /* Unix time at the end of the step */
    uint32_t count; /* points used, at most WIRE_METRICS_MAX */
    struct wire_point points[WIRE_METRICS_MAX];
};
struct wire_event {
    uint8_t level; /* 0 info, 1 warn, 2 error */
    uint64_t step;
    char text[ERR_TEXT_MAX];
};
struct wire_done {
    uint64_t steps;          /* optimizer steps done in all, over attempts */
    uint64_t trained_tokens; /* all ranks, all steps */
    double final_loss;
};
struct wire_checkpointed {
    uint64_t step;  /* optimizer steps done: of checkpoints/step-N */
    uint64_t bytes; /* of its files */
};
struct wire_paused {
    uint64_t step; /* of the checkpoint the job goes on from */
    uint64_t trained_tokens;
};
struct wire_failed {
    uint32_t
        code; /* enum err_code, as its name string on the wire (codes may shift between versions) */
    uint64_t step;
    uint32_t phase;
    char text[ERR_TEXT_MAX];
};

/* One decoded frame. bytes point into the decoder's buffer and live until the next call. */
struct wire_frame {
    enum wire_type type;
    uint32_t seq;
    union {
        struct wire_hello hello;
        struct wire_ready ready;
        struct wire_heartbeat heartbeat;
        struct wire_metrics metrics;
        struct wire_event event;
        struct wire_done done;
        struct wire_failed failed;
        struct wire_checkpointed checkpointed;
        struct wire_paused paused;
        struct {
            const char *json; /* PLAN: length bytes */
            size_t length;
        } plan;
        uint32_t number; /* ACK: command type; SEEN: sequence number; PROFILE: steps */
    };
};

const char *wire_type_name(unsigned type); /* "HELLO"; "?" when unknown */

/* Append one whole frame, or nothing when it fails. The frame's type picks the union member.
 * ERR_PROTOCOL for strings or counts too long, and for values out of range. Bytes of a text that
 * are not UTF-8 go out as '?', so that no sentence is lost to the file name in it. */
int wire_encode(const struct wire_frame *frame, struct buf *out, struct err *err);

/* Take the first whole frame off `in`. *ret_bytes = bytes of `in` it took (0: more are needed). The
 * caller drops them with buf_drop_front after it has used the frame. */
int wire_decode(const struct buf *in, struct wire_frame *ret_frame, size_t *ret_bytes,
                struct err *err);

/* lazy_device: a CPU device whose streams put off their copies until somebody waits for them, the
 * latest that events allow, where the CPU's own run at the call, the earliest. What is right in
 * both ways does not count on copies that it has not waited for. The default stream runs at the
 * call.
 *
 *     lazy_device_wrap(device);      once a process, with streams made before or after */
#pragma once
#include "common/must.h"
#include "worker/device.h"

#include <stdbool.h>
#include <string.h>

enum { LAZY_STREAMS = 8, LAZY_EVENTS = 4096, LAZY_OPS = 4096 };

/* A copy, a record (ticket) or a wait for another stream's record. */
struct lazy_op {
    void *to;
    const void *from;
    size_t bytes;
    int64_t ticket;  /* of the record; 0: none */
    int wait_stream; /* -1: none */
    int64_t wait_ticket;
};

struct lazy_stream {
    const struct stream *of;
    struct lazy_op ops[LAZY_OPS]; /* a ring */
    int64_t first, end;
};

struct lazy_event {
    const struct event *of;
    int stream; /* -1: it has come */
    int64_t ticket;
};

static const struct device_ops *lazy_whole;
static struct lazy_stream lazy_streams[LAZY_STREAMS];
static struct lazy_event lazy_events[LAZY_EVENTS]; /* by their address, hashed */
static int64_t lazy_tickets;

static inline int lazy_stream_find(const struct stream *stream)
{
    int i = 0;
    while (lazy_streams[i].of != NULL && lazy_streams[i].of != stream)
        must(++i < LAZY_STREAMS);
    lazy_streams[i].of = stream;
    return i;
}

static inline struct lazy_event *lazy_event_find(const struct event *event)
{
    uintptr_t i = (uintptr_t)event / 16 % LAZY_EVENTS, first = i;
    while (lazy_events[i].of != NULL && lazy_events[i].of != event) {
        i = (i + 1) % LAZY_EVENTS;
        must(i != first);
    }
    if (lazy_events[i].of == NULL)
        lazy_events[i] = (struct lazy_event){.of = event, .stream = -1};
    return &lazy_events[i];
}

static inline void lazy_wait(int stream, int64_t ticket);

/* The stream's work up to a record; 0: all. */
static inline void lazy_run(int stream, int64_t ticket)
{
    struct lazy_stream *s = &lazy_streams[stream];
    while (s->first < s->end) {
        struct lazy_op op = s->ops[s->first++ % LAZY_OPS];
        if (op.wait_stream >= 0)
            lazy_wait(op.wait_stream, op.wait_ticket);
        if (op.bytes > 0)
            memcpy(op.to, op.from, op.bytes);
        if (ticket > 0 && op.ticket == ticket)
            return;
    }
}

/* For a record, unless it has come. */
static inline void lazy_wait(int stream, int64_t ticket)
{
    const struct lazy_stream *s = &lazy_streams[stream];
    bool ahead = false;
    for (int64_t i = s->first; i < s->end && !ahead; i++)
        ahead = s->ops[i % LAZY_OPS].ticket == ticket;
    if (ahead)
        lazy_run(stream, ticket);
}

static inline void lazy_push(int stream, struct lazy_op op)
{
    struct lazy_stream *s = &lazy_streams[stream];
    if (s->end - s->first == LAZY_OPS)
        lazy_run(stream, 0);
    s->ops[s->end++ % LAZY_OPS] = op;
}

static inline int lazy_copy(struct device *device, struct stream *stream, void *to,
                            const void *from, size_t bytes, struct err *err)
{
    if (stream == NULL)
        return lazy_whole->copy(device, stream, to, from, bytes, err);
    lazy_push(lazy_stream_find(stream),
              (struct lazy_op){.to = to, .from = from, .bytes = bytes, .wait_stream = -1});
    return 0;
}

static inline int lazy_record(struct device *device, struct event *event, struct stream *stream,
                              struct err *err)
{
    struct lazy_event *e = lazy_event_find(event);
    e->stream = stream == NULL ? -1 : lazy_stream_find(stream);
    e->ticket = ++lazy_tickets;
    if (stream != NULL)
        lazy_push(e->stream, (struct lazy_op){.ticket = e->ticket, .wait_stream = -1});
    return lazy_whole->event_record(device, event, stream, err);
}

static inline int lazy_event_wait(struct device *device, struct event *event, struct stream *stream,
                                  struct err *err)
{
    (void)device, (void)err;
    const struct lazy_event *e = lazy_event_find(event);
    if (e->stream < 0)
        return 0;
    if (stream == NULL)
        lazy_wait(e->stream, e->ticket);
    else if (lazy_stream_find(stream) != e->stream)
        lazy_push(lazy_stream_find(stream),
                  (struct lazy_op){.wait_stream = e->stream, .wait_ticket = e->ticket});
    return 0;
}

static inline int lazy_sync(struct device *device, struct stream *stream, struct err *err)
{
    (void)device, (void)err;
    if (stream != NULL)
        lazy_run(lazy_stream_find(stream), 0);
    return 0;
}

static inline void lazy_device_wrap(struct device *device)
{
    static struct device_ops lazy;
    lazy_whole = device->dev;
    lazy = *lazy_whole;
    lazy.copy = lazy_copy;
    lazy.event_record = lazy_record;
    lazy.event_wait = lazy_event_wait;
    lazy.sync = lazy_sync;
    device->dev = &lazy;
}

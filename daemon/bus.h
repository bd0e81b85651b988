/* bus: tells listeners, after a commit, that there are new rows. It carries row numbers, not
 * content: a stream keeps its own cursors and reads what is after them (store_events_after,
 * store_points_after), so nothing is lost or doubled whatever the bus skips.
 *
 * Listeners live in their owner's memory. They may add and remove listeners (themselves included)
 * while they are called. */
#pragma once
#include <stdint.h>

struct bus_note {
    const char *job_id; /* the job the rows belong to */
    int64_t event_row;  /* newest row of job_events, or 0 when no event is new */
    int64_t point_row;  /* newest row of metric points, or 0 when no point is new */
};

typedef void bus_fn(void *context, const struct bus_note *note);

struct bus_listener {
    bus_fn *called;
    void *context;
    struct bus_listener *next; /* the bus's own */
};

struct bus {
    struct bus_listener *first;
    struct bus_listener *cursor; /* next to be called by a publish that is under way */
};

void bus_listen(struct bus *bus, struct bus_listener *listener);
void bus_unlisten(struct bus *bus, struct bus_listener *listener); /* fine when not listening */
void bus_publish(struct bus *bus, const struct bus_note *note);

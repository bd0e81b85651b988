/* exposed: where the time of a step goes on the device's stream of work: what it waits for, by
 * kind, and the rest, which is computing. What runs beside the work costs nothing and does not
 * appear; only what is exposed does.
 *
 *     TRY(exposed_start(exposed, stream, err));                       a step begins
 *     TRY(exposed_enter(exposed, EXPOSED_OFFLOAD_IN, stream, err));   from here on it waits ...
 *     ... what makes the stream wait, or on the CPU does the work itself ...
 *     TRY(exposed_leave(exposed, stream, err));                       ... to here
 *     TRY(exposed_stop(exposed, stream, &times, err));                the step is over
 *
 * Moments are events on the stream: nobody waits for them, but stop does, and an enter when
 * EXPOSED_MARKS are not added up yet. Spans may lie in each other: then the outer one's kind
 * counts. Times add up to those of the step from start to stop. A NULL account takes everything and
 * does nothing. After a failure the account is of no use until the next start.
 *
 * Kinds are metrics, in their order (api/metrics.def: METRIC_GATHER_WAIT_S + kind). */
#pragma once
#include "common/err.h"
#include "common/metric.h"
#include "worker/device.h"

#include <stdbool.h>
#include <stdint.h>

enum exposed_kind {
    EXPOSED_GATHER,      /* weights gathered, fetched from the host first where they lie there */
    EXPOSED_REDUCE,      /* gradients summed over ranks, and to their shards */
    EXPOSED_EXCHANGE,    /* all-to-alls of attention */
    EXPOSED_RING,        /* keys, values and their gradients on to the next rank */
    EXPOSED_SUMS,        /* a few numbers over all ranks: the slowest is waited for */
    EXPOSED_OFFLOAD_OUT, /* kept tensors and the residual stream, off the device */
    EXPOSED_OFFLOAD_IN,  /* and back */
    EXPOSED_STATES,      /* master weights and moments that pass through the device */
    EXPOSED_KINDS
};
_Static_assert((int)METRIC_STATES_WAIT_S - (int)METRIC_GATHER_WAIT_S == (int)EXPOSED_STATES &&
                   (int)METRIC_COMPUTE_S == (int)METRIC_STATES_WAIT_S + 1,
               "kinds are metrics, in their order, computing after them");

enum { EXPOSED_MARKS = 128 }; /* made at the start; the host is never more spans than that ahead */

struct exposed_times {
    int64_t ns[EXPOSED_KINDS];
    bool seen[EXPOSED_KINDS]; /* there was such a span, however short */
    int64_t compute_ns;       /* the rest of the step */
};

struct exposed_mark {
    struct event *before, *after; /* on the stream of work */
    enum exposed_kind kind;
};

/* Hears of each span as it is added up: when it began, from the step's start, and how long it was.
 */
struct exposed_told {
    void (*span)(void *context, enum exposed_kind kind, int64_t from_ns, int64_t ns);
    void *context;
};

struct exposed {
    struct device *device;                    /* borrowed; NULL: not opened */
    struct exposed_mark marks[EXPOSED_MARKS]; /* a ring: spans that are not added up yet */
    int first, count;
    int depth; /* spans that are open */
    struct event *started, *stopped;
    struct exposed_times times; /* so far */
    struct exposed_told told;   /* of a step that is profiled; zeros: nobody hears */
};

int exposed_init(struct exposed *exposed, struct device *device, struct err *err);
void exposed_done(struct exposed *exposed); /* zeroed: nothing */

int exposed_start(struct exposed *exposed, struct stream *stream, struct err *err);
int exposed_stop(struct exposed *exposed, struct stream *stream, struct exposed_times *ret,
                 struct err *err);
int exposed_enter(struct exposed *exposed, enum exposed_kind kind, struct stream *stream,
                  struct err *err);
int exposed_leave(struct exposed *exposed, struct stream *stream, struct err *err);

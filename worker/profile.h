/* profile: notes what a rank does in the steps that are profiled: phases, layers, phases of the
 * memory plan, what the work waits for, operations or kernels, copies and collectives, with times
 * of one clock for all ranks of a machine. profile_run.h says which steps; profile_file.h what
 * becomes of it.
 *
 *     TRY(profile_new(device, exposed, record, &options, &profile, err));
 *     device->profile = profile;                        hooks below are asked everywhere
 *     TRY(profile_step_begin(profile, step, stream, err));      after exposed_start()
 *     profile_enter(device->profile, PROFILE_PHASE, "forward", -1); ...
 *     TRY(profile_step_end(profile, &times, err));              after exposed_stop()
 *     profile_free(profile);
 *
 * Phases, layers and parts begin at an event on the stream of work, so that on a GPU they are times
 * of the device, not of the host that runs ahead. One of them ends where the next of its kind
 * begins, or the step. A NULL profile takes everything and notes nothing: a step that is not
 * profiled pays a look at a pointer for each.
 *
 * Events have a bounded table, taken with profile_new(). What finds it full is dropped and counted;
 * room is left for the slices that others lie in. */
#pragma once
#include "worker/coll_record.h"
#include "worker/device.h"
#include "worker/exposed.h"
#include "worker/profile_file.h"

#include <pthread.h>

enum { PROFILE_MARKS = 1024 }; /* the host is never more slices than that ahead of the device */
enum { PROFILE_STATES = 3 };   /* PHASE, LAYER, PART: one is always at work */

struct profile_mark {
    struct event *event;
    struct profile_event entered; /* times are not known yet; name 0 with end_ns -1: none begins */
};

struct profile {
    struct trace_sink sink; /* first: what the device tells */
    struct device *device;  /* borrowed, as the next three */
    struct exposed *exposed;
    const struct coll_record *record; /* NULL: collectives are not noted */
    struct stream *stream;
    pthread_mutex_t lock;     /* devices tell from threads of their own */
    struct profile_file file; /* so far */
    int64_t capacity;         /* of file.events */
    bool in_step;
    _Atomic int64_t began_ns; /* the first step; the threads of the device read it */
    int64_t started_ns;       /* of the step, on the monotonic clock */
    uint64_t next_call;       /* the first collective not noted */
    struct profile_event open[PROFILE_STATES]; /* at work; end_ns -1: none */
    struct profile_mark marks[PROFILE_MARKS];  /* a ring */
    int first, count;
    struct err failed;   /* of a mark; code ERR_NONE: none has */
    struct err untraced; /* why the device is not; likewise */
};

struct profile_options {
    uint32_t rank, world, attempt;
    int64_t events_max; /* of the table */
};

/* Starts to trace the device. */
int profile_new(struct device *device, struct exposed *exposed, const struct coll_record *record,
                const struct profile_options *options, struct profile **ret, struct err *err);
/* What it noted; the device is not traced any more. Borrowed until profile_free(). */
int profile_stop(struct profile *profile, const struct profile_file **ret, struct err *err);
void profile_free(struct profile *profile); /* NULL is fine */

/* Waits for the stream, so that its clock and the host's can be told together. */
int profile_step_begin(struct profile *profile, int64_t step, struct stream *stream,
                       struct err *err);
int profile_step_end(struct profile *profile, const struct exposed_times *times, struct err *err);
/* PHASE, LAYER or PART; a NULL name: none of the kind from here on. Names are static. */
void profile_enter(struct profile *profile, enum profile_kind kind, const char *name,
                   int64_t number);

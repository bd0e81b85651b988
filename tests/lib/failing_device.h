/* failing_device: a device of which one call fails. An error goes up a chain of callers, and each
 * of them has to pass it on: a call fails when its chain has a place in it that no error has come
 * by yet, once a run. A run in which nothing fails has no such place left.
 *
 *     do {
 *         failing_device_wrap(device);     anew for each run
 *         rc = run();
 *     } while (failing_device_failed != NULL);       name of the call that failed, rc is its error
 */
#pragma once
#include "common/must.h"
#include "worker/device.h"
#include "worker/ops.h"

#include <execinfo.h>

enum { FAILING_PLACES = 4096, FAILING_DEPTH = 32 };

static const struct device_ops *failing_whole;
static const struct ops *failing_whole_ops;
static const void *failing_places[FAILING_PLACES]; /* that an error has come by */
static int failing_place_count;
static const char *failing_device_failed; /* in this run; NULL: none so far */

static inline bool failing_place_is_new(const void *place)
{
    for (int i = 0; i < failing_place_count; i++)
        if (failing_places[i] == place)
            return false;
    must(failing_place_count < FAILING_PLACES);
    failing_places[failing_place_count++] = place;
    return true;
}

static inline int failing_call(const char *name, struct err *err)
{
    if (failing_device_failed != NULL)
        return 0;
    void *callers[FAILING_DEPTH];
    int depth = backtrace(callers, FAILING_DEPTH), places = 0;
    for (int i = 0; i < depth; i++)
        places += failing_place_is_new(callers[i]);
    if (places == 0)
        return 0;
    failing_device_failed = name;
    return err_set(err, ERR_DEVICE, "%s is made to fail", name);
}

#define FAILING(name, parameters, arguments)                 \
    static inline int failing_##name parameters              \
    {                                                        \
        int rc = failing_call(#name, err);                   \
        return rc != 0 ? rc : failing_whole->name arguments; \
    }
FAILING(copy,
        (struct device * device, struct stream *stream, void *to, const void *from, size_t bytes,
         struct err *err),
        (device, stream, to, from, bytes, err))
FAILING(zero,
        (struct device * device, struct stream *stream, void *memory, size_t bytes,
         struct err *err),
        (device, stream, memory, bytes, err))
FAILING(event_record,
        (struct device * device, struct event *event, struct stream *stream, struct err *err),
        (device, event, stream, err))
FAILING(event_wait,
        (struct device * device, struct event *event, struct stream *stream, struct err *err),
        (device, event, stream, err))
FAILING(event_elapsed,
        (struct device * device, struct event *from, struct event *to, int64_t *ret_ns,
         struct err *err),
        (device, from, to, ret_ns, err))
FAILING(sync, (struct device * device, struct stream *stream, struct err *err),
        (device, stream, err))
#undef FAILING

#define X(op)                                                                    \
    static inline int failing_##op(struct device *device, struct stream *stream, \
                                   const struct ops_##op *args, struct err *err) \
    {                                                                            \
        int rc = failing_call(#op, err);                                         \
        return rc != 0 ? rc : failing_whole_ops->op(device, stream, args, err);  \
    }
OPS_TABLE(X)
#undef X

static inline void failing_device_wrap(struct device *device)
{
    static struct device_ops failing;
#define X(op) .op = failing_##op,
    static const struct ops failing_ops = { OPS_TABLE(X) };
#undef X
    failing_whole = device->dev;
    failing_whole_ops = device->ops;
    failing = *failing_whole;
    failing.copy = failing_copy;
    failing.zero = failing_zero;
    failing.event_record = failing_event_record;
    failing.event_wait = failing_event_wait;
    failing.event_elapsed = failing_event_elapsed;
    failing.sync = failing_sync;
    device->dev = &failing;
    device->ops = &failing_ops;
    failing_device_failed = NULL;
}

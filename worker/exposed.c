/* exposed: see exposed.h. A ring of marks, so that the account costs no allocation and holds nobody
 * up: the oldest are added up when their events have long passed. */
#include "worker/exposed.h"

#include "common/must.h"

int exposed_init(struct exposed *exposed, struct device *device, struct err *err)
{
    const struct device_ops *dev = device->dev;
    *exposed = (struct exposed){.device = device};
    TRY(dev->event_new(device, &exposed->started, err));
    TRY(dev->event_new(device, &exposed->stopped, err));
    for (int m = 0; m < EXPOSED_MARKS; m++) {
        TRY(dev->event_new(device, &exposed->marks[m].before, err));
        TRY(dev->event_new(device, &exposed->marks[m].after, err));
    }
    return 0;
}

void exposed_done(struct exposed *exposed)
{
    struct device *device = exposed->device;
    if (device == NULL)
        return;
    device->dev->event_free(device, exposed->started);
    device->dev->event_free(device, exposed->stopped);
    for (int m = 0; m < EXPOSED_MARKS; m++) {
        device->dev->event_free(device, exposed->marks[m].before);
        device->dev->event_free(device, exposed->marks[m].after);
    }
    *exposed = (struct exposed){.device = NULL};
}

/* Adds up the oldest mark. */
static int exposed_settle(struct exposed *exposed, struct err *err)
{
    const struct exposed_mark *mark = &exposed->marks[exposed->first];
    int64_t ns = 0;
    TRY(exposed->device->dev->event_elapsed(exposed->device, mark->before, mark->after, &ns, err));
    if (exposed->told.span != NULL) {
        int64_t from_ns = 0;
        TRY(exposed->device->dev->event_elapsed(exposed->device, exposed->started, mark->before,
                                                &from_ns, err));
        exposed->told.span(exposed->told.context, mark->kind, from_ns, ns);
    }
    exposed->times.ns[mark->kind] += ns;
    exposed->times.seen[mark->kind] = true;
    exposed->first = (exposed->first + 1) % EXPOSED_MARKS;
    exposed->count--;
    return 0;
}

static struct exposed_mark *exposed_next(struct exposed *exposed)
{
    return &exposed->marks[(exposed->first + exposed->count) % EXPOSED_MARKS];
}

int exposed_enter(struct exposed *exposed, enum exposed_kind kind, struct stream *stream,
                  struct err *err)
{
    if (exposed == NULL || exposed->depth++ > 0)
        return 0;
    if (exposed->count == EXPOSED_MARKS)
        TRY(exposed_settle(exposed, err));
    exposed_next(exposed)->kind = kind;
    return exposed->device->dev->event_record(exposed->device, exposed_next(exposed)->before,
                                              stream, err);
}

int exposed_leave(struct exposed *exposed, struct stream *stream, struct err *err)
{
    if (exposed == NULL || --exposed->depth > 0)
        return 0;
    must(exposed->depth == 0);
    TRY(exposed->device->dev->event_record(exposed->device, exposed_next(exposed)->after, stream,
                                           err));
    exposed->count++;
    return 0;
}

int exposed_start(struct exposed *exposed, struct stream *stream, struct err *err)
{
    if (exposed == NULL)
        return 0;
    exposed->depth = 0;        /* a failure may have left one open */
    while (exposed->count > 0) /* of an evaluation, a checkpoint */
        TRY(exposed_settle(exposed, err));
    exposed->times = (struct exposed_times){.compute_ns = 0};
    return exposed->device->dev->event_record(exposed->device, exposed->started, stream, err);
}

int exposed_stop(struct exposed *exposed, struct stream *stream, struct exposed_times *ret,
                 struct err *err)
{
    if (exposed == NULL)
        return 0;
    must(exposed->depth == 0);
    const struct device_ops *dev = exposed->device->dev;
    struct exposed_times *times = &exposed->times;
    TRY(dev->event_record(exposed->device, exposed->stopped, stream, err));
    TRY(dev->event_elapsed(exposed->device, exposed->started, exposed->stopped, &times->compute_ns,
                           err));
    while (exposed->count > 0)
        TRY(exposed_settle(exposed, err));
    for (int kind = 0; kind < EXPOSED_KINDS; kind++)
        times->compute_ns -= times->ns[kind];
    *ret = *times;
    return 0;
}

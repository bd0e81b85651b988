/* profile: see profile.h. What is told as it happens (by the device, by the account of waits) goes
 * straight to the table; slices that begin at a mark are known when the mark's event has a time,
 * which nobody waits for before the step's end, unless all marks are out. */
#include "worker/profile.h"

#include "common/clock.h"
#include "common/mem.h"
#include "common/must.h"
#include "worker/coll.h"

#include <stdio.h>
#include <string.h>

static const char profile_other[] = "other";

/* Part of the table that an event of a kind leaves free for those of the kinds before it. */
static int64_t profile_spare(const struct profile *profile, enum profile_kind kind)
{
    switch (kind) {
    case PROFILE_STEP:
        return 0;
    case PROFILE_PHASE:
        return profile->capacity / 32;
    case PROFILE_LAYER:
        return profile->capacity / 16;
    case PROFILE_PART:
    case PROFILE_WAIT:
        return profile->capacity / 8;
    default:
        return profile->capacity / 4;
    }
}

/* The number of a name, a new one where there is room. */
static uint16_t profile_name(struct profile *profile, const char *name)
{
    struct profile_file *file = &profile->file;
    for (uint32_t i = 0; i < file->head.name_count; i++)
        if (strncmp(file->names[i], name, PROFILE_NAME_BYTES - 1) == 0)
            return (uint16_t)i;
    if (file->head.name_count == PROFILE_NAMES_MAX)
        return 0; /* "other" */
    (void)snprintf(file->names[file->head.name_count], PROFILE_NAME_BYTES, "%s", name);
    return (uint16_t)file->head.name_count++;
}

/* Events that began at begin_ns or later are not in it; 0: at any time. */
static void profile_drop(struct profile *profile, int64_t count, int64_t begin_ns)
{
    struct profile_head *head = &profile->file.head;
    if (head->dropped == 0 || begin_ns < head->full_ns)
        head->full_ns = begin_ns;
    head->dropped += count;
}

static void profile_put(struct profile *profile, const struct profile_event *event)
{
    struct profile_head *head = &profile->file.head;
    if (head->count >= profile->capacity - profile_spare(profile, event->kind))
        profile_drop(profile, 1, event->begin_ns);
    else
        profile->file.events[head->count++] = *event;
}

static void profile_add(struct profile *profile, enum profile_kind kind, const char *name,
                        const struct profile_event *event)
{
    struct profile_event named = *event;
    (void)pthread_mutex_lock(&profile->lock);
    named.kind = (uint16_t)kind;
    named.name = profile_name(profile, name);
    profile_put(profile, &named);
    (void)pthread_mutex_unlock(&profile->lock);
}

static void profile_take_work(struct trace_sink *sink, const struct trace_work *work)
{
    static const enum profile_kind kinds[] = {[TRACE_KERNEL] = PROFILE_KERNEL,
                                              [TRACE_COPY] = PROFILE_COPY,
                                              [TRACE_COLLECTIVE] = PROFILE_COLLECTIVE};
    struct profile *profile = (struct profile *)sink;
    if (work->begin_ns < profile->began_ns || work->end_ns < work->begin_ns)
        return; /* before the first step: no need for room */
    profile_add(profile, kinds[work->kind], work->name,
                &(struct profile_event){.begin_ns = work->begin_ns,
                                        .end_ns = work->end_ns,
                                        .number = work->bytes,
                                        .lane = work->lane});
}

static void profile_take_lost(struct trace_sink *sink, int64_t count)
{
    struct profile *profile = (struct profile *)sink;
    (void)pthread_mutex_lock(&profile->lock);
    profile_drop(profile, count, 0);
    (void)pthread_mutex_unlock(&profile->lock);
}

static void profile_take_wait(void *context, enum exposed_kind kind, int64_t from_ns, int64_t ns)
{
    struct profile *profile = context;
    int64_t begin_ns = profile->started_ns + from_ns;
    profile_add(profile, PROFILE_WAIT, metric_name(METRIC_GATHER_WAIT_S + (enum metric_id)kind),
                &(struct profile_event){.begin_ns = begin_ns, .end_ns = begin_ns + ns});
}

/* ---- collectives ------------------------------------------------------------------------- */

/* Those that are over; `all`: those that are not are given up. */
static void profile_take_calls(struct profile *profile, bool all)
{
    struct coll_record_call call;
    uint64_t last = coll_record_last(profile->record);
    if (profile->device->dev->traces_collectives && profile->file.head.untraced[0] == '\0')
        return;
    if (last >= COLL_RECORD_CALLS && profile->next_call <= last - COLL_RECORD_CALLS) {
        uint64_t oldest = last - COLL_RECORD_CALLS + 1;
        profile_drop(profile, (int64_t)(oldest - profile->next_call), profile->started_ns);
        profile->next_call = oldest;
    }
    for (; profile->next_call <= last; profile->next_call++) {
        bool there = coll_record_read(profile->record, profile->next_call, &call);
        if (there && call.done_ns == 0 && !all)
            return;
        if (!there || call.done_ns == 0 || call.begun_ns < profile->started_ns)
            continue;
        int64_t bytes = call.count * (int64_t)dtype_bytes((enum dtype)call.dtype);
        profile_add(profile, PROFILE_COLLECTIVE, coll_kind_name((enum coll_kind)call.kind),
                    &(struct profile_event){
                        .begin_ns = call.begun_ns, .end_ns = call.done_ns, .number = bytes});
    }
}

/* ---- slices between marks ---------------------------------------------------------------- */

static struct profile_event *profile_open(struct profile *profile, enum profile_kind kind)
{
    must(kind >= PROFILE_PHASE && kind <= PROFILE_PART);
    return &profile->open[kind - PROFILE_PHASE];
}

/* What is at work of a kind is over. */
static void profile_close(struct profile *profile, enum profile_kind kind, int64_t now_ns)
{
    struct profile_event *open = profile_open(profile, kind);
    if (open->end_ns < 0)
        return;
    open->end_ns = now_ns;
    (void)pthread_mutex_lock(&profile->lock);
    profile_put(profile, open);
    (void)pthread_mutex_unlock(&profile->lock);
    open->end_ns = -1;
}

/* The oldest mark gets its time. */
static int profile_settle(struct profile *profile, struct err *err)
{
    struct profile_mark *mark = &profile->marks[profile->first];
    enum profile_kind kind = (enum profile_kind)mark->entered.kind;
    int64_t ns = 0;
    TRY(profile->device->dev->event_elapsed(profile->device, profile->exposed->started, mark->event,
                                            &ns, err));
    profile->first = (profile->first + 1) % PROFILE_MARKS;
    profile->count--;
    ns += profile->started_ns;
    profile_close(profile, kind, ns);
    if (mark->entered.end_ns >= 0) {
        *profile_open(profile, kind) = mark->entered;
        profile_open(profile, kind)->begin_ns = ns;
    }
    return 0;
}

/* A failure is told at the step's end: whoever enters has nothing to do with it. */
static void profile_settle_all(struct profile *profile, int left)
{
    while (profile->failed.code == ERR_NONE && profile->count > left)
        (void)profile_settle(profile, &profile->failed);
}

void profile_enter(struct profile *profile, enum profile_kind kind, const char *name,
                   int64_t number)
{
    if (profile == NULL || !profile->in_step || profile->failed.code != ERR_NONE)
        return;
    if (profile->count == PROFILE_MARKS)
        profile_settle_all(profile, PROFILE_MARKS / 2);
    if (kind == PROFILE_LAYER)
        profile_take_calls(profile, false);
    struct profile_mark *mark = &profile->marks[(profile->first + profile->count) % PROFILE_MARKS];
    mark->entered = (struct profile_event){
        .kind = (uint16_t)kind, .number = number, .end_ns = name != NULL ? 0 : -1};
    if (name != NULL) {
        (void)pthread_mutex_lock(&profile->lock);
        mark->entered.name = profile_name(profile, name);
        (void)pthread_mutex_unlock(&profile->lock);
    }
    if (profile->failed.code == ERR_NONE &&
        profile->device->dev->event_record(profile->device, mark->event, profile->stream,
                                           &profile->failed) == 0)
        profile->count++;
}

/* ---- steps ------------------------------------------------------------------------------- */

/* The account's `started` on the monotonic clock: an event now, waited for, and the clock. */
int profile_step_begin(struct profile *profile, int64_t step, struct stream *stream,
                       struct err *err)
{
    if (profile == NULL)
        return 0;
    const struct device_ops *dev = profile->device->dev;
    struct event *now = profile->marks[0].event;
    int64_t since_ns = 0;
    must(!profile->in_step && profile->count == 0);
    TRY(dev->event_record(profile->device, now, stream, err));
    TRY(dev->sync(profile->device, stream, err));
    int64_t clock_ns = clock_monotonic_ns();
    TRY(dev->event_elapsed(profile->device, profile->exposed->started, now, &since_ns, err));
    profile->started_ns = clock_ns - since_ns;
    profile->stream = stream;
    profile->next_call = coll_record_last(profile->record) + 1;
    profile->exposed->told = (struct exposed_told){.span = profile_take_wait, .context = profile};
    struct profile_head *head = &profile->file.head;
    if (head->first_step == 0) {
        head->first_step = step;
        profile->began_ns = profile->started_ns;
    }
    head->last_step = step;
    profile->in_step = true;
    return 0;
}

int profile_step_end(struct profile *profile, const struct exposed_times *times, struct err *err)
{
    if (profile == NULL)
        return 0;
    int64_t ns = times->compute_ns;
    must(profile->in_step);
    profile->in_step = false;
    profile->exposed->told = (struct exposed_told){.span = NULL};
    for (int kind = 0; kind < EXPOSED_KINDS; kind++)
        ns += times->ns[kind];
    profile_take_calls(profile, true);
    profile_settle_all(profile, 0);
    if (profile->failed.code != ERR_NONE) {
        *err = profile->failed;
        return -(int)err->code;
    }
    for (int state = 0; state < PROFILE_STATES; state++)
        profile_close(profile, PROFILE_PHASE + (enum profile_kind)state, profile->started_ns + ns);
    profile_add(profile, PROFILE_STEP, "step",
                &(struct profile_event){.begin_ns = profile->started_ns,
                                        .end_ns = profile->started_ns + ns,
                                        .number = profile->file.head.last_step});
    return 0;
}

/* ---- its life ---------------------------------------------------------------------------- */

static int profile_take_memory(struct profile *profile, struct err *err)
{
    struct profile_file *file = &profile->file;
    file->names = mem_new(PROFILE_NAMES_MAX, sizeof *file->names);
    file->events = mem_new((size_t)profile->capacity, sizeof *file->events);
    if (file->names == NULL || file->events == NULL)
        return mem_fail(err, (size_t)profile->capacity * sizeof *file->events, "a profile");
    (void)profile_name(profile, profile_other);
    for (int m = 0; m < PROFILE_MARKS; m++)
        TRY(profile->device->dev->event_new(profile->device, &profile->marks[m].event, err));
    return 0;
}

/* Where kernels cannot be traced the rest is. */
static int profile_trace(struct profile *profile, struct err *err)
{
    struct profile_head *head = &profile->file.head;
    int rc = profile->device->dev->trace(profile->device, &profile->sink, &profile->untraced);
    if (rc == 0)
        return 0;
    if (rc != -ERR_UNSUPPORTED) {
        *err = profile->untraced;
        return rc;
    }
    (void)snprintf(head->untraced, sizeof head->untraced, "%s",
                   err_code_name(profile->untraced.code));
    return 0;
}

int profile_new(struct device *device, struct exposed *exposed, const struct coll_record *record,
                const struct profile_options *options, struct profile **ret, struct err *err)
{
    struct profile *profile = mem_new(1, sizeof *profile);
    if (profile == NULL)
        return mem_fail(err, sizeof *profile, "a profile");
    profile->sink = (struct trace_sink){.add = profile_take_work, .lost = profile_take_lost};
    profile->device = device;
    profile->exposed = exposed;
    profile->record = record;
    profile->capacity = options->events_max;
    profile->began_ns = INT64_MAX;
    for (int state = 0; state < PROFILE_STATES; state++)
        profile->open[state].end_ns = -1;
    (void)pthread_mutex_init(&profile->lock, NULL); /* cannot fail on Linux */
    struct profile_head *head = &profile->file.head;
    *head = (struct profile_head){
        .rank = options->rank, .world = options->world, .attempt = options->attempt};
    (void)snprintf(head->device, sizeof head->device, "%s", device->dev->name);
    int rc = profile_take_memory(profile, err);
    if (rc == 0)
        rc = profile_trace(profile, err);
    if (rc != 0) {
        profile_free(profile);
        return rc;
    }
    *ret = profile;
    return 0;
}

int profile_stop(struct profile *profile, const struct profile_file **ret, struct err *err)
{
    TRY(profile->device->dev->trace(profile->device, NULL, err));
    profile->file.head.taken_ms = clock_wall_ms();
    *ret = &profile->file;
    return 0;
}

void profile_free(struct profile *profile)
{
    struct err ignored;
    if (profile == NULL)
        return;
    (void)profile->device->dev->trace(profile->device, NULL, &ignored); /* again is fine */
    for (int m = 0; m < PROFILE_MARKS; m++)
        profile->device->dev->event_free(profile->device, profile->marks[m].event);
    (void)pthread_mutex_destroy(&profile->lock);
    profile_file_done(&profile->file);
    mem_free(profile);
}

/* sse: a stream is two cursors into the store. Its fill reads the rows after them, so what it sends
 * is what is committed, however often or seldom the bus says that there is more.
 *
 * Points lag behind events (they are written in batches); a job's end is sent only when a fill
 * found no row of either kind and the job's row says that it is at its end. */
#include "daemon/sse.h"

#include "common/mem.h"
#include "common/must.h"
#include "daemon/access.h"
#include "daemon/auth.h"
#include "daemon/bus.h"
#include "daemon/http.h"
#include "daemon/job_fsm.h"
#include "daemon/loop.h"
#include "daemon/quota.h"
#include "daemon/settings.h"
#include "daemon/sse_memo.h"

#include <stdio.h>
#include <string.h>

enum {
    SSE_RETRY_MS = 2000, /* how soon a client comes back */
    SSE_EVENTS = 80,     /* rows of a fill: at their longest they stay below HTTP_STREAM_BYTES */
    SSE_POINTS = 2000,   /* rows of a fill: far more than one message holds */
    SSE_TEXT_BYTES = 96  /* of a cursor */
};

struct sse {
    struct api *api;
    struct loop_timer *timer; /* heartbeats */
    struct sse_stream *first; /* all streams, doubly linked */
    int64_t count;
    struct sse_memo memo;         /* what was read since something was stored last */
    struct bus_listener listener; /* hears of that */
};

struct sse_stream {
    struct sse *sse;
    struct http_request *request;
    struct sse_stream *previous, *next;
    struct bus_listener listener;
    char job_id[LIMIT_ID_BYTES + 1];   /* "" for all jobs that the viewer sees */
    char viewer[LIMIT_NAME_BYTES + 1]; /* access.h */
    char seen_job[LIMIT_ID_BYTES + 1]; /* of the last row looked at */
    bool seen;                         /* it is the viewer's */
    int64_t event_row;                 /* last one sent */
    int64_t point_row;                 /* last one sent */
    bool over;                         /* its token ended */
    bool greeted;                      /* the first message was sent */
    bool beat;                         /* a heartbeat is due */
};

/* What a fill appends to. */
struct sse_fill {
    struct sse_stream *stream;
    struct buf *out;
    /* the group of points under way: one message a (job, attempt, step, rank) */
    json_t *group; /* "metrics" of it, or NULL */
    char job_id[LIMIT_ID_BYTES + 1];
    int64_t attempt, step, rank;
    double wall_s;
    int64_t point_row; /* newest of the group */
    int64_t rows;      /* found by this fill */
    int64_t points;    /* of them, points */
};

/* Appends one message; takes data over. last: the cursor's rows are sent with it, so it carries the
 * id; a client that was cut off before it gets those rows again. */
static int sse_put(struct sse_fill *fill, const char *event, json_t *data, bool last,
                   struct err *err)
{
    CLEANUP(json_unref) json_t *owned = data;
    if (owned == NULL)
        return mem_fail(err, 0, "a message of a stream");
    buf_printf(fill->out, "event: %s\n", event);
    if (last)
        buf_printf(fill->out, "id: %lld-%lld\n", (long long)fill->stream->event_row,
                   (long long)fill->stream->point_row);
    buf_text(fill->out, "data: ");
    TRY(json_print(owned, fill->out, err));
    buf_text(fill->out, "\n\n");
    return buf_error(fill->out, err);
}

/* Is this job the viewer's? Rows of a job come together, so the last answer is kept. */
static int sse_sees(struct sse_stream *stream, const char *job_id, bool *ret_seen, struct err *err)
{
    char owner[LIMIT_NAME_BYTES + 1];
    if (strcmp(stream->seen_job, job_id) != 0 && stream->viewer[0] != '\0') {
        int rc = store_job_owner(stream->sse->api->store, job_id, owner, err);
        if (rc != 0 && rc != -ERR_NOT_FOUND) /* it was deleted: what is left of it is nobody's */
            return rc;
        stream->seen = rc == 0 && access_is_seen(stream->viewer, owner);
        (void)snprintf(stream->seen_job, sizeof stream->seen_job, "%s", job_id);
    }
    *ret_seen = stream->viewer[0] == '\0' || stream->seen;
    return 0;
}

/* ---- events ---- */

struct sse_state {
    const char *name; /* state of the event's data, or NULL */
    int64_t created_ms;
    const struct api *api;
    json_t *data; /* made of the job's row */
};

static int sse_state_of_job(void *context, const struct store_job *job, struct err *err)
{
    struct sse_state *state = context;
    enum job_state id = job_state_parse(state->name);
    if (id == JOB_STATE_COUNT)
        return err_set(err, ERR_CORRUPT, "an event of %s names no state", job->id);
    state->data = json_pack(
        "{s:s, s:s, s:s, s:I, s:I, s:I, s:o, s:o, s:o}", "job_id", job->id, "state", state->name,
        "status", job_state_public_name(id), "attempt", (json_int_t)job->attempt, "steps_done",
        (json_int_t)job->steps_done, "steps_total", (json_int_t)job->steps_total, "reason",
        api_text(job->reason), "reason_text", api_sentence(state->api, job->reason_text),
        "created_at", api_time(state->created_ms));
    return 0;
}

static int sse_on_event(void *context, const struct store_event *event, struct err *err)
{
    struct sse_fill *fill = context;
    bool seen = false;
    fill->rows++;
    fill->stream->event_row = event->row;
    TRY(sse_sees(fill->stream, event->job_id, &seen, err));
    if (!seen)
        return 0;
    CLEANUP(json_unref) json_t *json = api_jobs_event_json(fill->stream->sse->api, event, err);
    if (json == NULL)
        return -(int)err->code;
    struct sse_state state = {
        .name = json_string_value(json_object_get(json_object_get(json, "data"), "state")),
        .created_ms = event->created_ms,
        .api = fill->stream->sse->api,
    };
    if (state.name != NULL) {
        struct store *store = fill->stream->sse->api->store;
        TRY(store_job_get(store, event->job_id, sse_state_of_job, &state, err));
        TRY(sse_put(fill, "state", state.data, false, err));
    }
    return sse_put(fill, "event", json_incref(json), true, err);
}

/* ---- points ---- */

static int sse_flush_group(struct sse_fill *fill, struct err *err)
{
    if (fill->group == NULL)
        return 0;
    fill->stream->point_row = fill->point_row;
    json_t *group = fill->group;
    fill->group = NULL;
    return sse_put(fill, "metrics",
                   json_pack("{s:s, s:I, s:I, s:I, s:o, s:o}", "job_id", fill->job_id, "attempt",
                             (json_int_t)fill->attempt, "step", (json_int_t)fill->step, "rank",
                             (json_int_t)fill->rank, "at", json_number(fill->wall_s), "metrics",
                             group),
                   true, err);
}

/* A point that is not shown: the cursor goes over it. */
static int sse_pass_point(struct sse_fill *fill, int64_t row, struct err *err)
{
    TRY(sse_flush_group(fill, err));
    fill->stream->point_row = row;
    return 0;
}

static int sse_on_point(void *context, const struct store_point *point, struct err *err)
{
    struct sse_fill *fill = context;
    bool seen = false;
    fill->rows++;
    fill->points++;
    TRY(sse_sees(fill->stream, point->job_id, &seen, err));
    if (!seen)
        return sse_pass_point(fill, point->row, err);
    bool same = fill->group != NULL && fill->attempt == point->attempt &&
                fill->step == point->step && fill->rank == point->rank &&
                strcmp(fill->job_id, point->job_id) == 0;
    if (!same) {
        TRY(sse_flush_group(fill, err));
        fill->group = json_object();
        (void)snprintf(fill->job_id, sizeof fill->job_id, "%s", point->job_id);
        fill->attempt = point->attempt;
        fill->step = point->step;
        fill->rank = point->rank;
        fill->wall_s = point->wall_s;
    }
    fill->point_row = point->row;
    if (json_object_set_new(fill->group, metric_name(point->metric), json_number(point->value)) !=
        0)
        return mem_fail(err, 0, "a message of a stream");
    return 0;
}

/* ---- a stream ---- */

struct sse_end {
    struct sse_fill *fill;
    bool ended;
};

static int sse_end_of_job(void *context, const struct store_job *job, struct err *err)
{
    struct sse_end *end = context;
    if (!job_state_is_end(job->state))
        return 0;
    end->ended = true;
    json_t *json = api_jobs_json(end->fill->stream->sse->api, job, err);
    return json != NULL ? sse_put(end->fill, "end", json, true, err) : -(int)err->code;
}

/* *ret_more false: nothing will follow. */
static int sse_read(struct sse_fill *fill, bool *ret_more, struct err *err)
{
    struct sse_stream *stream = fill->stream;
    struct store *store = stream->sse->api->store;
    const char *job_id = stream->job_id[0] != '\0' ? stream->job_id : NULL;
    TRY(store_events_after(store, job_id, stream->event_row, SSE_EVENTS, sse_on_event, fill, err));
    TRY(store_points_after(store, job_id, stream->point_row, SSE_POINTS, sse_on_point, fill, err));
    if (fill->points == SSE_POINTS) {
        json_decref(fill->group); /* cut by the limit: the next fill sends it whole */
        fill->group = NULL;
    }
    TRY(sse_flush_group(fill, err));
    *ret_more = true;
    if (fill->rows > 0 || job_id == NULL)
        return 0;
    struct sse_end end = {.fill = fill};
    TRY(store_job_get(store, job_id, sse_end_of_job, &end, err));
    *ret_more = !end.ended;
    return 0;
}

/* Reads on, or finds out what another stream has read from the same place. */
static int sse_read_once(struct sse_stream *stream, struct buf *out, struct sse_memo_value *ret,
                         struct err *err)
{
    struct sse_memo *memo = &stream->sse->memo;
    const struct sse_memo_key key = {.viewer = stream->viewer,
                                     .job_id = stream->job_id,
                                     .event_row = stream->event_row,
                                     .point_row = stream->point_row};
    if (sse_memo_find(memo, &key, ret)) {
        buf_append(out, ret->text, ret->length);
        stream->event_row = ret->event_row;
        stream->point_row = ret->point_row;
        return 0;
    }
    struct sse_fill fill = {.stream = stream, .out = out};
    size_t before = out->length;
    int rc = sse_read(&fill, &ret->more, err);
    json_decref(fill.group);
    if (rc != 0)
        return rc;
    ret->event_row = stream->event_row;
    ret->point_row = stream->point_row;
    ret->rows = fill.rows;
    ret->text = buf_str(out) + before;
    ret->length = out->length - before;
    sse_memo_put(memo, &key, ret);
    return 0;
}

static bool sse_fill(void *context, struct buf *out)
{
    struct sse_stream *stream = context;
    struct sse_memo_value read = {.rows = 0};
    struct err err;
    if (stream->over)
        return false;
    loop_doing(stream->sse->api->loop, "streams:", "what is new");
    if (!stream->greeted) {
        stream->greeted = true;
        buf_printf(out, "retry: %d\nid: %lld-%lld\n\n", SSE_RETRY_MS, (long long)stream->event_row,
                   (long long)stream->point_row);
    }
    if (stream->beat)
        buf_text(out, ": still here\n\n");
    stream->beat = false;
    int rc = sse_read_once(stream, out, &read, &err);
    if (rc == 0 && out->length == 0 && read.rows > 0) /* all hidden: it comes again for the next */
        buf_printf(out, "id: %lld-%lld\n\n", (long long)stream->event_row,
                   (long long)stream->point_row);
    if (rc != 0) {
        /* The client comes back with its cursor; the sentence is for people reading the stream. */
        buf_printf(out, ": %s\n\n", err.text);
        return false;
    }
    return read.more;
}

static void sse_stored(void *context, const struct bus_note *note)
{
    (void)note;
    struct sse *sse = context;
    sse_memo_clear(&sse->memo);
}

static void sse_note(void *context, const struct bus_note *note)
{
    struct sse_stream *stream = context;
    if (stream->job_id[0] == '\0' || strcmp(stream->job_id, note->job_id) == 0)
        http_stream_wake(stream->request);
}

static void sse_visit(struct sse *sse, bool beat)
{
    struct sse_stream *next;
    for (struct sse_stream *stream = sse->first; stream != NULL; stream = next) {
        next = stream->next;
        stream->beat = stream->beat || beat;
        stream->over = !auth_still_counts(sse->api->auth, http_request_who(stream->request));
        if (beat || stream->over)
            http_stream_wake(stream->request);
    }
}

static void sse_beat(void *context)
{
    sse_visit(context, true);
}

void sse_end_revoked(struct sse *sse)
{
    sse_visit(sse, false);
}

static void sse_stream_end(void *context)
{
    struct sse_stream *stream = context;
    struct sse *sse = stream->sse;
    bus_unlisten(sse->api->bus, &stream->listener);
    quota_close_stream(sse->api->quota, stream->viewer);
    if (stream->previous != NULL)
        stream->previous->next = stream->next;
    else
        sse->first = stream->next;
    if (stream->next != NULL)
        stream->next->previous = stream->previous;
    if (--sse->count == 0)
        loop_timer_stop(sse->timer);
    mem_free(stream);
}

/* "<event row>-<point row>" of a Last-Event-ID; false when it is anything else. */
static bool sse_parse_cursor(const char *text, int64_t *ret_event_row, int64_t *ret_point_row)
{
    long long rows[2];
    int used = 0;
    if (strlen(text) >= SSE_TEXT_BYTES || text[strspn(text, "0123456789-")] != '\0' ||
        sscanf(text, "%18lld-%18lld%n", &rows[0], &rows[1], &used) != 2 || text[used] != '\0' ||
        rows[0] < 0 || rows[1] < 0)
        return false;
    *ret_event_row = rows[0];
    *ret_point_row = rows[1];
    return true;
}

static int sse_place(struct sse_stream *stream, struct http_request *request, struct err *err)
{
    struct store *store = stream->sse->api->store;
    const char *last = http_request_header(request, "Last-Event-ID");
    if (last != NULL && last[0] != '\0') {
        if (!sse_parse_cursor(last, &stream->event_row, &stream->point_row))
            return err_set(err, ERR_BAD_REQUEST,
                           "Last-Event-ID must be the id of a message of this stream");
        return 0;
    }
    if (stream->job_id[0] != '\0')
        return 0; /* from the job's first row */
    TRY(store_events_newest(store, &stream->event_row, err));
    return store_points_newest(store, &stream->point_row, err);
}

static int sse_open(struct api *api, struct http_request *request, const char *job_id,
                    struct err *err)
{
    struct sse *sse = api->sse;
    if (sse->count >= api->settings->streams_max)
        return err_set(err, ERR_TOO_MANY, "%lld streams are open, the limit (streams_max)",
                       (long long)sse->count);
    struct sse_stream place = {.sse = sse, .request = request, .next = sse->first};
    (void)snprintf(place.job_id, sizeof place.job_id, "%s", job_id);
    (void)snprintf(place.viewer, sizeof place.viewer, "%s", access_viewer(request));
    TRY(sse_place(&place, request, err));
    struct sse_stream *stream = mem_new(1, sizeof *stream);
    if (stream == NULL)
        return mem_fail(err, sizeof *stream, "a stream");
    int rc = quota_open_stream(api->quota, place.viewer, err);
    if (rc != 0) {
        mem_free(stream);
        return rc;
    }
    *stream = place;
    stream->listener = (struct bus_listener){.called = sse_note, .context = stream};
    if (sse->first != NULL)
        sse->first->previous = stream;
    sse->first = stream;
    if (sse->count++ == 0)
        loop_timer_set(sse->timer, SSE_BEAT_MS, SSE_BEAT_MS);
    http_request_on_end(request, sse_stream_end, stream);
    http_answer_stream(request, sse_fill, stream);
    bus_listen(api->bus, &stream->listener);
    return 0;
}

static int sse_job_exists(void *context, const struct store_job *job, struct err *err)
{
    (void)context;
    (void)job;
    (void)err;
    return 0;
}

int sse_job(struct api *api, struct http_request *request, struct err *err)
{
    const char *id = http_request_route(request)->name;
    TRY(store_job_get(api->store, id, sse_job_exists, NULL, err));
    return sse_open(api, request, id, err);
}

int sse_all(struct api *api, struct http_request *request, struct err *err)
{
    return sse_open(api, request, "", err);
}

int sse_new(struct api *api, struct sse **ret_sse, struct err *err)
{
    struct sse *sse = mem_new(1, sizeof *sse);
    if (sse == NULL)
        return mem_fail(err, sizeof *sse, "streams");
    sse->api = api;
    sse->listener = (struct bus_listener){.called = sse_stored, .context = sse};
    int rc = loop_timer_new(api->loop, sse_beat, sse, &sse->timer, err);
    if (rc != 0) {
        mem_free(sse);
        return rc;
    }
    bus_listen(api->bus, &sse->listener);
    *ret_sse = sse;
    return 0;
}

void sse_free(struct sse *sse)
{
    if (sse == NULL)
        return;
    must(sse->count == 0);
    bus_unlisten(sse->api->bus, &sse->listener);
    loop_timer_free(sse->timer);
    sse_memo_done(&sse->memo);
    mem_free(sse);
}

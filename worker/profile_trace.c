/* profile_trace: see profile_trace.h. Events are printed into a buffer, which goes to the file
 * whenever it is half full. */
#include "worker/profile_trace.h"

#include "common/io_gzip.h"
#include "common/json.h"
#include "common/mem.h"
#include "common/utf8.h"
#include "worker/profile_lives.h"

#include <string.h>

enum {
    TRACE_BUF_BYTES = 1 << 20,
    TRACE_TRACKS_MAX = 256, /* of a rank: streams have one each, unless their work overlaps */
    TRACE_TRACK_STEPS = 1,
    TRACE_TRACK_PARTS,
    TRACE_TRACK_WAITS,
    TRACE_TRACK_FIRST /* of those made as they are met */
};

struct trace_track {
    uint16_t kind;
    uint32_t lane;
    int64_t end_ns; /* of its last slice */
};

struct trace {
    const struct profile_job *job;
    struct io_gzip out;
    struct buf text;
    bool started;                                /* an event is there */
    char **names;                                /* of the rank's file, as JSON; owned */
    struct trace_track tracks[TRACE_TRACKS_MAX]; /* of the rank */
    int track_count;
};

static void trace_done(struct trace *trace)
{
    io_gzip_abort(&trace->out);
    buf_done(&trace->text);
}

static int trace_flush(struct trace *trace, size_t limit, struct err *err)
{
    TRY(buf_error(&trace->text, err));
    if (trace->text.length < limit)
        return 0;
    TRY(io_gzip_write(&trace->out, trace->text.data, trace->text.length, err));
    buf_clear(&trace->text);
    return 0;
}

/* A new event with what all have; the caller adds members and the brace. */
static void trace_begin(struct trace *trace, char phase, uint32_t pid, int64_t tid)
{
    buf_printf(&trace->text, "%s{\"ph\":\"%c\",\"pid\":%u,\"tid\":%lld",
               trace->started ? ",\n" : "", phase, pid, (long long)tid);
    trace->started = true;
}

/* Microseconds with three places: whole nanoseconds. */
static void trace_time(struct trace *trace, const char *key, int64_t ns)
{
    buf_printf(&trace->text, ",\"%s\":%lld.%03d", key, (long long)(ns / 1000), (int)(ns % 1000));
}

static void trace_at(struct trace *trace, int64_t ns)
{
    trace_time(trace, "ts", ns - trace->job->began_ns);
}

static void trace_label(struct trace *trace, uint32_t pid, int64_t tid, const char *of,
                        const char *label)
{
    trace_begin(trace, 'M', pid, tid);
    buf_printf(&trace->text, ",\"name\":\"%s\",\"args\":{\"name\":\"%s\"}}", of, label);
    trace_begin(trace, 'M', pid, tid);
    buf_printf(&trace->text, ",\"name\":\"%.*s_sort_index\",\"args\":{\"sort_index\":%lld}}",
               (int)strcspn(of, "_"), of, (long long)(tid != 0 ? tid : (int64_t)pid));
}

/* ---- tracks ------------------------------------------------------------------------------ */

/* The thread of a slice, a new one where those of its stream are busy. */
static int64_t trace_track(struct trace *trace, uint32_t pid, const struct profile_event *event)
{
    static const char *const names[PROFILE_KIND_COUNT] = {[PROFILE_KERNEL] = "kernels",
                                                          [PROFILE_COPY] = "copies",
                                                          [PROFILE_COLLECTIVE] = "collectives"};
    char label[64];
    int t = 0, same = 0;
    if (event->kind <= PROFILE_LAYER)
        return TRACE_TRACK_STEPS;
    if (event->kind <= PROFILE_WAIT)
        return event->kind == PROFILE_PART ? TRACE_TRACK_PARTS : TRACE_TRACK_WAITS;
    for (; t < trace->track_count; t++) {
        struct trace_track *track = &trace->tracks[t];
        bool its = track->kind == event->kind && track->lane == event->lane;
        same += its;
        if (its && track->end_ns <= event->begin_ns)
            break;
    }
    if (t == TRACE_TRACKS_MAX)
        return -1; /* a hundred streams: no device of ours has them */
    if (t == trace->track_count) {
        trace->tracks[trace->track_count++] =
            (struct trace_track){.kind = event->kind, .lane = event->lane};
        (void)snprintf(label, sizeof label, "%s, stream %u%s", names[event->kind], event->lane,
                       same > 0 ? " at once" : "");
        trace_label(trace, pid, TRACE_TRACK_FIRST + t, "thread_name", label);
    }
    trace->tracks[t].end_ns = event->end_ns;
    return TRACE_TRACK_FIRST + t;
}

/* ---- a rank ------------------------------------------------------------------------------ */

static void trace_names_free(char **names, uint32_t count)
{
    for (uint32_t i = 0; names != NULL && i < count; i++)
        mem_free(names[i]);
    mem_free(names);
}

static int trace_names_make(const struct profile_file *file, char ***ret, struct err *err)
{
    char **names = mem_new(file->head.name_count + 1, sizeof *names);
    int rc = names == NULL ? mem_fail(err, 0, "a trace's names") : 0;
    for (uint32_t i = 0; rc == 0 && i < file->head.name_count; i++) {
        char text[PROFILE_NAME_BYTES];
        CLEANUP(buf_done) struct buf out;
        buf_init(&out, (size_t)8 * PROFILE_NAME_BYTES);
        memcpy(text, file->names[i], sizeof text);
        utf8_scrub(text);
        CLEANUP(json_unref) json_t *name = json_string(text);
        rc = json_print(name, &out, err);
        names[i] = rc == 0 ? buf_steal(&out) : NULL;
        if (rc == 0 && names[i] == NULL)
            rc = mem_fail(err, PROFILE_NAME_BYTES, "a trace's names");
    }
    if (rc == 0)
        *ret = names;
    else
        trace_names_free(names, file->head.name_count);
    return rc;
}

/* The name as it is shown: "layer 3" where a number belongs to it. */
static void trace_name(struct trace *trace, const struct profile_event *event)
{
    const char *name = trace->names[event->name];
    bool numbered =
        event->kind == PROFILE_STEP || (event->kind == PROFILE_LAYER && event->number >= 0);
    if (numbered)
        buf_printf(&trace->text, ",\"name\":%.*s %lld\"", (int)strlen(name) - 1, name,
                   (long long)event->number);
    else
        buf_printf(&trace->text, ",\"name\":%s", name);
}

static void trace_slice(struct trace *trace, uint32_t pid, const struct profile_event *event)
{
    int64_t tid = trace_track(trace, pid, event);
    if (tid < 0)
        return;
    trace_begin(trace, 'X', pid, tid);
    trace_name(trace, event);
    buf_printf(&trace->text, ",\"cat\":\"%s\"", profile_kind_name((enum profile_kind)event->kind));
    trace_at(trace, event->begin_ns);
    trace_time(trace, "dur", event->end_ns - event->begin_ns);
    if (event->kind >= PROFILE_COPY && event->number > 0)
        buf_printf(&trace->text, ",\"args\":{\"bytes\":%lld}", (long long)event->number);
    buf_text(&trace->text, "}");
}

/* What is planned on the device from here on. */
static void trace_memory(struct trace *trace, uint32_t pid, const char *part, int64_t ns)
{
    enum mem_phase phase = mem_phase_find(part);
    if (phase == MEM_PHASE_COUNT)
        return;
    trace_begin(trace, 'C', pid, 0);
    trace_at(trace, ns);
    buf_printf(&trace->text, ",\"name\":\"planned device memory\",\"args\":{\"bytes\":%lld}}",
               (long long)trace->job->memory.phase_bytes[phase]);
}

static int trace_events(struct trace *trace, uint32_t rank, struct err *err)
{
    const struct profile_file *file = &trace->job->files[rank];
    for (int64_t i = 0; i < file->head.count; i++) {
        const struct profile_event *event = &file->events[i];
        trace_slice(trace, rank, event);
        if (event->kind == PROFILE_PART)
            trace_memory(trace, rank, profile_event_name(file, event), event->begin_ns);
        TRY(trace_flush(trace, TRACE_BUF_BYTES / 2, err));
    }
    return 0;
}

static int trace_rank(struct trace *trace, uint32_t rank, struct err *err)
{
    const struct profile_file *file = &trace->job->files[rank];
    char label[32];
    (void)snprintf(label, sizeof label, "rank %u", rank);
    trace_label(trace, rank, 0, "process_name", label);
    trace_label(trace, rank, TRACE_TRACK_STEPS, "thread_name", "steps, phases, layers");
    trace_label(trace, rank, TRACE_TRACK_PARTS, "thread_name", "phases of the memory plan");
    trace_label(trace, rank, TRACE_TRACK_WAITS, "thread_name", "waits");
    trace->track_count = 0;
    TRY(trace_names_make(file, &trace->names, err));
    int rc = trace_events(trace, rank, err);
    trace_names_free(trace->names, file->head.name_count);
    trace->names = NULL;
    return rc;
}

/* ---- buffers ----------------------------------------------------------------------------- */

static void trace_life(struct trace *trace, const struct profile_life *life, int64_t number,
                       bool begins)
{
    const struct mem_buffer *buffer = life->buffer;
    trace_begin(trace, begins ? 'b' : 'e', 0, 0);
    trace_at(trace, begins ? life->begin_ns : life->end_ns);
    buf_printf(&trace->text, ",\"cat\":\"buffers, %s\",\"id\":%lld,\"name\":\"%s",
               mem_arena_name(buffer->arena), (long long)number, mem_name_text(buffer->name));
    if (buffer->index != MEM_AT_WORK)
        buf_printf(&trace->text, " %d", buffer->index);
    buf_text(&trace->text, "\"");
    if (begins)
        buf_printf(&trace->text,
                   ",\"args\":{\"bytes\":%lld,\"offset\":%lld,\"first\":\"%s\",\"last\":\"%s\"}",
                   (long long)buffer->bytes, (long long)buffer->offset,
                   mem_phase_name(mem_buffer_first(buffer)),
                   mem_phase_name(mem_buffer_last(buffer)));
    buf_text(&trace->text, "}");
}

static int trace_buffers(struct trace *trace, struct err *err)
{
    CLEANUP(profile_lives_done) struct profile_lives lives = {.list = NULL};
    TRY(profile_lives_of(trace->job, PROFILE_TRACE_BUFFERS, &lives, err));
    for (int64_t i = 0; i < lives.count; i++) {
        trace_life(trace, &lives.list[i], i, true);
        trace_life(trace, &lives.list[i], i, false);
        TRY(trace_flush(trace, TRACE_BUF_BYTES / 2, err));
    }
    return 0;
}

/* ---- the file ---------------------------------------------------------------------------- */

static int trace_file(struct trace *trace, const char *path, struct err *err)
{
    const struct profile_job *job = trace->job;
    TRY(io_gzip_create(&trace->out, path, err));
    buf_printf(&trace->text,
               "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"job\":\"%s\",\"attempt\":%u,"
               "\"first_step\":%lld,\"last_step\":%lld,\"ranks\":%u,\"device\":\"%s\","
               "\"dropped_events\":%lld},\"traceEvents\":[\n",
               job->plan.job_id, job->plan.attempt, (long long)job->first_step,
               (long long)job->last_step, job->world, job->files[0].head.device,
               (long long)job->dropped);
    for (uint32_t rank = 0; rank < job->world; rank++)
        TRY(trace_rank(trace, rank, err));
    TRY(trace_buffers(trace, err));
    buf_text(&trace->text, "\n]}\n");
    TRY(trace_flush(trace, 0, err));
    return io_gzip_commit(&trace->out, err);
}

int profile_trace_write(const struct profile_job *job, const char *path, struct err *err)
{
    CLEANUP(mem_free_ptr) struct trace *trace = mem_new(1, sizeof *trace);
    if (trace == NULL)
        return mem_fail(err, sizeof *trace, "a trace");
    trace->job = job;
    trace->out.file.fd = -1;
    buf_init(&trace->text, TRACE_BUF_BYTES);
    int rc = trace_file(trace, path, err);
    trace_done(trace);
    return rc;
}

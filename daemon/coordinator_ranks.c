/* coordinator_ranks: what ranks say. Points go to telemetry, sentences become events at once, and
 * all of it tells the supervisor that the rank lives. SEEN goes out after the commit only. */
#include "common/io.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/must.h"
#include "daemon/checkpoints.h"
#include "daemon/coordinator_private.h"

#include <stdio.h>
#include <string.h>

static int ranks_hello(void *context, const struct wire_hello *hello, struct ingest_peer *ret_peer,
                       struct err *err)
{
    struct coordinator_job *job = coordinator_find(context, hello->job_id);
    if (job == NULL || job->supervisor == NULL)
        return err_set(err, ERR_PROTOCOL, "HELLO of a job that has no attempt: %s", hello->job_id);
    TRY(supervisor_hello(job->supervisor, hello, err));
    *ret_peer = (struct ingest_peer){
        .object = job,
        .rank = hello->rank,
        .received_seq = job->supervisor->ranks[hello->rank].received_seq,
        .plan_json = buf_str(&job->supervisor->plan_text),
        .plan_length = job->supervisor->plan_text.length,
    };
    return 0;
}

/* An event that a frame of a rank brings. Its id is made of the frame's place, so that a frame that
 * comes again (its SEEN was lost with a daemon) brings no second event. */
static int ranks_add_event(struct coordinator_job *job, uint32_t rank, uint32_t seq, int level,
                           const char *message, const char *data_json, struct err *err)
{
    static const char *const levels[] = {"info", "warn", "error"};
    struct coordinator *coordinator = job->coordinator;
    char id[LIMIT_ID_BYTES + 1];
    (void)snprintf(id, sizeof id, "ftevent-%.24s-%lld-%u-%u", job->id + strlen("ftjob-"),
                   (long long)job->attempt, rank, seq);
    const struct store_event row = {
        .id = id,
        .job_id = job->id,
        .created_ms = coordinator_wall(coordinator),
        .level = levels[level < 3 ? level : 2],
        .type = "message",
        .message = message,
        .data_json = data_json,
    };
    int64_t event_row = 0;
    TRY(store_event_insert_once(coordinator->store, &row, &event_row, err));
    bus_publish(coordinator->bus, &(struct bus_note){.job_id = job->id, .event_row = event_row});
    return 0;
}

static int ranks_checkpointed(struct coordinator_job *job, uint32_t rank,
                              const struct wire_frame *frame, struct err *err)
{
    char id[LIMIT_ID_BYTES + 1], text[192], data[128];
    int64_t step = (int64_t)frame->checkpointed.step;
    checkpoints_id(job->id, step, id);
    (void)snprintf(text, sizeof text, "Step %lld is saved: %s, %llu bytes.", (long long)step, id,
                   (unsigned long long)frame->checkpointed.bytes);
    (void)snprintf(data, sizeof data, "{\"checkpoint\":\"%s\",\"step\":%lld}", id, (long long)step);
    return ranks_add_event(job, rank, frame->seq, 0, text, data, err);
}

static int ranks_metrics(struct coordinator_job *job, uint32_t rank,
                         const struct wire_metrics *metrics, struct err *err)
{
    struct wire_metrics all = *metrics;
    gpu_load_take(&job->supervisor->ranks[rank].load, &all);
    TRY(telemetry_add(&job->coordinator->telemetry, job->id, job->attempt, rank, &all, err));
    if (rank == 0)
        coordinator_progress_stepped(job, metrics);
    if (rank == 0 && (int64_t)metrics->step != job->steps_done) {
        job->steps_done = (int64_t)metrics->step; /* less, when an older checkpoint was taken */
        job->progress_changed = true;
        coordinator_alert_metrics(job, metrics);
    }
    return 0;
}

/* What the job's row keeps of a frame is written before the frame is acknowledged: nothing else
 * would tell it to the next daemon. */
static int ranks_keep(struct coordinator_job *job, uint32_t rank, const struct wire_frame *frame,
                      struct err *err)
{
    if (frame->type == WIRE_READY && frame->ready.steps_total > 0) {
        job->steps_total = (int64_t)frame->ready.steps_total;
    } else if (frame->type == WIRE_DONE && rank == 0) {
        job->steps_done = (int64_t)frame->done.steps;
        job->trained_tokens = (int64_t)frame->done.trained_tokens;
    } else {
        return 0;
    }
    return coordinator_progress_put(job, err);
}

/* The first cause of a failure that a rank tells, for the next daemon too. */
static int ranks_failed(struct coordinator_job *job, uint32_t rank, const struct wire_frame *frame,
                        struct err *err)
{
    bool told = job->supervisor->told.code != ERR_NONE;
    struct err unwritten;
    TRY(supervisor_frame(job->supervisor, rank, frame, err));
    if (!told && job->supervisor->told.code != ERR_NONE &&
        coordinator_attempt_put(job, "", &job->supervisor->told, &unwritten) != 0)
        log_warn("coordinator", "%s: %s", job->id, unwritten.text);
    return 0;
}

static int ranks_frame(void *context, void *object, uint32_t rank, const struct wire_frame *frame,
                       struct err *err)
{
    (void)context;
    struct coordinator_job *job = object;
    must(job->supervisor != NULL);
    if (frame->type == WIRE_METRICS)
        TRY(ranks_metrics(job, rank, &frame->metrics, err));
    if (frame->type == WIRE_EVENT)
        TRY(ranks_add_event(job, rank, frame->seq, frame->event.level, frame->event.text, "", err));
    if (frame->type == WIRE_CHECKPOINTED)
        TRY(ranks_checkpointed(job, rank, frame, err));
    if (frame->type == WIRE_FAILED)
        return ranks_failed(job, rank, frame, err);
    TRY(ranks_keep(job, rank, frame, err));
    return supervisor_frame(job->supervisor, rank, frame, err);
}

/* Frames of <attempt folder>/unsent-R that did not come over the socket. */
static int ranks_take_file(struct coordinator_job *job, uint32_t rank, struct err *err)
{
    CLEANUP(mem_free_ptr)
    char *path = mem_printf("%s/unsent-%u", job->supervisor->attempt_dir, rank);
    CLEANUP(buf_done) struct buf frames;
    buf_init(&frames, LIMIT_REPORT_BYTES + LIMIT_FRAME_BYTES);
    if (path == NULL)
        return mem_fail(err, LIMIT_PATH_BYTES, "a path");
    if (!io_exists(path))
        return 0;
    TRY(io_read_file(path, LIMIT_REPORT_BYTES + LIMIT_FRAME_BYTES, &frames, err));
    for (;;) {
        struct wire_frame frame;
        size_t bytes = 0;
        TRY(wire_decode(&frames, &frame, &bytes, err));
        if (bytes == 0)
            return 0;
        if (frame.seq > job->supervisor->ranks[rank].received_seq)
            TRY(ranks_frame(NULL, job, rank, &frame, err));
        buf_drop_front(&frames, bytes);
    }
}

void coordinator_ranks_take_unsent(struct coordinator_job *job)
{
    for (uint32_t rank = 0; rank < job->supervisor->plan.world; rank++) {
        struct err err;
        if (ranks_take_file(job, rank, &err) != 0)
            log_warn("coordinator", "%s, what rank %u left unsent: %s", job->id, rank, err.text);
    }
}

static int64_t ranks_now(void *context)
{
    return coordinator_now(context);
}

int coordinator_ranks_listen(struct coordinator *coordinator, struct loop *loop, struct err *err)
{
    const struct ingest_owner owner = {
        .context = coordinator,
        .hello = ranks_hello,
        .frame = ranks_frame,
        .now_ms = ranks_now,
    };
    CLEANUP(mem_free_ptr) char *path = mem_printf("%s/job.sock", coordinator->config.data_dir);
    if (path == NULL)
        return mem_fail(err, strlen(coordinator->config.data_dir), "a path");
    return ingest_new(path, loop, &owner, &coordinator->ingest, err);
}

static void ranks_send(void *context, uint32_t rank, const struct wire_frame *frame)
{
    struct coordinator_job *job = context;
    ingest_send(job->coordinator->ingest, job, rank, frame);
}

static int ranks_connections(void *context)
{
    const struct coordinator_job *job = context;
    return ingest_count(job->coordinator->ingest, job);
}

struct supervisor_owner coordinator_ranks_owner(struct coordinator_job *job)
{
    return (struct supervisor_owner){
        .context = job, .send = ranks_send, .connections = ranks_connections};
}

void coordinator_ranks_acknowledge(struct coordinator *coordinator)
{
    for (struct coordinator_job *job = coordinator->jobs; job != NULL; job = job->next) {
        for (uint32_t i = 0; job->supervisor != NULL && i < job->supervisor->plan.world; i++) {
            struct supervisor_rank *rank = &job->supervisor->ranks[i];
            if (rank->seen_seq == rank->received_seq)
                continue;
            rank->seen_seq = rank->received_seq;
            ingest_send(coordinator->ingest, job, i,
                        &(struct wire_frame){.type = WIRE_SEEN, .number = rank->seen_seq});
        }
    }
}

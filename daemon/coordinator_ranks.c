/* coordinator_ranks: what ranks say. Points go to telemetry, sentences become events at once, and
 * all of it tells the supervisor that the rank lives. SEEN goes out after the commit only. */
#include "common/log.h"
#include "common/mem.h"
#include "common/must.h"
#include "daemon/coordinator_private.h"

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

static int ranks_event(struct coordinator_job *job, const struct wire_event *event, struct err *err)
{
    static const char *const levels[] = {"info", "warn", "error"};
    struct coordinator *coordinator = job->coordinator;
    char id[LIMIT_ID_BYTES + 1];
    TRY(host_new_id(coordinator->host, "ftevent-", id, sizeof id, err));
    const struct store_event row = {
        .id = id,
        .job_id = job->id,
        .created_ms = coordinator->host->ops->wall_ms(coordinator->host),
        .level = levels[event->level < 3 ? event->level : 2],
        .type = "message",
        .message = event->text,
        .data_json = "",
    };
    int64_t event_row = 0;
    TRY(store_event_insert(coordinator->store, &row, &event_row, err));
    bus_publish(coordinator->bus, &(struct bus_note){.job_id = job->id, .event_row = event_row});
    return 0;
}

static int ranks_metrics(struct coordinator_job *job, uint32_t rank,
                         const struct wire_metrics *metrics, struct err *err)
{
    TRY(telemetry_add(&job->coordinator->telemetry, job->id, job->attempt, rank, metrics, err));
    if (rank == 0 && (int64_t)metrics->step > job->steps_done) {
        job->steps_done = (int64_t)metrics->step;
        job->progress_changed = true;
    }
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
        TRY(ranks_event(job, &frame->event, err));
    TRY(supervisor_frame(job->supervisor, rank, frame, err));
    if (frame->type == WIRE_READY && frame->ready.steps_total > 0) {
        job->steps_total = (int64_t)frame->ready.steps_total;
        job->progress_changed = true;
    }
    return 0;
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

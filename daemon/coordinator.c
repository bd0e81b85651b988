/* coordinator: the list of unfinished jobs and the tick. A request changes rows and flags; what
 * follows from them (children, signals, ends) happens in the tick, a step a job, so that there is
 * one place where each thing is decided. */
#include "daemon/coordinator.h"

#include "common/json.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/must.h"
#include "daemon/checkpoints.h"
#include "daemon/coordinator_private.h"
#include "daemon/loop.h"

#include <stdio.h>
#include <string.h>

void coordinator_config_defaults(struct coordinator_config *ret_config)
{
    *ret_config = (struct coordinator_config){
        .heartbeat_limit_ms = 15000,
        .start_limit_ms = 600000,
        .connect_limit_ms = 60000,
        .stall_limit_ms = 1800000,
        .stall_alert_ms = 900000,
        .coll_timeout_ms = 300000,
        .orphan_limit_ms = 600000,
        .stop_grace_ms = 10000,
        .fair_share_half_life_ms = INT64_C(7) * 24 * 3600000,
        .policy = {.entry_penalty_s = 60, .preempt_after_ms = 1800000},
    };
}

int64_t coordinator_now(const struct coordinator *coordinator)
{
    return coordinator->host->ops->monotonic_ms(coordinator->host);
}

int64_t coordinator_epoch(const struct coordinator *coordinator)
{
    return coordinator_wall(coordinator) - coordinator_now(coordinator);
}

int64_t coordinator_wall(const struct coordinator *coordinator)
{
    return coordinator->host->ops->wall_ms(coordinator->host);
}

/* Of by_id: the id's hash (FNV-1a). */
static size_t coordinator_bucket(const char *id)
{
    uint32_t hash = 2166136261u;
    for (; *id != '\0'; id++)
        hash = (hash ^ (unsigned char)*id) * 16777619u;
    return hash % COORDINATOR_BUCKETS;
}

struct coordinator_job *coordinator_find(const struct coordinator *coordinator, const char *job_id)
{
    struct coordinator_job *job = coordinator->by_id[coordinator_bucket(job_id)];
    while (job != NULL && strcmp(job->id, job_id) != 0)
        job = job->next_by_id;
    return job;
}

static void coordinator_add(struct coordinator *coordinator, struct coordinator_job *job)
{
    struct coordinator_job **bucket = &coordinator->by_id[coordinator_bucket(job->id)];
    job->next_by_id = *bucket;
    *bucket = job;
    *coordinator->jobs_end = job;
    coordinator->jobs_end = &job->next;
    coordinator->job_count++;
    coordinator->some_ended |= job_state_is_end(job->state);
}

static void coordinator_remove_by_id(struct coordinator_job *job)
{
    struct coordinator_job **at = &job->coordinator->by_id[coordinator_bucket(job->id)];
    while (*at != job)
        at = &(*at)->next_by_id;
    *at = job->next_by_id;
}

static int coordinator_fill(struct coordinator_job *job, const struct store_job *row,
                            struct err *err)
{
    must(strlen(row->id) < sizeof job->id);
    (void)snprintf(job->id, sizeof job->id, "%s", row->id);
    job->state = row->state;
    job->row = row->row;
    job->created_ms = row->created_ms;
    job->attempt = row->attempt;
    job->prepared = row->prepared;
    job->restarts = row->restarts;
    job->ran_ms = row->ran_ms;
    job->steps_done = row->steps_done;
    job->steps_total = row->steps_total;
    job->trained_tokens = row->trained_tokens;
    job->predicted_step_s = row->predicted_step_s;
    TRY(usage_find(&job->coordinator->usage, row->owner, &job->user, err));
    job->model_dir = mem_strdup(row->model_dir);
    job->job_dir = mem_printf("%s/jobs/%s", job->coordinator->config.data_dir, row->id);
    if (job->model_dir == NULL || job->job_dir == NULL)
        return mem_fail(err, sizeof *job, "a job");
    CLEANUP(json_unref) json_t *spec = NULL;
    TRY(json_parse(row->spec_json, strlen(row->spec_json), row->id, &spec, err));
    TRY(job_spec_parse(spec, &job->spec, err));
    coordinator_depends_reset(job);
    return 0;
}

int coordinator_load(struct coordinator *coordinator, const struct store_job *row, struct err *err)
{
    struct coordinator_job *job = mem_new(1, sizeof *job);
    if (job == NULL)
        return mem_fail(err, sizeof *job, "a job");
    job->coordinator = coordinator;
    int rc = coordinator_fill(job, row, err);
    if (rc != 0) {
        coordinator_job_free(job);
        return err_wrap(err, rc, "job %s", row->id);
    }
    coordinator_add(coordinator, job);
    return 0;
}

static int coordinator_init(struct coordinator *coordinator, struct loop *loop, struct err *err)
{
    inventory_cpu_init(&coordinator->inventory, coordinator->config.cpu_slots);
    TRY(coordinator_gpus_open(coordinator, err));
    TRY(telemetry_init(&coordinator->telemetry, coordinator->store, coordinator->bus, err));
    TRY(coordinator_ranks_listen(coordinator, loop, err));
    TRY(coordinator_queue_init(coordinator, err));
    return coordinator_recover(coordinator, err);
}

int coordinator_new(const struct coordinator_config *config, struct host *host, struct store *store,
                    struct bus *bus, struct loop *loop, struct coordinator **ret_coordinator,
                    struct err *err)
{
    must(config->data_dir != NULL && config->worker_program != NULL);
    struct coordinator *coordinator = mem_new(1, sizeof *coordinator);
    if (coordinator == NULL)
        return mem_fail(err, sizeof *coordinator, "the coordinator");
    coordinator->config = *config;
    coordinator->host = host;
    coordinator->store = store;
    coordinator->bus = bus;
    coordinator->loop = loop;
    coordinator->jobs_end = &coordinator->jobs;
    int rc = coordinator_init(coordinator, loop, err);
    if (rc != 0) {
        coordinator_free(coordinator);
        return rc;
    }
    *ret_coordinator = coordinator;
    return 0;
}

void coordinator_free(struct coordinator *coordinator)
{
    if (coordinator == NULL)
        return;
    ingest_free(coordinator->ingest);
    gpu_watch_free(coordinator->watch);
    while (coordinator->jobs != NULL) {
        struct coordinator_job *job = coordinator->jobs;
        coordinator->jobs = job->next;
        coordinator_job_free(job);
    }
    usage_done(&coordinator->usage);
    telemetry_done(&coordinator->telemetry);
    mem_free(coordinator);
}

static int coordinator_load_row(void *context, const struct store_job *row, struct err *err)
{
    return coordinator_load(context, row, err);
}

static int coordinator_insert(struct coordinator *coordinator, const struct job_spec *spec,
                              double predicted_step_s, const char *model_dir, const char *owner,
                              const struct coordinator_point *point, const char *id,
                              struct err *err)
{
    CLEANUP(buf_done) struct buf text, asked;
    buf_init(&text, LIMIT_JSON_BODY_BYTES);
    buf_init(&asked, LIMIT_JSON_BODY_BYTES);
    TRY(coordinator_spec_print(spec, &text, err));
    if (spec->asked != NULL)
        TRY(json_print(spec->asked, &asked, err));
    char event_id[LIMIT_ID_BYTES + 1];
    TRY(host_new_id(coordinator->host, "ftevent-", event_id, sizeof event_id, err));
    const struct store_job row = {
        .id = id,
        .created_ms = coordinator_wall(coordinator),
        .owner = owner,
        .spec_json = buf_str(&text),
        .model = spec->model,
        .model_dir = model_dir,
        .training_file = spec->training_file,
        .validation_file = spec->validation_file,
        .priority = spec->priority,
        .ranks = job_spec_slots(spec),
        .steps_total = spec->max_steps,
        .predicted_step_s = predicted_step_s,
        .asked_json = buf_str(&asked),
        .experiment = point->experiment,
        .point = point->number,
    };
    int64_t event_row = 0;
    TRY(store_job_insert(coordinator->store, &row, event_id, &event_row, err));
    TRY(store_job_get(coordinator->store, id, coordinator_load_row, coordinator, err));
    bus_publish(coordinator->bus, &(struct bus_note){.job_id = id, .event_row = event_row});
    return 0;
}

int coordinator_submit(struct coordinator *coordinator, const struct job_spec *spec,
                       double predicted_step_s, const char *model_dir, const char *owner,
                       char ret_id[LIMIT_ID_BYTES + 1], struct err *err)
{
    return coordinator_submit_point(coordinator, spec, predicted_step_s, model_dir, owner,
                                    &(struct coordinator_point){.experiment = ""}, ret_id, err);
}

int coordinator_submit_point(struct coordinator *coordinator, const struct job_spec *spec,
                             double predicted_step_s, const char *model_dir, const char *owner,
                             const struct coordinator_point *point, char ret_id[LIMIT_ID_BYTES + 1],
                             struct err *err)
{
    const int64_t user_max = coordinator->config.policy.user_slots_max;
    if (coordinator->stopping)
        return err_set(err, ERR_UNAVAILABLE, "the daemon is stopping");
    if (coordinator->job_count >= LIMIT_JOBS_UNFINISHED)
        return err_set(err, ERR_TOO_MANY, "%d jobs are unfinished already", LIMIT_JOBS_UNFINISHED);
    if (user_max > 0 && job_spec_slots(spec) > user_max)
        return err_set_field(err, ERR_DOES_NOT_FIT, "ithaca.gpus",
                             "ithaca.gpus is %lld; one user may have %lld at once",
                             (long long)job_spec_slots(spec), (long long)user_max);
    TRY(coordinator_depends_check(coordinator, spec, owner, err));
    char id[LIMIT_ID_BYTES + 1], source[LIMIT_ID_BYTES + 1];
    int64_t step = -1;
    TRY(host_new_id(coordinator->host, "ftjob-", id, sizeof id, err));
    CLEANUP(mem_free_ptr) char *base = NULL;
    if (checkpoints_is_id(spec->model, source, &step) &&
        (base = mem_printf("%s/jobs/%s/base", coordinator->config.data_dir, id)) == NULL)
        return mem_fail(err, LIMIT_PATH_BYTES, "a path");
    TRY(coordinator_insert(coordinator, spec, predicted_step_s, base != NULL ? base : model_dir,
                           owner, point, id, err));
    log_info("coordinator", "%s submitted by %s", id, owner);
    memcpy(ret_id, id, sizeof id);
    return 0;
}

void coordinator_flush(struct coordinator *coordinator)
{
    struct err err;
    int rc = telemetry_flush(&coordinator->telemetry, &err);
    if (rc != 0 && !coordinator->flush_failing)
        log_error("coordinator", "metrics wait in memory: %s", err.text);
    coordinator->flush_failing = rc != 0;
    if (rc == 0)
        coordinator_ranks_acknowledge(coordinator);
}

void coordinator_drop_ended(struct coordinator *coordinator)
{
    struct coordinator_job **at = &coordinator->jobs;
    if (!coordinator->some_ended)
        return;
    coordinator->some_ended = false;
    while (*at != NULL) {
        struct coordinator_job *job = *at;
        if (!job_state_is_end(job->state)) {
            at = &job->next;
            continue;
        }
        must(!coordinator_job_has_process(job) && !job->has_slots);
        *at = job->next;
        coordinator_remove_by_id(job);
        coordinator->job_count--;
        coordinator_depends_ended(coordinator, job->id);
        coordinator_job_free(job);
    }
    coordinator->jobs_end = at;
}

/* It waits for somebody else: a step would do nothing. */
static bool coordinator_is_quiet(const struct coordinator_job *job)
{
    return job->state == JOB_STATE_PAUSED || (job->state == JOB_STATE_QUEUED && job->depends_known);
}

/* A step of each job; several may write and wait for the disk, so those for which no time is left
 * have theirs in the next tick. Returns whether there are none. */
static bool coordinator_step_jobs(struct coordinator *coordinator)
{
    const int64_t end_ms = coordinator_now(coordinator) + COORDINATOR_SLICE_MS;
    for (struct coordinator_job *job = coordinator->jobs; job != NULL; job = job->next) {
        if (coordinator_is_quiet(job) || job->round > coordinator->round)
            continue; /* or it has had its step */
        const int64_t now_ms = coordinator_now(coordinator);
        if (now_ms >= end_ms)
            return false;
        job->round = coordinator->round + 1;
        coordinator_attempt_follow_clock(job);
        if (job->retry_ms <= now_ms)
            coordinator_job_step(job);
    }
    coordinator->round++;
    return true;
}

bool coordinator_tick(struct coordinator *coordinator)
{
    loop_doing(coordinator->loop, "tick:", "points into the store");
    coordinator_flush(coordinator);
    loop_doing(coordinator->loop, "tick:", "ranks and GPUs");
    ingest_tick(coordinator->ingest);
    coordinator_gpus_look(coordinator);
    loop_doing(coordinator->loop, "tick:", "jobs");
    const bool all = coordinator_step_jobs(coordinator);
    coordinator_progress_tick(coordinator);
    coordinator_drop_ended(coordinator);
    loop_doing(coordinator->loop, "tick:", "the queue");
    coordinator_queue_tick(coordinator);
    return !all;
}

void coordinator_stop(struct coordinator *coordinator)
{
    coordinator->stopping = true;
    for (struct coordinator_job *job = coordinator->jobs; job != NULL; job = job->next)
        if (job->preparation != NULL)
            preparation_kill(job->preparation);
}

bool coordinator_is_idle(const struct coordinator *coordinator)
{
    bool leaving = coordinator->stopping && coordinator->config.leave_running;
    for (const struct coordinator_job *job = coordinator->jobs; job != NULL; job = job->next)
        if (job->preparation != NULL || (job->supervisor != NULL && !leaving))
            return false;
    return true;
}

bool coordinator_uses_file(const struct coordinator *coordinator, const char *file_id)
{
    const struct coordinator_job *job = coordinator->jobs;
    while (job != NULL && strcmp(job->spec.training_file, file_id) != 0 &&
           strcmp(job->spec.validation_file, file_id) != 0)
        job = job->next;
    return job != NULL;
}

bool coordinator_is_stopping(const struct coordinator *coordinator)
{
    return coordinator->stopping;
}

int64_t coordinator_slots(const struct coordinator *coordinator)
{
    return inventory_total(&coordinator->inventory);
}

const struct inventory *coordinator_inventory(const struct coordinator *coordinator)
{
    return &coordinator->inventory;
}

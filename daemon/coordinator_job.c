/* coordinator_job: one step of one job. A step that fails (the disk is full, memory is out) leaves
 * everything as it was and is tried again a second later: so a state in memory is always the state
 * in the store. */
#include "common/io.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/must.h"
#include "daemon/coordinator_private.h"
#include "daemon/launch_local.h"

#include <stdio.h>
#include <string.h>

void coordinator_job_free(struct coordinator_job *job)
{
    preparation_free(job->preparation);
    supervisor_free(job->supervisor);
    job_spec_done(&job->spec);
    mem_free(job->model_dir);
    mem_free(job->job_dir);
    mem_free(job);
}

bool coordinator_job_has_process(const struct coordinator_job *job)
{
    return job->preparation != NULL || job->supervisor != NULL;
}

static int job_move_full(struct coordinator_job *job, struct job_move *move, struct err *err)
{
    struct coordinator *coordinator = job->coordinator;
    move->id = job->id;
    move->from = job->state;
    int64_t event_row = 0;
    TRY(job_move(coordinator->store, coordinator->host, move, &event_row, err));
    log_info("coordinator", "%s is %s%s%s", job->id, job_state_name(move->to),
             move->reason_text != NULL ? ": " : "",
             move->reason_text != NULL ? move->reason_text : "");
    job->state = move->to;
    bus_publish(coordinator->bus, &(struct bus_note){.job_id = job->id, .event_row = event_row});
    return 0;
}

int coordinator_job_move(struct coordinator_job *job, enum job_state to, const struct err *why,
                         const char *event_text, struct err *err)
{
    struct job_move move = {
        .to = to,
        .reason = why != NULL ? why->code : ERR_NONE,
        .reason_text = why != NULL ? why->text : NULL,
        .event_text = event_text,
    };
    return job_move_full(job, &move, err);
}

/* ---- validating ---------------------------------------------------------------------------- */

int coordinator_job_queue(struct coordinator_job *job, struct err *err)
{
    struct queue_entry entry = {
        .priority = job->spec.priority, .created_ms = job->created_ms, .ranks = job->spec.gpus};
    memcpy(entry.job_id, job->id, sizeof entry.job_id);
    return queue_add(&job->coordinator->queue, &entry, err);
}

int coordinator_job_enqueue(struct coordinator_job *job, const char *event_text, struct err *err)
{
    struct queue *queue = &job->coordinator->queue;
    TRY(coordinator_job_queue(job, err));
    int rc = coordinator_job_move(job, JOB_STATE_QUEUED, NULL, event_text, err);
    if (rc != 0)
        queue_remove(queue, queue_find(queue, job->id));
    return rc;
}

static int job_set_file_status(struct coordinator_job *job, const char *file_id,
                               const struct preparation_file *file, struct err *err)
{
    int rc =
        store_file_set_status(job->coordinator->store, file_id, file->bad ? "error" : "processed",
                              file->bad ? file->details : "", err);
    return rc == -ERR_NOT_FOUND ? 0 : rc; /* deleted meanwhile */
}

static int job_take_verdict(struct coordinator_job *job, struct err *err)
{
    struct err why;
    CLEANUP(preparation_verdict_done) struct preparation_verdict verdict = {.file_count = 0};
    int rc = preparation_verdict(job->preparation, &verdict, &why);
    const char *file_ids[] = {job->spec.training_file, job->spec.validation_file};
    for (size_t i = 0; i < verdict.file_count; i++)
        TRY(job_set_file_status(job, file_ids[i], &verdict.files[i], err));
    if (rc != 0)
        return coordinator_job_move(job, JOB_STATE_FAILED, &why, NULL, err);
    const struct preparation_file *train = &verdict.files[0];
    char text[256];
    (void)snprintf(text, sizeof text,
                   "Files are in order: %lld training examples of %lld tokens, %lld with loss; "
                   "%lld lines dropped. Job is queued.",
                   (long long)train->kept, (long long)train->tokens,
                   (long long)train->trained_tokens, (long long)train->dropped);
    return coordinator_job_enqueue(job, text, err);
}

static void job_end_preparation(struct coordinator_job *job)
{
    preparation_free(job->preparation);
    job->preparation = NULL;
    job->coordinator->preparing--;
}

static int job_step_validating(struct coordinator_job *job, struct err *err)
{
    struct coordinator *coordinator = job->coordinator;
    if (job->preparation == NULL) {
        if (coordinator->stopping || coordinator->preparing >= COORDINATOR_PREPARING_MAX)
            return 0;
        struct err why;
        int rc = preparation_start(coordinator->host, coordinator->config.worker_program,
                                   coordinator->config.data_dir, job->job_dir, job->model_dir,
                                   &job->spec, &job->preparation, &why);
        if (rc != 0)
            return coordinator_job_move(job, JOB_STATE_FAILED, &why, NULL, err);
        coordinator->preparing++;
        return 0;
    }
    if (!preparation_is_over(job->preparation))
        return 0;
    if (!coordinator->stopping) /* else it was killed: the next daemon starts it again */
        TRY(job_take_verdict(job, err));
    job_end_preparation(job);
    return 0;
}

/* ---- starting ------------------------------------------------------------------------------ */

static int job_put_attempt(struct coordinator_job *job, const char *outcome, struct err *err)
{
    struct coordinator *coordinator = job->coordinator;
    const struct supervisor *supervisor = job->supervisor;
    const struct store_attempt attempt = {
        .job_id = job->id,
        .number = job->attempt,
        .started_ms = job->attempt_started_ms,
        .ended_ms = outcome[0] != '\0' ? coordinator->host->ops->wall_ms(coordinator->host) : 0,
        .keeper_pid = supervisor != NULL ? supervisor->identity.pid : 0,
        .keeper_start_time = supervisor != NULL ? (int64_t)supervisor->identity.start_time : 0,
        .boot_id = supervisor != NULL ? supervisor->identity.boot_id : "",
        .outcome = outcome,
    };
    return store_attempt_put(coordinator->store, &attempt, err);
}

static int job_plan(const struct coordinator_job *job, struct launch_plan *ret_plan,
                    struct err *err)
{
    const struct coordinator *coordinator = job->coordinator;
    const struct coordinator_config *config = &coordinator->config;
    struct launch_plan plan = {
        .attempt = (uint32_t)job->attempt,
        .world = (uint32_t)job->spec.gpus,
        .heartbeat_limit_ms = config->heartbeat_limit_ms,
        .coll_timeout_ms = config->coll_timeout_ms,
        .orphan_limit_ms = config->orphan_limit_ms,
        .threads = (uint32_t)inventory_threads(&coordinator->inventory, job->spec.gpus),
    };
    (void)snprintf(plan.job_id, sizeof plan.job_id, "%s", job->id);
    (void)snprintf(plan.socket, sizeof plan.socket, "%s/job.sock", config->data_dir);
    (void)snprintf(plan.model_name, sizeof plan.model_name, "%s", job->spec.model);
    if (plan.world > 1)
        (void)snprintf(plan.shm_name, sizeof plan.shm_name, "/ithaca-%s-%u",
                       job->id + strlen("ftjob-"), plan.attempt);
    TRY(coordinator->host->ops->random(coordinator->host, plan.secret, sizeof plan.secret, err));
    CLEANUP(json_unref) json_t *spec = job_spec_json(&job->spec);
    plan.job_dir = mem_strdup(job->job_dir);
    plan.model_dir = mem_strdup(job->model_dir);
    int rc = spec == NULL || plan.job_dir == NULL || plan.model_dir == NULL
                 ? mem_fail(err, 0, "a launch plan")
                 : job_spec_parse(spec, &plan.spec, err);
    if (rc != 0) {
        launch_plan_done(&plan);
        return rc;
    }
    *ret_plan = plan;
    return 0;
}

static int job_launch(struct coordinator_job *job, struct err *err)
{
    struct coordinator *coordinator = job->coordinator;
    struct launch_plan plan;
    TRY(job_plan(job, &plan, err));
    const struct supervisor_owner owner = coordinator_ranks_owner(job);
    int rc = supervisor_start(coordinator->host, &coordinator->config, &owner, &plan,
                              &job->supervisor, err);
    if (rc == -ERR_IO || rc == -ERR_NOT_FOUND)
        err->code = ERR_RANK_START; /* the sentence names the file; the code says what failed */
    return rc;
}

int coordinator_job_start(struct coordinator_job *job, struct err *err)
{
    struct coordinator *coordinator = job->coordinator;
    char text[128];
    int64_t previous = job->attempt;
    job->attempt++;
    job->attempt_started_ms = coordinator->host->ops->wall_ms(coordinator->host);
    (void)snprintf(text, sizeof text, "Job is starting: attempt %lld, %lld ranks.",
                   (long long)job->attempt, (long long)job->spec.gpus);
    struct job_move move = {.to = JOB_STATE_STARTING, .event_text = text, .attempt = job->attempt};
    int rc = job_put_attempt(job, "", err);
    if (rc == 0)
        rc = job_move_full(job, &move, err);
    if (rc != 0) {
        job->attempt = previous;
        return rc;
    }
    queue_remove(&coordinator->queue, queue_find(&coordinator->queue, job->id));
    inventory_take(&coordinator->inventory, job->spec.gpus);
    job->has_slots = true;
    job->requeue = false;
    job->failure.code = ERR_NONE;
    job->progress_changed = job->steps_done > 0; /* it starts over */
    job->steps_done = 0;
    if (job_launch(job, &job->failure) != 0)
        return 0; /* its next step fails it */
    struct err unwritten;
    if (job_put_attempt(job, "", &unwritten) != 0) /* keeper.json says the same */
        log_warn("coordinator", "%s: %s", job->id, unwritten.text);
    return 0;
}

/* ---- an attempt ---------------------------------------------------------------------------- */

static void job_write_progress(struct coordinator_job *job, bool now)
{
    struct coordinator *coordinator = job->coordinator;
    int64_t now_ms = coordinator_now(coordinator);
    struct err err;
    if (!job->progress_changed || (!now && now_ms - job->progress_ms < COORDINATOR_RETRY_MS))
        return;
    job->progress_ms = now_ms;
    if (store_job_progress(coordinator->store, job->id, job->steps_done, job->steps_total, &err) ==
        0)
        job->progress_changed = false;
    else
        log_warn("coordinator", "%s: %s", job->id, err.text);
}

/* "ft:<base>:local:<suffix>:<end of the id>", short enough for a name in a URL. */
static void job_result_name(const struct coordinator_job *job, char *ret_name, size_t bytes)
{
    const char *tail = job->id + strlen(job->id) - 8;
    (void)snprintf(ret_name, bytes, "ft:%.40s:local:%s:%s", job->spec.model, job->spec.suffix,
                   tail);
}

static int job_succeed(struct coordinator_job *job, struct err *err)
{
    char name[LIMIT_NAME_BYTES + 1], text[LIMIT_NAME_BYTES + 64];
    struct err why;
    CLEANUP(mem_free_ptr) char *model = io_join(job->job_dir, "model");
    if (model == NULL)
        return mem_fail(err, 0, "a path");
    if (!io_exists(model)) {
        (void)err_set(&why, ERR_INTERNAL, "the ranks ended well, but left no model");
        return coordinator_job_move(job, JOB_STATE_FAILED, &why, NULL, err);
    }
    if (job->state == JOB_STATE_STARTING) /* it was that fast */
        TRY(coordinator_job_move(job, JOB_STATE_RUNNING, NULL, NULL, err));
    job_result_name(job, name, sizeof name);
    (void)snprintf(text, sizeof text, "Job succeeded: the model is %s.", name);
    struct job_move move = {
        .to = JOB_STATE_SUCCEEDED,
        .event_text = text,
        .fine_tuned_model = name,
        .trained_tokens = (int64_t)job->supervisor->done.trained_tokens,
    };
    return job_move_full(job, &move, err);
}

/* The state after an attempt of which no process is left. */
static int job_end_attempt(struct coordinator_job *job, struct err *err)
{
    struct err why = {.code = ERR_NONE};
    int outcome = job->supervisor != NULL ? supervisor_outcome(job->supervisor, &why) : -1;
    if (job->supervisor == NULL)
        why = job->failure;
    if (outcome == 0 && job->steps_done < (int64_t)job->supervisor->done.steps) {
        job->steps_done = (int64_t)job->supervisor->done.steps;
        job->progress_changed = true;
    }
    job_write_progress(job, true);
    if (job->state == JOB_STATE_CANCELLING) {
        (void)err_set(&why, ERR_CANCELLED, "The job was cancelled.");
        TRY(coordinator_job_move(job, JOB_STATE_CANCELLED, &why, "Job is cancelled.", err));
    } else if (outcome == 0) {
        TRY(job_succeed(job, err));
    } else if (job->requeue) {
        TRY(coordinator_job_enqueue(
            job, "The daemon is stopping; the job is queued again and will start over.", err));
    } else {
        TRY(coordinator_job_move(job, JOB_STATE_FAILED, &why, NULL, err));
    }
    struct err unwritten;
    if (job->attempt > 0 &&
        job_put_attempt(job, outcome == 0 ? "ok" : err_code_name(why.code), &unwritten) != 0)
        log_warn("coordinator", "%s: %s", job->id, unwritten.text);
    if (job->supervisor != NULL) {
        launch_local_clean(&job->supervisor->plan);
        ingest_drop(job->coordinator->ingest, job);
        supervisor_free(job->supervisor);
        job->supervisor = NULL;
    }
    if (job->has_slots)
        inventory_give(&job->coordinator->inventory, job->spec.gpus);
    job->has_slots = false;
    return 0;
}

static void job_check_time_limit(struct coordinator_job *job)
{
    int64_t ran_ms = coordinator_now(job->coordinator) - job->running_ms;
    if (job->spec.time_limit_s == 0 || ran_ms <= job->spec.time_limit_s * 1000)
        return;
    struct err why;
    (void)err_set_field(&why, ERR_TIME_LIMIT, "ithaca.time_limit_s",
                        "the job ran longer than its time_limit_s of %lld",
                        (long long)job->spec.time_limit_s);
    supervisor_stop(job->supervisor, &why);
}

/* STARTING, RUNNING, CANCELLING. */
static int job_step_attempt(struct coordinator_job *job, struct err *err)
{
    if (job->supervisor == NULL)
        return job_end_attempt(job, err);
    supervisor_tick(job->supervisor);
    if (supervisor_is_over(job->supervisor)) {
        coordinator_flush(job->coordinator); /* points first, then the end of the job */
        return job_end_attempt(job, err);
    }
    if (job->state == JOB_STATE_STARTING && supervisor_is_ready(job->supervisor)) {
        TRY(coordinator_job_move(job, JOB_STATE_RUNNING, NULL, NULL, err));
        job->running_ms = coordinator_now(job->coordinator);
    }
    if (job->state == JOB_STATE_RUNNING)
        job_check_time_limit(job);
    job_write_progress(job, false);
    return 0;
}

static int job_step_cancelling(struct coordinator_job *job, struct err *err)
{
    if (job->preparation == NULL)
        return job_step_attempt(job, err);
    if (!preparation_is_over(job->preparation))
        return 0;
    job_end_preparation(job);
    return job_step_attempt(job, err);
}

void coordinator_job_step(struct coordinator_job *job)
{
    struct err err;
    int rc = 0;
    switch (job->state) {
    case JOB_STATE_VALIDATING:
        rc = job_step_validating(job, &err);
        break;
    case JOB_STATE_STARTING:
    case JOB_STATE_RUNNING:
        rc = job_step_attempt(job, &err);
        break;
    case JOB_STATE_CANCELLING:
        rc = job_step_cancelling(job, &err);
        break;
    default: /* QUEUED waits for the scheduler; an end needs nothing */
        break;
    }
    if (rc == 0)
        return;
    log_error("coordinator", "%s stays %s for now: %s", job->id, job_state_name(job->state),
              err.text);
    job->retry_ms = coordinator_now(job->coordinator) + COORDINATOR_RETRY_MS;
}

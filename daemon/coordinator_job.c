/* coordinator_job: one step of one job. A step that fails (the disk is full, memory is out) leaves
 * everything as it was and is tried again a second later: so a state in memory is always the state
 * in the store. */
#include "common/io.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/must.h"
#include "daemon/checkpoints.h"
#include "daemon/coordinator_private.h"

#include <stdio.h>

void coordinator_job_free(struct coordinator_job *job)
{
    preparation_free(job->preparation);
    supervisor_free(job->supervisor);
    results_free(job->results);
    job_spec_done(&job->spec);
    mem_free(job->model_dir);
    mem_free(job->job_dir);
    mem_free(job);
}

bool coordinator_job_has_process(const struct coordinator_job *job)
{
    return job->preparation != NULL || job->supervisor != NULL;
}

int coordinator_job_move(struct coordinator_job *job, struct job_move *move, struct err *err)
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
    coordinator->some_ended |= job_state_is_end(move->to);
    coordinator->queue_changes++;
    job->prepared |= move->to == JOB_STATE_QUEUED;
    job->restarts += move->restarted;
    if (move->from == JOB_STATE_FAILED)
        job->restarts = job->ran_ms = 0;
    bus_publish(coordinator->bus, &(struct bus_note){.job_id = job->id, .event_row = event_row});
    return 0;
}

int coordinator_job_move_to(struct coordinator_job *job, enum job_state to, const struct err *why,
                            const char *event_text, struct err *err)
{
    struct job_move move = {
        .to = to,
        .reason = why != NULL ? why->code : ERR_NONE,
        .reason_text = why != NULL ? why->text : NULL,
        .event_text = event_text,
    };
    return coordinator_job_move(job, &move, err);
}

/* ---- validating ---------------------------------------------------------------------------- */

int coordinator_job_enqueue(struct coordinator_job *job, struct job_move *move, struct err *err)
{
    move->to = JOB_STATE_QUEUED;
    TRY(coordinator_job_move(job, move, err));
    coordinator_depends_reset(job);
    return 0;
}

static int job_set_file_status(struct coordinator_job *job, const char *file_id,
                               const struct preparation_file *file, struct err *err)
{
    int rc = store_file_set_status(job->coordinator->store, file_id,
                                   file->hopeless ? "error" : "processed",
                                   file->hopeless ? file->details : "", err);
    return rc == -ERR_NOT_FOUND ? 0 : rc; /* deleted meanwhile */
}

static int job_take_verdict(struct coordinator_job *job, struct err *err)
{
    struct err why;
    CLEANUP(preparation_verdict_done) struct preparation_verdict verdict = {.file_count = 0};
    int rc = preparation_verdict(job->preparation, &verdict, &why);
    const char *file_ids[] = {job->spec.training_file, job->spec.validation_file};
    must(verdict.file_count <= sizeof file_ids / sizeof file_ids[0]);
    for (size_t i = 0; i < verdict.file_count; i++)
        TRY(job_set_file_status(job, file_ids[i], &verdict.files[i], err));
    if (rc != 0)
        return coordinator_job_move_to(job, JOB_STATE_FAILED, &why, NULL, err);
    if (verdict.file_count == 0)
        return coordinator_job_enqueue(
            job, &(struct job_move){.event_text = "Random tokens are there. Job is queued."}, err);
    const struct preparation_file *train = &verdict.files[0];
    char text[384], longer[128] = "";
    if (train->overlength > 0)
        (void)snprintf(longer, sizeof longer,
                       "; %lld longer than seq_len, %lld tokens of these unused",
                       (long long)train->overlength, (long long)train->tokens_cut);
    (void)snprintf(text, sizeof text,
                   "Files are in order: %lld training examples of %lld tokens, %lld with loss%s; "
                   "%lld lines dropped. Job is queued.",
                   (long long)train->kept, (long long)train->tokens,
                   (long long)train->trained_tokens, longer, (long long)train->dropped);
    return coordinator_job_enqueue(job, &(struct job_move){.event_text = text}, err);
}

static void job_end_preparation(struct coordinator_job *job)
{
    preparation_free(job->preparation);
    job->preparation = NULL;
    job->coordinator->preparing--;
}

/* What a file's user calls it; "" for one that was deleted, which the child then misses. */
static int job_file_name(struct coordinator_job *job, const char *file_id, char **ret_name,
                         struct err *err)
{
    int rc = store_file_name(job->coordinator->store, file_id, ret_name, err);
    if (rc != -ERR_NOT_FOUND)
        return rc;
    *ret_name = mem_strdup("");
    return *ret_name != NULL ? 0 : mem_fail(err, 1, "a name");
}

static int job_take_source(void *context, const struct store_job *source, struct err *err)
{
    struct preparation_base *base = context;
    base->model_dir = mem_strdup(source->model_dir);
    return base->model_dir != NULL ? 0 : mem_fail(err, LIMIT_PATH_BYTES, "a path");
}

/* Of a job that starts from a checkpoint: what its model is to be made of, unless it is there. */
static int job_find_base(struct coordinator_job *job, struct preparation_base *base,
                         struct err *err)
{
    struct coordinator *coordinator = job->coordinator;
    char source[LIMIT_ID_BYTES + 1];
    int64_t step = -1;
    if (!checkpoints_is_id(job->spec.model, source, &step) || io_exists(job->model_dir))
        return 0;
    TRY(store_job_get(coordinator->store, source, job_take_source, base, err));
    CLEANUP(mem_free_ptr)
    char *job_dir = mem_printf("%s/jobs/%s", coordinator->config.data_dir, source);
    base->checkpoint_dir = job_dir != NULL ? checkpoint_dir(job_dir, step) : NULL;
    return base->checkpoint_dir != NULL ? 0 : mem_fail(err, LIMIT_PATH_BYTES, "a path");
}

/* Starts the check of the job's files. */
static int job_start_preparation(struct coordinator_job *job, struct err *err)
{
    struct coordinator *coordinator = job->coordinator;
    const char *ids[PREPARE_FILES_MAX] = {job->spec.training_file, job->spec.validation_file};
    CLEANUP(mem_free_ptr) char *train = NULL;
    CLEANUP(mem_free_ptr) char *valid = NULL;
    CLEANUP(preparation_base_done) struct preparation_base base = {.model_dir = NULL};
    TRY(job_find_base(job, &base, err));
    if (ids[0][0] != '\0')
        TRY(job_file_name(job, ids[0], &train, err));
    if (ids[1][0] != '\0')
        TRY(job_file_name(job, ids[1], &valid, err));
    const struct preparation_job what = {.worker_program = coordinator->config.worker_program,
                                         .data_dir = coordinator->config.data_dir,
                                         .job_dir = job->job_dir,
                                         .model_dir = job->model_dir,
                                         .base = base,
                                         .spec = &job->spec,
                                         .names = {train, valid}};
    return preparation_start(coordinator->host, &what, &job->preparation, err);
}

static int job_step_validating(struct coordinator_job *job, struct err *err)
{
    struct coordinator *coordinator = job->coordinator;
    if (job->preparation == NULL) {
        if (coordinator->stopping || coordinator->preparing >= COORDINATOR_PREPARING_MAX)
            return 0;
        TRY(io_check_spare(err));
        struct err why;
        int rc = job_start_preparation(job, &why);
        if (err_is_shortage(rc)) {
            *err = why;
            return rc;
        }
        if (rc != 0)
            return coordinator_job_move_to(job, JOB_STATE_FAILED, &why, NULL, err);
        coordinator->preparing++;
        return 0;
    }
    if (!preparation_is_over(job->preparation))
        return 0;
    TRY(io_check_spare(err));
    if (!coordinator->stopping) /* else it was killed: the next daemon starts it again */
        TRY(job_take_verdict(job, err));
    job_end_preparation(job);
    return 0;
}

/* ---- any state ----------------------------------------------------------------------------- */

/* CANCELLING, PAUSING: of a job whose files are checked, or of an attempt. */
static int job_step_ending(struct coordinator_job *job, struct err *err)
{
    if (job->preparation != NULL) {
        if (!preparation_is_over(job->preparation))
            return 0;
        job_end_preparation(job);
    }
    if (job->state == JOB_STATE_PAUSING && !job->prepared)
        return coordinator_job_move_to(job, JOB_STATE_PAUSED, NULL, NULL, err);
    return coordinator_attempt_step(job, err);
}

void coordinator_job_step(struct coordinator_job *job)
{
    struct err err;
    int rc = 0;
    switch (job->state) {
    case JOB_STATE_VALIDATING:
        rc = job_step_validating(job, &err);
        break;
    case JOB_STATE_QUEUED: /* then it waits for the scheduler */
        rc = job->depends_known ? 0 : coordinator_depends_step(job, &err);
        break;
    case JOB_STATE_STARTING:
    case JOB_STATE_RUNNING:
    case JOB_STATE_PREEMPTING:
        rc = coordinator_attempt_step(job, &err);
        break;
    case JOB_STATE_PAUSING:
    case JOB_STATE_CANCELLING:
        rc = job_step_ending(job, &err);
        break;
    default: /* PAUSED waits for the user; an end needs nothing */
        break;
    }
    if (rc != 0 && rc != job->step_failing)
        log_error("coordinator", "%s stays %s for now: %s", job->id, job_state_name(job->state),
                  err.text);
    job->step_failing = rc;
    if (rc == 0)
        return;
    job->retry_ms = coordinator_now(job->coordinator) + COORDINATOR_RETRY_MS;
}

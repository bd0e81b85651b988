/* coordinator_attempt: one attempt of a job from its plan to the state that follows from its end.
 *
 * What becomes of a job whose ranks have all gone:
 *   cancelling                          cancelled
 *   done, and the model is there        succeeded (of one that measures: its report)
 *   paused, pausing                     paused
 *   paused, its time is up              failed (time_limit)
 *   paused otherwise                    queued: preempted, the daemon stops, or none was there
 *   a fault worth another try, pausing  paused: what the user asked for, from an older checkpoint
 *   the same, preempting                queued: no restart is counted
 *   a fault worth another try           queued, while max_restarts lasts
 *   any other fault                     failed */
#include "common/io.h"
#include "common/log.h"
#include "common/mem.h"
#include "daemon/checkpoints.h"
#include "daemon/coordinator_private.h"
#include "daemon/launch_local.h"
#include "daemon/measurement.h"
#include "daemon/notice.h"
#include "daemon/restart.h"
#include "daemon/result_name.h"
#include "daemon/store_attempts.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    ATTEMPT_LIMIT_MARGIN_MS = 60000, /* of a time limit, for a step and a checkpoint */
    ATTEMPT_CLOCK_MS = 2000          /* what the clock must be set by to matter */
};

/* ---- starting ------------------------------------------------------------------------------ */

void coordinator_attempt_follow_clock(struct coordinator_job *job)
{
    const int64_t epoch_ms = coordinator_epoch(job->coordinator);
    const int64_t jump_ms = epoch_ms - job->attempt_epoch_ms;
    struct err err;
    if (!job->has_attempt || job->attempt_ended_ms > 0 || llabs(jump_ms) < ATTEMPT_CLOCK_MS)
        return;
    job->attempt_started_ms += jump_ms;
    job->attempt_epoch_ms = epoch_ms;
    if (store_attempt_move(job->coordinator->store, job->id, job->attempt, job->attempt_started_ms,
                           &err) != 0)
        log_warn("coordinator", "%s: its start after the clock was set: %s", job->id, err.text);
}

int coordinator_attempt_put(struct coordinator_job *job, const char *outcome, const struct err *why,
                            struct err *err)
{
    struct coordinator *coordinator = job->coordinator;
    const struct supervisor *supervisor = job->supervisor;
    bool told = outcome[0] == '\0' && why != NULL;
    char gpus[STORE_GPUS_BYTES] = "";
    if (job->has_slots)
        inventory_uuids(&coordinator->inventory, job_spec_slots(&job->spec), job->gpus, gpus,
                        sizeof gpus);
    const struct store_attempt attempt = {
        .job_id = job->id,
        .number = job->attempt,
        .started_ms = job->attempt_started_ms,
        .ended_ms = outcome[0] == '\0'          ? 0
                    : job->attempt_ended_ms > 0 ? job->attempt_ended_ms
                                                : coordinator_wall(coordinator),
        .keeper_pid = supervisor != NULL ? supervisor->identity.pid : 0,
        .keeper_start_time = supervisor != NULL ? (int64_t)supervisor->identity.start_time : 0,
        .boot_id = supervisor != NULL ? supervisor->identity.boot_id : "",
        .outcome = told ? err_code_name(why->code) : outcome,
        .outcome_text = why != NULL ? why->text : "",
        .gpus = gpus,
        .from_step = job->attempt_from_step,
        .step = job->attempt_step,
        .tokens = job->attempt_tokens,
    };
    return store_attempt_put(coordinator->store, &attempt, err);
}

static int attempt_launch(struct coordinator_job *job, int64_t from_step, struct err *err)
{
    struct coordinator *coordinator = job->coordinator;
    struct launch_plan plan;
    CLEANUP(mem_free_ptr) char *model = io_join(job->job_dir, "model");
    if (model == NULL)
        return mem_fail(err, 0, "a path");
    TRY(io_remove_tree(model, err)); /* of an attempt that failed at its very end */
    TRY(measurement_clear(job->job_dir, err));
    int64_t host_bytes = INT64_MAX; /* not known: no limit */
    TRY(coordinator_plan_make(job, from_step, &plan, &host_bytes, err));
    coordinator_cgroup_make(job, host_bytes, &plan);
    const struct supervisor_owner owner = coordinator_ranks_owner(job);
    int rc = supervisor_start(coordinator->host, &coordinator->config, &owner, &plan,
                              &job->supervisor, err);
    if (rc == -ERR_IO || rc == -ERR_NOT_FOUND || rc == -ERR_UNAVAILABLE)
        err->code = ERR_RANK_START; /* the sentence names the file; the code says what failed */
    return rc;
}

static void attempt_give_slots(struct coordinator_job *job)
{
    if (job->has_slots)
        inventory_give(&job->coordinator->inventory, job_spec_slots(&job->spec), job->gpus);
    job->has_slots = false;
}

int coordinator_attempt_start(struct coordinator_job *job, struct err *err)
{
    struct coordinator *coordinator = job->coordinator;
    char text[192], id[LIMIT_ID_BYTES + 1], from[LIMIT_ID_BYTES + 32] = "";
    int64_t previous = job->attempt, step = -1;
    TRY(checkpoints_newest(job->job_dir, &step, err));
    checkpoints_id(job->id, step, id);
    if (step >= 0)
        (void)snprintf(from, sizeof from, ", from %s", id);
    job->attempt++;
    job->attempt_started_ms = coordinator_wall(coordinator);
    job->attempt_epoch_ms = coordinator_epoch(coordinator);
    job->attempt_ended_ms = job->attempt_tokens = 0;
    job->attempt_from_step = job->attempt_step = step > 0 ? step : 0;
    (void)snprintf(text, sizeof text, "Job is starting: attempt %lld, %lld ranks%s.",
                   (long long)job->attempt, (long long)job_spec_slots(&job->spec), from);
    struct job_move move = {.to = JOB_STATE_STARTING,
                            .event_text = text,
                            .attempt = job->attempt,
                            .resumed_step = step > 0 ? step : 0};
    if (job->elsewhere)
        inventory_take_elsewhere(&coordinator->inventory, job_spec_slots(&job->spec), job->gpus);
    else
        inventory_take(&coordinator->inventory, job_spec_slots(&job->spec), job->gpus);
    job->has_slots = true;
    int rc = coordinator_attempt_put(job, "", NULL, err);
    if (rc == 0)
        rc = coordinator_job_move(job, &move, err);
    if (rc != 0) {
        attempt_give_slots(job);
        job->attempt = previous;
        return rc;
    }
    coordinator_queue_entered(job);
    job->elsewhere = false;
    job->has_attempt = true;
    job->failure.code = job->gpu_fault.code = ERR_NONE;
    job->progress_changed |= job->steps_done != move.resumed_step;
    job->steps_done = move.resumed_step;
    if (attempt_launch(job, step, &job->failure) != 0)
        return 0; /* its next step fails it */
    struct err unwritten;
    if (coordinator_attempt_put(job, "", NULL, &unwritten) != 0) /* keeper.json says the same */
        log_warn("coordinator", "%s: %s", job->id, unwritten.text);
    return 0;
}

/* ---- running ------------------------------------------------------------------------------- */

/* So little of the time limit is left that the last step and its checkpoint must come now. */
static bool attempt_time_is_up(const struct coordinator_job *job)
{
    int64_t limit_ms = job->spec.time_limit_s * 1000;
    int64_t margin_ms =
        limit_ms / 10 < ATTEMPT_LIMIT_MARGIN_MS ? limit_ms / 10 : ATTEMPT_LIMIT_MARGIN_MS;
    return limit_ms > 0 && coordinator_progress_ran_ms(job) >= limit_ms - margin_ms;
}

static int attempt_tell_time_limit(const struct coordinator_job *job, const char *rest,
                                   struct err *err)
{
    return err_set_field(err, ERR_TIME_LIMIT, "ithaca.time_limit_s",
                         "the job ran for its time_limit_s of %lld; %s",
                         (long long)job->spec.time_limit_s, rest);
}

/* Asks the ranks to pause where they should, and insists where a time limit is passed. */
static void attempt_check(struct coordinator_job *job)
{
    struct coordinator *coordinator = job->coordinator;
    bool leaving = coordinator->stopping && !coordinator->config.leave_running;
    bool time_is_up = attempt_time_is_up(job);
    if (job->state == JOB_STATE_PAUSING || job->state == JOB_STATE_PREEMPTING || leaving ||
        time_is_up)
        supervisor_pause(job->supervisor);
    int64_t last_ms = job->spec.time_limit_s * 1000 + coordinator->config.stop_grace_ms;
    if (time_is_up && coordinator_progress_ran_ms(job) > last_ms) {
        struct err why;
        (void)attempt_tell_time_limit(job, "it did not end in time by itself", &why);
        supervisor_stop(job->supervisor, &why);
    }
}

/* ---- the end ------------------------------------------------------------------------------- */

/* Its report is there, else it cannot have succeeded. */
static int attempt_measured(struct coordinator_job *job, struct err *err)
{
    const struct measurement measurement = {.inventory = &job->coordinator->inventory,
                                            .data_dir = job->coordinator->config.data_dir,
                                            .job_dir = job->job_dir,
                                            .model_dir = job->model_dir,
                                            .spec = &job->spec};
    char text[512];
    struct err why;
    if (measurement_report(&measurement, text, sizeof text, &why) != 0)
        return coordinator_job_move_to(job, JOB_STATE_FAILED, &why, NULL, err);
    return coordinator_job_move_to(job, JOB_STATE_SUCCEEDED, NULL, text, err);
}

static int attempt_succeeded(struct coordinator_job *job, struct err *err)
{
    char name[RESULT_NAME_BYTES], text[RESULT_NAME_BYTES + 512];
    struct err why;
    if (job->state == JOB_STATE_STARTING) /* it was that fast */
        TRY(coordinator_job_move_to(job, JOB_STATE_RUNNING, NULL, NULL, err));
    if (job_spec_measures(&job->spec))
        return attempt_measured(job, err);
    CLEANUP(mem_free_ptr) char *model = io_join(job->job_dir, "model");
    if (model == NULL)
        return mem_fail(err, 0, "a path");
    if (!io_exists(model)) {
        (void)err_set(&why, ERR_INTERNAL, "the ranks ended well, but left no model");
        return coordinator_job_move_to(job, JOB_STATE_FAILED, &why, NULL, err);
    }
    result_name(job->spec.model, job->spec.suffix, job->id, -1, name);
    if (job->spec.lora && job->spec.lora_export == JOB_lora_export_ADAPTER)
        (void)snprintf(
            text, sizeof text,
            "Job succeeded: the adapters are %s. Fetch them: ithaca download %s --output "
            "DIR; load them: peft.PeftModel.from_pretrained(base, \"DIR\")",
            name, job->id);
    else
        (void)snprintf(text, sizeof text,
                       "Job succeeded: the model is %s. Fetch it: ithaca download %s --output DIR; "
                       "load it: transformers.AutoModelForCausalLM.from_pretrained(\"DIR\"); "
                       "ask it: ithaca sample --job %s --prompt TEXT",
                       name, job->id, job->id);
    struct job_move move = {
        .to = JOB_STATE_SUCCEEDED,
        .event_text = text,
        .fine_tuned_model = name,
        .trained_tokens = job->trained_tokens,
    };
    return coordinator_job_move(job, &move, err);
}

/* "step 40 is saved (ftckpt_...)", or that nothing is. */
static int attempt_tell_saved(const struct coordinator_job *job, char *ret_text, size_t bytes,
                              bool *ret_saved, struct err *err)
{
    int64_t step = -1;
    char id[LIMIT_ID_BYTES + 1];
    int rc = checkpoints_newest(job->job_dir, &step, err);
    if (rc == -ERR_NOMEM)
        return rc;
    checkpoints_id(job->id, step, id);
    *ret_saved = step >= 0;
    if (rc != 0) /* its end is not put off until they can be */
        (void)snprintf(ret_text, bytes, "its checkpoints cannot be listed");
    else if (step >= 0)
        (void)snprintf(ret_text, bytes, "step %lld is saved (%s)", (long long)step, id);
    else
        (void)snprintf(ret_text, bytes, "no checkpoint is there, it would start over");
    return 0;
}

static int attempt_paused(struct coordinator_job *job, struct err *err)
{
    const bool stopping = job->coordinator->stopping;
    char saved[128], text[256];
    bool is_saved = false;
    struct err why;
    TRY(attempt_tell_saved(job, saved, sizeof saved, &is_saved, err));
    if (job->state == JOB_STATE_PAUSING) {
        (void)snprintf(text, sizeof text, "Job is paused: %s.", saved);
        return coordinator_job_move_to(job, JOB_STATE_PAUSED, NULL, text, err);
    }
    if (attempt_time_is_up(job)) {
        (void)snprintf(text, sizeof text, "%s: resume gives it as much time again", saved);
        (void)attempt_tell_time_limit(job, text, &why);
        return coordinator_job_move_to(job, JOB_STATE_FAILED, &why, NULL, err);
    }
    const char *cause = job->state == JOB_STATE_PREEMPTING ? "Job has made room"
                        : stopping                         ? "The daemon is stopping"
                                                           : "The ranks ended without a daemon";
    (void)snprintf(text, sizeof text, "%s and the job is queued again: %s.", cause, saved);
    return coordinator_job_enqueue(job, &(struct job_move){.event_text = text}, err);
}

static int attempt_faulted(struct coordinator_job *job, const struct err *why, struct err *err)
{
    char saved[128], text[ERR_TEXT_MAX + 256];
    bool is_saved = false, again = restart_may(why->code);
    TRY(attempt_tell_saved(job, saved, sizeof saved, &is_saved, err));
    job->elsewhere = again; /* its GPUs may be to blame */
    if (again && job->state == JOB_STATE_PAUSING) {
        (void)snprintf(text, sizeof text, "%s. Job is paused: %s.", why->text, saved);
        return coordinator_job_move_to(job, JOB_STATE_PAUSED, NULL, text, err);
    }
    if (again && job->state == JOB_STATE_PREEMPTING) {
        (void)snprintf(text, sizeof text, "%s. Job has made room and is queued again: %s.",
                       why->text, saved);
        return coordinator_job_enqueue(job, &(struct job_move){.event_text = text}, err);
    }
    if (again && job->restarts < job->spec.max_restarts) {
        (void)snprintf(text, sizeof text, "%s. Restart %lld of %lld: %s.", why->text,
                       (long long)job->restarts + 1, (long long)job->spec.max_restarts, saved);
        struct job_move move = {.event_text = text, .restarted = true};
        return coordinator_job_enqueue(job, &move, err);
    }
    (void)snprintf(text, sizeof text, "%s. To go on, resume the job: %s.", why->text, saved);
    return coordinator_job_move_to(job, JOB_STATE_FAILED, why, is_saved ? text : NULL, err);
}

static int attempt_settle(struct coordinator_job *job, bool well, bool paused,
                          const struct err *why, struct err *err)
{
    if (job->state == JOB_STATE_CANCELLING) {
        struct err cancelled;
        (void)err_set(&cancelled, ERR_CANCELLED, "The job was cancelled.");
        return coordinator_job_move_to(job, JOB_STATE_CANCELLED, &cancelled, "Job is cancelled.",
                                       err);
    }
    if (!well)
        return attempt_faulted(job, why, err);
    return paused ? attempt_paused(job, err) : attempt_succeeded(job, err);
}

/* Closes the attempt's row and frees what it holds. */
static void attempt_release(struct coordinator_job *job, const char *outcome, const struct err *why)
{
    struct coordinator *coordinator = job->coordinator;
    struct err unwritten;
    if (job->has_attempt && coordinator_attempt_put(job, outcome, why, &unwritten) != 0)
        log_warn("coordinator", "%s: %s", job->id, unwritten.text);
    if (job->supervisor != NULL) {
        launch_local_clean(&job->supervisor->plan);
        ingest_drop(coordinator->ingest, job);
        supervisor_free(job->supervisor);
        job->supervisor = NULL;
    }
    coordinator_queue_charge(coordinator, true);
    attempt_give_slots(job);
    job->has_attempt = false;
    job->ran_ms = coordinator_progress_ran_ms(job);
    job->running_ms = 0;
}

/* Writes some of the result file; a job does not fail for the want of one. */
static void attempt_write_results(struct coordinator_job *job)
{
    const struct coordinator *coordinator = job->coordinator;
    struct err why;
    int rc = 0;
    if (job->results == NULL)
        rc = results_new(coordinator->store, coordinator->host, coordinator->config.data_dir,
                         job->id, &job->results, &why);
    if (rc == 0)
        rc = results_step(job->results, &job->has_results, &why);
    if (rc != 0)
        log_warn("coordinator", "%s has no result file: %s", job->id, why.text);
    job->has_results = job->has_results || rc != 0;
    if (!job->has_results)
        return;
    results_free(job->results);
    job->results = NULL;
}

/* The state after an attempt of which no process is left. */
static int attempt_end(struct coordinator_job *job, struct err *err)
{
    struct err why = job->failure;
    bool paused = false;
    TRY(io_check_spare(err));
    bool well = job->supervisor != NULL && supervisor_outcome(job->supervisor, &paused, &why) == 0;
    if (!well && !coordinator_gpus_have_told(job))
        return 0;
    if (!well)
        coordinator_gpus_blame(job, &why);
    if (well && paused && job->supervisor->ranks[0].paused) /* some steps' metrics may be missing */
        job->steps_done = (int64_t)job->supervisor->paused.step;
    TRY(coordinator_progress_put(job, err));
    bool has_learnt =
        well && !paused && job->state != JOB_STATE_CANCELLING && !job_spec_measures(&job->spec);
    if (has_learnt && !job->has_results)
        attempt_write_results(job);
    if (has_learnt && !job->has_results) /* the next tick goes on */
        return 0;
    TRY(attempt_settle(job, well, paused, &why, err));
    attempt_release(job,
                    !well    ? err_code_name(why.code)
                    : paused ? "paused"
                             : "ok",
                    well ? NULL : &why);
    return 0;
}

/* Tells the user why a job that is to end does not. */
static int attempt_tell_stuck(struct coordinator_job *job, struct err *err)
{
    struct coordinator *coordinator = job->coordinator;
    char text[256];
    if (job->supervisor->stuck_told || !supervisor_is_stuck(job->supervisor, text, sizeof text))
        return 0;
    const struct notice notice = {.job_id = job->id, .level = "warn", .text = text};
    TRY(notice_put(coordinator->store, coordinator->host, coordinator->bus, &notice, err));
    log_warn("coordinator", "%s: %s", job->id, text);
    job->supervisor->stuck_told = true;
    return 0;
}

int coordinator_attempt_step(struct coordinator_job *job, struct err *err)
{
    if (job->recover_until_ms > 0)
        return coordinator_recover_attempt(job, err);
    if (job->supervisor == NULL)
        return attempt_end(job, err);
    supervisor_tick(job->supervisor);
    if (supervisor_is_over(job->supervisor)) {
        coordinator_ranks_take_unsent(job);
        coordinator_flush(job->coordinator); /* points first, then the end of the job */
        return attempt_end(job, err);
    }
    TRY(attempt_tell_stuck(job, err));
    if (job->state == JOB_STATE_STARTING && supervisor_is_ready(job->supervisor)) {
        TRY(coordinator_job_move_to(job, JOB_STATE_RUNNING, NULL, NULL, err));
        job->running_ms = coordinator_now(job->coordinator);
    }
    if (job->state != JOB_STATE_CANCELLING)
        attempt_check(job);
    coordinator_alert_check(job);
    return 0;
}

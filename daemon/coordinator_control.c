/* coordinator_control: what users ask of a job that is there: cancel, pause, resume. Each changes
 * the state at once; what follows from it happens in the job's steps. */
#include "common/mem.h"
#include "daemon/checkpoints.h"
#include "daemon/coordinator_private.h"

#include <stdio.h>
#include <string.h>

/* ---- cancel -------------------------------------------------------------------------------- */

static int control_check_cancelled(void *context, const struct store_job *row, struct err *err)
{
    (void)context;
    if (row->state == JOB_STATE_CANCELLED)
        return 0;
    return err_set(err, ERR_BAD_STATE, "job %s has ended: it is %s", row->id,
                   job_state_name(row->state));
}

/* Nothing of it runs or may run, so that it is cancelled with one write. */
static bool control_is_still(const struct coordinator_job *job)
{
    const bool waits = job->state == JOB_STATE_QUEUED || job->state == JOB_STATE_PAUSED ||
                       job->state == JOB_STATE_VALIDATING;
    return waits && !coordinator_job_has_process(job);
}

int coordinator_cancel(struct coordinator *coordinator, const char *job_id, struct err *err)
{
    struct coordinator_job *job = coordinator_find(coordinator, job_id);
    if (job == NULL)
        return store_job_get(coordinator->store, job_id, control_check_cancelled, NULL, err);
    if (job->state == JOB_STATE_CANCELLING)
        return 0;
    struct err why;
    (void)err_set(&why, ERR_CANCELLED, "The job was cancelled.");
    if (control_is_still(job)) {
        TRY(coordinator_job_move_to(job, JOB_STATE_CANCELLED, &why, "Job is cancelled.", err));
        coordinator_drop_ended(coordinator);
        return 0;
    }
    TRY(coordinator_job_move_to(job, JOB_STATE_CANCELLING, &why, "Job is being cancelled.", err));
    job->retry_ms = 0;
    if (job->preparation != NULL)
        preparation_kill(job->preparation);
    if (job->supervisor != NULL)
        supervisor_stop(job->supervisor, NULL);
    return 0;
}

/* ---- pause --------------------------------------------------------------------------------- */

static int control_refuse(void *context, const struct store_job *row, struct err *err)
{
    return err_set(err, ERR_BAD_STATE, "job %s cannot be %s: it is %s", row->id,
                   (const char *)context, job_state_name(row->state));
}

static int control_refuse_job(const struct coordinator_job *job, char *what, struct err *err)
{
    return store_job_get(job->coordinator->store, job->id, control_refuse, what, err);
}

int coordinator_pause(struct coordinator *coordinator, const char *job_id, struct err *err)
{
    char what[] = "paused";
    struct coordinator_job *job = coordinator_find(coordinator, job_id);
    if (job == NULL)
        return store_job_get(coordinator->store, job_id, control_refuse, what, err);
    if (job->state == JOB_STATE_PAUSING || job->state == JOB_STATE_PAUSED)
        return 0;
    if (!job_state_may_move(job->state, JOB_STATE_PAUSING) &&
        !job_state_may_move(job->state, JOB_STATE_PAUSED))
        return control_refuse_job(job, what, err);
    bool at_once = job->state == JOB_STATE_QUEUED ||
                   (job->state == JOB_STATE_VALIDATING && job->preparation == NULL);
    TRY(coordinator_job_move_to(job, at_once ? JOB_STATE_PAUSED : JOB_STATE_PAUSING, NULL, NULL,
                                err));
    job->retry_ms = 0;
    if (job->preparation != NULL)
        preparation_kill(job->preparation);
    return 0;
}

/* ---- profile ------------------------------------------------------------------------------- */

static int control_refuse_profile(void *context, const struct store_job *row, struct err *err)
{
    (void)context;
    return err_set(err, ERR_BAD_STATE,
                   "job %s cannot be profiled: it is %s; ask while it runs, or let a job like it "
                   "be profiled from its start: ithaca resubmit %s --set profile.steps=[3,5]",
                   row->id, job_state_name(row->state), row->id);
}

int coordinator_profile(struct coordinator *coordinator, const char *job_id, int64_t steps,
                        struct err *err)
{
    struct coordinator_job *job = coordinator_find(coordinator, job_id);
    if (job == NULL || job->state != JOB_STATE_RUNNING || job->supervisor == NULL)
        return store_job_get(coordinator->store, job_id, control_refuse_profile, NULL, err);
    return supervisor_profile(job->supervisor, steps, err);
}

/* ---- resume -------------------------------------------------------------------------------- */

/* The checkpoint asked for is there and becomes the newest. */
static int control_choose_checkpoint(const struct coordinator_job *job, const char *checkpoint_id,
                                     struct err *err)
{
    int64_t step = checkpoints_step(job->id, checkpoint_id);
    struct checkpoint_manifest manifest;
    struct err unread;
    CLEANUP(mem_free_ptr) char *dir = checkpoint_dir(job->job_dir, step);
    if (dir == NULL)
        return mem_fail(err, strlen(job->job_dir), "a path");
    if (step < 0 || checkpoint_manifest_read(dir, &manifest, &unread) != 0)
        return err_set_field(err, ERR_NOT_FOUND, "checkpoint",
                             "checkpoint: job %s has no checkpoint \"%s\"", job->id, checkpoint_id);
    return checkpoint_discard_after(job->job_dir, step, err);
}

static int control_resume(struct coordinator_job *job, const char *checkpoint_id, struct err *err)
{
    int64_t step = -1;
    char text[128];
    TRY(checkpoints_newest(job->job_dir, &step, err));
    if (job->state == JOB_STATE_FAILED && step < 0)
        return err_set(err, ERR_BAD_STATE,
                       "job %s has failed and has no checkpoint to go on from: submit it anew",
                       job->id);
    if (checkpoint_id != NULL) {
        TRY(control_choose_checkpoint(job, checkpoint_id, err));
        TRY(checkpoints_newest(job->job_dir, &step, err));
    }
    if (!job->prepared)
        return coordinator_job_move_to(job, JOB_STATE_VALIDATING, NULL,
                                       "Job is resumed; its files are being checked.", err);
    job->steps_done = step > 0 ? step : 0;
    TRY(coordinator_progress_put(job, err));
    (void)snprintf(text, sizeof text, "Job is resumed: it goes on after step %lld.",
                   (long long)job->steps_done);
    return coordinator_job_enqueue(job, &(struct job_move){.event_text = text}, err);
}

static int control_load_failed(void *context, const struct store_job *row, struct err *err)
{
    char what[] = "resumed";
    if (row->state != JOB_STATE_FAILED)
        return control_refuse(what, row, err);
    return coordinator_load(context, row, err);
}

int coordinator_resume(struct coordinator *coordinator, const char *job_id,
                       const char *checkpoint_id, struct err *err)
{
    char what[] = "resumed";
    if (coordinator->stopping)
        return err_set(err, ERR_UNAVAILABLE, "the daemon is stopping");
    struct coordinator_job *job = coordinator_find(coordinator, job_id);
    if (job == NULL) {
        TRY(store_job_get(coordinator->store, job_id, control_load_failed, coordinator, err));
        job = coordinator_find(coordinator, job_id);
    }
    if (job->state != JOB_STATE_PAUSED && job->state != JOB_STATE_FAILED)
        return control_refuse_job(job, what, err);
    int rc = control_resume(job, checkpoint_id, err);
    if (rc != 0)
        coordinator_drop_ended(coordinator); /* one that failed has failed still */
    return rc;
}

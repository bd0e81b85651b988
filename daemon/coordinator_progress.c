/* coordinator_progress: steps, tokens and times of jobs, and their way into the store. What all
 * jobs have done is written once in COORDINATOR_RETRY_MS, in one transaction: each one of its own
 * would wait for the disk. A job that ends, and what a rank tells once, does not wait for that. */
#include "common/log.h"
#include "daemon/coordinator_private.h"

int64_t coordinator_progress_ran_ms(const struct coordinator_job *job)
{
    int64_t now_ms = coordinator_now(job->coordinator);
    return job->ran_ms + (job->running_ms > 0 ? now_ms - job->running_ms : 0);
}

/* What a rank sends again after a daemon was killed is counted once: steps of an attempt rise. */
void coordinator_progress_stepped(struct coordinator_job *job, const struct wire_metrics *metrics)
{
    const int64_t step = (int64_t)metrics->step;
    if (job->attempt_tokens == 0 && step <= job->attempt_from_step) {
        job->attempt_from_step = step - 1; /* the newest checkpoint was damaged */
        job->attempt_step = step - 1;
    }
    if (step <= job->attempt_step)
        return;
    job->attempt_step = step;
    for (uint32_t i = 0; i < metrics->count; i++)
        if (metrics->points[i].metric == METRIC_TOKENS)
            job->attempt_tokens += (int64_t)metrics->points[i].value;
}

int coordinator_progress_put(struct coordinator_job *job, struct err *err)
{
    const struct store_progress progress = {
        .steps_done = job->steps_done,
        .steps_total = job->steps_total,
        .trained_tokens = job->trained_tokens,
        .ran_ms = coordinator_progress_ran_ms(job),
        .attempt = job->has_attempt ? job->attempt : 0,
        .from_step = job->attempt_from_step,
        .step = job->attempt_step,
        .tokens = job->attempt_tokens,
    };
    TRY(store_job_progress(job->coordinator->store, job->id, &progress, err));
    job->progress_changed = false;
    return 0;
}

static int progress_put_all(void *context, struct err *err)
{
    const struct coordinator *coordinator = context;
    for (struct coordinator_job *job = coordinator->jobs; job != NULL; job = job->next)
        if (job->progress_changed && job->supervisor != NULL)
            TRY(coordinator_progress_put(job, err));
    return 0;
}

static bool progress_is_changed(const struct coordinator *coordinator)
{
    const struct coordinator_job *job = coordinator->jobs;
    while (job != NULL && !(job->progress_changed && job->supervisor != NULL))
        job = job->next;
    return job != NULL;
}

void coordinator_progress_tick(struct coordinator *coordinator)
{
    int64_t now_ms = coordinator_now(coordinator);
    struct err err;
    if (now_ms - coordinator->progress_ms < COORDINATOR_RETRY_MS)
        return;
    coordinator->progress_ms = now_ms;
    if (!progress_is_changed(coordinator))
        return;
    int rc = store_together(coordinator->store, progress_put_all, coordinator, &err);
    if (rc != 0 && !coordinator->progress_failing)
        log_warn("coordinator", "steps are not stored for now: %s", err.text);
    coordinator->progress_failing = rc != 0;
    for (struct coordinator_job *job = coordinator->jobs; rc != 0 && job != NULL; job = job->next)
        job->progress_changed |= job->supervisor != NULL; /* none of them is */
}

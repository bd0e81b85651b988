/* coordinator_alert: what is worth telling of a job that runs on: events with "alert" in their
 * data, which webhooks carry (webhooks.h). Each is told once: of an attempt that its loss is not
 * finite, of a step that it does not come. */
#include "common/log.h"
#include "daemon/coordinator_private.h"
#include "daemon/notice.h"

#include <math.h>
#include <stdio.h>

enum { ALERT_STEPS = 3 }; /* a step that takes as long as so many others has stalled */

static void alert_put(struct coordinator_job *job, const char *alert, const char *text)
{
    struct coordinator *coordinator = job->coordinator;
    struct err err;
    const struct notice notice = {
        .job_id = job->id,
        .level = "warn",
        .text = text,
        .data = json_pack("{s:s, s:I}", "alert", alert, "step", (json_int_t)job->steps_done)};
    if (notice_put(coordinator->store, coordinator->host, coordinator->bus, &notice, &err) != 0)
        log_warn("coordinator", "%s: %s: %s", job->id, text, err.text);
}

void coordinator_alert_metrics(struct coordinator_job *job, const struct wire_metrics *metrics)
{
    const int64_t now_ms = coordinator_now(job->coordinator);
    char text[128];
    job->step_took_ms = job->step_ms > job->running_ms ? now_ms - job->step_ms : 0;
    job->step_ms = now_ms;
    job->stall_told = false;
    for (uint32_t i = 0; i < metrics->count && job->nonfinite_attempt != job->attempt; i++) {
        const struct wire_point *point = &metrics->points[i];
        if ((point->metric != METRIC_LOSS && point->metric != METRIC_GRAD_NORM) ||
            isfinite(point->value))
            continue;
        job->nonfinite_attempt = job->attempt;
        (void)snprintf(text, sizeof text, "The %s of step %lld is not finite.",
                       point->metric == METRIC_LOSS ? "loss" : "gradient norm",
                       (long long)metrics->step);
        alert_put(job, "nonfinite", text);
    }
}

int64_t coordinator_alert_limit_ms(int64_t setting_ms, int64_t step_took_ms, double predicted_s)
{
    const double steps_ms =
        ALERT_STEPS * fmax((double)step_took_ms, predicted_s * 1000); /* long contexts take long */
    return steps_ms > (double)setting_ms ? (int64_t)steps_ms : setting_ms;
}

void coordinator_alert_check(struct coordinator_job *job)
{
    const int64_t setting_ms = job->coordinator->config.stall_alert_ms;
    if (setting_ms == 0 || job->state != JOB_STATE_RUNNING || job->stall_told)
        return;
    const int64_t since_ms = job->step_ms > job->running_ms ? job->step_ms : job->running_ms;
    const int64_t waited_ms = coordinator_now(job->coordinator) - since_ms;
    if (waited_ms <
        coordinator_alert_limit_ms(setting_ms, job->step_took_ms, job->predicted_step_s))
        return;
    char text[128];
    job->stall_told = true;
    (void)snprintf(text, sizeof text, "No step has ended for %lld s, since step %lld.",
                   (long long)waited_ms / 1000, (long long)job->steps_done);
    alert_put(job, "stalled", text);
}

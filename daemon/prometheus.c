/* prometheus: GET /metrics: what this daemon and its jobs do, for Prometheus. Labels are bounded:
 * states, routes, GPUs of the machine, users, jobs that run now. A user sees its own jobs, as
 * elsewhere. */
#include "common/mem.h"
#include "common/must.h"
#include "daemon/access.h"
#include "daemon/api.h"
#include "daemon/coordinator.h"
#include "daemon/exposition.h"
#include "daemon/host.h"
#include "daemon/http.h"
#include "daemon/inventory.h"
#include "daemon/job_fsm.h"
#include "daemon/loop.h"
#include "daemon/prometheus_gpus.h"

#include <stdio.h>
#include <string.h>

static void prometheus_machine(struct api *api, const struct exposition *out)
{
    const struct inventory *inventory = coordinator_inventory(api->coordinator);
    exposition_family(out, "ithaca_slots", "gauge", "Ranks that may run at once.");
    exposition_sample(out, "ithaca_slots", (double)inventory->slots, NULL);
    exposition_family(out, "ithaca_slots_taken", "gauge", "Slots that jobs have.");
    exposition_sample(out, "ithaca_slots_taken", (double)inventory->taken, NULL);
    prometheus_gpus(out, inventory, api->host->ops->monotonic_ms(api->host));
}

static int prometheus_states(struct api *api, const struct exposition *out, struct err *err)
{
    int64_t counts[JOB_STATE_COUNT] = {0};
    TRY(store_jobs_count(api->store, counts, err));
    exposition_family(out, "ithaca_jobs", "gauge", "Jobs by state.");
    for (int state = 0; state < JOB_STATE_COUNT; state++)
        exposition_sample(out, "ithaca_jobs", (double)counts[state], "state",
                          job_state_name((enum job_state)state), NULL);
    return 0;
}

/* ---- requests and the store ---- */

static void prometheus_requests(const struct http *http, const struct exposition *out)
{
    const struct http_stats *stats = http_get_stats(http);
    exposition_family(out, "ithaca_http_requests", "counter", "Answers by route and status class.");
    for (int route = 0; route <= ROUTE_COUNT; route++)
        for (int kind = 1; kind < HTTP_STATUS_CLASSES; kind++) {
            char status[8];
            (void)snprintf(status, sizeof status, "%dxx", kind);
            if (stats->answers[route][kind] > 0)
                exposition_sample(
                    out, "ithaca_http_requests_total", (double)stats->answers[route][kind], "route",
                    route < ROUTE_COUNT ? route_path((enum route_id)route) : "", "method",
                    route < ROUTE_COUNT ? route_method((enum route_id)route) : "", "status", status,
                    NULL);
        }
    exposition_family(
        out, "ithaca_http_request_duration_seconds", "histogram",
        "Time from a request's first line to the end of its answer, without streams.");
    exposition_print_histogram(out, "ithaca_http_request_duration_seconds", &stats->durations,
                               "protocol", "http");
    exposition_family(out, "ithaca_http_requests_open", "gauge",
                      "Requests under way, and streams.");
    exposition_sample(out, "ithaca_http_requests_open", (double)stats->open, NULL);
}

static void prometheus_store(const struct store *store, const struct exposition *out)
{
    exposition_family(out, "ithaca_store_write_duration_seconds", "histogram",
                      "Time of a write to a database, from its begin to its commit.");
    exposition_print_histogram(out, "ithaca_store_write_duration_seconds",
                               store_write_times(store, 0), "database", "jobs");
    exposition_print_histogram(out, "ithaca_store_write_duration_seconds",
                               store_write_times(store, 1), "database", "metrics");
}

static void prometheus_loop(const struct loop *loop, const struct exposition *out)
{
    const struct loop_turns *turns = loop_get_turns(loop);
    exposition_family(out, "ithaca_loop_turn_duration_seconds", "histogram",
                      "Time of a turn of the loop, for which every client waits: by the clock, and "
                      "of a processor.");
    exposition_print_histogram(out, "ithaca_loop_turn_duration_seconds", &turns->wall, "clock",
                               "wall");
    exposition_print_histogram(out, "ithaca_loop_turn_duration_seconds", &turns->processor, "clock",
                               "processor");
}

static int prometheus_webhooks(struct store *store, const struct exposition *out, struct err *err)
{
    int64_t waiting = 0;
    TRY(store_webhooks_count(store, NULL, &waiting, err));
    exposition_family(out, "ithaca_webhooks_waiting", "gauge",
                      "Messages of webhooks that have not been delivered.");
    exposition_sample(out, "ithaca_webhooks_waiting", (double)waiting, NULL);
    return 0;
}

/* ---- users ---- */

struct prometheus_users {
    const struct exposition *out;
    const char *viewer;
    const char *name; /* of the sample */
};

static int prometheus_user(void *context, const struct coordinator_user *user, struct err *err)
{
    (void)err;
    const struct prometheus_users *users = context;
    if (access_is_seen(users->viewer, user->name))
        exposition_sample(users->out, users->name, user->counted_s, "user", user->name, NULL);
    return 0;
}

/* Users are LIMIT_USERS at most. */
static int prometheus_users(struct api *api, const char *viewer, const struct exposition *out,
                            struct err *err)
{
    const bool gpus = coordinator_inventory(api->coordinator)->gpu_count > 0;
    struct prometheus_users users = {.out = out,
                                     .viewer = viewer,
                                     .name = gpus ? "ithaca_user_gpu_seconds_total"
                                                  : "ithaca_user_cpu_slot_seconds_total"};
    if (gpus)
        exposition_family(out, "ithaca_user_gpu_seconds", "counter",
                          "GPUs that a user's jobs held, times seconds, since the start.");
    else
        exposition_family(out, "ithaca_user_cpu_slot_seconds", "counter",
                          "CPU slots that a user's jobs held, times seconds, since the start.");
    return coordinator_users_list(api->coordinator, prometheus_user, &users, err);
}

/* ---- jobs that run ---- */

enum { PROMETHEUS_JOBS_MAX = 128 }; /* twice as many as can have a rank each */

struct prometheus_job {
    char id[LIMIT_ID_BYTES + 1];
    char owner[LIMIT_NAME_BYTES + 1];
    int64_t attempt, ranks, steps_done, steps_total;
};

struct prometheus_jobs {
    const char *viewer;
    struct prometheus_job jobs[PROMETHEUS_JOBS_MAX];
    int count;
};

static int prometheus_take_job(void *context, const struct store_job *row, struct err *err)
{
    (void)err;
    struct prometheus_jobs *jobs = context;
    if (jobs->count == PROMETHEUS_JOBS_MAX || !access_is_seen(jobs->viewer, row->owner))
        return 0;
    struct prometheus_job *job = &jobs->jobs[jobs->count++];
    (void)snprintf(job->id, sizeof job->id, "%s", row->id);
    (void)snprintf(job->owner, sizeof job->owner, "%s", row->owner);
    job->attempt = row->attempt;
    job->ranks = row->ranks;
    job->steps_done = row->steps_done;
    job->steps_total = row->steps_total;
    return 0;
}

/* The newest values of a metric, by job; by rank too where by_rank, and then as `part`, or NULL. */
static int prometheus_values(struct api *api, const struct exposition *out,
                             const struct prometheus_jobs *jobs, enum metric_id metric,
                             const char *name, bool by_rank, const char *part, struct err *err)
{
    for (int i = 0; i < jobs->count; i++) {
        const struct prometheus_job *job = &jobs->jobs[i];
        for (int64_t rank = 0; rank < (by_rank ? job->ranks : 1); rank++) {
            const struct store_series_query wanted = {
                .job_id = job->id, .metric = metric, .rank = rank, .attempt = job->attempt};
            double value = 0;
            char number[24];
            int rc = store_series_last(api->store, &wanted, NULL, &value, err);
            if (rc == -ERR_NOT_FOUND)
                continue; /* none yet */
            TRY(rc);
            (void)snprintf(number, sizeof number, "%lld", (long long)rank);
            exposition_sample(out, name, value, "job_id", job->id, "user", job->owner,
                              by_rank ? "rank" : NULL, number, part != NULL ? "part" : NULL, part,
                              NULL);
        }
    }
    return 0;
}

static int prometheus_metric(struct api *api, const struct exposition *out,
                             const struct prometheus_jobs *jobs, enum metric_id metric,
                             const char *name, const char *help, bool by_rank, struct err *err)
{
    exposition_family(out, name, "gauge", help);
    return prometheus_values(api, out, jobs, metric, name, by_rank, NULL, err);
}

/* Where the time of a step went: "gather_wait" to "states_wait", and "compute". */
static int prometheus_parts(struct api *api, const struct exposition *out,
                            const struct prometheus_jobs *jobs, struct err *err)
{
    static const char family[] = "ithaca_job_step_part_seconds";
    exposition_family(out, family, "gauge",
                      "Parts of a rank's last step: what its device waited for, and the rest.");
    for (int metric = METRIC_GATHER_WAIT_S; metric <= METRIC_COMPUTE_S; metric++) {
        const char *name = metric_name((enum metric_id)metric);
        char part[32];
        must(strlen(name) < sizeof part && strcmp(name + strlen(name) - 2, "_s") == 0);
        (void)snprintf(part, sizeof part, "%.*s", (int)strlen(name) - 2, name);
        TRY(prometheus_values(api, out, jobs, (enum metric_id)metric, family, true, part, err));
    }
    return 0;
}

static int prometheus_running(struct api *api, const char *viewer, const struct exposition *out,
                              struct err *err)
{
    static struct prometheus_jobs jobs; /* one thread; 30 KiB are much for the stack */
    jobs = (struct prometheus_jobs){.viewer = viewer};
    TRY(store_jobs_in_state(api->store, JOB_STATE_RUNNING, prometheus_take_job, &jobs, err));
    exposition_family(out, "ithaca_job_step", "gauge", "Last step of a running job.");
    for (int i = 0; i < jobs.count; i++)
        exposition_sample(out, "ithaca_job_step", (double)jobs.jobs[i].steps_done, "job_id",
                          jobs.jobs[i].id, "user", jobs.jobs[i].owner, NULL);
    exposition_family(out, "ithaca_job_steps", "gauge", "Steps of a running job in all.");
    for (int i = 0; i < jobs.count; i++)
        exposition_sample(out, "ithaca_job_steps", (double)jobs.jobs[i].steps_total, "job_id",
                          jobs.jobs[i].id, "user", jobs.jobs[i].owner, NULL);
    TRY(prometheus_metric(api, out, &jobs, METRIC_LOSS, "ithaca_job_loss",
                          "Training loss of a running job's last step, nats a token.", false, err));
    TRY(prometheus_metric(api, out, &jobs, METRIC_TOKENS_PER_S, "ithaca_job_tokens_per_second",
                          "Tokens a second of a running job, all ranks.", false, err));
    TRY(prometheus_metric(api, out, &jobs, METRIC_ARENA_PEAK_BYTES, "ithaca_job_arena_peak_bytes",
                          "Most bytes of a rank's device memory in use at once.", true, err));
    TRY(prometheus_metric(api, out, &jobs, METRIC_HOST_BYTES, "ithaca_job_host_bytes",
                          "Resident host memory of a rank.", true, err));
    return prometheus_parts(api, out, &jobs, err);
}

int prometheus_get(struct api *api, struct http_request *request, struct err *err)
{
    const char *accept = http_request_header(request, "Accept");
    CLEANUP(buf_done) struct buf text;
    const struct exposition out = {
        .text = &text,
        .openmetrics = accept != NULL && strstr(accept, "application/openmetrics-text") != NULL};
    buf_init(&text, LIMIT_ANSWER_BYTES);
    exposition_family(&out, "ithaca_build_info", "gauge", "The version of this daemon.");
    exposition_sample(&out, "ithaca_build_info", 1, "version", ITHACA_VERSION, NULL);
    TRY(prometheus_states(api, &out, err));
    prometheus_machine(api, &out);
    prometheus_requests(api->http, &out);
    prometheus_store(api->store, &out);
    prometheus_loop(api->loop, &out);
    TRY(prometheus_webhooks(api->store, &out, err));
    TRY(prometheus_users(api, access_viewer(request), &out, err));
    TRY(prometheus_running(api, access_viewer(request), &out, err));
    exposition_end(&out);
    TRY(buf_error(&text, err));
    http_answer_plain(request,
                      out.openmetrics ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
                                      : "text/plain; version=0.0.4; charset=utf-8",
                      &text);
    return 0;
}

/* top_fetch: a request for the queue and one for the GPUs, two for each job that runs, and what the
 * selected job's page wants. A job that ends meanwhile is left out. Of those that wait the first
 * 200 are asked for: the daemon makes this list once a second for each who looks. */
#include "clients/cli/top.h"
#include "common/mem.h"

#include <stdio.h>
#include <string.h>

enum { FETCH_CHART_POINTS = 200, FETCH_EVENTS = 100 };

#define FETCH_LATEST \
    "loss,learning_rate,grad_norm,tokens_per_s,mfu_causal,step_time_s,arena_peak_bytes"

/* The last value of each series of an answer; of several ranks the highest. */
static json_t *fetch_latest(const json_t *metrics)
{
    json_t *latest = json_object();
    size_t i;
    const json_t *series;
    json_array_foreach(json_object_get(metrics, "data"), i, series)
    {
        const char *key = json_string_value(json_object_get(series, "key"));
        const json_t *points = json_object_get(series, "points");
        size_t count = json_array_size(points);
        json_t *value = count > 0 ? json_array_get(json_array_get(points, count - 1), 1) : NULL;
        const json_t *known = key != NULL ? json_object_get(latest, key) : NULL;
        if (key != NULL && json_is_number(value) &&
            (known == NULL || json_number_value(value) > json_number_value(known)))
            (void)json_object_set(latest, key, value); /* a number less to show */
    }
    return latest;
}

/* {"job", "latest", "planned_bytes"}; new reference. */
static int fetch_entry(struct client *client, const char *id, const json_t *before, json_t **ret,
                       struct err *err)
{
    CLEANUP(json_unref) json_t *job = NULL;
    CLEANUP(json_unref) json_t *metrics = NULL;
    CLEANUP(json_unref) json_t *memory = NULL;
    char tail[192];
    TRY(client_job(client, NULL, id, "", NULL, &job, err));
    const json_t *ithaca = json_object_get(job, "ithaca");
    long long step = json_integer_value(json_object_get(ithaca, "steps_done"));
    long long attempt = json_integer_value(json_object_get(ithaca, "attempt"));
    if (step > 0 && attempt > 0) {
        (void)snprintf(tail, sizeof tail,
                       "/metrics?keys=" FETCH_LATEST "&from_step=%lld&attempt=%lld", step, attempt);
        TRY(client_job(client, NULL, id, tail, NULL, &metrics, err));
    }
    json_t *planned = json_object_get(before, "planned_bytes");
    if (planned == NULL) {
        (void)snprintf(tail, sizeof tail, "/memory?max_points=10&from_step=%lld", step);
        TRY(client_job(client, NULL, id, tail, NULL, &memory, err));
        planned = json_object_get(json_object_get(memory, "planned"), "peak_device_bytes");
    }
    *ret = json_pack("{s:O, s:o, s:O?}", "job", job, "latest", fetch_latest(metrics),
                     "planned_bytes", planned);
    return *ret != NULL ? 0 : mem_fail(err, 0, "a job");
}

static int fetch_running(struct client *client, const json_t *queue, const json_t *before,
                         json_t *ret_jobs, struct err *err)
{
    size_t i;
    const json_t *entry;
    json_array_foreach(json_object_get(queue, "running"), i, entry)
    {
        const char *id = json_string_value(json_object_get(entry, "id"));
        json_t *job = NULL;
        if (id == NULL || json_object_size(ret_jobs) >= TOP_JOBS_MAX)
            continue;
        int rc = fetch_entry(client, id, json_object_get(before, id), &job, err);
        if (rc == -ERR_NOT_FOUND)
            continue; /* it was deleted meanwhile */
        TRY(rc);
        if (json_object_set_new(ret_jobs, id, job) != 0)
            return mem_fail(err, 0, "a job");
    }
    return 0;
}

/* Steps and losses of the answer's one series. */
static json_t *fetch_loss(const json_t *metrics)
{
    const json_t *series = json_array_get(json_object_get(metrics, "data"), 0);
    json_t *points = json_object_get(series, "points");
    return points != NULL ? json_incref(points) : json_array();
}

/* known: the job's entry of data.jobs, or NULL where it does not run. */
static int fetch_detail(struct client *client, const char *id, json_t *known, const json_t *before,
                        json_t **ret, struct err *err)
{
    CLEANUP(json_unref) json_t *detail = NULL;
    CLEANUP(json_unref) json_t *events = NULL;
    CLEANUP(json_unref) json_t *metrics = NULL;
    const json_t *old = json_object_get(json_object_get(before, "job"), "id");
    const char *old_id = json_string_value(old);
    char tail[96];
    if (old_id != NULL && strcmp(old_id, id) != 0)
        before = NULL;
    if (known == NULL)
        TRY(fetch_entry(client, id, before, &detail, err));
    else if ((detail = json_copy(known)) == NULL)
        return mem_fail(err, 0, "a job");
    (void)snprintf(tail, sizeof tail, "/events?limit=%d", FETCH_EVENTS);
    TRY(client_job(client, NULL, id, tail, NULL, &events, err));
    (void)snprintf(tail, sizeof tail, "/metrics?keys=loss&max_points=%d", FETCH_CHART_POINTS);
    TRY(client_job(client, NULL, id, tail, NULL, &metrics, err));
    if (json_object_set(detail, "events", json_object_get(events, "data")) != 0 ||
        json_object_set_new(detail, "loss", fetch_loss(metrics)) != 0)
        return mem_fail(err, 0, "a job");
    *ret = json_incref(detail);
    return 0;
}

int top_fetch(struct client *client, const char *detail_id, const json_t *before, json_t **ret,
              struct err *err)
{
    CLEANUP(json_unref) json_t *queue = NULL;
    CLEANUP(json_unref) json_t *gpus = NULL;
    CLEANUP(json_unref) json_t *jobs = json_object();
    CLEANUP(json_unref) json_t *detail = NULL;
    TRY(client_json(client, NULL, "/v1/queue?limit=200", NULL, &queue, err));
    TRY(client_json(client, NULL, "/v1/gpus", NULL, &gpus, err));
    TRY(fetch_running(client, queue, json_object_get(before, "jobs"), jobs, err));
    if (detail_id[0] != '\0') {
        int rc = fetch_detail(client, detail_id, json_object_get(jobs, detail_id),
                              json_object_get(before, "detail"), &detail, err);
        if (rc != -ERR_NOT_FOUND)
            TRY(rc);
    }
    *ret = json_pack("{s:O, s:O, s:O, s:O?}", "queue", queue, "gpus", gpus, "jobs", jobs, "detail",
                     detail);
    return *ret != NULL ? 0 : mem_fail(err, 0, "an answer");
}

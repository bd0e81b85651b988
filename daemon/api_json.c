/* api_json: the JSON shapes of answers and what handlers read from requests. */
#include "common/clock.h"
#include "common/job_field.h"
#include "common/mem.h"
#include "common/utf8.h"
#include "daemon/api.h"
#include "daemon/checkpoints.h"
#include "daemon/coordinator.h"
#include "daemon/http.h"
#include "daemon/job_fsm.h"
#include "daemon/public_text.h"
#include "daemon/store_attempts.h"

#include <math.h>
#include <string.h>

/* ---- shared by handlers ---- */

void api_answer_list(struct http_request *request, json_t *data, bool has_more)
{
    size_t count = json_array_size(data);
    json_t *first = json_object_get(json_array_get(data, 0), "id");
    json_t *last = count > 0 ? json_object_get(json_array_get(data, count - 1), "id") : NULL;
    http_answer_json(request, 200,
                     json_pack("{s:s, s:O, s:O?, s:O?, s:b}", "object", "list", "data", data,
                               "first_id", first, "last_id", last, "has_more", has_more));
}

int api_read_page(struct http_request *request, int64_t default_limit, char *ret_after,
                  size_t after_bytes, struct store_page *ret_page, struct err *err)
{
    const char *query = http_request_route(request)->query;
    char text[ROUTE_VALUE_BYTES + 1];
    bool found = false;
    int64_t limit = default_limit;
    TRY(route_query_text(query, "after", text, &found, err));
    TRY(route_query_int(query, "limit", 1, LIMIT_PAGE_ROWS, &limit, err));
    if (found && strlen(text) >= after_bytes)
        return err_set_field(err, ERR_INVALID_VALUE, "after", "after is not an id of this list");
    memcpy(ret_after, found ? text : "", found ? strlen(text) + 1 : 1);
    *ret_page =
        (struct store_page){.after = ret_after, .limit = limit, .order = STORE_NEWEST_FIRST};
    return 0;
}

int api_read_body(struct http_request *request, json_t **ret_object, struct err *err)
{
    const struct buf *body = http_request_body(request);
    CLEANUP(json_unref) json_t *value = NULL;
    if (body->length == 0)
        return err_set(err, ERR_BAD_JSON, "the request body is empty; a JSON object is expected");
    TRY(json_parse(buf_str(body), body->length, "request body", &value, err));
    if (!json_is_object(value))
        return err_set(err, ERR_BAD_JSON, "the request body must be a JSON object");
    *ret_object = json_incref(value);
    return 0;
}

json_t *api_text(const char *text)
{
    if (text == NULL || text[0] == '\0')
        return json_null();
    json_t *value = json_string(text);
    if (value != NULL)
        return value;
    CLEANUP(mem_free_ptr) char *clean = mem_strdup(text);
    if (clean != NULL)
        utf8_scrub(clean);
    return clean != NULL ? json_string(clean) : NULL;
}

json_t *api_sentence(const struct api *api, const char *text)
{
    CLEANUP(mem_free_ptr) char *shown = mem_strdup(text);
    if (shown == NULL)
        return NULL;
    public_text(api->settings, shown);
    return api_text(shown);
}

json_t *api_time(int64_t unix_ms)
{
    return unix_ms > 0 ? json_integer(unix_ms / 1000) : json_null();
}

/* ---- a job ---- */

enum { API_PACE_STEPS = 100 }; /* newest ones that tell how fast a job is */

struct api_latest {
    double value;
    double wall_s; /* Unix time */
    int64_t attempt, step;
    bool found;
};

static int api_on_latest(void *context, const struct store_point *point, struct err *err)
{
    (void)err;
    struct api_latest *latest = context;
    *latest = (struct api_latest){.value = point->value,
                                  .wall_s = point->wall_s,
                                  .attempt = point->attempt,
                                  .step = point->step,
                                  .found = isfinite(point->value)};
    return 0;
}

/* Newest value of a metric, or found false. */
static struct api_latest api_latest(struct api *api, const char *job_id, enum metric_id metric)
{
    struct api_latest latest = {.found = false};
    struct err ignored; /* none yet, or unreadable: the job's answer does without */
    (void)store_point_latest(api->store, job_id, metric, api_on_latest, &latest, &ignored);
    return latest;
}

/* Seconds from step to step of late, with what lies between them: evaluations, checkpoints. */
static double api_pace_s(struct api *api, const char *job_id, const struct api_latest *newest)
{
    const struct store_series_query query = {.job_id = job_id,
                                             .metric = METRIC_STEP_TIME_S,
                                             .attempt = newest->attempt,
                                             .after_step = newest->step - API_PACE_STEPS - 1,
                                             .limit = 1};
    struct api_latest first = {.found = false};
    bool more = false;
    struct err ignored;
    (void)store_series_list(api->store, &query, api_on_latest, &first, &more, &ignored);
    double passed_s = newest->wall_s - first.wall_s;
    bool known = first.found && first.step < newest->step && passed_s > 0;
    return known ? passed_s / (double)(newest->step - first.step) : newest->value;
}

/* New reference: Unix seconds at which a running job will end, or null. */
static json_t *api_eta(struct api *api, const struct store_job *job)
{
    int64_t left = job->steps_total - job->steps_done;
    if (job->state != JOB_STATE_RUNNING || job->steps_total == 0)
        return json_null();
    struct api_latest newest = api_latest(api, job->id, METRIC_STEP_TIME_S);
    if (!newest.found || left < 0)
        return json_null();
    const double now_s = (double)clock_wall_ms() / 1000;
    const double from_s = newest.attempt == job->attempt ? newest.wall_s : now_s;
    const double end_s = from_s + api_pace_s(api, job->id, &newest) * (double)left;
    return json_integer((int64_t)(fmax(end_s, now_s) + 0.5));
}

static int api_on_gpus(void *context, const struct store_attempt *attempt, struct err *err)
{
    (void)err;
    const char *at = attempt->gpus;
    while (*at != '\0') {
        size_t length = strcspn(at, ",");
        (void)json_array_append_new(context, json_stringn(at, length));
        at += length + (at[length] == ',');
    }
    return 0;
}

/* New reference: UUIDs of the GPUs of a job's newest attempt. */
static json_t *api_gpus(struct api *api, const struct store_job *job)
{
    json_t *list = json_array();
    struct err ignored; /* no attempt, or unreadable: none is told */
    if (list != NULL && job->attempt > 0)
        (void)store_attempt_get(api->store, job->id, job->attempt, api_on_gpus, list, &ignored);
    return list;
}

/* New reference: the `ithaca` object; spec is the job's, resolved. */
static json_t *api_ithaca_json(struct api *api, const struct store_job *job, const json_t *spec)
{
    struct coordinator_view view = {.queue_position = 0};
    struct api_latest speed = {.found = false};
    if (!job_state_is_end(job->state))
        coordinator_view(api->coordinator, job->id, &view);
    if (job->attempt > 0)
        speed = api_latest(api, job->id, METRIC_TOKENS_PER_S);
    char resumed_from[LIMIT_ID_BYTES + 1] = "";
    if (job->resumed_step > 0)
        checkpoints_id(job->id, job->resumed_step, resumed_from);
    return json_pack(
        "{s:o, s:s, s:o, s:o, s:I, s:o, s:I, s:o, s:o, s:o, s:I, s:I, s:o, s:o, s:o, s:o, s:o, "
        "s:O?}",
        "gpus", api_gpus(api, job), "state", job_state_name(job->state), "reason",
        api_text(job->reason), "reason_text", api_sentence(api, job->reason_text), "attempt",
        (json_int_t)job->attempt, "resumed_from", api_text(resumed_from), "restarts",
        (json_int_t)job->restarts, "queue_position",
        view.queue_position > 0 ? json_integer(view.queue_position) : json_null(), "pending_reason",
        api_text(view.pending_reason), "estimated_start", api_time(view.estimated_start_ms),
        "steps_done", (json_int_t)job->steps_done, "steps_total", (json_int_t)job->steps_total,
        "tokens_per_s", speed.found ? json_number(speed.value) : json_null(), "eta",
        api_eta(api, job), "started_at", api_time(job->started_ms), "owner", api_text(job->owner),
        "experiment", api_text(job->experiment), "spec", json_object_get(spec, "ithaca"));
}

/* New reference: OpenAI's hyperparameters, from the resolved spec. */
static json_t *api_hyperparameters(const json_t *spec)
{
    const json_t *ithaca = json_object_get(spec, "ithaca");
    const json_t *supervised = json_object_get(json_object_get(spec, "method"), "supervised");
    json_t *epochs = json_object_get(json_object_get(supervised, "hyperparameters"), "n_epochs");
    json_t *sequences = json_object_get(json_object_get(ithaca, "batch"), "sequences");
    double rate =
        json_number_value(json_object_get(json_object_get(ithaca, "optimizer"), "learning_rate"));
    double usual = job_field_find("optimizer.learning_rate")->num_initial;
    return json_pack("{s:O?, s:O?, s:o}", "n_epochs", epochs, "batch_size", sequences,
                     "learning_rate_multiplier", json_number(rate / usual));
}

static json_t *api_error_json(const struct api *api, const struct store_job *job)
{
    if (job->state != JOB_STATE_FAILED)
        return json_null();
    return json_pack("{s:s, s:o, s:n}", "code", job->reason, "message",
                     job->reason_text[0] != '\0' ? api_sentence(api, job->reason_text)
                                                 : json_string(job->reason),
                     "param");
}

json_t *api_jobs_json(struct api *api, const struct store_job *job, struct err *err)
{
    CLEANUP(json_unref) json_t *spec = NULL;
    if (json_parse(job->spec_json, strlen(job->spec_json), job->id, &spec, err) != 0)
        return NULL;
    CLEANUP(json_unref) json_t *parameters = api_hyperparameters(spec);
    bool succeeded = job->state == JOB_STATE_SUCCEEDED;
    json_t *json = json_pack(
        "{s:s, s:s, s:o, s:o, s:o, s:o, s:O?, s:s, s:s, s:o, s:s, s:o, s:o, s:o, s:O?, s:o, s:n, "
        "s:O?, s:{s:s, s:{s:O?}}, s:o}",
        "id", job->id, "object", "fine_tuning.job", "created_at", api_time(job->created_ms),
        "error", api_error_json(api, job), "fine_tuned_model", api_text(job->fine_tuned_model),
        "finished_at", api_time(job->finished_ms), "hyperparameters", parameters, "model",
        job->model, "organization_id", "local", "result_files",
        job->result_file[0] != '\0' ? json_pack("[s]", job->result_file) : json_array(), "status",
        job_state_public_name(job->state), "trained_tokens",
        succeeded ? json_integer(job->trained_tokens) : json_null(), "training_file",
        api_text(job->training_file), "validation_file", api_text(job->validation_file), "seed",
        json_object_get(spec, "seed"), "estimated_finish", api_eta(api, job), "integrations",
        "metadata", json_object_get(spec, "metadata"), "method", "type", "supervised", "supervised",
        "hyperparameters", parameters, "ithaca", api_ithaca_json(api, job, spec));
    if (json == NULL)
        (void)err_set(err, ERR_INTERNAL, "the answer for %s cannot be made", job->id);
    return json;
}

json_t *api_jobs_event_json(const struct api *api, const struct store_event *event, struct err *err)
{
    json_t *data = NULL;
    if (event->data_json[0] == '\0')
        data = json_object();
    else if (json_parse(event->data_json, strlen(event->data_json), event->id, &data, err) != 0)
        return NULL;
    json_t *json = json_pack("{s:s, s:s, s:o, s:s, s:o, s:s, s:s, s:o}", "id", event->id, "object",
                             "fine_tuning.job.event", "created_at", api_time(event->created_ms),
                             "level", event->level, "message", api_sentence(api, event->message),
                             "type", event->type, "job_id", event->job_id, "data", data);
    if (json == NULL)
        (void)err_set(err, ERR_INTERNAL, "the answer for %s cannot be made", event->id);
    return json;
}

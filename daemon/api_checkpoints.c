/* api_checkpoints: the checkpoints of a job in OpenAI's shape. The list is what lies in the job's
 * folder at the moment of the question; it is short, so a page is cut out of all of it. */
#include "common/mem.h"
#include "daemon/api.h"
#include "daemon/checkpoints.h"
#include "daemon/http.h"
#include "daemon/result_name.h"
#include "daemon/settings.h"

#include <string.h>

enum { API_CHECKPOINTS = 10 }; /* a page, as OpenAI's */

struct api_checkpoints {
    struct api *api;
    json_t *data;
    int64_t below_step; /* only steps below this */
    int64_t limit;
    bool has_more;
    const struct store_job *job; /* while its row is read */
    const char *suffix;          /* of the job */
};

/* New reference: a metric of the job as it last was at a step; or null. */
static json_t *api_checkpoints_metric(const struct api_checkpoints *list, enum metric_id metric,
                                      int64_t step)
{
    const struct store_series_query wanted = {
        .job_id = list->job->id, .metric = metric, .up_to_step = step};
    double value = 0;
    struct err none;
    int rc = store_series_last(list->api->store, &wanted, NULL, &value, &none);
    return rc == 0 ? json_number(value) : json_null();
}

static int api_checkpoints_add(void *context, const struct checkpoint_manifest *manifest,
                               struct err *err)
{
    struct api_checkpoints *list = context;
    const struct checkpoint_progress *progress = &manifest->progress;
    char id[LIMIT_ID_BYTES + 1], name[RESULT_NAME_BYTES];
    if (progress->step >= list->below_step)
        return 0;
    list->has_more = (int64_t)json_array_size(list->data) == list->limit;
    if (list->has_more)
        return 0;
    checkpoints_id(list->job->id, progress->step, id);
    result_name(list->job->model, list->suffix, list->job->id, progress->step, name);
    /* Evaluations go over the whole validation file: `full_` is the same. */
    json_t *valid_accuracy = api_checkpoints_metric(list, METRIC_VALID_ACCURACY, progress->step);
    json_t *json = json_pack(
        "{s:s, s:s, s:o, s:s, s:s, s:I, s:{s:I, s:o, s:o, s:o, s:o, s:o, s:O}, s:{s:I, s:I, s:I, "
        "s:I}}",
        "id", id, "object", "fine_tuning.job.checkpoint", "created_at",
        api_time(manifest->created_ms), "fine_tuned_model_checkpoint", name, "fine_tuning_job_id",
        list->job->id, "step_number", (json_int_t)progress->step, "metrics", "step",
        (json_int_t)progress->step, "train_loss", json_number(progress->loss),
        "train_mean_token_accuracy", api_checkpoints_metric(list, METRIC_ACCURACY, progress->step),
        "valid_loss", json_number(progress->valid_loss), "full_valid_loss",
        json_number(progress->valid_loss), "valid_mean_token_accuracy", valid_accuracy,
        "full_valid_mean_token_accuracy", valid_accuracy, "ithaca", "attempt",
        (json_int_t)manifest->attempt, "ranks", (json_int_t)manifest->world, "bytes",
        (json_int_t)checkpoint_manifest_bytes(manifest), "trained_tokens",
        (json_int_t)progress->trained_tokens);
    if (json_array_append_new(list->data, json) != 0)
        return mem_fail(err, 0, "a list of checkpoints");
    return 0;
}

static int api_checkpoints_of_job(void *context, const struct store_job *job, struct err *err)
{
    struct api_checkpoints *list = context;
    CLEANUP(json_unref) json_t *spec = NULL;
    CLEANUP(mem_free_ptr)
    char *job_dir = mem_printf("%s/jobs/%s", list->api->settings->data_dir, job->id);
    if (job_dir == NULL)
        return mem_fail(err, LIMIT_PATH_BYTES, "a path");
    TRY(json_parse(job->spec_json, strlen(job->spec_json), job->id, &spec, err));
    const char *suffix = json_string_value(json_object_get(spec, "suffix"));
    list->job = job;
    list->suffix = suffix != NULL ? suffix : "";
    return checkpoints_each(job_dir, api_checkpoints_add, list, err);
}

int api_checkpoints_list(struct api *api, struct http_request *request, struct err *err)
{
    const char *id = http_request_route(request)->name;
    char after[LIMIT_ID_BYTES + 1];
    struct store_page page;
    CLEANUP(json_unref) json_t *data = json_array();
    TRY(api_read_page(request, API_CHECKPOINTS, after, sizeof after, &page, err));
    struct api_checkpoints list = {
        .api = api, .data = data, .below_step = INT64_MAX, .limit = page.limit};
    if (after[0] != '\0') /* it may have been removed meanwhile */
        list.below_step = checkpoints_step(id, after);
    if (list.below_step < 0)
        return err_set_field(err, ERR_INVALID_VALUE, "after", "after is not an id of this list");
    TRY(store_job_get(api->store, id, api_checkpoints_of_job, &list, err));
    api_answer_list(request, data, list.has_more);
    return 0;
}

/* api_jobs: create, get. A created job is committed before its answer. */
#include "common/job_spec.h"
#include "common/mem.h"
#include "common/model_config.h"
#include "daemon/access.h"
#include "daemon/api.h"
#include "daemon/api_search.h"
#include "daemon/checkpoints.h"
#include "daemon/coordinator.h"
#include "daemon/http.h"
#include "daemon/measurement.h"
#include "daemon/models.h"
#include "daemon/settings.h"
#include "daemon/webhooks.h"

#include <stdio.h>
#include <string.h>

struct api_answer {
    struct api *api;
    struct http_request *request;
};

/* The job, what its training file holds, what it measured. */
static int api_jobs_answer(void *context, const struct store_job *job, struct err *err)
{
    struct api_answer *answer = context;
    json_t *json = api_jobs_json(answer->api, job, err);
    if (json == NULL)
        return -(int)err->code;
    (void)json_object_set_new(json_object_get(json, "ithaca"), "data",
                              api_data_json(answer->api, job->id));
    (void)json_object_set_new(json_object_get(json, "ithaca"), "measured",
                              measurement_json(answer->api->settings->data_dir, job->id));
    http_answer_json(answer->request, 200, json);
    return 0;
}

int api_jobs_answer_one(struct api *api, struct http_request *request, const char *id,
                        struct err *err)
{
    struct api_answer answer = {.api = api, .request = request};
    return store_job_get(api->store, id, api_jobs_answer, &answer, err);
}

/* ---- create ---- */

static int api_jobs_check_file(void *context, const struct store_file *file, struct err *err)
{
    const char *field = context;
    if (strcmp(file->purpose, "fine-tune") != 0)
        return err_set_field(err, ERR_INVALID_VALUE, field,
                             "%s: %s has the purpose \"%s\"; it must be \"fine-tune\"", field,
                             file->id, file->purpose);
    if (strcmp(file->status, "error") == 0)
        return err_set_field(err, ERR_DATA, field, "%s: %s cannot be used: %s", field, file->id,
                             file->status_details);
    return 0;
}

static int api_jobs_find_file(struct api *api, const char *viewer, const char *id, char *field,
                              struct err *err)
{
    int rc = access_check_file(api->store, viewer, id, err);
    if (rc == 0)
        rc = store_file_get(api->store, id, api_jobs_check_file, field, err);
    if (rc == -ERR_NOT_FOUND)
        return err_set_field(err, ERR_INVALID_VALUE, field,
                             "%s: there is no file \"%s\"; upload it by POST /v1/files", field, id);
    return rc;
}

int api_jobs_check_names(struct api *api, const char *viewer, const struct job_spec *spec,
                         struct err *err)
{
    char training[] = "training_file";
    char validation[] = "validation_file";
    TRY(webhooks_check(api, spec->webhook, err));
    if (spec->training_file[0] != '\0')
        TRY(api_jobs_find_file(api, viewer, spec->training_file, training, err));
    if (spec->validation_file[0] != '\0')
        TRY(api_jobs_find_file(api, viewer, spec->validation_file, validation, err));
    return 0;
}

int api_jobs_resolve(struct api *api, struct http_request *request, struct job_spec *spec,
                     struct models_entry *model, double *ret_step_s, struct err *err)
{
    const char *viewer = request != NULL ? access_viewer(request) : "";
    char source[LIMIT_ID_BYTES + 1];
    int64_t step = -1;
    TRY(api_jobs_check_names(api, viewer, spec, err));
    if (job_spec_measures(spec) && spec->training_file[0] == '\0')
        TRY(models_find_shape(api, viewer, spec->model, model, err));
    else if (job_spec_measures(spec)) /* a file is read by a model's tokenizer */
        TRY(models_find_whole(api, viewer, spec->model, model, err));
    else
        TRY(models_find_start(api, viewer, spec->model, model, err));
    if (checkpoints_is_id(model->name, source, &step)) /* it may have gone by its longer name */
        (void)snprintf(spec->model, sizeof spec->model, "%s", model->name);
    struct model_config config;
    TRY(model_config_load(model->dir, &config, err));
    return api_estimate_admit(api, request, &config, spec, ret_step_s, err);
}

int api_jobs_create(struct api *api, struct http_request *request, struct err *err)
{
    CLEANUP(json_unref) json_t *body = NULL;
    CLEANUP(job_spec_done) struct job_spec spec = {.metadata = NULL};
    CLEANUP(models_entry_done) struct models_entry model = {.dir = NULL};
    char id[LIMIT_ID_BYTES + 1];
    double step_s = 0;
    TRY(api_read_body(request, &body, err));
    TRY(job_spec_parse(body, &spec, err));
    if ((spec.asked = job_spec_json(&spec)) == NULL)
        return mem_fail(err, sizeof spec, "a job's request");
    TRY(api_queue_check_priority(api, request, (double)spec.priority, err));
    int rc = api_jobs_resolve(api, request, &spec, &model, &step_s, err);
    if (api_search_waits(request))
        return 0;
    TRY(rc);
    TRY(coordinator_submit(api->coordinator, &spec, step_s, model.dir, http_request_owner(request),
                           id, err));
    return api_jobs_answer_one(api, request, id, err);
}

/* ---- get, what was asked for ---- */

int api_jobs_get(struct api *api, struct http_request *request, struct err *err)
{
    return api_jobs_answer_one(api, request, http_request_route(request)->name, err);
}

/* What was changed since it was submitted counts as asked for. */
static int api_jobs_take_changes(json_t *asked, const json_t *spec, struct err *err)
{
    json_t *ithaca = json_object_get(asked, "ithaca");
    for (size_t i = 0; job_spec_changeable[i] != NULL; i++) {
        json_t *now = json_object_get(json_object_get(spec, "ithaca"), job_spec_changeable[i]);
        if (now != NULL && json_object_set(ithaca, job_spec_changeable[i], now) != 0)
            return mem_fail(err, 0, "a job's request");
    }
    return 0;
}

static int api_jobs_answer_asked(void *context, const struct store_job *job, struct err *err)
{
    CLEANUP(json_unref) json_t *spec = NULL;
    CLEANUP(json_unref) json_t *asked = NULL;
    const char *text = job->asked_json[0] != '\0' ? job->asked_json : job->spec_json;
    TRY(json_parse(job->spec_json, strlen(job->spec_json), job->id, &spec, err));
    TRY(json_parse(text, strlen(text), job->id, &asked, err));
    TRY(api_jobs_take_changes(asked, spec, err));
    http_answer_json(context, 200, json_incref(asked));
    return 0;
}

int api_jobs_asked(struct api *api, struct http_request *request, struct err *err)
{
    const char *id = http_request_route(request)->name;
    return store_job_get(api->store, id, api_jobs_answer_asked, request, err);
}

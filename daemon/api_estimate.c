/* api_estimate: what a job would take of this machine's memory and time: asked for by itself, and
 * at submit, where what does not fit is refused before it is queued. */
#include "common/mem.h"
#include "common/mem_estimate.h"
#include "common/mem_report.h"
#include "common/mem_timeline.h"
#include "common/model_published.h"
#include "common/plan_search.h"
#include "common/time_report.h"
#include "daemon/access.h"
#include "daemon/api.h"
#include "daemon/api_search.h"
#include "daemon/coordinator.h"
#include "daemon/disk_budget.h"
#include "daemon/http.h"
#include "daemon/machine.h"
#include "daemon/models.h"
#include "daemon/settings.h"

#include <limits.h>

/* The fastest settings that fit, while the request waits (api_search.h); at once where there is
 * none. An error where there are none, or not yet. */
static int estimate_fastest(struct api *api, struct http_request *request,
                            const struct mem_ask *ask, struct mem_estimate *ret, struct err *err)
{
    if (request == NULL)
        return plan_search(ask, ret, err);
    const struct api_search *search = api_search_of(request);
    if (search == NULL)
        return api_search_start(api, request, ask, err);
    if (api_search_found(search) == NULL)
        return err_set(err, ERR_DOES_NOT_FIT, "nothing fits");
    struct mem_ask settled = *ask;
    struct job_spec spec = *api_search_found(search);
    spec.metadata = ask->spec->metadata;
    spec.asked = ask->spec->asked;
    settled.spec = &spec;
    return mem_estimate_make(&settled, ret, err);
}

/* What "auto" comes to: the plain settings where they fit, else, or always where `automatic`, the
 * fastest that do. Where none do, the plain ones stay, with what there is to say of them. */
static int estimate_settle(struct api *api, struct http_request *request, struct mem_ask *ask,
                           bool automatic, struct mem_estimate *ret, struct err *err)
{
    struct mem_estimate plain = {.fits = false}, found;
    struct err ignored;
    ask->disk_bytes = disk_budget_free(api->settings->data_dir);
    int rc = mem_estimate_make(ask, &plain, err);
    bool open = rc == 0 || rc == -ERR_DOES_NOT_FIT || rc == -ERR_UNSUPPORTED;
    if (open && (automatic || !plain.fits) &&
        estimate_fastest(api, request, ask, &found, &ignored) == 0) {
        mem_estimate_done(&plain);
        *ret = found;
        return 0;
    }
    *ret = plain;
    return rc;
}

int api_estimate_admit(struct api *api, struct http_request *request,
                       const struct model_config *config, struct job_spec *spec, double *ret_step_s,
                       struct err *err)
{
    CLEANUP(model_shape_done) struct model_shape shape = {.rows = NULL};
    CLEANUP(mem_estimate_done) struct mem_estimate estimate = {.fits = false};
    struct time_rates rates;
    TRY(model_shape_build(config, &shape, err));
    const struct inventory *inventory = coordinator_inventory(api->coordinator);
    struct mem_ask ask = machine_ask(inventory, spec, &shape);
    machine_rates(inventory, api->settings->data_dir, &ask, &rates);
    TRY(estimate_settle(api, request, &ask, false, &estimate, err));
    TRY(mem_estimate_check(&ask, &estimate, err));
    *spec = estimate.spec; /* the same metadata */
    *ret_step_s = rates.measured ? estimate.time.step_s : 0;
    return disk_budget_check(api->settings->data_dir, &shape, spec, estimate.file_bytes, err);
}

int api_estimate_memory_json(struct api *api, const char *model_dir, const struct job_spec *spec,
                             json_t **ret_json, struct err *err)
{
    CLEANUP(model_shape_done) struct model_shape shape = {.rows = NULL};
    CLEANUP(mem_estimate_done) struct mem_estimate estimate = {.fits = false};
    struct model_config config;
    TRY(model_config_load(model_dir, &config, err));
    TRY(model_shape_build(&config, &shape, err));
    struct mem_ask ask = machine_ask(coordinator_inventory(api->coordinator), spec, &shape);
    TRY(mem_estimate_make(&ask, &estimate, err));
    *ret_json = mem_report_json(&estimate, false);
    return *ret_json != NULL ? 0 : mem_fail(err, 0, "a memory plan");
}

/* A model of the roots, else a published shape: nothing need be there to be planned. */
static int estimate_config(struct api *api, const char *viewer, const char *name,
                           struct model_config *ret, struct err *err)
{
    CLEANUP(models_entry_done) struct models_entry model = {.dir = NULL};
    const struct model_config *published = model_published_find(name);
    int rc = models_find_start(api, viewer, name, &model, err);
    if (rc == -ERR_NOT_FOUND && published != NULL) {
        *ret = *published;
        return 0;
    }
    TRY(rc);
    return model_config_load(model.dir, ret, err);
}

static json_t *estimate_json(const struct mem_estimate *estimate, bool timeline,
                             const char *message)
{
    json_t *memory = mem_report_json(estimate, timeline);
    if (timeline && json_object_set_new(memory, "timeline",
                                        mem_timeline_peak_json(&estimate->plan, INT_MAX)) != 0) {
        json_decref(memory);
        return NULL;
    }
    return json_pack("{s:s, s:s, s:o, s:o, s:o, s:s?}", "object", "fine_tuning.estimate", "model",
                     estimate->spec.model, "ithaca", job_spec_ithaca_json(&estimate->spec),
                     "memory", memory, "time", time_report_json(estimate), "message", message);
}

/* Takes what is no job's out of the body: "auto", whether settings that were left open are
 * searched, and "timeline". */
static int estimate_take_flag(json_t *body, const char *key, bool *ret, struct err *err)
{
    const json_t *value = json_object_get(body, key);
    if (value != NULL && !json_is_boolean(value))
        return err_set_field(err, ERR_INVALID_VALUE, key, "%s must be true or false", key);
    *ret = json_is_true(value);
    (void)json_object_del(body, key); /* it may not be there */
    return 0;
}

/* The body is a job's; training_file may be absent. */
int api_estimate(struct api *api, struct http_request *request, struct err *err)
{
    CLEANUP(json_unref) json_t *body = NULL;
    CLEANUP(job_spec_done) struct job_spec spec = {.metadata = NULL};
    CLEANUP(model_shape_done) struct model_shape shape = {.rows = NULL};
    CLEANUP(mem_estimate_done) struct mem_estimate estimate = {.fits = false};
    struct model_config config;
    struct time_rates rates;
    struct err message = {.code = ERR_NONE};
    bool automatic = false, timeline = false;
    TRY(api_read_body(request, &body, err));
    TRY(estimate_take_flag(body, "auto", &automatic, err));
    TRY(estimate_take_flag(body, "timeline", &timeline, err));
    if (json_object_get(body, "training_file") == NULL &&
        json_object_set_new(body, "training_file", json_string("none")) != 0)
        return mem_fail(err, 0, "the job");
    TRY(job_spec_parse_legal(body, &spec, err));
    TRY(estimate_config(api, access_viewer(request), spec.model, &config, err));
    TRY(model_shape_build(&config, &shape, err));
    const struct inventory *inventory = coordinator_inventory(api->coordinator);
    struct mem_ask ask = machine_ask(inventory, &spec, &shape);
    ask.planned = job_spec_check_served(&spec, &message) != 0; /* it asks for more */
    message = (struct err){.code = ERR_NONE};
    machine_rates(inventory, api->settings->data_dir, &ask, &rates);
    int rc = estimate_settle(api, request, &ask, automatic, &estimate, err);
    if (api_search_waits(request))
        return 0;
    TRY(rc);
    rc = mem_estimate_check(&ask, &estimate, &message);
    if (rc != 0 && rc != -ERR_DOES_NOT_FIT) {
        *err = message;
        return rc;
    }
    json_t *json = estimate_json(&estimate, timeline, rc != 0 ? message.text : NULL);
    if (json == NULL)
        return mem_fail(err, 0, "an estimate");
    http_answer_json(request, 200, json);
    return 0;
}

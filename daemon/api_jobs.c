/* api_jobs: create, list, get, cancel. A created job is committed before its answer; a cancelled
 * one is answered when no process of it is left, or after API_CANCEL_MS with the state it is in. */
#include "common/job_spec.h"
#include "common/mem.h"
#include "common/model_config.h"
#include "daemon/api.h"
#include "daemon/bus.h"
#include "daemon/coordinator.h"
#include "daemon/http.h"
#include "daemon/job_fsm.h"
#include "daemon/loop.h"
#include "daemon/models.h"

#include <stdio.h>
#include <string.h>

enum { API_CANCEL_MS = 30000 }; /* below the time-outs of proxies; the state is visible after it */

struct api_answer {
    struct api *api;
    struct http_request *request;
};

static int api_jobs_answer(void *context, const struct store_job *job, struct err *err)
{
    struct api_answer *answer = context;
    json_t *json = api_jobs_json(answer->api, job, err);
    if (json == NULL)
        return -(int)err->code;
    http_answer_json(answer->request, 200, json);
    return 0;
}

/* ---- create ---- */

static int api_jobs_check_file(void *context, const struct store_file *file, struct err *err)
{
    const char *field = context;
    if (strcmp(file->status, "error") == 0)
        return err_set_field(err, ERR_DATA, field, "%s: %s cannot be used: %s", field, file->id,
                             file->status_details);
    return 0;
}

static int api_jobs_find_file(struct api *api, const char *id, char *field, struct err *err)
{
    int rc = store_file_get(api->store, id, api_jobs_check_file, field, err);
    if (rc == -ERR_NOT_FOUND)
        return err_set_field(err, ERR_INVALID_VALUE, field,
                             "%s: there is no file \"%s\"; upload it by POST /v1/files", field, id);
    return rc;
}

static int api_jobs_resolve(struct api *api, struct job_spec *spec, struct models_entry *model,
                            struct err *err)
{
    char training[] = "training_file";
    char validation[] = "validation_file";
    TRY(api_jobs_find_file(api, spec->training_file, training, err));
    if (spec->validation_file[0] != '\0')
        TRY(api_jobs_find_file(api, spec->validation_file, validation, err));
    TRY(models_find(api, spec->model, model, err));
    struct model_config config;
    TRY(model_config_load(model->dir, &config, err));
    const struct job_facts facts = {.ranks_max = coordinator_slots(api->coordinator),
                                    .heads = config.heads,
                                    .kv_heads = config.kv_heads,
                                    .layers = config.layers,
                                    .context_max = config.context_max};
    return job_spec_resolve(spec, &facts, err);
}

int api_jobs_create(struct api *api, struct http_request *request, struct err *err)
{
    CLEANUP(json_unref) json_t *body = NULL;
    CLEANUP(job_spec_done) struct job_spec spec = {.metadata = NULL};
    CLEANUP(models_entry_done) struct models_entry model = {.dir = NULL};
    char id[LIMIT_ID_BYTES + 1];
    TRY(api_read_body(request, &body, err));
    TRY(job_spec_parse(body, &spec, err));
    TRY(api_jobs_resolve(api, &spec, &model, err));
    TRY(coordinator_submit(api->coordinator, &spec, model.dir, http_request_owner(request), id,
                           err));
    struct api_answer answer = {.api = api, .request = request};
    return store_job_get(api->store, id, api_jobs_answer, &answer, err);
}

/* ---- list, get ---- */

struct api_list {
    struct api *api;
    json_t *data;
};

static int api_jobs_append(void *context, const struct store_job *job, struct err *err)
{
    struct api_list *list = context;
    json_t *json = api_jobs_json(list->api, job, err);
    if (json == NULL)
        return -(int)err->code;
    return json_array_append_new(list->data, json) == 0 ? 0 : mem_fail(err, 0, "a list of jobs");
}

/* metadata[key]=value pairs of the query as an object. "metadata=null" asks for nothing. */
static int api_jobs_metadata(const char *query, json_t *ret, struct err *err)
{
    static const char prefix[] = "metadata[";
    struct route_pair pair;
    bool more;
    for (;;) {
        TRY(route_query_next(&query, &pair, &more, err));
        if (!more)
            return 0;
        size_t length = strlen(pair.key);
        if (strncmp(pair.key, prefix, sizeof prefix - 1) != 0 || pair.key[length - 1] != ']')
            continue;
        pair.key[length - 1] = '\0';
        if (json_object_size(ret) >= LIMIT_METADATA_PAIRS)
            return err_set_field(err, ERR_INVALID_VALUE, "metadata",
                                 "metadata has more than %d pairs", LIMIT_METADATA_PAIRS);
        if (json_object_set_new(ret, pair.key + sizeof prefix - 1, json_string(pair.value)) != 0)
            return err_set_field(err, ERR_INVALID_VALUE, "metadata", "metadata is not UTF-8");
    }
}

int api_jobs_list(struct api *api, struct http_request *request, struct err *err)
{
    char after[LIMIT_ID_BYTES + 1];
    struct store_page page;
    bool has_more = false;
    CLEANUP(json_unref) json_t *metadata = json_object();
    CLEANUP(json_unref) json_t *data = json_array();
    CLEANUP(buf_done) struct buf filter;
    buf_init(&filter, LIMIT_JSON_BODY_BYTES);
    TRY(api_read_page(request, 20, after, sizeof after, &page, err));
    TRY(api_jobs_metadata(http_request_route(request)->query, metadata, err));
    if (json_object_size(metadata) > 0)
        TRY(json_print(metadata, &filter, err));
    struct api_list list = {.api = api, .data = data};
    TRY(store_jobs_list(api->store, buf_str(&filter), &page, api_jobs_append, &list, &has_more,
                        err));
    api_answer_list(request, json_incref(data), has_more);
    return 0;
}

int api_jobs_get(struct api *api, struct http_request *request, struct err *err)
{
    struct api_answer answer = {.api = api, .request = request};
    return store_job_get(api->store, http_request_route(request)->name, api_jobs_answer, &answer,
                         err);
}

/* ---- cancel ---- */

struct api_cancel {
    struct api *api;
    struct http_request *request;
    char id[LIMIT_ID_BYTES + 1];
    struct bus_listener listener;
    struct loop_timer *timer; /* gives up waiting */
    bool listening;
};

static void api_cancel_end(void *context)
{
    struct api_cancel *cancel = context;
    bus_unlisten(cancel->api->bus, &cancel->listener);
    loop_timer_free(cancel->timer);
    mem_free(cancel);
}

static int api_cancel_answer(void *context, const struct store_job *job, struct err *err)
{
    struct api_cancel *cancel = context;
    if (!job_state_is_end(job->state) && cancel->listening)
        return 0;
    bus_unlisten(cancel->api->bus, &cancel->listener);
    loop_timer_stop(cancel->timer);
    struct api_answer answer = {.api = cancel->api, .request = cancel->request};
    return api_jobs_answer(&answer, job, err);
}

/* Answers if the job is at its end, or (no longer listening) whatever its state. */
static void api_cancel_look(struct api_cancel *cancel)
{
    struct err err;
    if (store_job_get(cancel->api->store, cancel->id, api_cancel_answer, cancel, &err) != 0)
        http_answer_error(cancel->request, &err);
}

static void api_cancel_note(void *context, const struct bus_note *note)
{
    struct api_cancel *cancel = context;
    if (note->event_row > 0 && strcmp(note->job_id, cancel->id) == 0)
        api_cancel_look(cancel);
}

static void api_cancel_late(void *context)
{
    struct api_cancel *cancel = context;
    cancel->listening = false;
    api_cancel_look(cancel);
}

int api_jobs_cancel(struct api *api, struct http_request *request, struct err *err)
{
    const char *id = http_request_route(request)->name;
    if (strlen(id) > LIMIT_ID_BYTES)
        return err_set(err, ERR_NOT_FOUND, "there is no fine-tuning job %s", id);
    TRY(coordinator_cancel(api->coordinator, id, err));
    struct api_cancel *cancel = mem_new(1, sizeof *cancel);
    if (cancel == NULL)
        return mem_fail(err, sizeof *cancel, "a cancellation");
    *cancel = (struct api_cancel){.api = api,
                                  .request = request,
                                  .listener = {.called = api_cancel_note, .context = cancel},
                                  .listening = true};
    (void)snprintf(cancel->id, sizeof cancel->id, "%.*s", LIMIT_ID_BYTES, id);
    http_request_on_end(request, api_cancel_end, cancel);
    TRY(loop_timer_new(api->loop, api_cancel_late, cancel, &cancel->timer, err));
    loop_timer_set(cancel->timer, API_CANCEL_MS, 0);
    bus_listen(api->bus, &cancel->listener);
    http_defer(request, NULL, NULL);
    api_cancel_look(cancel);
    return 0;
}

/* models: see models.h. */
#include "daemon/models.h"

#include "common/clock.h"
#include "common/io.h"
#include "common/job_spec.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/model_config.h"
#include "common/model_published.h"
#include "daemon/access.h"
#include "daemon/api_turns.h"
#include "daemon/checkpoints.h"
#include "daemon/host.h"
#include "daemon/http.h"
#include "daemon/launch_local.h"
#include "daemon/loop.h"
#include "daemon/model_card.h"
#include "daemon/model_roots.h"
#include "daemon/result_name.h"
#include "daemon/route.h"
#include "daemon/settings.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

static const char models_builtin[] = "tiny-llama";
static const char models_local[] = "local"; /* owner of base models */
enum { MODELS_BUILTIN_LIMIT_MS = 60000, MODELS_MAX = 10000 };

void models_entry_done(struct models_entry *entry)
{
    mem_free(entry->dir);
    *entry = (struct models_entry){0};
}

struct models_search {
    const char *name;
    struct models_entry *entry;
};

enum { MODELS_STOP = 1 }; /* ends a walk without an error */

static int models_match(void *context, const char *name, const char *dir, int64_t created_ms,
                        struct err *err)
{
    struct models_search *search = context;
    if (strcmp(name, search->name) != 0)
        return 0;
    (void)snprintf(search->entry->name, sizeof search->entry->name, "%s", name);
    (void)snprintf(search->entry->owner, sizeof search->entry->owner, "%s", models_local);
    search->entry->created_ms = created_ms;
    search->entry->dir = mem_strdup(dir);
    return search->entry->dir != NULL ? MODELS_STOP : mem_fail(err, LIMIT_PATH_BYTES, "a path");
}

struct models_result {
    struct api *api;
    const char *viewer;
    struct models_entry *entry;
};

static int models_take_job(void *context, const struct store_job *job, struct err *err)
{
    struct models_result *result = context;
    if (!access_is_seen(result->viewer, job->owner))
        return -ERR_NOT_FOUND;
    if (job->state != JOB_STATE_SUCCEEDED || job->fine_tuned_model[0] == '\0')
        return err_set_field(err, ERR_BAD_STATE, "model", "%s has no tuned model", job->id);
    struct models_entry *entry = result->entry;
    (void)snprintf(entry->name, sizeof entry->name, "%s", job->fine_tuned_model);
    (void)snprintf(entry->owner, sizeof entry->owner, "%s", job->owner);
    entry->created_ms = job->finished_ms;
    CLEANUP(json_unref) json_t *json = NULL;
    CLEANUP(job_spec_done) struct job_spec spec = {.metadata = NULL};
    TRY(json_parse(job->spec_json, strlen(job->spec_json), job->id, &json, err));
    TRY(job_spec_parse(json, &spec, err));
    entry->chat_template = job_chat_name(spec.chat_template);
    entry->dir = mem_printf("%s/jobs/%s/model", result->api->settings->data_dir, job->id);
    return entry->dir != NULL ? 0 : mem_fail(err, LIMIT_PATH_BYTES, "a path");
}

int models_find(struct api *api, const char *viewer, const char *name,
                struct models_entry *ret_entry, struct err *err)
{
    struct models_entry entry = {.chat_template = job_chat_name(JOB_chat_AUTO)};
    struct models_result result = {.api = api, .viewer = viewer, .entry = &entry};
    int rc = 0;
    if (strncmp(name, "ft:", 3) == 0) {
        rc = store_job_by_result(api->store, name, models_take_job, &result, err);
    } else if (strncmp(name, "ftjob-", 6) == 0) {
        rc = store_job_get(api->store, name, models_take_job, &result, err);
    } else {
        const char *folder = settings_map_get(&api->settings->model_aliases, name);
        struct models_search search = {.name = folder != NULL ? folder : name, .entry = &entry};
        rc = model_roots_walk(api->settings, models_match, &search, err);
        if (rc == 0)
            rc = -ERR_NOT_FOUND;
        else if (rc == MODELS_STOP)
            rc = 0;
    }
    if (rc == -ERR_NOT_FOUND)
        return err_set_field(
            err, ERR_NOT_FOUND, "model",
            "there is no model \"%.200s\"; GET /v1/models (`ithaca models`) lists them", name);
    if (rc == 0)
        *ret_entry = entry;
    return rc;
}

static int models_refuse_adapters(const char *name, struct err *err)
{
    return err_set_field(err, ERR_BAD_STATE, "model",
                         "model %s is adapters alone (ithaca.lora.export \"adapter\"); a job with "
                         "\"merged\" or \"both\" leaves a model",
                         name);
}

int models_find_whole(struct api *api, const char *viewer, const char *name,
                      struct models_entry *ret_entry, struct err *err)
{
    TRY(models_find(api, viewer, name, ret_entry, err));
    CLEANUP(mem_free_ptr) char *adapter = io_join(ret_entry->dir, "adapter_config.json");
    if (adapter == NULL)
        return mem_fail(err, LIMIT_PATH_BYTES, "a path");
    if (!io_exists(adapter))
        return 0;
    return models_refuse_adapters(ret_entry->name, err);
}

static int models_take_checkpoint(void *context, const struct store_job *job, struct err *err)
{
    struct models_result *result = context;
    struct models_entry *entry = result->entry;
    struct checkpoint_manifest manifest;
    struct err absent;
    if (!access_is_seen(result->viewer, job->owner))
        return -ERR_NOT_FOUND;
    CLEANUP(mem_free_ptr)
    char *job_dir = mem_printf("%s/jobs/%s", result->api->settings->data_dir, job->id);
    CLEANUP(mem_free_ptr)
    char *dir =
        job_dir != NULL ? checkpoint_dir(job_dir, checkpoints_step(job->id, entry->name)) : NULL;
    if (dir == NULL)
        return mem_fail(err, LIMIT_PATH_BYTES, "a path");
    if (checkpoint_manifest_read(dir, &manifest, &absent) != 0)
        return -ERR_NOT_FOUND;
    CLEANUP(json_unref) json_t *json = NULL;
    CLEANUP(job_spec_done) struct job_spec spec = {.metadata = NULL};
    TRY(json_parse(job->spec_json, strlen(job->spec_json), job->id, &json, err));
    TRY(job_spec_parse(json, &spec, err));
    if (spec.lora && spec.lora_export == JOB_lora_export_ADAPTER)
        return models_refuse_adapters(entry->name, err);
    (void)snprintf(entry->owner, sizeof entry->owner, "%s", job->owner);
    entry->created_ms = manifest.created_ms;
    entry->dir = mem_strdup(job->model_dir);
    return entry->dir != NULL ? 0 : mem_fail(err, LIMIT_PATH_BYTES, "a path");
}

/* A checkpoint by the name that a list of checkpoints gives it (result_name.h). */
struct models_named {
    const char *name;
    int64_t step;
    char id[LIMIT_ID_BYTES + 1]; /* the checkpoint's; "": not this job's */
};

static int models_match_name(void *context, const struct store_job *job, struct err *err)
{
    struct models_named *named = context;
    char name[RESULT_NAME_BYTES];
    CLEANUP(json_unref) json_t *spec = NULL;
    TRY(json_parse(job->spec_json, strlen(job->spec_json), job->id, &spec, err));
    const char *suffix = json_string_value(json_object_get(spec, "suffix"));
    result_name(job->model, suffix != NULL ? suffix : "", job->id, named->step, name);
    if (strcmp(name, named->name) == 0)
        checkpoints_id(job->id, named->step, named->id);
    return 0;
}

/* The id of the checkpoint that a text names, by its id or its name; "": it names none. */
static int models_checkpoint_id(struct api *api, const char *name, char ret_id[LIMIT_ID_BYTES + 1],
                                struct err *err)
{
    struct models_named named = {.name = name};
    char job_tail[RESULT_NAME_BYTES];
    char unused[LIMIT_ID_BYTES + 1];
    int64_t step = -1;
    bool is_id = checkpoints_is_id(name, unused, &step);
    if (!is_id && result_name_read(name, job_tail, &named.step))
        TRY(store_jobs_by_tail(api->store, job_tail, models_match_name, &named, err));
    (void)snprintf(ret_id, LIMIT_ID_BYTES + 1, "%s", is_id ? name : named.id);
    return 0;
}

int models_find_start(struct api *api, const char *viewer, const char *name,
                      struct models_entry *ret_entry, struct err *err)
{
    struct models_entry entry = {.chat_template = job_chat_name(JOB_chat_AUTO)};
    struct models_result result = {.api = api, .viewer = viewer, .entry = &entry};
    char job_id[LIMIT_ID_BYTES + 1];
    int64_t step = -1;
    TRY(models_checkpoint_id(api, name, entry.name, err));
    if (!checkpoints_is_id(entry.name, job_id, &step))
        return models_find_whole(api, viewer, name, ret_entry, err);
    int rc = store_job_get(api->store, job_id, models_take_checkpoint, &result, err);
    if (rc == -ERR_NOT_FOUND)
        return err_set_field(err, ERR_NOT_FOUND, "model",
                             "there is no checkpoint \"%.100s\" (any more); ithaca checkpoints %s "
                             "lists them",
                             name, job_id);
    if (rc == 0)
        *ret_entry = entry;
    return rc;
}

/* Whether a file says this already: writing waits for the disk. */
static bool models_is_written(const char *path, const json_t *wanted)
{
    CLEANUP(json_unref) json_t *there = NULL;
    struct err absent;
    return json_parse_own_file(path, LIMIT_MODEL_CONFIG_BYTES, &there, &absent) == 0 &&
           json_equal(there, wanted);
}

int models_find_shape(struct api *api, const char *viewer, const char *name,
                      struct models_entry *ret_entry, struct err *err)
{
    const struct model_config *published = model_published_find(name);
    int rc = models_find_whole(api, viewer, name, ret_entry, err);
    if (rc != -ERR_NOT_FOUND || published == NULL)
        return rc;
    CLEANUP(json_unref) json_t *config = model_config_json(published);
    CLEANUP(mem_free_ptr) char *dir = mem_printf("%s/shapes/%s", api->settings->data_dir, name);
    CLEANUP(mem_free_ptr) char *path = dir != NULL ? io_join(dir, "config.json") : NULL;
    if (config == NULL || path == NULL)
        return mem_fail(err, LIMIT_PATH_BYTES, "a model's shape");
    if (!models_is_written(path, config)) {
        TRY(io_make_dirs(dir, 0700, err));
        TRY(json_write_file(path, config, 0600, err));
    }
    (void)snprintf(ret_entry->name, sizeof ret_entry->name, "%s", name);
    (void)snprintf(ret_entry->owner, sizeof ret_entry->owner, "%s", models_local);
    ret_entry->dir = dir;
    dir = NULL;
    return 0;
}

/* ---- routes ---- */

/* New reference; takes card, which may be NULL. */
static json_t *models_json(const char *name, int64_t created_ms, const char *owned_by, json_t *card)
{
    return json_pack("{s:s, s:s, s:o, s:s, s:o*}", "id", name, "object", "model", "created",
                     api_time(created_ms), "owned_by", owned_by, "ithaca", card);
}

/* data is an object by name, so that the first of equal names stays. */
static int models_add(json_t *data, json_t *model, struct err *err)
{
    const char *name = json_string_value(json_object_get(model, "id"));
    if (name != NULL && json_object_size(data) < MODELS_MAX &&
        json_object_get(data, name) == NULL) {
        if (json_object_set_new(data, name, model) != 0)
            return mem_fail(err, 0, "a list of models");
        return 0;
    }
    json_decref(model);
    return name != NULL ? 0 : mem_fail(err, 0, "a list of models");
}

enum { MODELS_LOOK = 1000 }; /* jobs that a turn looks at: some 3 ms */

struct models_list {
    struct api *api;
    struct api_turns turns;
    const char *viewer; /* of the request */
    json_t *models;     /* object by name */
    int64_t row;        /* of the last job that was looked at */
};

static void models_list_end(void *context)
{
    struct models_list *list = context;
    api_turns_done(&list->turns);
    json_decref(list->models);
    mem_free(list);
}

static int models_add_base(void *context, const char *name, const char *dir, int64_t created_ms,
                           struct err *err)
{
    struct models_list *list = context;
    if (json_object_get(list->models, name) != NULL)
        return 0; /* an earlier root's */
    json_t *card = model_card(list->api->settings, dir);
    return card != NULL
               ? models_add(list->models, models_json(name, created_ms, models_local, card), err)
               : mem_fail(err, 0, "a list of models");
}

static int models_add_tuned(void *context, const struct store_job *job, struct err *err)
{
    struct models_list *list = context;
    if (!access_is_seen(list->viewer, job->owner))
        return 0;
    return models_add(list->models,
                      models_json(job->fine_tuned_model, job->finished_ms, job->owner, NULL), err);
}

static int models_list_turn(void *context, bool *ret_done, struct err *err)
{
    struct models_list *list = context;
    bool more = false;
    TRY(store_jobs_tuned(list->api->store, MODELS_LOOK, &list->row, models_add_tuned, list, &more,
                         err));
    *ret_done = !more || json_object_size(list->models) >= MODELS_MAX;
    if (!*ret_done)
        return 0;
    CLEANUP(json_unref) json_t *data = json_array();
    const char *name;
    json_t *model;
    json_object_foreach(list->models, name, model)
    {
        if (json_array_append(data, model) != 0)
            return mem_fail(err, 0, "a list of models");
    }
    api_answer_list(list->turns.request, data, false);
    return 0;
}

int models_list(struct api *api, struct http_request *request, struct err *err)
{
    struct models_list *list = mem_new(1, sizeof *list);
    if (list == NULL)
        return mem_fail(err, sizeof *list, "a list of models");
    *list = (struct models_list){.api = api,
                                 .turns = {.request = request,
                                           .turn = models_list_turn,
                                           .only_answers = true,
                                           .context = list},
                                 .viewer = access_viewer(request),
                                 .models = json_object()};
    http_request_on_end(request, models_list_end, list);
    TRY(model_roots_walk(api->settings, models_add_base, list, err));
    return api_turns_start(&list->turns, api->loop, err);
}

int models_get(struct api *api, struct http_request *request, struct err *err)
{
    CLEANUP(models_entry_done) struct models_entry entry = {.dir = NULL};
    TRY(models_find(api, access_viewer(request), http_request_route(request)->name, &entry, err));
    json_t *card = model_card(api->settings, entry.dir);
    if (card == NULL)
        return mem_fail(err, 0, "a model");
    http_answer_json(request, 200, models_json(entry.name, entry.created_ms, entry.owner, card));
    return 0;
}

/* ---- the built-in model ---- */

struct models_child {
    bool ended;
    struct host_exit exit;
};

static void models_child_ended(void *context, const struct host_exit *ended)
{
    struct models_child *child = context;
    child->ended = true;
    child->exit = *ended;
}

static int models_run_worker(struct api *api, const char *dir, const char *log_path,
                             struct err *err)
{
    struct models_child child = {.ended = false};
    struct host_process *process = NULL;
    struct host_identity identity;
    const char *const argv[] = {api->settings->worker, "--init-model", models_builtin, dir, NULL};
    TRY(launch_local_worker(api->host, argv, log_path, models_child_ended, &child, &process,
                            &identity, err));
    int64_t deadline_ms = clock_monotonic_ms() + MODELS_BUILTIN_LIMIT_MS;
    int rc = 0;
    while (rc == 0 && !child.ended && clock_monotonic_ms() < deadline_ms)
        rc = loop_turn(api->loop, 100, err);
    if (!child.ended)
        api->host->ops->signal(api->host, process, SIGKILL);
    api->host->ops->forget(api->host, process);
    TRY(rc);
    if (!child.ended || child.exit.status != 0)
        return err_set(err, ERR_IO, "ithaca-worker --init-model %s ended with %s %d; see %s",
                       models_builtin, child.exit.signal != 0 ? "signal" : "status",
                       child.exit.signal != 0 ? child.exit.signal : child.exit.status, log_path);
    return 0;
}

int models_make_builtin(struct api *api, struct err *err)
{
    const char *root = api->settings->model_roots.items[0].value;
    CLEANUP(mem_free_ptr) char *path = io_join(root, models_builtin);
    CLEANUP(mem_free_ptr) char *config = mem_printf("%s/%s/config.json", root, models_builtin);
    CLEANUP(mem_free_ptr) char *temporary = mem_printf("%s/.%s.new", root, models_builtin);
    CLEANUP(mem_free_ptr) char *log_path = io_join(api->settings->data_dir, "init-model.log");
    if (path == NULL || config == NULL || temporary == NULL || log_path == NULL)
        return mem_fail(err, LIMIT_PATH_BYTES, "a path");
    if (io_exists(config))
        return 0;
    TRY(io_make_dirs(root, 0755, err));
    TRY(io_remove_tree(temporary, err)); /* of a start that was cut short */
    TRY(models_run_worker(api, temporary, log_path, err));
    if (rename(temporary, path) != 0)
        return err_set_errno(err, errno, "%s: rename to %s", temporary, models_builtin);
    log_info("models", "made the built-in model %s", models_builtin);
    return io_fsync_dir(root, err);
}

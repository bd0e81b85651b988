/* models: folders are read at each request, so that a model copied into a root is there at once. */
#include "daemon/models.h"

#include "common/clock.h"
#include "common/io.h"
#include "common/log.h"
#include "common/mem.h"
#include "daemon/host.h"
#include "daemon/http.h"
#include "daemon/launch_local.h"
#include "daemon/loop.h"
#include "daemon/route.h"
#include "daemon/settings.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char models_builtin[] = "tiny-llama";
enum { MODELS_BUILTIN_LIMIT_MS = 60000, MODELS_MAX = 10000 };

void models_entry_done(struct models_entry *entry)
{
    mem_free(entry->dir);
    *entry = (struct models_entry){0};
}

/* Is root/name a folder with a config.json? */
static bool models_is_model(const char *root, const char *name, int64_t *ret_created_ms)
{
    char path[LIMIT_PATH_BYTES];
    struct stat info;
    int length = snprintf(path, sizeof path, "%s/%s/config.json", root, name);
    if (length < 0 || (size_t)length >= sizeof path || stat(path, &info) != 0 ||
        !S_ISREG(info.st_mode))
        return false;
    *ret_created_ms = (int64_t)info.st_mtim.tv_sec * 1000;
    return true;
}

typedef int models_fn(void *context, const char *root, const char *name, int64_t created_ms,
                      struct err *err);

/* Calls `found` for each base model; its non-zero return ends the walk and is returned. */
static int models_walk(const struct settings *settings, models_fn *found, void *context,
                       struct err *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < settings->model_roots.count; i++) {
        const char *root = settings->model_roots.items[i].value;
        DIR *stream = opendir(root);
        if (stream == NULL)
            continue; /* /readyz tells of it; the other roots are served */
        const struct dirent *entry;
        int64_t created_ms;
        while (rc == 0 && (entry = readdir(stream)) != NULL)
            if (route_is_name(entry->d_name, strlen(entry->d_name)) &&
                models_is_model(root, entry->d_name, &created_ms))
                rc = found(context, root, entry->d_name, created_ms, err);
        (void)closedir(stream); /* read only */
    }
    return rc;
}

struct models_search {
    const char *name;
    struct models_entry *entry;
};

enum { MODELS_STOP = 1 }; /* ends a walk without an error */

static int models_match(void *context, const char *root, const char *name, int64_t created_ms,
                        struct err *err)
{
    struct models_search *search = context;
    if (strcmp(name, search->name) != 0)
        return 0;
    (void)snprintf(search->entry->name, sizeof search->entry->name, "%s", name);
    search->entry->created_ms = created_ms;
    search->entry->dir = io_join(root, name);
    return search->entry->dir != NULL ? MODELS_STOP : mem_fail(err, LIMIT_PATH_BYTES, "a path");
}

struct models_result {
    struct api *api;
    struct models_entry *entry;
};

static int models_take_job(void *context, const struct store_job *job, struct err *err)
{
    struct models_result *result = context;
    if (job->state != JOB_STATE_SUCCEEDED || job->fine_tuned_model[0] == '\0')
        return err_set_field(err, ERR_BAD_STATE, "model", "%s has no tuned model", job->id);
    struct models_entry *entry = result->entry;
    (void)snprintf(entry->name, sizeof entry->name, "%s", job->fine_tuned_model);
    entry->created_ms = job->finished_ms;
    entry->dir = mem_printf("%s/jobs/%s/model", result->api->settings->data_dir, job->id);
    return entry->dir != NULL ? 0 : mem_fail(err, LIMIT_PATH_BYTES, "a path");
}

int models_find(struct api *api, const char *name, struct models_entry *ret_entry, struct err *err)
{
    struct models_entry entry = {.dir = NULL};
    struct models_result result = {.api = api, .entry = &entry};
    int rc = 0;
    if (strncmp(name, "ft:", 3) == 0) {
        rc = store_job_by_result(api->store, name, models_take_job, &result, err);
    } else if (strncmp(name, "ftjob-", 6) == 0) {
        rc = store_job_get(api->store, name, models_take_job, &result, err);
    } else {
        const char *folder = settings_map_get(&api->settings->model_aliases, name);
        struct models_search search = {.name = folder != NULL ? folder : name, .entry = &entry};
        rc = models_walk(api->settings, models_match, &search, err);
        if (rc == 0)
            rc = -ERR_NOT_FOUND;
        else if (rc == MODELS_STOP)
            rc = 0;
    }
    if (rc == -ERR_NOT_FOUND)
        return err_set_field(err, ERR_NOT_FOUND, "model",
                             "there is no model \"%.200s\"; GET /v1/models lists them", name);
    if (rc == 0)
        *ret_entry = entry;
    return rc;
}

/* ---- routes ---- */

/* New reference. */
static json_t *models_json(const char *name, int64_t created_ms, const char *owned_by)
{
    return json_pack("{s:s, s:s, s:o, s:s}", "id", name, "object", "model", "created",
                     api_time(created_ms), "owned_by", owned_by);
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

static int models_add_base(void *context, const char *root, const char *name, int64_t created_ms,
                           struct err *err)
{
    (void)root;
    return models_add(context, models_json(name, created_ms, "local"), err);
}

static int models_add_tuned(void *context, const struct store_job *job, struct err *err)
{
    if (job->fine_tuned_model[0] == '\0')
        return 0;
    return models_add(context, models_json(job->fine_tuned_model, job->finished_ms, job->owner),
                      err);
}

int models_list(struct api *api, struct http_request *request, struct err *err)
{
    CLEANUP(json_unref) json_t *models = json_object();
    CLEANUP(json_unref) json_t *data = json_array();
    TRY(models_walk(api->settings, models_add_base, models, err));
    TRY(store_jobs_in_state(api->store, JOB_STATE_SUCCEEDED, models_add_tuned, models, err));
    const char *name;
    json_t *model;
    json_object_foreach(models, name, model)
    {
        if (json_array_append(data, model) != 0)
            return mem_fail(err, 0, "a list of models");
    }
    api_answer_list(request, json_incref(data), false);
    return 0;
}

int models_get(struct api *api, struct http_request *request, struct err *err)
{
    CLEANUP(models_entry_done) struct models_entry entry = {.dir = NULL};
    TRY(models_find(api, http_request_route(request)->name, &entry, err));
    http_answer_json(request, 200,
                     models_json(entry.name, entry.created_ms,
                                 strncmp(entry.name, "ft:", 3) == 0 ? "admin" : "local"));
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
    const char *environment[LAUNCH_ENVIRONMENT_MAX + 1];
    launch_local_environment(NULL, 0, environment);
    const struct host_spawn spawn = {.argv = argv,
                                     .envp = environment,
                                     .output_path = log_path,
                                     .on_exit = models_child_ended,
                                     .context = &child};
    TRY(api->host->ops->spawn(api->host, &spawn, &process, &identity, err));
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
    int64_t created_ms;
    if (models_is_model(root, models_builtin, &created_ms))
        return 0;
    CLEANUP(mem_free_ptr) char *path = io_join(root, models_builtin);
    CLEANUP(mem_free_ptr) char *temporary = mem_printf("%s/.%s.new", root, models_builtin);
    CLEANUP(mem_free_ptr) char *log_path = io_join(api->settings->data_dir, "init-model.log");
    if (path == NULL || temporary == NULL || log_path == NULL)
        return mem_fail(err, LIMIT_PATH_BYTES, "a path");
    TRY(io_make_dirs(root, 0755, err));
    TRY(io_remove_tree(temporary, err)); /* of a start that was cut short */
    TRY(models_run_worker(api, temporary, log_path, err));
    if (rename(temporary, path) != 0)
        return err_set_errno(err, errno, "%s: rename to %s", temporary, models_builtin);
    log_info("models", "made the built-in model %s", models_builtin);
    return io_fsync_dir(root, err);
}

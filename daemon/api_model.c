/* api_model: the files of a tuned model, or of a checkpoint as a model: their list and their bytes.
 * A checkpoint's folder is made when its list is asked for (exports.h), which is then answered when
 * it is there. Names are checked by their characters and opened without following links. */
#include "common/lora_shape.h"
#include "common/mem.h"
#include "daemon/api.h"
#include "daemon/checkpoints.h"
#include "daemon/exports.h"
#include "daemon/http.h"
#include "daemon/job_fsm.h"
#include "daemon/settings.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MODEL_FILES_MAX = 10000 }; /* in a folder; a model has about 200 at most */

/* What a request is about. */
struct model_source {
    struct api *api;
    char checkpoint[ROUTE_VALUE_BYTES + 1]; /* id; "" for the tuned model */
    char export_name[2 * LIMIT_ID_BYTES];
    char *checkpoint_dir, *model_dir; /* of a checkpoint; owned */
    char *dir;                        /* the model's folder when it is known; owned */
};

static void model_source_done(struct model_source *source)
{
    mem_free(source->checkpoint_dir);
    mem_free(source->model_dir);
    mem_free(source->dir);
}

static int model_of_job(struct model_source *source, const struct store_job *job, struct err *err)
{
    if (job->state != JOB_STATE_SUCCEEDED)
        return err_set(err, ERR_BAD_STATE,
                       "job %s is %s: it has no tuned model (its checkpoints can be asked for)",
                       job->id, job_state_name(job->state));
    source->dir = mem_printf("%s/jobs/%s/model", source->api->settings->data_dir, job->id);
    return source->dir != NULL ? 0 : mem_fail(err, LIMIT_PATH_BYTES, "a path");
}

static int model_of_checkpoint(struct model_source *source, const struct store_job *job,
                               struct err *err)
{
    struct checkpoint_manifest manifest;
    struct err unread;
    int64_t step = checkpoints_step(job->id, source->checkpoint);
    CLEANUP(mem_free_ptr)
    char *job_dir = mem_printf("%s/jobs/%s", source->api->settings->data_dir, job->id);
    source->checkpoint_dir = job_dir != NULL ? checkpoint_dir(job_dir, step) : NULL;
    source->model_dir = mem_strdup(job->model_dir);
    if (source->checkpoint_dir == NULL || source->model_dir == NULL)
        return mem_fail(err, LIMIT_PATH_BYTES, "a path");
    if (step < 0 || checkpoint_manifest_read(source->checkpoint_dir, &manifest, &unread) != 0)
        return err_set_field(err, ERR_NOT_FOUND, "checkpoint",
                             "checkpoint: job %s has no checkpoint \"%.100s\"", job->id,
                             source->checkpoint);
    (void)snprintf(source->export_name, sizeof source->export_name, "%.*s-%lld", LIMIT_ID_BYTES,
                   source->checkpoint, (long long)manifest.created_ms);
    source->dir = exports_find(source->api->exports, source->export_name);
    return 0;
}

static int model_take_job(void *context, const struct store_job *job, struct err *err)
{
    struct model_source *source = context;
    return source->checkpoint[0] != '\0' ? model_of_checkpoint(source, job, err)
                                         : model_of_job(source, job, err);
}

static int model_find(struct api *api, struct http_request *request, struct model_source *source,
                      struct err *err)
{
    const struct route_match *route = http_request_route(request);
    bool found = false;
    source->api = api;
    TRY(route_query_text(route->query, "checkpoint", source->checkpoint, &found, err));
    if (!found)
        source->checkpoint[0] = '\0';
    return store_job_get(api->store, route->name, model_take_job, source, err);
}

/* ---- the list ------------------------------------------------------------------------------ */

/* A regular file that may be given out. */
static bool model_is_file(int folder_fd, const char *name, int64_t *ret_bytes)
{
    struct stat info;
    if (!route_is_name(name, strlen(name)) ||
        fstatat(folder_fd, name, &info, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(info.st_mode))
        return false;
    *ret_bytes = info.st_size;
    return true;
}

/* What lies in a folder, called prefix and its name. */
static int model_list(DIR *folder, const char *prefix, json_t *data, struct err *err)
{
    const struct dirent *entry;
    while ((entry = readdir(folder)) != NULL && json_array_size(data) < MODEL_FILES_MAX) {
        int64_t bytes = 0;
        if (!model_is_file(dirfd(folder), entry->d_name, &bytes))
            continue;
        CLEANUP(mem_free_ptr) char *id = mem_printf("%s%s", prefix, entry->d_name);
        if (id == NULL ||
            json_array_append_new(data, json_pack("{s:s, s:s, s:I}", "id", id, "object",
                                                  "model.file", "bytes", (json_int_t)bytes)) != 0)
            return mem_fail(err, 0, "a list of files");
    }
    return 0;
}

static void model_close(DIR **folder)
{
    if (*folder != NULL)
        (void)closedir(*folder); /* read only */
}

/* The folder of adapters beside the model; NULL when there is none. */
static DIR *model_adapters(int folder_fd)
{
    int fd = openat(folder_fd, LORA_SHAPE_FOLDER, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *folder = fd >= 0 ? fdopendir(fd) : NULL;
    if (fd >= 0 && folder == NULL)
        (void)close(fd); /* read only */
    return folder;
}

static int model_answer_list(struct http_request *request, const char *dir, struct err *err)
{
    CLEANUP(json_unref) json_t *data = json_array();
    CLEANUP(model_close) DIR *folder = opendir(dir);
    if (folder == NULL)
        return err_set_errno(err, errno, "the model's folder");
    CLEANUP(model_close) DIR *adapters = model_adapters(dirfd(folder));
    TRY(model_list(folder, "", data, err));
    if (adapters != NULL)
        TRY(model_list(adapters, LORA_SHAPE_FOLDER "/", data, err));
    api_answer_list(request, data, false);
    return 0;
}

struct model_wait {
    struct http_request *request;
    struct exports_wait *wait; /* NULL once it is over */
};

static void model_wait_end(void *context)
{
    struct model_wait *wait = context;
    exports_forget(wait->wait);
    mem_free(wait);
}

static void model_ready(void *context, const char *dir, const struct err *why)
{
    struct model_wait *wait = context;
    struct err err;
    wait->wait = NULL;
    if (dir == NULL)
        http_answer_error(wait->request, why);
    else if (model_answer_list(wait->request, dir, &err) != 0)
        http_answer_error(wait->request, &err);
}

int api_model_files(struct api *api, struct http_request *request, struct err *err)
{
    CLEANUP(model_source_done) struct model_source source = {.dir = NULL};
    TRY(model_find(api, request, &source, err));
    if (source.dir != NULL)
        return model_answer_list(request, source.dir, err);
    struct model_wait *wait = mem_new(1, sizeof *wait);
    if (wait == NULL)
        return mem_fail(err, sizeof *wait, "a request that waits");
    wait->request = request;
    http_request_on_end(request, model_wait_end, wait);
    const struct exports_source wanted = {.name = source.export_name,
                                          .role = "--export",
                                          .inputs = {source.checkpoint_dir, source.model_dir},
                                          .what = "the checkpoint cannot be exported"};
    TRY(exports_want(api->exports, &wanted, model_ready, wait, &wait->wait, err));
    http_defer(request, NULL, NULL);
    return 0;
}

/* ---- a file's bytes ------------------------------------------------------------------------ */

int api_model_content(struct api *api, struct http_request *request, struct err *err)
{
    CLEANUP(model_source_done) struct model_source source = {.dir = NULL};
    char name[ROUTE_VALUE_BYTES + 1];
    bool found = false;
    int64_t bytes = 0;
    TRY(route_query_text(http_request_route(request)->query, "file", name, &found, err));
    if (!found)
        return err_set_field(err, ERR_MISSING_FIELD, "file",
                             "file: name one of the files that .../model/files lists");
    TRY(model_find(api, request, &source, err));
    CLEANUP(model_close) DIR *folder = source.dir != NULL ? opendir(source.dir) : NULL;
    CLEANUP(model_close) DIR *adapters = NULL;
    static const char below[] = LORA_SHAPE_FOLDER "/";
    const char *leaf = name;
    DIR *in = folder;
    if (folder != NULL && strncmp(name, below, strlen(below)) == 0) {
        leaf = name + strlen(below);
        adapters = model_adapters(dirfd(folder));
        in = adapters;
    }
    int fd = in != NULL && model_is_file(dirfd(in), leaf, &bytes)
                 ? openat(dirfd(in), leaf, O_RDONLY | O_NOFOLLOW | O_CLOEXEC)
                 : -1;
    if (fd < 0)
        return err_set_field(err, ERR_NOT_FOUND, "file",
                             "file: there is no \"%.100s\"; .../model/files lists what is", name);
    http_answer_file(request, fd, bytes);
    return 0;
}

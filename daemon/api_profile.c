/* api_profile: a job's profile: asked for while it runs, and given out as a summary and as a trace.
 * Both are made of the ranks' files (worker/profile_file.h) by a child when one is first asked for
 * (exports.h), never here. */
#include "common/mem.h"
#include "daemon/api.h"
#include "daemon/coordinator.h"
#include "daemon/exports.h"
#include "daemon/http.h"
#include "daemon/machine.h"
#include "daemon/settings.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    PROFILE_STEPS = 3,              /* where the request does not say */
    PROFILE_SUMMARY_BYTES = 1 << 20 /* a summary has some hundred rows */
};

/* ---- ask --------------------------------------------------------------------------------- */

/* {"steps": N}; no body is fine. */
static int profile_read_steps(const json_t *body, int64_t *ret_steps, struct err *err)
{
    const char *key;
    json_t *value;
    *ret_steps = PROFILE_STEPS;
    json_object_foreach((json_t *)(uintptr_t)body, key, value)
    {
        if (strcmp(key, "steps") != 0)
            return err_set_field(err, ERR_UNKNOWN_FIELD, key,
                                 "%s: there is no such field; profile takes steps", key);
        *ret_steps = json_is_integer(value) ? json_integer_value(value) : 0;
    }
    if (*ret_steps >= 1 && *ret_steps <= LIMIT_PROFILE_STEPS)
        return 0;
    return err_set_field(err, ERR_INVALID_VALUE, "steps",
                         "steps must be 1 to %d: how many are profiled, from the next one on",
                         LIMIT_PROFILE_STEPS);
}

int api_profile_ask(struct api *api, struct http_request *request, struct err *err)
{
    const char *id = http_request_route(request)->name;
    int64_t steps = 0;
    CLEANUP(json_unref) json_t *body = NULL;
    if (http_request_body(request)->length > 0)
        TRY(api_read_body(request, &body, err));
    TRY(profile_read_steps(body, &steps, err));
    TRY(coordinator_profile(api->coordinator, id, steps, err));
    http_answer_json(request, 200,
                     json_pack("{s:s, s:s, s:I}", "object", "fine_tuning.job.profile_request",
                               "job_id", id, "steps", (json_int_t)steps));
    return 0;
}

/* ---- give out ---------------------------------------------------------------------------- */

struct profile_wait {
    struct api *api;
    struct http_request *request;
    struct exports_wait *wait; /* NULL once it is over */
    int (*answer)(struct http_request *request, const char *dir, struct err *err);
};

static void profile_wait_end(void *context)
{
    struct profile_wait *wait = context;
    exports_forget(wait->wait);
    mem_free(wait);
}

static int profile_job_exists(void *context, const struct store_job *job, struct err *err)
{
    (void)context, (void)job, (void)err;
    return 0;
}

/* What the child failed at is the job's deletion meanwhile, where the job is gone. */
static void profile_ready(void *context, const char *dir, const struct err *why)
{
    struct profile_wait *wait = context;
    const char *id = http_request_route(wait->request)->name;
    struct err err;
    wait->wait = NULL;
    if (dir == NULL)
        http_answer_error(
            wait->request,
            store_job_get(wait->api->store, id, profile_job_exists, NULL, &err) == 0 ? why : &err);
    else if (wait->answer(wait->request, dir, &err) != 0)
        http_answer_error(wait->request, &err);
}

static int profile_answer_summary(struct http_request *request, const char *dir, struct err *err)
{
    CLEANUP(mem_free_ptr) char *path = mem_printf("%s/summary.json", dir);
    json_t *summary = NULL;
    if (path == NULL)
        return mem_fail(err, LIMIT_PATH_BYTES, "a path");
    TRY(json_parse_own_file(path, PROFILE_SUMMARY_BYTES, &summary, err));
    http_answer_json(request, 200, summary);
    return 0;
}

static int profile_answer_trace(struct http_request *request, const char *dir, struct err *err)
{
    CLEANUP(mem_free_ptr) char *path = mem_printf("%s/trace.json.gz", dir);
    struct stat info;
    if (path == NULL)
        return mem_fail(err, LIMIT_PATH_BYTES, "a path");
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &info) != 0) {
        int failed = errno;
        if (fd >= 0)
            (void)close(fd); /* read only */
        return err_set_errno(err, failed, "the trace");
    }
    http_answer_file(request, fd, info.st_size);
    return 0;
}

/* A name for this profile and no other: ready.json is written anew for each. */
static int profile_name(const char *job_id, const char *ready_path, char *ret_name, size_t size,
                        struct err *err)
{
    struct stat info;
    if (stat(ready_path, &info) != 0)
        return err_set(err, ERR_NOT_FOUND,
                       "job %s has no profile; ask for one while it runs (POST .../profile, "
                       "`ithaca profile JOB --steps N`), or submit it with ithaca.profile.steps",
                       job_id);
    (void)snprintf(ret_name, size, "profile-%.*s-%lld-%09ld", LIMIT_ID_BYTES, job_id,
                   (long long)info.st_mtim.tv_sec, info.st_mtim.tv_nsec);
    return 0;
}

static int profile_give(struct api *api, struct http_request *request,
                        int (*answer)(struct http_request *, const char *, struct err *),
                        struct err *err)
{
    const char *id = http_request_route(request)->name;
    char name[2 * LIMIT_ID_BYTES], device_bytes[32];
    CLEANUP(mem_free_ptr) char *job_dir = mem_printf("%s/jobs/%s", api->settings->data_dir, id);
    CLEANUP(mem_free_ptr)
    char *ready = job_dir != NULL ? mem_printf("%s/profile/ready.json", job_dir) : NULL;
    if (ready == NULL)
        return mem_fail(err, LIMIT_PATH_BYTES, "a path");
    TRY(store_job_get(api->store, id, profile_job_exists, NULL, err));
    TRY(profile_name(id, ready, name, sizeof name, err));
    (void)snprintf(device_bytes, sizeof device_bytes, "%lld",
                   (long long)machine_device_bytes(coordinator_inventory(api->coordinator)));
    CLEANUP(mem_free_ptr) char *dir = exports_find(api->exports, name);
    if (dir != NULL)
        return answer(request, dir, err);
    struct profile_wait *wait = mem_new(1, sizeof *wait);
    if (wait == NULL)
        return mem_fail(err, sizeof *wait, "a request that waits");
    *wait = (struct profile_wait){.api = api, .request = request, .answer = answer};
    http_request_on_end(request, profile_wait_end, wait);
    const struct exports_source wanted = {.name = name,
                                          .role = "--profile",
                                          .inputs = {job_dir, device_bytes},
                                          .what = "the profile cannot be made"};
    TRY(exports_want(api->exports, &wanted, profile_ready, wait, &wait->wait, err));
    http_defer(request, NULL, NULL);
    return 0;
}

int api_profile_get(struct api *api, struct http_request *request, struct err *err)
{
    return profile_give(api, request, profile_answer_summary, err);
}

int api_profile_trace(struct api *api, struct http_request *request, struct err *err)
{
    return profile_give(api, request, profile_answer_trace, err);
}

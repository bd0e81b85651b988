/* api_prune: removes what may go: the body becomes a policy (prune.h), a survey (storage.h) is
 * waited for, what is chosen of it is told, and removed unless it is a dry run. A removal whose
 * client has left is done all the same. */
#include "common/mem.h"
#include "common/utf8.h"
#include "daemon/access.h"
#include "daemon/api.h"
#include "daemon/host.h"
#include "daemon/http.h"
#include "daemon/prune.h"

#include <stdio.h>
#include <string.h>

enum {
    PRUNE_SHOWN_MAX = 10000,         /* things in an answer */
    PRUNE_KEEP_MAX = 1000,           /* as of save.keep */
    PRUNE_AGE_MAX_S = 3153600000 / 2 /* fifty years */
};

struct api_prune {
    struct api *api;
    struct http_request *request; /* NULL: it is over, the removal is not */
    struct storage_wait *wait;    /* for the survey */
    bool removing;                /* prune_start() has this */
    bool dry_run;
    struct prune_policy policy;
    char owner[LIMIT_NAME_BYTES + 1]; /* of policy, like this one */
    char job[LIMIT_ID_BYTES + 1];
    char user[LIMIT_NAME_BYTES + 1]; /* who asks */
};

static void api_prune_end(void *context)
{
    struct api_prune *self = context;
    storage_forget(self->wait);
    self->wait = NULL;
    self->request = NULL;
    if (!self->removing)
        mem_free(self);
}

/* ---- the body ------------------------------------------------------------------------------ */

static int prune_wrong(const char *field, const char *legal, struct err *err)
{
    return err_set_field(err, ERR_INVALID_VALUE, field, "%s must be %s", field, legal);
}

static int prune_read_kinds(struct api_prune *self, const json_t *value, struct err *err)
{
    size_t i;
    const json_t *item;
    memset(self->policy.kinds, 0, sizeof self->policy.kinds);
    if (json_array_size(value) == 0)
        return prune_wrong("kinds", "a list of kinds", err);
    json_array_foreach(value, i, item)
    {
        const char *name = json_string_value(item);
        enum storage_kind kind = storage_kind_parse(name != NULL ? name : "");
        if (kind == STORAGE_KIND_COUNT || storage_kind_removed(kind) == STORAGE_REMOVED_NEVER)
            return prune_wrong("kinds", "of checkpoints, logs, shards and files", err);
        self->policy.kinds[kind] = true;
    }
    return 0;
}

static int prune_read_int(const char *field, const json_t *value, int64_t max, int64_t *ret,
                          struct err *err)
{
    if (!json_is_integer(value) || json_integer_value(value) < 0 || json_integer_value(value) > max)
        return err_set_field(err, ERR_INVALID_VALUE, field, "%s must be an integer from 0 to %lld",
                             field, (long long)max);
    *ret = json_integer_value(value);
    return 0;
}

/* A job of the viewer's. */
static int prune_read_job(struct api_prune *self, const json_t *value, struct err *err)
{
    const char *id = json_string_value(value);
    char owner[LIMIT_NAME_BYTES + 1];
    if (id == NULL || !route_is_name(id, strlen(id)) || strlen(id) > LIMIT_ID_BYTES)
        return prune_wrong("job", "the id of a job", err);
    if (store_job_owner(self->api->store, id, owner, err) != 0 ||
        !access_is_seen(self->owner, owner))
        return err_set_field(err, ERR_NOT_FOUND, "job", "there is no fine-tuning job %s", id);
    (void)snprintf(self->job, sizeof self->job, "%s", id);
    return 0;
}

static int prune_read_field(struct api_prune *self, const char *key, const json_t *value,
                            struct err *err)
{
    struct host *host = self->api->host;
    int64_t age_s = 0;
    if (json_is_null(value))
        return 0;
    if (strcmp(key, "kinds") == 0)
        return prune_read_kinds(self, value, err);
    if (strcmp(key, "job") == 0)
        return prune_read_job(self, value, err);
    if (strcmp(key, "keep") == 0)
        return prune_read_int(key, value, PRUNE_KEEP_MAX, &self->policy.keep, err);
    if (strcmp(key, "older_than_s") == 0) {
        TRY(prune_read_int(key, value, PRUNE_AGE_MAX_S, &age_s, err));
        self->policy.before_ms = host->ops->wall_ms(host) - age_s * 1000;
        return 0;
    }
    if (strcmp(key, "dry_run") == 0 && json_is_boolean(value)) {
        self->dry_run = json_is_true(value);
        return 0;
    }
    if (strcmp(key, "dry_run") == 0)
        return prune_wrong(key, "true or false", err);
    char shown[64];
    utf8_line(key, shown, sizeof shown);
    return err_set_field(err, ERR_UNKNOWN_FIELD, shown,
                         "%s: there is no such field; prune takes kinds, older_than_s, job, keep "
                         "and dry_run",
                         shown);
}

/* ---- the answer ---------------------------------------------------------------------------- */

static json_t *prune_target_json(const struct prune_target *target)
{
    return json_pack("{s:s, s:s?, s:o, s:I}", "kind", storage_kind_name(target->kind), "id",
                     target->id[0] != '\0' ? target->id : NULL, "step",
                     target->step > 0 ? json_integer(target->step) : json_null(), "bytes",
                     (json_int_t)target->bytes);
}

/* all: what would go; else what is gone. */
static void prune_answer(struct api_prune *self, const struct prune_target *targets, size_t count,
                         bool all)
{
    json_t *data = json_array();
    int64_t bytes = 0, told = 0;
    for (size_t i = 0; i < count; i++) {
        if (!all && !targets[i].is_gone)
            continue;
        bytes += targets[i].bytes;
        if (told++ < PRUNE_SHOWN_MAX)
            (void)json_array_append_new(data, prune_target_json(&targets[i]));
    }
    http_answer_json(self->request, 200,
                     json_pack("{s:s, s:b, s:I, s:I, s:I, s:o}", "object", "storage.prune",
                               "dry_run", self->dry_run, "freed_bytes", (json_int_t)bytes, "count",
                               (json_int_t)told, "kept_count", (json_int_t)count - told, "data",
                               data));
}

static void api_prune_done(void *context, const struct prune_target *targets, size_t count)
{
    struct api_prune *self = context;
    self->removing = false;
    if (self->request != NULL)
        prune_answer(self, targets, count, false);
    else
        mem_free(self);
}

static int prune_decide(struct api_prune *self, const struct storage_survey *survey,
                        struct err *err)
{
    CLEANUP(mem_free_ptr) bool *chosen = mem_new(survey->item_count + 1, sizeof *chosen);
    struct prune_target *targets = NULL;
    size_t count = 0;
    if (chosen == NULL)
        return mem_fail(err, survey->item_count, "what is to be removed");
    prune_choose(survey, &self->policy, chosen);
    TRY(prune_list(survey, chosen, &targets, &count, err));
    if (!self->dry_run) {
        TRY(prune_start(self->api->prune, targets, count, self->user, api_prune_done, self, err));
        self->removing = true;
        return 0;
    }
    prune_answer(self, targets, count, true);
    mem_free(targets);
    return 0;
}

static void api_prune_surveyed(void *context, const struct storage_survey *survey,
                               const struct err *why)
{
    struct api_prune *self = context;
    struct err err;
    self->wait = NULL;
    if (survey == NULL)
        http_answer_error(self->request, why);
    else if (prune_decide(self, survey, &err) != 0)
        http_answer_error(self->request, &err);
}

int api_prune(struct api *api, struct http_request *request, struct err *err)
{
    CLEANUP(json_unref) json_t *body = NULL;
    const char *key;
    json_t *value;
    struct api_prune *self = mem_new(1, sizeof *self);
    if (self == NULL)
        return mem_fail(err, sizeof *self, "a request that waits");
    *self = (struct api_prune){.api = api, .request = request};
    http_request_on_end(request, api_prune_end, self);
    (void)snprintf(self->owner, sizeof self->owner, "%s", access_viewer(request));
    (void)snprintf(self->user, sizeof self->user, "%s", http_request_owner(request));
    prune_policy_init(&self->policy, self->owner);
    self->policy.job = self->job;
    TRY(api_read_body(request, &body, err));
    json_object_foreach(body, key, value) TRY(prune_read_field(self, key, value, err));
    TRY(storage_want(api->storage, api_prune_surveyed, self, &self->wait, err));
    http_defer(request, NULL, NULL);
    return 0;
}

/* api_storage: what the disk holds, added up by kind, user and job from a survey (storage.h). */
#include "common/mem.h"
#include "daemon/access.h"
#include "daemon/api.h"
#include "daemon/http.h"
#include "daemon/prune.h"

#include <stdlib.h>
#include <string.h>

enum { STORAGE_JOBS_SHOWN = 100, STORAGE_JOBS_MAX = 10000 };

struct api_storage {
    struct http_request *request;
    struct storage_wait *wait; /* for the survey */
    const char *viewer;        /* of the request */
    int64_t limit;             /* jobs shown */
};

static void api_storage_end(void *context)
{
    struct api_storage *self = context;
    storage_forget(self->wait);
    mem_free(self);
}

/* Bytes of a job, or of a user. */
struct storage_sum {
    const char *name; /* the user, or the job's id; "": nobody */
    const char *owner;
    int64_t bytes;
    int64_t kinds[STORAGE_KIND_COUNT];
};

static json_t *storage_kinds_json(const int64_t bytes[STORAGE_KIND_COUNT])
{
    json_t *json = json_object();
    for (int kind = 0; kind < STORAGE_KIND_COUNT; kind++)
        if (bytes[kind] > 0)
            (void)json_object_set_new(json, storage_kind_name((enum storage_kind)kind),
                                      json_integer(bytes[kind]));
    return json;
}

static int storage_by_name(const void *a, const void *b)
{
    return strcmp(((const struct storage_sum *)a)->name, ((const struct storage_sum *)b)->name);
}

static int storage_by_bytes(const void *a, const void *b)
{
    const struct storage_sum *left = a, *right = b;
    if (left->bytes != right->bytes)
        return left->bytes > right->bytes ? -1 : 1;
    return strcmp(left->name, right->name);
}

static void storage_add(struct storage_sum *sum, const struct storage_sum *more)
{
    sum->bytes += more->bytes;
    for (int kind = 0; kind < STORAGE_KIND_COUNT; kind++)
        sum->kinds[kind] += more->kinds[kind];
}

/* What is seen of a survey, a sum a thing: items of a thing follow each other. */
static size_t storage_by_thing(const struct api_storage *self, const struct storage_survey *survey,
                               bool of_jobs, struct storage_sum *sums)
{
    size_t count = 0;
    int64_t newest = STORAGE_NOBODY;
    for (size_t i = 0; i < survey->item_count; i++) {
        const struct storage_item *item = &survey->items[i];
        const struct storage_thing *thing =
            item->thing != STORAGE_NOBODY ? &survey->things[item->thing] : NULL;
        const char *owner = storage_owner(survey, item);
        if (!access_is_seen(self->viewer, owner) || (of_jobs && (thing == NULL || !thing->is_job)))
            continue;
        if (thing == NULL || item->thing != newest)
            sums[count++] =
                (struct storage_sum){.name = of_jobs ? thing->id : owner, .owner = owner};
        newest = item->thing;
        sums[count - 1].bytes += item->bytes;
        sums[count - 1].kinds[item->kind] += item->bytes;
    }
    return count;
}

/* Adds those of one name up; what is left is in front. */
static size_t storage_merge(struct storage_sum *sums, size_t count)
{
    size_t merged = 0;
    qsort(sums, count, sizeof *sums, storage_by_name);
    for (size_t i = 0; i < count; i++) {
        if (merged > 0 && strcmp(sums[merged - 1].name, sums[i].name) == 0)
            storage_add(&sums[merged - 1], &sums[i]);
        else
            sums[merged++] = sums[i];
    }
    return merged;
}

static json_t *storage_sum_json(const struct storage_sum *sum, bool is_job)
{
    const char *name = sum->name[0] != '\0' ? sum->name : NULL;
    if (!is_job)
        return json_pack("{s:s?, s:I, s:o}", "user", name, "bytes", (json_int_t)sum->bytes, "kinds",
                         storage_kinds_json(sum->kinds));
    return json_pack("{s:s, s:s?, s:I, s:o}", "id", name, "user",
                     sum->owner[0] != '\0' ? sum->owner : NULL, "bytes", (json_int_t)sum->bytes,
                     "kinds", storage_kinds_json(sum->kinds));
}

/* Users, or jobs, with what is theirs, the largest first. New reference; NULL: no memory. */
static json_t *storage_sums(const struct api_storage *self, const struct storage_survey *survey,
                            bool of_jobs, int64_t limit)
{
    CLEANUP(mem_free_ptr)
    struct storage_sum *sums = mem_new(survey->item_count + 1, sizeof *sums);
    if (sums == NULL)
        return NULL;
    json_t *list = json_array();
    size_t count = storage_by_thing(self, survey, of_jobs, sums);
    if (!of_jobs)
        count = storage_merge(sums, count);
    qsort(sums, count, sizeof *sums, storage_by_bytes);
    for (size_t i = 0; i < count && (int64_t)i < limit; i++)
        (void)json_array_append_new(list, storage_sum_json(&sums[i], of_jobs));
    return list;
}

static json_t *storage_kinds(const struct api_storage *self, const struct storage_survey *survey,
                             const bool prunable[], int64_t *ret_bytes)
{
    int64_t bytes[STORAGE_KIND_COUNT] = {0}, may_go[STORAGE_KIND_COUNT] = {0};
    json_t *list = json_array();
    for (size_t i = 0; i < survey->item_count; i++) {
        const struct storage_item *item = &survey->items[i];
        if (!access_is_seen(self->viewer, storage_owner(survey, item)))
            continue;
        bytes[item->kind] += item->bytes;
        may_go[item->kind] += prunable[i] ? item->bytes : 0;
        *ret_bytes += item->bytes;
    }
    for (int kind = 0; kind < STORAGE_KIND_COUNT; kind++)
        if (bytes[kind] > 0)
            (void)json_array_append_new(list,
                                        json_pack("{s:s, s:I, s:I}", "kind",
                                                  storage_kind_name((enum storage_kind)kind),
                                                  "bytes", (json_int_t)bytes[kind],
                                                  "prunable_bytes", (json_int_t)may_go[kind]));
    return list;
}

static void api_storage_answer(void *context, const struct storage_survey *survey,
                               const struct err *why)
{
    struct api_storage *self = context;
    struct err err;
    self->wait = NULL;
    if (survey == NULL) {
        http_answer_error(self->request, why);
        return;
    }
    CLEANUP(mem_free_ptr) bool *prunable = mem_new(survey->item_count + 1, sizeof *prunable);
    if (prunable == NULL) {
        (void)mem_fail(&err, survey->item_count, "what the disk holds");
        http_answer_error(self->request, &err);
        return;
    }
    int64_t bytes = 0;
    struct prune_policy policy;
    prune_policy_init(&policy, self->viewer);
    prune_choose(survey, &policy, prunable);
    json_t *kinds = storage_kinds(self, survey, prunable, &bytes);
    http_answer_json(self->request, 200,
                     json_pack("{s:s, s:I, s:I, s:I, s:o, s:o, s:o}", "object", "storage",
                               "disk_bytes", (json_int_t)survey->disk_bytes, "free_bytes",
                               (json_int_t)survey->free_bytes, "bytes", (json_int_t)bytes, "kinds",
                               kinds, "users", storage_sums(self, survey, false, INT64_MAX), "jobs",
                               storage_sums(self, survey, true, self->limit)));
}

int api_storage_get(struct api *api, struct http_request *request, struct err *err)
{
    struct api_storage *self = NULL;
    int64_t limit = STORAGE_JOBS_SHOWN;
    TRY(route_query_int(http_request_route(request)->query, "limit", 1, STORAGE_JOBS_MAX, &limit,
                        err));
    self = mem_new(1, sizeof *self);
    if (self == NULL)
        return mem_fail(err, sizeof *self, "a request that waits");
    *self =
        (struct api_storage){.request = request, .viewer = access_viewer(request), .limit = limit};
    http_request_on_end(request, api_storage_end, self);
    TRY(storage_want(api->storage, api_storage_answer, self, &self->wait, err));
    http_defer(request, NULL, NULL);
    return 0;
}

/* storage: one walk (folder_walk.h) at a time. A thing begins with the first path that belongs to
 * it, which is when the store is asked about it; its paths follow each other, so what is added up
 * is among the newest items. What vanishes under the walk counts nothing. */
#include "daemon/storage.h"

#include "common/clock.h"
#include "common/io.h"
#include "common/mem.h"
#include "common/must.h"
#include "daemon/api.h"
#include "daemon/checkpoints.h"
#include "daemon/coordinator.h"
#include "daemon/folder_walk.h"
#include "daemon/job_fsm.h"
#include "daemon/loop.h"
#include "daemon/settings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

enum {
    STORAGE_TURN_MS = 3,          /* of a turn of the loop */
    STORAGE_ENTRIES_MAX = 1 << 20 /* things, and items: a hundred times what 10,000 jobs leave */
};

struct storage_wait {
    struct storage *storage;
    storage_fn *ready;
    void *context;
    struct storage_wait *next;
};

struct storage {
    struct api *api;
    struct loop_timer *timer;
    struct storage_wait *asked;  /* wait for the walk under way */
    struct storage_wait *asking; /* for the next */
    struct folder_walk *walk;    /* NULL: none is under way */
    struct storage_survey survey;
    size_t things_max, items_max; /* allocated */
    size_t first_item;            /* of the newest thing */
    int64_t nobody[STORAGE_KIND_COUNT];
};

const char *storage_owner(const struct storage_survey *survey, const struct storage_item *item)
{
    return item->thing != STORAGE_NOBODY ? survey->things[item->thing].owner : "";
}

/* ---- things and items ---------------------------------------------------------------------- */

/* Room for one more in a list of `size`-byte entries. */
static int storage_grow(void **list, size_t count, size_t *max, size_t size, struct err *err)
{
    if (count < *max)
        return 0;
    size_t wanted = *max == 0 ? 64 : 2 * *max;
    if (wanted > STORAGE_ENTRIES_MAX)
        return err_set(err, ERR_TOO_MANY, "the data folder holds more than %d things",
                       STORAGE_ENTRIES_MAX);
    void *grown = mem_grow(*list, wanted, size);
    if (grown == NULL)
        return mem_fail(err, wanted * size, "a survey of the data folder");
    *list = grown;
    *max = wanted;
    return 0;
}

static int storage_take_job(void *context, const struct store_job *job, struct err *err)
{
    struct storage_thing *thing = context;
    (void)err;
    (void)snprintf(thing->owner, sizeof thing->owner, "%s", job->owner);
    (void)snprintf(thing->reads[0], sizeof thing->reads[0], "%s", job->training_file);
    (void)snprintf(thing->reads[1], sizeof thing->reads[1], "%s", job->validation_file);
    thing->is_needed = !job_state_is_end(job->state);
    thing->may_go_on = job->state == JOB_STATE_FAILED;
    thing->used_ms = job->finished_ms;
    return 0;
}

static int storage_take_file(void *context, const struct store_file *file, struct err *err)
{
    struct storage_thing *thing = context;
    (void)err;
    (void)snprintf(thing->owner, sizeof thing->owner, "%s", file->owner);
    thing->used_ms = file->created_ms;
    return 0;
}

static int storage_take_upload(void *context, const struct store_upload *upload, struct err *err)
{
    struct storage_thing *thing = context;
    (void)err;
    (void)snprintf(thing->owner, sizeof thing->owner, "%s", upload->owner);
    thing->used_ms = upload->created_ms;
    return 0;
}

static int storage_add_thing(struct storage *self, const struct storage_place *place,
                             struct err *err)
{
    struct storage_survey *survey = &self->survey;
    struct store *store = self->api->store;
    void *list = survey->things;
    TRY(storage_grow(&list, survey->thing_count, &self->things_max, sizeof *survey->things, err));
    survey->things = list;
    struct storage_thing *thing = &survey->things[survey->thing_count];
    *thing = (struct storage_thing){.is_job = place->is_job};
    memcpy(thing->id, place->id, sizeof thing->id);
    int rc = 0;
    if (place->is_job)
        rc = store_job_get(store, thing->id, storage_take_job, thing, err);
    else if (place->kind == STORAGE_UPLOADS)
        rc = store_upload_get(store, thing->id, storage_take_upload, thing, err);
    else
        rc = store_file_get(store, thing->id, storage_take_file, thing, err);
    if (rc != 0 && rc != -ERR_NOT_FOUND)
        return rc;
    thing->is_needed |= !place->is_job && coordinator_uses_file(self->api->coordinator, thing->id);
    survey->thing_count++;
    self->first_item = survey->item_count;
    return 0;
}

/* The item of a place of the newest thing; made where there is none yet. */
static int storage_item(struct storage *self, const struct storage_place *place,
                        struct storage_item **ret, struct err *err)
{
    struct storage_survey *survey = &self->survey;
    for (size_t i = survey->item_count; i > self->first_item; i--) {
        *ret = &survey->items[i - 1];
        if ((*ret)->kind == place->kind && (*ret)->step == place->step)
            return 0;
    }
    void *list = survey->items;
    TRY(storage_grow(&list, survey->item_count, &self->items_max, sizeof *survey->items, err));
    survey->items = list;
    *ret = &survey->items[survey->item_count++];
    **ret = (struct storage_item){
        .kind = place->kind, .thing = (int64_t)survey->thing_count - 1, .step = place->step};
    return 0;
}

/* ---- the walk ------------------------------------------------------------------------------ */

/* The part of a file that counts at one of its links. */
static int64_t storage_share(const struct stat *info, const struct storage_place *place)
{
    const int64_t bytes = info->st_blocks * 512; /* the unit of st_blocks */
    const int64_t links = (int64_t)info->st_nlink;
    if (place->kind != STORAGE_SHARDS || !S_ISREG(info->st_mode) || links < 2)
        return bytes;
    return place->is_job ? bytes / (links - 1) : 0; /* one link is the cache's */
}

static int storage_count(struct storage *self, const struct folder_walk_entry *entry,
                         struct err *err)
{
    struct storage_survey *survey = &self->survey;
    struct storage_place place;
    storage_place(entry->relative, &place);
    const int64_t bytes = storage_share(entry->info, &place);
    survey->bytes += bytes;
    if (place.id[0] == '\0') {
        self->nobody[place.kind] += bytes;
        return 0;
    }
    const struct storage_thing *newest =
        survey->thing_count > 0 ? &survey->things[survey->thing_count - 1] : NULL;
    if (newest == NULL || strcmp(newest->id, place.id) != 0 || newest->is_job != place.is_job)
        TRY(storage_add_thing(self, &place, err));
    struct storage_item *item = NULL;
    TRY(storage_item(self, &place, &item, err));
    item->bytes += bytes;
    struct checkpoint_manifest manifest;
    struct err damaged;
    if (place.step > 0 && checkpoint_step_of(entry->path) == place.step &&
        survey->things[item->thing].may_go_on)
        item->is_valid = checkpoint_manifest_read(entry->path, &manifest, &damaged) == 0;
    return 0;
}

static int storage_begin(struct storage *self, struct err *err)
{
    self->asked = self->asking;
    self->asking = NULL;
    return folder_walk_new(self->api->settings->data_dir, &self->walk, err);
}

/* Some entries; *ret_done when there are no more. */
static int storage_step(struct storage *self, bool *ret_done, struct err *err)
{
    const int64_t until_ns = clock_monotonic_ns() + STORAGE_TURN_MS * 1000000LL;
    struct folder_walk_entry entry;
    while (!*ret_done && clock_monotonic_ns() < until_ns) {
        *ret_done = !folder_walk_next(self->walk, &entry);
        if (!*ret_done)
            TRY(storage_count(self, &entry, err));
    }
    return 0;
}

static int storage_compare(const void *a, const void *b)
{
    const struct storage_thing *const *left = a, *const *right = b;
    return strcmp((*left)->id, (*right)->id);
}

/* A file was used until the last job that read it ended. */
static int storage_settle_files(struct storage_survey *survey, struct err *err)
{
    CLEANUP(mem_free_ptr)
    struct storage_thing **files = mem_new(survey->thing_count + 1, sizeof(struct storage_thing *));
    size_t count = 0;
    if (files == NULL)
        return mem_fail(err, survey->thing_count * sizeof *files, "a survey of the data folder");
    for (size_t i = 0; i < survey->thing_count; i++)
        if (!survey->things[i].is_job)
            files[count++] = &survey->things[i];
    qsort(files, count, sizeof(struct storage_thing *), storage_compare);
    for (size_t i = 0; i < survey->thing_count; i++) {
        const struct storage_thing *job = &survey->things[i];
        for (int read = 0; job->is_job && read < 2; read++) {
            struct storage_thing wanted, *key = &wanted;
            memcpy(wanted.id, job->reads[read], sizeof wanted.id);
            struct storage_thing **file =
                bsearch(&key, files, count, sizeof(struct storage_thing *), storage_compare);
            if (file != NULL && (*file)->used_ms < job->used_ms)
                (*file)->used_ms = job->used_ms;
        }
    }
    return 0;
}

static int storage_finish(struct storage *self, struct err *err)
{
    struct storage_survey *survey = &self->survey;
    struct statvfs disk;
    TRY(storage_settle_files(survey, err));
    for (int kind = 0; kind < STORAGE_KIND_COUNT; kind++) {
        const struct storage_place place = {.kind = (enum storage_kind)kind};
        struct storage_item *item = NULL;
        if (self->nobody[kind] == 0)
            continue;
        self->first_item = survey->item_count; /* a new one */
        TRY(storage_item(self, &place, &item, err));
        item->thing = STORAGE_NOBODY;
        item->bytes = self->nobody[kind];
    }
    bool known = statvfs(self->api->settings->data_dir, &disk) == 0;
    survey->disk_bytes = known ? (int64_t)disk.f_blocks * (int64_t)disk.f_frsize : 0;
    survey->free_bytes = known ? (int64_t)disk.f_bavail * (int64_t)disk.f_frsize : 0;
    return 0;
}

/* Ends the walk and forgets what it found. */
static void storage_end(struct storage *self)
{
    folder_walk_free(self->walk);
    mem_free(self->survey.things);
    mem_free(self->survey.items);
    self->survey = (struct storage_survey){.things = NULL};
    self->things_max = self->items_max = self->first_item = 0;
    memset(self->nobody, 0, sizeof self->nobody);
    self->walk = NULL;
}

static void storage_tell(struct storage *self, const struct err *why)
{
    while (self->asked != NULL) {
        struct storage_wait *wait = self->asked;
        self->asked = wait->next;
        wait->ready(wait->context, why == NULL ? &self->survey : NULL, why);
        mem_free(wait);
    }
    storage_end(self);
}

static void storage_on_turn(void *context)
{
    struct storage *self = context;
    struct err err;
    bool done = false;
    loop_doing(self->api->loop, "storage:", "the survey");
    int rc = self->walk == NULL ? storage_begin(self, &err) : storage_step(self, &done, &err);
    if (rc == 0 && done)
        rc = storage_finish(self, &err);
    if (rc != 0 || done)
        storage_tell(self, rc != 0 ? &err : NULL);
    if (self->walk != NULL || self->asking != NULL)
        loop_timer_set(self->timer, 0, 0);
}

/* ---- who asks ------------------------------------------------------------------------------ */

int storage_want(struct storage *storage, storage_fn *ready, void *context,
                 struct storage_wait **ret_wait, struct err *err)
{
    struct storage_wait *wait = mem_new(1, sizeof *wait);
    if (wait == NULL)
        return mem_fail(err, sizeof *wait, "a request that waits");
    *wait = (struct storage_wait){
        .storage = storage, .ready = ready, .context = context, .next = storage->asking};
    storage->asking = wait;
    if (storage->walk == NULL)
        loop_timer_set(storage->timer, 0, 0);
    *ret_wait = wait;
    return 0;
}

void storage_forget(struct storage_wait *wait)
{
    if (wait == NULL)
        return;
    struct storage_wait **lists[] = {&wait->storage->asked, &wait->storage->asking};
    for (size_t i = 0; i < 2; i++)
        for (struct storage_wait **at = lists[i]; *at != NULL; at = &(*at)->next)
            if (*at == wait) {
                *at = wait->next;
                mem_free(wait);
                return;
            }
    must(false); /* it was called already */
}

int storage_new(struct api *api, struct storage **ret_storage, struct err *err)
{
    struct storage *storage = mem_new(1, sizeof *storage);
    if (storage == NULL)
        return mem_fail(err, sizeof *storage, "surveys of the data folder");
    storage->api = api;
    int rc = loop_timer_new(api->loop, storage_on_turn, storage, &storage->timer, err);
    if (rc != 0) {
        mem_free(storage);
        return rc;
    }
    *ret_storage = storage;
    return 0;
}

void storage_free(struct storage *storage)
{
    if (storage == NULL)
        return;
    while (storage->asked != NULL)
        storage_forget(storage->asked);
    while (storage->asking != NULL)
        storage_forget(storage->asking);
    storage_end(storage);
    loop_timer_free(storage->timer);
    mem_free(storage);
}

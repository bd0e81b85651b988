/* storage_place: the layout of the data folder as a table of its top folders; a job's folder by the
 * names in it. */
#include "common/must.h"
#include "daemon/storage.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    enum storage_removed removed;
} storage_kinds[STORAGE_KIND_COUNT] = {
#define X(id, text, how, doc) [STORAGE_##id] = {.name = text, .removed = STORAGE_REMOVED_##how},
#include "api/storage_kinds.def"
#undef X
};

const char *storage_kind_name(enum storage_kind kind)
{
    must(kind < STORAGE_KIND_COUNT);
    return storage_kinds[kind].name;
}

enum storage_kind storage_kind_parse(const char *name)
{
    int kind = 0;
    while (kind < STORAGE_KIND_COUNT && strcmp(storage_kinds[kind].name, name) != 0)
        kind++;
    return (enum storage_kind)kind;
}

enum storage_removed storage_kind_removed(enum storage_kind kind)
{
    must(kind < STORAGE_KIND_COUNT);
    return storage_kinds[kind].removed;
}

/* Moves on behind "<name>/", or to the end of "<name>"; false where the path begins otherwise. */
static bool storage_enter(const char **path, const char *name)
{
    size_t length = strlen(name);
    if (strncmp(*path, name, length) != 0 || ((*path)[length] != '/' && (*path)[length] != '\0'))
        return false;
    *path += length + ((*path)[length] == '/');
    return true;
}

/* The component that the path begins with, as an id; false where there is none or it is none. */
static bool storage_take_id(const char **path, char ret_id[LIMIT_ID_BYTES + 1])
{
    size_t length = strcspn(*path, "/");
    if (length == 0 || length > LIMIT_ID_BYTES)
        return false;
    (void)snprintf(ret_id, LIMIT_ID_BYTES + 1, "%.*s", (int)length, *path);
    *path += length + ((*path)[length] == '/');
    return true;
}

static bool storage_ends_with(const char *path, const char *tail)
{
    size_t length = strlen(path), tail_length = strlen(tail);
    return length >= tail_length && strcmp(path + length - tail_length, tail) == 0;
}

/* N of "step-N" and what is below it, -N of "step-N.tmp"; 0 for other names. */
static int64_t storage_step(const char *path)
{
    char *end = NULL;
    if (strncmp(path, "step-", 5) != 0 || path[5] < '1' || path[5] > '9')
        return 0;
    long long step = strtoll(path + 5, &end, 10);
    const char *tail = end;
    if (*end == '\0' || *end == '/')
        return step;
    return storage_enter(&tail, ".tmp") ? -step : 0;
}

static void storage_place_in_job(const char *path, struct storage_place *place)
{
    if (storage_enter(&path, "checkpoints")) {
        place->step = storage_step(path);
        place->kind = place->step != 0 ? STORAGE_CHECKPOINTS : STORAGE_OTHER;
    } else if (storage_enter(&path, "model")) {
        place->kind = STORAGE_MODELS;
    } else if (storage_enter(&path, "base")) {
        place->kind = STORAGE_BASE_MODELS;
    } else if (strncmp(path, "attempt-", 8) == 0 || storage_enter(&path, "profile")) {
        place->kind = STORAGE_LOGS;
    } else if (storage_enter(&path, "tokens") && storage_ends_with(path, ".tok")) {
        place->kind = STORAGE_SHARDS;
    }
}

static void storage_place_in_folder(const char *path, struct storage_place *place)
{
    static const struct {
        const char *folder;
        enum storage_kind kind;
    } folders[] = {
        {.folder = "cache", .kind = STORAGE_SHARDS},
        {.folder = "exports", .kind = STORAGE_EXPORTS},
        {.folder = "models", .kind = STORAGE_BASE_MODELS},
        {.folder = "pruned", .kind = STORAGE_TRASH},
        {.folder = "trash", .kind = STORAGE_TRASH},
    };
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++)
        if (storage_enter(&path, folders[i].folder) && path[0] != '\0')
            place->kind = folders[i].kind; /* the folder itself counts as other */
}

void storage_place(const char *path, struct storage_place *ret_place)
{
    *ret_place = (struct storage_place){.kind = STORAGE_OTHER};
    if (storage_enter(&path, "jobs") && storage_take_id(&path, ret_place->id)) {
        ret_place->is_job = true;
        storage_place_in_job(path, ret_place);
    } else if (storage_enter(&path, "files")) {
        if (storage_take_id(&path, ret_place->id))
            ret_place->kind = STORAGE_FILES;
    } else if (storage_enter(&path, "uploads")) {
        if (storage_take_id(&path, ret_place->id))
            ret_place->kind = STORAGE_UPLOADS;
    } else if (strncmp(path, "jobs.db", 7) == 0 || strncmp(path, "metrics.db", 10) == 0) {
        ret_place->kind = STORAGE_DATABASES;
    } else {
        storage_place_in_folder(path, ret_place);
    }
}

/* storage: what the disk under the data folder is used for, by kind (api/storage_kinds.def) and by
 * whose it is.
 *
 * A survey walks the whole folder, some milliseconds a turn of the loop, so nobody waits for it but
 * those who asked. One walk runs at a time: who asks while it does is given the next, which sees
 * all that was done before.
 *
 * Bytes are those of the disk. Shards have links in several jobs and in the cache: the jobs have
 * equal parts of them, the cache nothing while there is a job. So parts add up to what is there. */
#pragma once
#include "common/err.h"
#include "common/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum storage_kind {
#define X(id, name, removed, doc) STORAGE_##id,
#include "api/storage_kinds.def"
#undef X
    STORAGE_KIND_COUNT
};
enum storage_removed { STORAGE_REMOVED_NEVER, STORAGE_REMOVED_NAMED, STORAGE_REMOVED_DEFAULT };

const char *storage_kind_name(enum storage_kind kind);  /* "checkpoints" */
enum storage_kind storage_kind_parse(const char *name); /* STORAGE_KIND_COUNT: there is none */
enum storage_removed storage_kind_removed(enum storage_kind kind);

/* What items belong to. */
struct storage_thing {
    char id[LIMIT_ID_BYTES + 1];      /* of a job, a file or an upload */
    char owner[LIMIT_NAME_BYTES + 1]; /* "": it has no row in the store: nobody's */
    bool is_job;
    bool is_needed;                    /* a job that has not ended; a file that such one uses */
    bool may_go_on;                    /* a job that failed: a checkpoint can be resumed */
    int64_t used_ms;                   /* last time (Unix): a job's end; a file's making or */
                                       /* the end of the last job that read it */
    char reads[2][LIMIT_ID_BYTES + 1]; /* files of a job; "": none */
};

enum { STORAGE_NOBODY = -1 }; /* of an item that belongs to no thing */
struct storage_item {
    enum storage_kind kind;
    int64_t thing; /* index, or STORAGE_NOBODY */
    int64_t step;  /* of a checkpoint; -N: what is left of step N, given up or cut short; 0: none */
    bool is_valid; /* a checkpoint that can be gone on from */
    int64_t bytes;
};

struct storage_survey {
    struct storage_thing *things; /* (thing_count) */
    size_t thing_count;
    struct storage_item *items; /* (item_count); those of a thing follow each other */
    size_t item_count;
    int64_t bytes;      /* of all items */
    int64_t disk_bytes; /* of the disk; 0: not known */
    int64_t free_bytes; /* of it, for the daemon's user */
};
/* "" where an item is nobody's. */
const char *storage_owner(const struct storage_survey *survey, const struct storage_item *item);

struct api;
struct storage;
struct storage_wait;

int storage_new(struct api *api, struct storage **ret_storage, struct err *err);
void storage_free(struct storage *storage); /* NULL is fine; who still waits is not called */

/* Called once, later, from the loop; survey: borrowed, or NULL and why there is none. */
typedef void storage_fn(void *context, const struct storage_survey *survey, const struct err *why);
int storage_want(struct storage *storage, storage_fn *ready, void *context,
                 struct storage_wait **ret_wait, struct err *err);
void storage_forget(struct storage_wait *wait); /* before it was called; NULL is fine */

/* Where a path below the data folder counts: kind, the id it belongs to ("": nobody's), and the
 * step of a checkpoint. Pure. */
struct storage_place {
    enum storage_kind kind;
    char id[LIMIT_ID_BYTES + 1];
    bool is_job;
    int64_t step; /* as of an item */
};
void storage_place(const char *path, struct storage_place *ret_place);

/* exports: folders made of a job's for download: a checkpoint as a model folder, a profile as trace
 * and summary. `ithaca-worker <role>` makes one in a child at the first question; it is kept in
 * <data_dir>/exports/<name> for later ones, the newest EXPORTS_KEPT of them, until the daemon
 * starts again. */
#pragma once
#include "common/err.h"

#include <stdbool.h>

enum { EXPORTS_KEPT = 4, EXPORTS_RUNNING = 2 }; /* folders; children at once */

struct api;
struct exports;
struct exports_wait;

/* Empties <data_dir>/exports. */
int exports_new(struct api *api, struct exports **ret_exports, struct err *err);
void exports_free(struct exports *exports);          /* NULL is fine; when nobody waits any more */
bool exports_is_idle(const struct exports *exports); /* no child */

/* dir: the folder, or NULL and why there is none. */
typedef void exports_fn(void *context, const char *dir, const struct err *why);

struct exports_source {
    const char *name;      /* of the folder: another for another content */
    const char *role;      /* "--export", "--profile": of the worker */
    const char *inputs[2]; /* what the role takes before the folder; the first is a path it reads */
    const char *what;      /* "the checkpoint cannot be exported": said where it fails */
};
/* Calls `ready` once, from here when the folder is there already; then *ret_wait is NULL. Otherwise
 * exports_forget() takes it back. ERR_TOO_MANY when too many children run. */
int exports_want(struct exports *exports, const struct exports_source *source, exports_fn *ready,
                 void *context, struct exports_wait **ret_wait, struct err *err);
void exports_forget(struct exports_wait *wait); /* NULL is fine */
/* Whether a child reads this path now, or something around or below it. */
bool exports_is_reading(const struct exports *exports, const char *path);
/* "<data_dir>/exports/<name>" when it is there; else NULL. The caller mem_free()s. */
char *exports_find(const struct exports *exports, const char *name);

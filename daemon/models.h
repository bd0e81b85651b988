/* models: what can be fine-tuned and asked.
 *
 * A base model is a folder below one of the model roots (model_roots.h; the first root that has the
 * name wins), or goes by an alias from the setting model_aliases. One that cannot be used is listed
 * with the reason (model_card.h).
 * A tuned model is the result of a job that succeeded, named "ft:..."; the job's id names it too.
 * Users give names, never paths: a name is looked for in what the roots hold, not joined to them.
 */
#pragma once
#include "common/limits.h"
#include "daemon/api.h"

struct models_entry {
    char name[LIMIT_NAME_BYTES + 1];  /* the folder's name, or "ft:..." */
    char owner[LIMIT_NAME_BYTES + 1]; /* user of a tuned model; "local" for a base model */
    char *dir;                        /* absolute; owned */
    const char *chat_template; /* named for the job that made a tuned model; "auto": its own */
    int64_t created_ms;
};
void models_entry_done(struct models_entry *entry);

/* ERR_NOT_FOUND with field "model" when nothing that the viewer (access.h) sees has the name. */
int models_find(struct api *api, const char *viewer, const char *name,
                struct models_entry *ret_entry, struct err *err);

/* The same of one that can be asked or trained on: ERR_BAD_STATE where a result is adapters alone.
 */
int models_find_whole(struct api *api, const char *viewer, const char *name,
                      struct models_entry *ret_entry, struct err *err);

/* The same of what a job may start from: such a model, or a checkpoint by its id or its name
 * ("ft:...:ckpt-step-N"). Then name is its id, and dir the model that the checkpoint's job started
 * from: of the same shape, but not what it learnt. */
int models_find_start(struct api *api, const char *viewer, const char *name,
                      struct models_entry *ret_entry, struct err *err);

/* The same for a job that only measures, which needs no weights: of a published model that is not
 * here (common/model_published.h) a folder with its shape alone. */
int models_find_shape(struct api *api, const char *viewer, const char *name,
                      struct models_entry *ret_entry, struct err *err);

/* Makes the built-in tiny-llama in the first model root when it is not there, by running the worker
 * program; returns when it is done. The loop turns meanwhile: no request may be served yet. */
int models_make_builtin(struct api *api, struct err *err);

api_handler models_list, models_get;

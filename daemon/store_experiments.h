/* store_experiments: experiments and their points, in jobs.db; as in store.h. A point's job, once
 * there is one, is put there by store_job_insert(), in its transaction. */
#pragma once
#include "daemon/store.h"

struct store_experiment {
    const char *id; /* "exp-..." */
    int64_t created_ms;
    const char *owner;
    const char *name;      /* may be "" */
    const char *spec_json; /* experiment_spec_json() */
    int64_t ended_ms;      /* all its points have come to an end; 0: not yet. Not read at insert */
    bool cancelled;        /* somebody asked for it; not read at insert */
};
typedef int store_experiment_fn(void *context, const struct store_experiment *experiment,
                                struct err *err);

struct store_point_row {
    int64_t number;            /* from 0 */
    const char *status;        /* STORE_POINT_WAITING, _SUBMITTED, or how it ended */
    const char *note;          /* why it does not run, or failed */
    const char *facts_json;    /* what is known of it before it runs: columns of its results */
    const char *body_json;     /* of its job */
    const char *job_id;        /* "": none yet */
    const char *measured_json; /* the job's report; "": none */
};
#define STORE_POINT_WAITING "waiting"      /* for its job to be submitted */
#define STORE_POINT_SUBMITTED "submitted"  /* what becomes of it is the job's state */
#define STORE_POINT_NO_ROOM "does_not_fit" /* by the plan */
#define STORE_POINT_REFUSED "refused"      /* it is no legal job */
typedef int store_point_row_fn(void *context, const struct store_point_row *row, struct err *err);

/* All of it, in one transaction. */
int store_experiment_insert(struct store *store, const struct store_experiment *experiment,
                            const struct store_point_row *points, size_t count, struct err *err);
/* ERR_NOT_FOUND. */
int store_experiment_get(struct store *store, const char *id, store_experiment_fn *row,
                         void *context, struct err *err);
int store_experiment_owner(struct store *store, const char *id,
                           char ret_owner[LIMIT_NAME_BYTES + 1], struct err *err);
/* owner "": all users'. */
int store_experiments_list(struct store *store, const char *owner, const struct store_page *page,
                           store_experiment_fn *row, void *context, bool *ret_has_more,
                           struct err *err);
/* The first that has not ended of those after `row` (0: of all); *ret_row 0: there is none. */
int store_experiment_open(struct store *store, int64_t after_row, int64_t *ret_row,
                          char ret_id[LIMIT_ID_BYTES + 1], struct err *err);
/* How many of an owner's have not ended. */
int store_experiments_open_count(struct store *store, const char *owner, int64_t *ret_count,
                                 struct err *err);
int store_experiment_cancel(struct store *store, const char *id, struct err *err);
int store_experiment_end(struct store *store, const char *id, int64_t now_ms, struct err *err);
/* Nobody finds it from now on; ERR_BAD_STATE when it has not ended. Its jobs are to be deleted,
 * then it is to be purged. */
int store_experiment_delete(struct store *store, const char *id, struct err *err);
/* One that was deleted, and a job that it still has; "": there is none. */
int store_experiment_deleted(struct store *store, char ret_id[LIMIT_ID_BYTES + 1],
                             char ret_job_id[LIMIT_ID_BYTES + 1], struct err *err);
int store_experiment_purge(struct store *store, const char *id, struct err *err);

/* In the order of their numbers. */
int store_experiment_points(struct store *store, const char *id, store_point_row_fn *row,
                            void *context, struct err *err);
int store_experiment_add(struct store *store, const char *id, const struct store_point_row *point,
                         struct err *err);
/* How many of its points have each status. */
typedef void store_status_fn(void *context, const char *status, int64_t count);
int store_experiment_statuses(struct store *store, const char *id, store_status_fn *status,
                              void *context, struct err *err);
/* How a point came to its end; it has none yet. */
int store_experiment_settle(struct store *store, const char *id, int64_t number, const char *status,
                            const char *note, const char *measured_json, struct err *err);

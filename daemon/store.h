/* store: jobs.db (synchronous FULL: what was answered is on disk) and metrics.db (synchronous
 * NORMAL: points of the last moments may be lost with the power, never torn). One connection each,
 * one thread. Schema and its numbered migrations: store_schema.c.
 *
 * Every function that writes commits before it returns. While another process holds a database's
 * lock, writes fail with ERR_UNAVAILABLE, at once but for the first (store_guests.c). Lists page:
 * rows come through a callback, whose row is borrowed and must not be kept; a callback's non-zero
 * return ends the list and is returned. Callbacks do not write to the store, nor run the list again
 * that calls them.
 *
 * Row numbers (events, points) rise for ever (AUTOINCREMENT): a stream's cursor is
 * "<event row>-<point row>".
 *
 * Strings of a row are never NULL ("" stands for none), times are Unix milliseconds (0: not yet).
 */
#pragma once
#include "common/err.h"
#include "common/limits.h"
#include "common/wire.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct store;

/* Locks the data directory (which exists), opens or makes both files in it (0600), migrates them,
 * and checks them after an unclean stop. A file is copied to <file>.v<version> before it is
 * migrated. ERR_IN_USE when another daemon has the directory, ERR_CORRUPT for a damaged file or one
 * of a newer version, ERR_SETTING for a network filesystem. */
int store_open(const char *data_dir, struct store **ret_store, struct err *err);
void store_close(struct store *store);                 /* NULL is fine; checkpoints the logs */
int store_check(struct store *store, struct err *err); /* for /readyz: both answer a query */
/* ERR_UNAVAILABLE while a file of theirs is not where it was opened: then nothing is written. */
int store_check_files(struct store *store, struct err *err);
/* Calls `write`: whatever it writes to jobs.db is one transaction, with one wait for the disk. An
 * error of it, or of anything that it writes, undoes all. */
typedef int store_write_fn(void *context, struct err *err);
int store_together(struct store *store, store_write_fn *write, void *context, struct err *err);

/* How long writes take; database 0: jobs.db, 1: metrics.db. */
struct exposition_histogram;
const struct exposition_histogram *store_write_times(const struct store *store, int database);

enum store_order { STORE_NEWEST_FIRST, STORE_OLDEST_FIRST };

struct store_page {
    const char *after; /* id of the last row of the page before; "" or NULL: from the start */
    int64_t after_row; /* that row itself, which may be gone; 0: `after` says it */
    int64_t limit;     /* rows, 1..LIMIT_PAGE_ROWS */
    enum store_order order;
};
/* An `after` that names no row of the list is ERR_INVALID_VALUE, field "after". */

/* ---- jobs ---------------------------------------------------------------------------------- */

enum job_state {
#define X(id, name, public_status, is_end) JOB_STATE_##id,
#include "api/job_states.def"
#undef X
    JOB_STATE_COUNT
};

struct store_job {
    const char *id; /* "ftjob-..." */
    int64_t row;    /* rises with each job; not read where a job is added */
    int64_t created_ms;
    int64_t started_ms;  /* first time it ran */
    int64_t finished_ms; /* it reached an end */
    enum job_state state;
    const char *reason;      /* code of api/errors.def of a failed or cancelled job */
    const char *reason_text; /* its sentence */
    const char *owner;       /* the user that submitted it */
    const char *spec_json;   /* job_spec_json(), resolved: job_spec_parse takes it back */
    const char *model;       /* as the user named it */
    const char *model_dir;   /* base model's folder: never shown by the API */
    const char *training_file;
    const char *validation_file;
    const char *fine_tuned_model; /* name of the result, once succeeded */
    int64_t priority;
    int64_t ranks;
    int64_t attempt; /* 0 before the first start */
    int64_t steps_done;
    int64_t steps_total;     /* 0 while unknown */
    int64_t trained_tokens;  /* of the finished job */
    bool prepared;           /* its files were checked and are token shards */
    int64_t restarts;        /* automatic ones, after a fault */
    int64_t ran_ms;          /* time in RUNNING and PAUSING, over all attempts */
    int64_t resumed_step;    /* of the checkpoint the newest attempt went on from; 0: none */
    const char *result_file; /* "file-...": its metrics as CSV, once it has succeeded */
    double predicted_step_s; /* of an optimizer step, as planned at submit; 0: not known */
    const char *experiment;  /* that it belongs to; "": none. At insert NULL is none, too */
    int64_t point;           /* of the experiment; read at insert alone */
    const char *asked_json;  /* job_spec.asked; "" where it is not known */
};

typedef int store_job_fn(void *context, const struct store_job *job, struct err *err);

/* Adds a job in state VALIDATING together with its first event. State, times, attempt and progress
 * of `job` are not read, created_ms is. */
int store_job_insert(struct store *store, const struct store_job *job, const char *event_id,
                     int64_t *ret_event_row, struct err *err);
/* Calls `row` once. ERR_NOT_FOUND when there is no such job. */
int store_job_get(struct store *store, const char *id, store_job_fn *row, void *context,
                  struct err *err);
/* The user whose job it is. ERR_NOT_FOUND. */
int store_job_owner(struct store *store, const char *id, char ret_owner[LIMIT_NAME_BYTES + 1],
                    struct err *err);
/* owner "" or NULL: all users'. metadata_json: a JSON object of strings; a job's metadata must have
 * them all; "null": jobs without metadata; "" or NULL: all jobs. */
int store_jobs_list(struct store *store, const char *owner, const char *metadata_json,
                    const struct store_page *page, store_job_fn *row, void *context,
                    bool *ret_has_more, struct err *err);
/* The same, which looks at no more than `look` rows, whether they are of the list or not. Where it
 * has seen all of these, *ret_row is the one that the page after this goes on behind, and
 * *ret_has_more says that there may be more; else *ret_row is 0, and *ret_has_more is sure. A limit
 * of 0 asks for nothing else. */
int store_jobs_look(struct store *store, const char *owner, const char *metadata_json,
                    const struct store_page *page, int64_t look, store_job_fn *row, void *context,
                    bool *ret_has_more, int64_t *ret_row, struct err *err);
/* Jobs that gave a model, oldest first, of the `look` rows behind *row_after (0: of the first
 * ones), which then is the last of these. */
int store_jobs_tuned(struct store *store, int64_t look, int64_t *row_after, store_job_fn *row,
                     void *context, bool *ret_has_more, struct err *err);
/* All jobs in a state, oldest first. */
int store_jobs_in_state(struct store *store, enum job_state state, store_job_fn *row, void *context,
                        struct err *err);
/* How many jobs are in each state: counts[JOB_STATE_COUNT], zeroed before. */
int store_jobs_count(struct store *store, int64_t counts[], struct err *err);
/* The job whose result has this name ("ft:..."). */
int store_job_by_result(struct store *store, const char *fine_tuned_model, store_job_fn *row,
                        void *context, struct err *err);
struct store_file; /* below */
/* All jobs whose ids end so, oldest first. */
int store_jobs_by_tail(struct store *store, const char *tail, store_job_fn *row, void *context,
                       struct err *err);
/* Its file of results: the file's row and the job's change in one transaction. */
int store_job_set_result(struct store *store, const char *id, const struct store_file *file,
                         struct err *err);
/* ERR_BAD_STATE when it has not come to an end. */
int store_job_check_end(struct store *store, const char *id, struct err *err);
/* Forgets a job at its end, its events and attempts, but for what these held of the machine
 * (attempts_gone); ERR_BAD_STATE when it is not. Its points are out of reach from then on
 * (store_points_forget) and deleted by store_points_purge. */
int store_job_delete(struct store *store, const char *id, struct err *err);

/* One change of state: compare-and-set and event in one transaction. Only job_fsm.c calls it; the
 * rest of the daemon goes through job_move(). */
struct store_job_move {
    const char *id;
    enum job_state from;
    enum job_state to;
    int64_t now_ms;
    const char *reason; /* "" clears */
    const char *reason_text;
    const char *event_id;
    const char *event_text;
    const char *event_level;      /* "info", "warn", "error" */
    const char *fine_tuned_model; /* set when not NULL */
    int64_t trained_tokens;       /* set when > 0 */
    int64_t attempt;              /* set when > 0, and resumed_step with it */
    int64_t resumed_step;
    bool ran;       /* stamps started_ms when it is still 0 */
    bool ended;     /* stamps finished_ms */
    bool prepared;  /* sets it */
    bool restarted; /* counts one more restart */
    bool renewed;   /* clears finished_ms, restarts and ran_ms */
};
/* ERR_BAD_STATE when the job was not in `from`, ERR_NOT_FOUND when there is none. */
int store_job_move(struct store *store, const struct store_job_move *move, int64_t *ret_event_row,
                   struct err *err);
struct store_progress {
    int64_t steps_done;
    int64_t steps_total;    /* 0: leave */
    int64_t trained_tokens; /* 0: leave */
    int64_t ran_ms;
    int64_t attempt; /* that runs: the three that follow are of it; 0: none */
    int64_t from_step, step, tokens;
};
/* New values of a job that has not ended, and the event that says so, in one transaction. */
struct store_job_change {
    const char *id;
    const char *spec_json;
    int64_t priority; /* as in the spec */
    const char *event_id;
    const char *event_text;
    int64_t now_ms;
};
int store_job_change(struct store *store, const struct store_job_change *change,
                     int64_t *ret_event_row, struct err *err);
int store_job_progress(struct store *store, const char *id, const struct store_progress *progress,
                       struct err *err);

/* ---- events -------------------------------------------------------------------------------- */

struct store_event {
    int64_t row;
    const char *id; /* "ftevent-..." */
    const char *job_id;
    int64_t created_ms;
    const char *level; /* "info", "warn", "error" */
    const char *type;  /* "message" */
    const char *message;
    const char *data_json; /* object: {"state":"running"} with a change of state; "" for none; */
                           /* user and request_id are added where a request made it */
};
typedef int store_event_fn(void *context, const struct store_event *event, struct err *err);

int store_event_insert(struct store *store, const struct store_event *event, int64_t *ret_row,
                       struct err *err); /* row is not read */
/* The same, but when an event of this id is there already nothing happens: *ret_row is 0. */
int store_event_insert_once(struct store *store, const struct store_event *event, int64_t *ret_row,
                            struct err *err);
int store_events_list(struct store *store, const char *job_id, const struct store_page *page,
                      store_event_fn *row, void *context, bool *ret_has_more, struct err *err);
/* Rows after a cursor, oldest first; job_id NULL: of all jobs. */
int store_events_after(struct store *store, const char *job_id, int64_t after_row, int64_t limit,
                       store_event_fn *row, void *context, struct err *err);
/* The same, those alone whose data begins with "state" or "alert". */
int store_events_telling(struct store *store, int64_t after_row, int64_t limit, store_event_fn *row,
                         void *context, struct err *err);
int store_events_newest(struct store *store, int64_t *ret_row, struct err *err); /* 0: none ever */

/* ---- metric points ------------------------------------------------------------------------- */

struct store_point {
    int64_t row;
    const char *job_id;
    int64_t attempt;
    int64_t step;
    int64_t rank;
    enum metric_id metric;
    double value;  /* NaN, +-Inf come back as they went in (stored as NULL and a kind) */
    double wall_s; /* Unix time */
};
typedef int store_point_fn(void *context, const struct store_point *point, struct err *err);

/* A batch is one transaction. row of the points is not read. Points whose (job, attempt, step,
 * rank, metric) are stored already are left out. */
int store_points_insert(struct store *store, const struct store_point *points, size_t count,
                        int64_t *ret_newest_row, struct err *err);

struct store_point_query {
    const char *job_id;
    bool all_metrics;
    bool metrics[METRIC_COUNT]; /* the ones wanted, unless all_metrics */
    int64_t attempt;            /* 0: of each step the newest attempt that has it */
    int64_t from_step;
    int64_t after_row; /* next page: row of the last point; 0: from the start */
    int64_t limit;     /* points, 1..LIMIT_PAGE_ROWS */
};
/* In order of row. */
int store_points_list(struct store *store, const struct store_point_query *query,
                      store_point_fn *row, void *context, bool *ret_has_more, struct err *err);
/* Rows after a cursor, oldest first; job_id NULL: of all jobs. */
int store_points_after(struct store *store, const char *job_id, int64_t after_row, int64_t limit,
                       store_point_fn *row, void *context, struct err *err);
int store_points_newest(struct store *store, int64_t *ret_row, struct err *err); /* 0: none ever */
/* The points of one series, in order of step; of each step all attempts, the newest last. */
struct store_series_query {
    const char *job_id;
    enum metric_id metric;
    int64_t rank;
    int64_t attempt;       /* 0: all */
    int64_t up_to_step;    /* store_series_last: only points up to this step; 0: all */
    int64_t after_step;    /* only points after this step, */
    int64_t after_attempt; /* or of it and after this attempt: the last ones of the page before */
    int64_t limit;         /* points, 1..LIMIT_PAGE_ROWS */
};
int store_series_list(struct store *store, const struct store_series_query *query,
                      store_point_fn *row, void *context, bool *ret_has_more, struct err *err);
/* Its last step, and the value there (each may be NULL); after_* and limit are not read.
 * ERR_NOT_FOUND when it has none. */
int store_series_last(struct store *store, const struct store_series_query *query,
                      int64_t *ret_step, double *ret_value, struct err *err);
/* What the points of one attempt tell of its steps: of rank 0's tokens, one a step. */
struct store_points_sum {
    int64_t first_step, last_step; /* 0: there are none */
    int64_t tokens;
    int64_t last_ms; /* Unix time of the last one */
};
int store_points_sum(struct store *store, const char *job_id, int64_t attempt,
                     struct store_points_sum *ret, struct err *err);
/* A job's points are no longer its: no question finds them. */
int store_points_forget(struct store *store, const char *job_id, struct err *err);
/* Deletes some of the points that were forgotten; *ret_more: there may be others. */
int store_points_purge(struct store *store, bool *ret_more, struct err *err);
/* Newest value of one metric of a job; ERR_NOT_FOUND when there is none. */
int store_point_latest(struct store *store, const char *job_id, enum metric_id metric,
                       store_point_fn *row, void *context, struct err *err);

/* ---- files --------------------------------------------------------------------------------- */

struct store_file {
    const char *id; /* "file-..." */
    int64_t created_ms;
    const char *filename; /* for display only */
    const char *purpose;
    int64_t bytes;
    const char *status;         /* "uploaded", "processed", "error" */
    const char *status_details; /* why it is in error */
    const char *hash;           /* XXH3-128 of the bytes, hex; "" while unknown */
    const char *owner;
    int64_t expires_ms; /* it is deleted then; 0: it stays */
};
typedef int store_file_fn(void *context, const struct store_file *file, struct err *err);

int store_file_insert(struct store *store, const struct store_file *file, struct err *err);
int store_file_get(struct store *store, const char *id, store_file_fn *row, void *context,
                   struct err *err);
/* What its user calls it; new string. */
int store_file_name(struct store *store, const char *id, char **ret_name, struct err *err);
/* The user whose file it is. ERR_NOT_FOUND. */
int store_file_owner(struct store *store, const char *id, char ret_owner[LIMIT_NAME_BYTES + 1],
                     struct err *err);
/* owner, purpose "" or NULL: all. */
int store_files_list(struct store *store, const char *owner, const char *purpose,
                     const struct store_page *page, store_file_fn *row, void *context,
                     bool *ret_has_more, struct err *err);
/* Files of a user and their bytes; uploads that are announced count as the files they will be. */
int store_files_usage(struct store *store, const char *owner, int64_t *ret_files,
                      int64_t *ret_bytes, struct err *err);
int store_file_set_status(struct store *store, const char *id, const char *status,
                          const char *details, struct err *err);
/* A job that had it as its result file has none. */
int store_file_delete(struct store *store, const char *id, struct err *err);
/* A file whose time has come and that no unfinished job uses; "": there is none. */
int store_file_expired(struct store *store, int64_t now_ms, char ret_id[LIMIT_ID_BYTES + 1],
                       struct err *err);

/* ---- uploads in parts ---------------------------------------------------------------------- */

struct store_upload {
    const char *id; /* "upload_..." */
    int64_t created_ms;
    int64_t expires_ms;   /* a pending one ends then */
    const char *filename; /* for display only */
    const char *purpose;
    int64_t bytes;           /* of all parts together, as announced */
    int64_t file_lifetime_s; /* the file is deleted so long after it was made; 0: it stays */
    const char *status;      /* "pending", "completed", "cancelled", "expired" */
    const char *file_id;     /* of a completed one */
    const char *owner;
};
typedef int store_upload_fn(void *context, const struct store_upload *upload, struct err *err);

int store_upload_insert(struct store *store, const struct store_upload *upload, struct err *err);
int store_upload_get(struct store *store, const char *id, store_upload_fn *row, void *context,
                     struct err *err);
/* Ends a pending upload; ERR_BAD_STATE when it is not pending (any more). */
int store_upload_end(struct store *store, const char *id, const char *status, struct err *err);
/* Completes it: the file's row and the upload's change in one transaction. */
int store_upload_complete(struct store *store, const char *id, const struct store_file *file,
                          struct err *err);
/* A pending upload whose time has come; "": there is none. */
int store_upload_expired(struct store *store, int64_t now_ms, char ret_id[LIMIT_ID_BYTES + 1],
                         struct err *err);
/* Forgets ended uploads that expired before a time. */
int store_uploads_forget(struct store *store, int64_t before_ms, struct err *err);

/* ---- the queue ----------------------------------------------------------------------------- */

/* Slot-seconds of a user, as in daemon/usage.h. */
struct store_usage {
    const char *owner;
    double used_s;
    double total_s;
    int64_t at_ms;
};
typedef int store_usage_fn(void *context, const struct store_usage *usage, struct err *err);
int store_usage_put(struct store *store, const struct store_usage *usage, struct err *err);
int store_usage_list(struct store *store, store_usage_fn *row, void *context, struct err *err);

/* Whether nothing is to start, until told otherwise. */
int store_drained_put(struct store *store, bool drained, struct err *err);
int store_drained_get(struct store *store, bool *ret_drained, struct err *err);

/* ---- tokens -------------------------------------------------------------------------------- */

enum { STORE_HASH_BYTES = 32 };
struct store_token {
    const char *id;      /* "token-..." */
    const char *parent;  /* of a session: id of the token that it was opened with; else "" */
    const char *prefix;  /* the public part of the token; unique */
    const uint8_t *hash; /* STORE_HASH_BYTES of a keyed hash of the token */
    const char *name;    /* what its user calls it */
    const char *user;    /* a job's owner */
    const char *scope;   /* "read", "submit" or "admin" */
    int64_t created_ms;
    int64_t expires_ms;   /* 0: never */
    int64_t last_used_ms; /* about; 0: never */
    int64_t revoked_ms;   /* 0: it is not */
};
typedef int store_token_fn(void *context, const struct store_token *token, struct err *err);
/* One of the same id becomes this one, unused and without its sessions, if its hash is another.
 * last_used_ms and revoked_ms are not read. */
int store_token_put(struct store *store, const struct store_token *token, struct err *err);
int store_token_find(struct store *store, const char *prefix, store_token_fn *row, void *context,
                     struct err *err); /* ERR_AUTH when unknown */
/* No sessions. */
int store_tokens_list(struct store *store, const struct store_page *page, store_token_fn *row,
                      void *context, bool *ret_has_more, struct err *err);
/* Tokens and sessions that have not ended; does this one count among them? */
int store_tokens_count(struct store *store, int64_t now_ms, int64_t *ret_count, struct err *err);
int store_token_counts(struct store *store, const char *id, int64_t now_ms, bool *ret_counts,
                       struct err *err);
int store_token_used(struct store *store, const char *id, int64_t now_ms, struct err *err);
/* With its sessions; a second time changes nothing. ERR_NOT_FOUND. */
int store_token_revoke(struct store *store, const char *id, int64_t now_ms, struct err *err);
/* Forgets sessions that have ended, and tokens that ended STORE_TOKENS_KEPT_MS ago. */
#define STORE_TOKENS_KEPT_MS (90 * 86400000LL)
int store_tokens_prune(struct store *store, int64_t now_ms, struct err *err);

/* ---- GPUs ---------------------------------------------------------------------------------- */

/* What was decided about a GPU, for the next daemon too. */
struct store_gpu {
    const char *uuid;
    bool drained;      /* by an operator */
    const char *aside; /* why it was set aside; "": it is not */
    int64_t changed_ms;
};
typedef int store_gpu_fn(void *context, const struct store_gpu *gpu, struct err *err);
int store_gpu_put(struct store *store, const struct store_gpu *gpu, struct err *err);
int store_gpus_list(struct store *store, store_gpu_fn *row, void *context, struct err *err);

/* ---- webhooks (webhooks.h) ----------------------------------------------------------------- */

struct store_webhook {
    int64_t row;    /* of one job and url the lowest goes first; not read by put */
    const char *id; /* the event's */
    const char *job_id;
    const char *owner; /* whose secret signs it */
    const char *url;
    const char *body;
    int64_t created_ms;
    int64_t tries;   /* that failed */
    int64_t next_ms; /* not sent before */
};
typedef int store_webhook_fn(void *context, const struct store_webhook *webhook, struct err *err);
/* Messages and the cursor in one transaction. */
int store_webhooks_put(struct store *store, const struct store_webhook *webhooks, size_t count,
                       int64_t cursor, struct err *err);
int store_webhook_cursor(struct store *store, int64_t *ret_row, struct err *err);
/* Those that may be sent now: of each job and url the oldest, if its time has come. */
int store_webhooks_due(struct store *store, int64_t now_ms, int64_t limit, store_webhook_fn *row,
                       void *context, struct err *err);
int store_webhook_retry(struct store *store, int64_t row, int64_t tries, int64_t next_ms,
                        struct err *err);
int store_webhook_done(struct store *store, int64_t row, struct err *err);
/* Messages that wait; owner NULL: of all. */
int store_webhooks_count(struct store *store, const char *owner, int64_t *ret_count,
                         struct err *err);
/* Which secret of a user's is in force, from 1 on; next: from now on the next one. */
int store_webhook_edition(struct store *store, const char *owner, bool next, int64_t *ret_edition,
                          struct err *err);

/* ---- requests that may be sent again, and who asks (replay.h) ------------------------------ */

struct store_replay {
    const char *caller, *target; /* who, and the path */
    const char *key;             /* Idempotency-Key, or "" */
    const char *hash;            /* of the body */
    int64_t now_ms;              /* rows that ended before are not there */
    int64_t expires_ms;          /* not read by find */
};
struct store_replayed {
    const char *hash; /* of the body that it came with; not read by put */
    const char *made; /* id of the job or file, or "" */
    int status;       /* HTTP's */
    const char *body; /* of the answer; "" where something was made */
};
typedef int store_replay_fn(void *context, const struct store_replayed *replayed, struct err *err);
/* Calls row once if there is one: that of the key, else the newest with the hash. */
int store_replay_find(struct store *store, const struct store_replay *replay, store_replay_fn *row,
                      void *context, bool *ret_found, struct err *err);
/* Keeps it; the first of a key stays. Rows that have expired are dropped. */
int store_replay_put(struct store *store, const struct store_replay *replay,
                     const struct store_replayed *answer, struct err *err);

/* The request that is being handled. */
struct store_request {
    const char *user;
    const char *id;                    /* X-Request-Id */
    const struct store_replay *replay; /* kept with the job or file that it makes; NULL: not */
};
/* Until the next call (NULL: nobody) what is written is this request's doing: events name it.
 * Borrowed. */
void store_set_request(struct store *store, const struct store_request *request);

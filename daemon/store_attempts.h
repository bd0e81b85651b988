/* store_attempts: starts of jobs, in jobs.db, and what each held of the machine. As in store.h:
 * rows are borrowed, times are Unix milliseconds. */
#pragma once
#include "daemon/store.h"

/* A start of a job: which keeper ran it. Written before the job is in STARTING, closed at its end.
 */
struct store_attempt {
    const char *job_id;
    int64_t number; /* 1, 2, ... */
    int64_t started_ms;
    int64_t ended_ms;
    int64_t keeper_pid; /* 0 until the keeper runs */
    int64_t keeper_start_time;
    const char *boot_id;
    const char
        *outcome; /* code of api/errors.def, "ok", "paused", or "" while it runs: then also */
                  /* what a rank said it failed of */
    const char *outcome_text; /* its sentence */
    const char *gpus;         /* UUIDs of those that it has, with commas; "" on the CPU */
    int64_t from_step;        /* the step that it went on from */
    int64_t step;             /* its newest; -1: it was before this was written down */
    int64_t tokens;           /* of real documents in its steps */
};
enum { STORE_GPUS_BYTES = LIMIT_RANKS * LIMIT_GPU_BYTES };
typedef int store_attempt_fn(void *context, const struct store_attempt *attempt, struct err *err);
int store_attempt_put(struct store *store, const struct store_attempt *attempt, struct err *err);
/* Its start becomes another time. */
int store_attempt_move(struct store *store, const char *job_id, int64_t number, int64_t started_ms,
                       struct err *err);
int store_attempt_get(struct store *store, const char *job_id, int64_t number,
                      store_attempt_fn *row, void *context, struct err *err);

/* What an attempt held of the machine, and for how long; outlives its job. */
struct store_held {
    const char *job_id;
    int64_t number;
    const char *owner, *model;
    const char *state; /* of its job: the name of a row of api/job_states.def */
    int64_t started_ms;
    int64_t ended_ms; /* now_ms of the page while it runs */
    int64_t slots;
    bool has_gpus;       /* they are GPUs */
    const char *outcome; /* as of store_attempt */
    int64_t from_step, step;
    int64_t kept_step; /* the earliest that a later attempt went on from; -1: there is none */
    int64_t tokens;
};
struct store_held_page {
    int64_t now_ms;
    const char *job_id; /* attempts after this one; "": from the start */
    int64_t number;
    int64_t limit; /* rows */
};
typedef int store_held_fn(void *context, const struct store_held *held, struct err *err);
/* Forgets some of what deleted jobs held that ended before a time; the oldest first. */
int store_attempts_forget(struct store *store, int64_t before_ms, struct err *err);
/* In order of job and number. *ret_count: rows given; less than the limit: there are no more. */
int store_attempts_held(struct store *store, const struct store_held_page *page, store_held_fn *row,
                        void *context, int64_t *ret_count, struct err *err);

/* coordinator_private: what coordinator*.c share.
 *
 *   coordinator.c          the public functions and the tick
 *   coordinator_job.c      one step of one job, by its state
 *   coordinator_ranks.c    HELLOs and frames of ranks, acknowledgements
 *   coordinator_recover.c  what a daemon that ended has left */
#pragma once
#include "daemon/coordinator.h"
#include "daemon/ingest.h"
#include "daemon/inventory_cpu.h"
#include "daemon/job_fsm.h"
#include "daemon/preparation.h"
#include "daemon/queue.h"
#include "daemon/supervisor.h"
#include "daemon/telemetry.h"

enum {
    COORDINATOR_PREPARING_MAX = 2, /* prepare children at once: a long file delays one other only */
    COORDINATOR_RETRY_MS = 1000,   /* after a step that failed (disk full), and between writes of */
                                   /* a job's progress */
};

/* A job that has not ended. */
struct coordinator_job {
    struct coordinator *coordinator;
    char id[LIMIT_ID_BYTES + 1];
    enum job_state state;            /* as in the store */
    int64_t created_ms;              /* Unix time */
    int64_t attempt;                 /* newest; 0 before the first */
    struct job_spec spec;            /* resolved */
    char *model_dir;                 /* owned */
    char *job_dir;                   /* owned */
    struct preparation *preparation; /* while its files are checked */
    struct supervisor *supervisor;   /* while an attempt has processes */
    int64_t attempt_started_ms;      /* Unix time */
    bool has_slots;                  /* spec.gpus of the inventory */
    bool requeue;                    /* stopped by us to be run again */
    struct err failure; /* STARTING or RUNNING without a supervisor: why it cannot go on */
    int64_t steps_done, steps_total;
    bool progress_changed; /* since it was written to the store */
    int64_t progress_ms;   /* when it was written (monotonic) */
    int64_t running_ms;    /* when it got to RUNNING (monotonic) */
    int64_t retry_ms;      /* no step before this (monotonic) */
    struct coordinator_job *next;
};

struct coordinator {
    struct coordinator_config config;
    struct host *host;
    struct store *store;
    struct bus *bus;
    struct ingest *ingest;
    struct inventory inventory;
    struct queue queue;
    struct telemetry telemetry;
    struct coordinator_job *jobs; /* oldest first */
    int64_t job_count;
    int preparing; /* prepare children */
    bool stopping;
    bool flush_failing; /* so that it is logged once */
};

int64_t coordinator_now(const struct coordinator *coordinator); /* monotonic ms */

/* coordinator.c */
struct coordinator_job *coordinator_find(const struct coordinator *coordinator, const char *job_id);
/* Adds a row of the store to the jobs in memory. */
int coordinator_load(struct coordinator *coordinator, const struct store_job *row, struct err *err);
/* Stores what is pending and acknowledges it to the ranks. */
void coordinator_flush(struct coordinator *coordinator);

/* coordinator_job.c */
void coordinator_job_step(struct coordinator_job *job);
int coordinator_job_start(struct coordinator_job *job, struct err *err); /* has been scheduled */
/* Changes the state and tells the bus; the job's reason is `why` (may be NULL). */
int coordinator_job_move(struct coordinator_job *job, enum job_state to, const struct err *why,
                         const char *event_text, struct err *err);
int coordinator_job_enqueue(struct coordinator_job *job, const char *event_text, struct err *err);
int coordinator_job_queue(struct coordinator_job *job, struct err *err); /* is QUEUED: waits */
bool coordinator_job_has_process(const struct coordinator_job *job);
void coordinator_job_free(struct coordinator_job *job);

/* coordinator_ranks.c */
int coordinator_ranks_listen(struct coordinator *coordinator, struct loop *loop, struct err *err);
struct supervisor_owner coordinator_ranks_owner(struct coordinator_job *job);
void coordinator_ranks_acknowledge(struct coordinator *coordinator);

/* coordinator_recover.c */
int coordinator_recover(struct coordinator *coordinator, struct err *err);

/* coordinator_private: what coordinator*.c share.
 *
 *   coordinator.c          submit, the view and the tick
 *   coordinator_control.c  cancel, pause, resume
 *   coordinator_change.c   new values for a job, and jobs that depend on others
 *   coordinator_queue.c    passes of the scheduler, and what they show
 *   coordinator_job.c      one step of one job, by its state; validating and queued
 *   coordinator_plan.c     the launch plan of an attempt
 *   coordinator_attempt.c  starting, running and ending an attempt
 *   coordinator_ranks.c    HELLOs and frames of ranks, acknowledgements
 *   coordinator_recover.c  what a daemon that ended has left
 *   coordinator_cgroup.c   control groups of attempts
 *   coordinator_alert.c    what is told of a job that runs on
 *   coordinator_gpus.c     how the GPUs are, and whose fault that is */
#pragma once
#include "daemon/coordinator.h"
#include "daemon/gpu_watch.h"
#include "daemon/ingest.h"
#include "daemon/inventory.h"
#include "daemon/job_fsm.h"
#include "daemon/preparation.h"
#include "daemon/results.h"
#include "daemon/supervisor.h"
#include "daemon/telemetry.h"
#include "daemon/usage.h"

enum {
    COORDINATOR_PREPARING_MAX = 2, /* prepare children at once: a long file delays one other only */
    COORDINATOR_BUCKETS = 16384,   /* as many jobs as there may be have one or two each */
    COORDINATOR_SLICE_MS = 10,     /* steps of jobs in one turn of the loop */
    COORDINATOR_RETRY_MS = 1000,   /* after a step that failed (disk full), and between writes of */
                                   /* a job's progress */
    COORDINATOR_KEEPER_MS = 10000, /* a keeper that was started just before the daemon was killed */
                                   /* says who it is within this */
};

/* A job that has not ended. */
struct coordinator_job {
    /* What each tick looks at, of thousands that wait: these lie together. */
    struct coordinator_job *next;
    enum job_state state;          /* as in the store */
    bool has_attempt;              /* its row in the store is open */
    bool depends_known;            /* `depends` is as it is; else the next step finds it out */
    bool progress_changed;         /* since it was written to the store */
    struct supervisor *supervisor; /* while an attempt has processes */
    int64_t round;                 /* of steps, its next; see coordinator_tick() */
    int64_t retry_ms;              /* no step before this (monotonic) */

    struct coordinator *coordinator;
    struct coordinator_job *next_by_id; /* in the same bucket */
    char id[LIMIT_ID_BYTES + 1];
    int64_t row;                     /* in the store: rises with each job submitted */
    int64_t created_ms;              /* Unix time */
    int64_t attempt;                 /* newest; 0 before the first */
    struct job_spec spec;            /* resolved */
    size_t user;                     /* its owner, of coordinator->usage */
    double predicted_step_s;         /* of an optimizer step; 0: not known */
    char *model_dir;                 /* owned */
    char *job_dir;                   /* owned */
    bool prepared;                   /* they were, and are token shards */
    struct preparation *preparation; /* while its files are checked */
    struct results *results;         /* while they are written, at the end of an attempt */
    bool has_results;                /* they are written, or cannot be */
    int64_t attempt_started_ms;      /* Unix time */
    int64_t attempt_epoch_ms;        /* wall time less monotonic time, as the start is told by */
    int64_t attempt_ended_ms;        /* Unix time; 0: it runs, or its end is seen as it comes */
    int64_t attempt_from_step;       /* it went on from there */
    int64_t attempt_step;            /* its newest */
    int64_t attempt_tokens;          /* of real documents in its steps */
    bool has_slots;                  /* spec.gpus of the inventory */
    uint32_t gpus[LIMIT_RANKS];      /* which, by place, where the inventory has GPUs */
    bool elsewhere;                  /* the next attempt avoids these */
    struct err gpu_fault;            /* what one of them told in this attempt; ERR_NONE: nothing */
    int64_t recover_until_ms; /* its attempt may have a keeper that is not known yet (monotonic) */
    struct err failure;       /* of an attempt without a supervisor: why it cannot go on */
    int64_t restarts;         /* so far */
    int64_t steps_done, steps_total;
    int step_failing;          /* what its last step returned: likewise */
    int64_t trained_tokens;    /* told by DONE; 0: not yet */
    int64_t ran_ms;            /* time in RUNNING and PAUSING before running_ms */
    int64_t running_ms;        /* since when it runs (monotonic); 0: it does not */
    int64_t step_ms;           /* when its newest step ended (monotonic); 0: not known */
    int64_t step_took_ms;      /* how long that one took; 0: not known */
    bool stall_told;           /* that the next one does not come */
    int64_t nonfinite_attempt; /* of which it was told that a loss is not finite */
    bool depends;              /* on jobs that have not succeeded */
    bool visited;              /* scratch of a search along dependencies */
    bool claims;               /* running jobs make room for it */
    int64_t host_bytes;  /* that its ranks take of the host; 0: not looked at, -1: not known */
    int64_t memory_lack; /* of these while it waits for them (coordinator_memory.c); else 0 */
    enum sched_verdict verdict; /* as the last pass of the scheduler left it, like these */
    int64_t position;
    int64_t start_ms; /* (monotonic); 0: not known */
};

struct coordinator {
    struct coordinator_config config;
    struct host *host;
    struct store *store;
    struct bus *bus;
    struct loop *loop; /* it is told what is done */
    struct ingest *ingest;
    struct inventory inventory;
    struct gpu_watch *watch;  /* over the GPUs; NULL on the CPU */
    struct gpu_report report; /* its newest */
    struct usage usage;
    bool drained;           /* nothing starts */
    int64_t queue_changes;  /* so far: what a pass goes by was changed */
    int64_t queue_decided;  /* of these, those that the last pass of a tick has seen */
    int64_t queue_shown;    /* those that the last pass of all has seen */
    int64_t pass_ms;        /* of it (monotonic) */
    int64_t head_ms;        /* of it: as of struct sched_pass */
    int64_t charged_ms;     /* until when use is counted (monotonic) */
    int64_t usage_put_ms;   /* when it was written (monotonic) */
    int64_t usage_epoch_ms; /* wall time less monotonic time, at the start */
    struct telemetry telemetry;
    struct coordinator_job *jobs;      /* oldest first */
    struct coordinator_job **jobs_end; /* where the next one is put */
    int64_t job_count;
    struct coordinator_job *by_id[COORDINATOR_BUCKETS]; /* the same, by a hash of the id */
    bool some_ended;                                    /* are at their end, and to be forgotten */
    int64_t round;                                      /* of the steps of all jobs, under way */
    int preparing;                                      /* prepare children */
    bool stopping;         /* running jobs are paused, or left: config.leave_running */
    bool flush_failing;    /* so that it is logged once */
    int64_t progress_ms;   /* when the jobs' progress was written (monotonic) */
    bool progress_failing; /* it could not be: that is logged once */
};

int64_t coordinator_now(const struct coordinator *coordinator);   /* monotonic ms */
int64_t coordinator_epoch(const struct coordinator *coordinator); /* wall ms less monotonic ms */
int64_t coordinator_wall(const struct coordinator *coordinator);  /* Unix time, ms */

/* coordinator.c */
struct coordinator_job *coordinator_find(const struct coordinator *coordinator, const char *job_id);
/* Adds a row of the store to the jobs in memory. */
int coordinator_load(struct coordinator *coordinator, const struct store_job *row, struct err *err);
/* Forgets the jobs that are at their end. */
void coordinator_drop_ended(struct coordinator *coordinator);
/* Stores what is pending and acknowledges it to the ranks. */
void coordinator_flush(struct coordinator *coordinator);

/* coordinator_memory.c */
/* Of the host's memory, all ranks together; 0: not known. */
int64_t coordinator_memory_planned(struct coordinator_job *job);
/* Whether a job that could start is to wait for the host's memory. */
bool coordinator_memory_waits(struct coordinator_job *job);
void coordinator_memory_tell(const struct coordinator_job *job, char *ret, size_t bytes);

/* coordinator_job.c */
void coordinator_job_step(struct coordinator_job *job);
/* Changes the state and tells the bus. move: id and from are filled in. */
int coordinator_job_move(struct coordinator_job *job, struct job_move *move, struct err *err);
/* The same; the job's reason is `why` (may be NULL). */
int coordinator_job_move_to(struct coordinator_job *job, enum job_state to, const struct err *why,
                            const char *event_text, struct err *err);
/* Moves to QUEUED and waits. */
int coordinator_job_enqueue(struct coordinator_job *job, struct job_move *move, struct err *err);
bool coordinator_job_has_process(const struct coordinator_job *job);
void coordinator_job_free(struct coordinator_job *job);

/* coordinator_plan.c */
/* from_step: of the checkpoint to go on from; -1: none. ret_host_bytes: what all ranks together
 * plan for; as it was where the model cannot be read. */
int coordinator_plan_make(const struct coordinator_job *job, int64_t from_step,
                          struct launch_plan *ret_plan, int64_t *ret_host_bytes, struct err *err);
/* Of the host's memory, for all ranks, by the plan; -1: not known. */
int64_t coordinator_plan_host_bytes(const struct coordinator_job *job);

/* coordinator_attempt.c */
int coordinator_attempt_start(struct coordinator_job *job, struct err *err); /* was scheduled */
int coordinator_attempt_step(struct coordinator_job *job, struct err *err);
/* Where the wall clock was set, the start of what runs is set with it: what it has held since stays
 * what it was. */
void coordinator_attempt_follow_clock(struct coordinator_job *job);
/* Its row in the store. outcome: "" while it runs; a failure that a rank told: `why`. */
int coordinator_attempt_put(struct coordinator_job *job, const char *outcome, const struct err *why,
                            struct err *err);

/* coordinator_progress.c */
/* A step of rank 0 has ended. */
void coordinator_progress_stepped(struct coordinator_job *job, const struct wire_metrics *metrics);
int64_t coordinator_progress_ran_ms(const struct coordinator_job *job); /* over all attempts */
/* Writes steps and times of a job to the store, now. */
int coordinator_progress_put(struct coordinator_job *job, struct err *err);
/* Those of all that run, when it is time. */
void coordinator_progress_tick(struct coordinator *coordinator);

/* coordinator_change.c */
/* The spec as the store keeps it. */
int coordinator_spec_print(const struct job_spec *spec, struct buf *out, struct err *err);
/* The jobs that a spec depends on are there and their owner's. */
int coordinator_depends_check(struct coordinator *coordinator, const struct job_spec *spec,
                              const char *owner, struct err *err);
/* What the job depends on is to be found out. */
void coordinator_depends_reset(struct coordinator_job *job);
/* Of a queued job: finds out whether it waits for others; fails it where one did not succeed. */
int coordinator_depends_step(struct coordinator_job *job, struct err *err);
/* A job has come to its end: those that depend on it look again. */
void coordinator_depends_ended(struct coordinator *coordinator, const char *job_id);

/* coordinator_queue.c */
int coordinator_queue_init(struct coordinator *coordinator, struct err *err);
/* A pass when one is due, and what it decides. */
void coordinator_queue_tick(struct coordinator *coordinator);
/* The job starts: its user's share pays the entry penalty. */
void coordinator_queue_entered(struct coordinator_job *job);
/* Use until now is counted; `save`: and written to the store. */
void coordinator_queue_charge(struct coordinator *coordinator, bool save);

/* coordinator_ranks.c */
int coordinator_ranks_listen(struct coordinator *coordinator, struct loop *loop, struct err *err);
struct supervisor_owner coordinator_ranks_owner(struct coordinator_job *job);
void coordinator_ranks_acknowledge(struct coordinator *coordinator);
/* Takes the frames that ranks left behind, once the attempt is over. */
void coordinator_ranks_take_unsent(struct coordinator_job *job);

/* coordinator_alert.c */
/* A step of rank 0 has ended. */
void coordinator_alert_metrics(struct coordinator_job *job, const struct wire_metrics *metrics);
void coordinator_alert_check(struct coordinator_job *job); /* has it stalled? */
/* After so long without a step a job has stalled. Pure. */
int64_t coordinator_alert_limit_ms(int64_t setting_ms, int64_t step_took_ms, double predicted_s);

/* coordinator_recover.c */
int coordinator_recover(struct coordinator *coordinator, struct err *err);
/* Again, while recover_until_ms is set. */
int coordinator_recover_attempt(struct coordinator_job *job, struct err *err);

/* coordinator_cgroup.c */
/* Where there are groups, makes that of the attempt that `plan` is of, and names it there.
 * planned_bytes: of host memory, all ranks together. */
void coordinator_cgroup_make(const struct coordinator_job *job, int64_t planned_bytes,
                             struct launch_plan *plan);
/* Ends and removes groups of this daemon's jobs whose attempts are over. */
void coordinator_cgroup_end_leftovers(struct coordinator *coordinator);

/* coordinator_gpus.c */
int coordinator_gpus_open(struct coordinator *coordinator, struct err *err);
void coordinator_gpus_look(struct coordinator *coordinator); /* takes the newest report in */
/* Whether a look has come since the job's processes are gone, or is waited for no longer. */
bool coordinator_gpus_have_told(const struct coordinator_job *job);
/* Appends to a reason which GPUs are not given out, and why. */
void coordinator_gpus_explain(const struct coordinator *coordinator, char *text, size_t bytes);
/* Puts what a GPU told in front of the reason of a failure. */
void coordinator_gpus_blame(const struct coordinator_job *job, struct err *why);

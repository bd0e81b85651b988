/* sched: which waiting jobs start now, which running ones make room for them, and why each other
 * one waits. One pure function of what is there: no clock, no store, no memory of its own.
 *
 *     struct sched_pass pass = {.now_ms = now, .slots = 8, .free = 3, .policy = policy, ...};
 *     sched_pass(&pass);    jobs[] are then in the queue's order, each with a verdict;
 *                           running[] say which are to be preempted
 *
 * Order. A job that running ones make room for; then higher priority; then the user who has used
 * less, by slot-seconds that decay (daemon/usage.h) and an entry penalty for each job that stands
 * before it; then the one submitted first. One user's jobs of one priority run in the order they
 * came.
 *
 * Reservation. The first job that could run but for slots is the head: no job behind it may delay
 * it. When the running jobs' ends say when it will have its slots, others start where they end
 * before that, or use slots that it leaves (EASY backfill: D. Lifka, "The ANL/IBM SP scheduling
 * system", JSSPP 1995). Where an end is not known, others start only on slots that the head can
 * do without, whichever of the running jobs end.
 *
 * Preemption. For the head alone: running jobs that allow it, have a lower priority and have run
 * for preempt_after_ms end with a checkpoint, the lowest priority and the latest start first, no
 * more than it takes: of those that can be spared the highest priority and the earliest start; none
 * where all of them were not enough. */
#pragma once
#include "common/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sched_policy {
    int64_t user_slots_max;   /* slots of one user's jobs at once; 0: no limit */
    int64_t user_jobs_max;    /* jobs of one user at once; 0: no limit */
    int64_t entry_penalty_s;  /* a start counts as so many seconds on its slots */
    int64_t preempt_after_ms; /* a job runs at least this long before it is preempted */
    bool draining;            /* nothing starts */
};

enum sched_verdict {
    SCHED_START,      /* now */
    SCHED_HELD,       /* until it is released */
    SCHED_DEPENDS,    /* on jobs that have not succeeded */
    SCHED_DRAINING,   /* nothing starts */
    SCHED_TOO_LARGE,  /* for this machine */
    SCHED_USER_SLOTS, /* its user has as many slots as one may */
    SCHED_USER_JOBS,  /* its user runs as many jobs as one may */
    SCHED_SLOTS,      /* the head: too few slots are free */
    SCHED_ROOM,       /* the head: preempted jobs are making room for it */
    SCHED_BEHIND      /* others go first */
};

/* One that waits. */
struct sched_job {
    void *object;               /* the caller's */
    size_t user;                /* of pass->users */
    int64_t priority;           /* higher goes first */
    int64_t number;             /* in the order of submission, unique: the lower goes first */
    int64_t slots;              /* it needs, 1.. */
    int64_t lasts_ms;           /* it runs no longer than this; 0: not known */
    bool held, depends;         /* by these it cannot start */
    bool claims;                /* running jobs make room for it: as the last pass left it */
    enum sched_verdict verdict; /* result */
    int64_t position;           /* result: 1 is the next to start; 0: starts */
    int64_t start_ms;           /* result: when it should start; 0: not known */
    double share;               /* scratch: its user's use when it would start */
};

/* One that has slots. */
struct sched_running {
    void *object;     /* the caller's */
    size_t user;      /* of pass->users */
    int64_t priority; /* lower is preempted first */
    int64_t slots;    /* it has */
    int64_t lost;     /* of these: not given out again, their GPUs are drained or sick */
    int64_t since_ms; /* all its ranks train since then; 0: not yet */
    int64_t ends_ms;  /* by then at the latest; 0: not known */
    bool preemptible; /* it allows it */
    bool ending;      /* it was asked to end; preempted: to make room */
    bool preempted;
    bool preempt; /* result: it is to make room */
};

struct sched_user {
    double used_s; /* slot-seconds, decayed */
    int64_t slots; /* scratch: of running jobs */
    int64_t jobs;
};

struct sched_pass {
    int64_t now_ms; /* all times are of one clock */
    int64_t slots;  /* of the machine that may be given out, now or later */
    int64_t free;   /* of these: no job has them */
    struct sched_policy policy;
    struct sched_user *users;
    size_t user_count;
    struct sched_job *jobs; /* sorted by the pass */
    size_t job_count;
    struct sched_running *running;
    size_t running_count; /* at most LIMIT_RANKS: each has a slot */
    int64_t head_ms; /* result: what ends by then may pass the head; 0: no such time is known */
};

void sched_pass(struct sched_pass *pass);

/* coordinator: what happens to jobs. Events come in (submit, cancel, pause, resume, a frame of a
 * rank, the end of a process, the tick), decisions go out through the host seam and the store. It
 * never blocks and knows no HTTP.
 *
 * The way of a job:
 *   submit -> VALIDATING   the prepare child makes token shards; a bad line fails it (ERR_DATA)
 *          -> QUEUED       until sched_pass() gives it slots
 *          -> STARTING     slots taken, keeper started, from the newest checkpoint if there is one
 *          -> RUNNING      all ranks are ready
 *          -> SUCCEEDED | FAILED | CANCELLED, only when no process of the job is left; slots free
 *   cancel -> CANCELLING   until its last process is gone (at once when it has none) -> CANCELLED
 *   pause  -> PAUSING      until the ranks have written a checkpoint and ended -> PAUSED
 *   resume -> QUEUED       of a paused job, or of a failed one that has a checkpoint
 *   preempted: RUNNING -> PREEMPTING until the ranks have written a checkpoint and ended -> QUEUED
 *
 * A fault that may not strike again (restart.h) queues the job again, at most max_restarts times.
 * time_limit_s counts the time in RUNNING and PAUSING over all attempts (not what passes while no
 * daemon watches). Shortly before it the ranks write a checkpoint and the job fails as time_limit;
 * when the user resumes it, restarts and time are counted from zero again.
 *
 * Killed itself, a daemon leaves ranks training, and the next one goes on watching them
 * (coordinator_recover.c).
 *
 * For HTTP: parse the body (job_spec_parse), find the model's folder, settle values and see that
 * the job fits (api_estimate_admit), check that the files are there and not in error, then
 * coordinator_submit. To cancel: coordinator_cancel, then answer when the job is at its end (listen
 * on the bus; read the row). */
#pragma once
#include "common/cgroup.h"
#include "common/err.h"
#include "common/job_spec.h"
#include "daemon/bus.h"
#include "daemon/host.h"
#include "daemon/sched.h"
#include "daemon/store.h"

#include <stdbool.h>
#include <stdint.h>

enum coordinator_device {
    COORDINATOR_CPU,
    COORDINATOR_CUDA, /* coordinator_new() fails where there is no GPU to use */
    COORDINATOR_AUTO  /* GPUs where there are any, else the CPU */
};

struct coordinator_config {
    const char *data_dir;       /* absolute */
    const char *worker_program; /* absolute path of ithaca-worker */
    enum coordinator_device device;
    const char *visible_gpus;   /* CUDA_VISIBLE_DEVICES of the daemon; NULL: all */
    const char *gpu_file;       /* plays the GPUs (daemon/gpu_file.h); NULL: they are real */
    int64_t cpu_slots;          /* ranks that may run at once; 0: number of cores, at least 2 */
    int64_t host_bytes;         /* of the host's memory, for all jobs; 0: what there is */
    int64_t heartbeat_limit_ms; /* a rank silent this long is hung                (15000) */
    int64_t start_limit_ms;     /* all ranks are ready this long after the start  (600000) */
    int64_t connect_limit_ms;   /* all ranks have connected this long after       (60000) */
    int64_t stall_limit_ms;     /* no rank's step, phase or collective moves      (1800000) */
    int64_t stall_alert_ms;     /* no step ends for so long: an event tells it; 0: none (900000) */
    int64_t coll_timeout_ms;    /* deadline of one collective, for the plan       (300000) */
    int64_t orphan_limit_ms;    /* ranks without a daemon end after this          (600000) */
    int64_t stop_grace_ms;      /* between the steps CANCEL, SIGTERM, SIGKILL     (10000) */
    const struct cgroup_home *cgroup; /* where attempts get groups; NULL: nowhere */
    int64_t job_memory_margin_bytes;  /* of each rank beyond its plan, in a group; 0: no limit */
    bool leave_running;               /* coordinator_stop() lets ranks train on         (false) */
    int64_t fair_share_half_life_ms;  /* of users' use                             (7 days) */
    struct sched_policy policy;       /* draining: not read, the store knows */
};
/* The figures above; data_dir and worker_program NULL. */
void coordinator_config_defaults(struct coordinator_config *ret_config);

enum { COORDINATOR_TICK_MS = 100 }; /* how often coordinator_tick() is to be called */

struct coordinator;
struct loop;

/* Makes the job socket <data_dir>/job.sock and takes up the jobs in the store. The store, bus,
 * host, loop and config's strings outlive it. */
int coordinator_new(const struct coordinator_config *config, struct host *host, struct store *store,
                    struct bus *bus, struct loop *loop, struct coordinator **ret_coordinator,
                    struct err *err);
void coordinator_free(struct coordinator *coordinator); /* NULL is fine; processes go on living */

/* spec: parsed and resolved (not kept). predicted_step_s: of an optimizer step, 0 where it is not
 * known. Committed when it returns. ERR_TOO_MANY, ERR_DOES_NOT_FIT beyond what its user may have,
 * ERR_INVALID_VALUE for a dependency that is no job of its owner. */
int coordinator_submit(struct coordinator *coordinator, const struct job_spec *spec,
                       double predicted_step_s, const char *model_dir, const char *owner,
                       char ret_id[LIMIT_ID_BYTES + 1], struct err *err);
/* The same for a point of an experiment, which knows its job from then on. */
struct coordinator_point {
    const char *experiment;
    int64_t number;
};
int coordinator_submit_point(struct coordinator *coordinator, const struct job_spec *spec,
                             double predicted_step_s, const char *model_dir, const char *owner,
                             const struct coordinator_point *point, char ret_id[LIMIT_ID_BYTES + 1],
                             struct err *err);
/* Starts the end of a job. 0 also when it is being cancelled or is cancelled already;
 * ERR_NOT_FOUND, or ERR_BAD_STATE when it has ended otherwise. */
int coordinator_cancel(struct coordinator *coordinator, const char *job_id, struct err *err);

/* Starts a pause. 0 also when it is being paused or is paused already; ERR_NOT_FOUND, or
 * ERR_BAD_STATE when it has ended or is being cancelled. */
int coordinator_pause(struct coordinator *coordinator, const char *job_id, struct err *err);
/* Queues a paused job again, or one that failed and has a checkpoint. checkpoint_id: go on from
 * that one, newer ones are given up; NULL: from the newest. ERR_NOT_FOUND, ERR_BAD_STATE. */
int coordinator_resume(struct coordinator *coordinator, const char *job_id,
                       const char *checkpoint_id, struct err *err);

/* The next so many steps of a running job are profiled (worker/profile_run.h). ERR_NOT_FOUND,
 * ERR_BAD_STATE. */
int coordinator_profile(struct coordinator *coordinator, const char *job_id, int64_t steps,
                        struct err *err);

/* A job may be deleted: it is at its end, and none that waits depends on it. ERR_BAD_STATE. */
int coordinator_check_forgotten(struct coordinator *coordinator, const char *job_id,
                                struct err *err);
/* Changes a job that has not ended: body as job_spec_change() takes it, `user` is who asks. Only an
 * admin may raise the time limit of a job that has slots: it may have passed others by it.
 * ERR_NOT_FOUND, ERR_BAD_STATE, ERR_FORBIDDEN, ERR_INVALID_VALUE: also where jobs would depend on
 * each other in a circle. */
int coordinator_change(struct coordinator *coordinator, const char *job_id, const json_t *body,
                       const char *user, bool is_admin, struct err *err);

/* Nothing starts until it is undrained, whatever daemon runs. */
int coordinator_queue_drain(struct coordinator *coordinator, bool drained, struct err *err);
bool coordinator_queue_is_drained(const struct coordinator *coordinator);

/* Whether a job that has not ended has it as a training or validation file, and so needs it. */
bool coordinator_uses_file(const struct coordinator *coordinator, const char *file_id);

/* true: there was no time for all jobs, and the others wait for the next tick, which is to come at
 * once. */
bool coordinator_tick(struct coordinator *coordinator);

/* The daemon stops: running jobs are paused and go back to the queue for the next daemon, or are
 * left to it (leave_running). Then tick until it is idle; what is not by then is left too. */
void coordinator_stop(struct coordinator *coordinator);
bool coordinator_is_idle(const struct coordinator *coordinator); /* nothing to wait for */
bool coordinator_is_stopping(const struct coordinator *coordinator);

/* Slots of the machine: job_facts.ranks_max. */
int64_t coordinator_slots(const struct coordinator *coordinator);
struct inventory;
const struct inventory *coordinator_inventory(const struct coordinator *coordinator);
/* Id of the job that has the GPU at this place of the inventory, or this slot of the CPU. NULL:
 * none. */
const char *coordinator_gpu_job(const struct coordinator *coordinator, int64_t gpu);
/* A GPU that is drained is given to no further job; undrained, it is given out again, also one that
 * was set aside. Kept over restarts. ERR_NOT_FOUND. */
int coordinator_drain(struct coordinator *coordinator, const char *uuid, bool drained,
                      struct err *err);

/* What is not in the store. */
struct coordinator_view {
    int64_t queue_position;     /* 1: next; 0: not queued */
    char pending_reason[512];   /* "needs 2 slots, 1 of 2 is free"; "" when it does not wait */
    int64_t estimated_start_ms; /* Unix time; 0: not known */
};
void coordinator_view(struct coordinator *coordinator, const char *job_id,
                      struct coordinator_view *ret_view);

/* A job that has slots or waits for them. */
struct coordinator_entry {
    const char *id;
    const char *owner;
    const struct job_spec *spec;
    enum job_state state;
    int64_t created_ms;           /* Unix time, as all here */
    int64_t started_ms;           /* its newest attempt; 0: it waits */
    int64_t estimated_end_ms;     /* 0: not known */
    struct coordinator_view view; /* of one that waits */
};
typedef int coordinator_entry_fn(void *context, const struct coordinator_entry *entry,
                                 struct err *err);
/* Those with slots first, in the order of submission, among them, where `after` is 0, those that
 * start in this moment; then at most `limit` of the queue in its order, from behind position
 * `after`. ret_waiting: how many wait in all. */
int coordinator_queue_list(struct coordinator *coordinator, int64_t after, int64_t limit,
                           coordinator_entry_fn *entry, void *context, int64_t *ret_waiting,
                           struct err *err);

struct coordinator_user {
    const char *name;
    double used_s;    /* slot-seconds, decayed: what fair share goes by */
    double total_s;   /* slot-seconds ever */
    double counted_s; /* slot-seconds since this daemon began */
    int64_t slots;    /* it has now */
};
typedef int coordinator_user_fn(void *context, const struct coordinator_user *user,
                                struct err *err);
int coordinator_users_list(struct coordinator *coordinator, coordinator_user_fn *user,
                           void *context, struct err *err);

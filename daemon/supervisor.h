/* supervisor: watches over one attempt of a job from the start of its keeper until no process of it
 * is left, and says in the end how it went.
 *
 * It hears of HELLOs, frames and time, and acts on the keeper through the host seam and on ranks
 * through `send`. Limits (coordinator_config): a rank that does not connect or get ready in time, a
 * rank that is silent, ranks that talk but do not move: each stops the attempt with a reason that
 * names rank, step and phase.
 *
 * The daemon itself may have stood still (SIGSTOP, a debugger, a disk that hangs): ranks are not
 * silent then, they were not heard.
 *
 * A pause is asked of every rank, and again of one that connects anew; the attempt then ends by
 * itself, with a checkpoint. All limits hold meanwhile.
 *
 * Adoption: the attempt of a daemon that was killed goes on under the next one. Its plan is read
 * from plan.json, ranks come back by themselves and send again what was not acknowledged. A keeper
 * that has ended meanwhile is judged by exit.json.
 *
 * Stop ladder, each rung after stop_grace_ms: CANCEL frames (when asked to stop and all ranks
 * listen), SIGTERM to the keeper, SIGKILL to keeper, session and control group (common/cgroup.h;
 * the plan names it where there is one). A process that survives even that (uninterruptible) is
 * waited for without end, but nothing blocks: supervisor_is_over() stays false, so its slots are
 * not given away, and supervisor_is_stuck() says who it is. An attempt is over when neither
 * session nor group has a process; its group is then gone.
 *
 * The reason of a failure is, in this order: what ended it from outside (time limit, lost
 * coordinator); the first FAILED frame whose code is a cause; the keeper's exit.json (the rank that
 * failed first, its signal or exit status, its last words; ERR_HOST_OOM where the group says that
 * the kernel killed for memory); what this daemon saw (hung, not
 * started); a FAILED frame that is a consequence (collective aborted); the keeper's own end. Where
 * a rank died, hung or waited, the collective in which that was is added, as exit.json tells it. */
#pragma once
#include "common/buf.h"
#include "common/cgroup.h"
#include "common/err.h"
#include "common/launch_plan.h"
#include "common/limits.h"
#include "common/wire.h"
#include "daemon/gpu_load.h"
#include "daemon/host.h"

#include <stdbool.h>
#include <stdint.h>

struct coordinator_config;

struct supervisor_rank {
    bool connected;        /* said HELLO at least once */
    int32_t pid;           /* as HELLO told; 0 before */
    bool ready;            /* model loaded, collectives joined */
    bool done;             /* DONE or PAUSED: its work is finished */
    bool paused;           /* PAUSED */
    bool pause_sent;       /* over the connection it has now */
    bool failed;           /* FAILED: code, text below */
    int64_t heard_ms;      /* last frame */
    int64_t moved_ms;      /* last change of step, phase or coll_seq */
    uint64_t step;         /* 1-based; 0 before the first */
    uint32_t phase;        /* enum wire_phase */
    uint64_t coll_seq;     /* collectives begun */
    uint32_t received_seq; /* newest frame received */
    uint32_t seen_seq;     /* newest frame acknowledged: the owner's */
    struct gpu_load load;  /* of its GPU since its last step: the owner's */
    enum err_code failure_code;
    int failure_order; /* 1: the first of all ranks */
    char failure_text[ERR_TEXT_MAX];
};

enum supervisor_rung { RUNG_NONE, RUNG_ASKED, RUNG_TERM, RUNG_KILL };

struct supervisor_owner {
    void *context;
    /* A command to one rank; lost when it is not connected. */
    void (*send)(void *context, uint32_t rank, const struct wire_frame *frame);
    /* Connections still open: frames that were not read yet may be in them. */
    int (*connections)(void *context);
};

struct supervisor {
    struct host *host;
    const struct coordinator_config *config;
    struct supervisor_owner owner;
    struct launch_plan plan;     /* owned; world 0 when it cannot be read: only to be stopped */
    struct buf plan_text;        /* JSON, as in plan.json and the PLAN frames */
    char *attempt_dir;           /* owned */
    struct host_process *keeper; /* NULL when it had ended before it was adopted */
    struct host_identity identity;
    bool adopted; /* frames may have gone to an earlier daemon */
    bool pausing; /* ranks are asked to */
    int64_t started_ms;
    int64_t ticked_ms; /* of the last supervisor_tick(); 0: none yet */
    bool keeper_ended;
    struct host_exit keeper_exit;
    int64_t ended_ms;  /* when the keeper ended */
    bool session_gone; /* after it: nobody is left, the session's number may be another's now */
    bool group_gone;   /* likewise; it is removed, or there was none */
    struct cgroup_memory memory; /* of the group, once it is gone; kills 0 without one */
    bool over;                   /* no process is left and all frames are read */
    int64_t killed_ms;           /* first SIGKILL to all that is left; 0: none yet */
    int64_t killed_wall_ms;      /* the same, Unix time */
    bool stuck_told;             /* the owner has said that a process is stuck */
    enum supervisor_rung rung;
    int64_t rung_ms;    /* when the next rung is due */
    int64_t ending_ms;  /* all done or first failure: the keeper should end soon; 0: not yet */
    struct err failure; /* what this daemon saw; code ERR_NONE: nothing */
    struct err told;    /* the first cause that a rank told; ERR_NONE: none did */
    int failures;       /* FAILED frames so far */
    uint64_t steps_total;
    struct wire_done done;     /* of rank 0 */
    struct wire_paused paused; /* of rank 0 */
    struct supervisor_rank ranks[LIMIT_RANKS];
};

/* Takes plan over (zeroes it), also on failure. The supervisor is on the heap: its address is given
 * to the host. */
int supervisor_start(struct host *host, const struct coordinator_config *config,
                     const struct supervisor_owner *owner, struct launch_plan *plan,
                     struct supervisor **ret_supervisor, struct err *err);
/* Takes over the attempt that a dead daemon started. A keeper without a readable plan is stopped.
 */
struct supervisor_adoption {
    const char *attempt_dir;
    struct host_identity identity; /* of the keeper */
    bool ready;                    /* all ranks were, when the job's state was last written */
    struct err told;               /* the cause that a rank told the earlier daemon; or ERR_NONE */
};
int supervisor_adopt(struct host *host, const struct coordinator_config *config,
                     const struct supervisor_owner *owner,
                     const struct supervisor_adoption *adoption, struct supervisor **ret_supervisor,
                     struct err *err);
void supervisor_free(struct supervisor *supervisor); /* NULL is fine; processes go on living */

/* Whether a HELLO is of this attempt (its secret compared in constant time). */
int supervisor_hello(struct supervisor *supervisor, const struct wire_hello *hello,
                     struct err *err);
/* A frame of a rank that said HELLO. METRICS and EVENT count only as signs of life here. */
int supervisor_frame(struct supervisor *supervisor, uint32_t rank, const struct wire_frame *frame,
                     struct err *err);
/* Decides. Called each COORDINATOR_TICK_MS; after a tick that was seconds late nothing is decided
 * until the next one: what ranks have said meanwhile is read between the two. */
void supervisor_tick(struct supervisor *supervisor);
/* Asks all ranks for a checkpoint and their end; again is fine. */
void supervisor_pause(struct supervisor *supervisor);
/* Asks rank 0, which tells the others. ERR_UNAVAILABLE where one is not connected. */
int supervisor_profile(struct supervisor *supervisor, int64_t steps, struct err *err);
/* Ask, then insist. `failure` (may be NULL) becomes the outcome unless there is one already. */
void supervisor_stop(struct supervisor *supervisor, const struct err *failure);

/* Whether a process is still there stop_grace_ms after SIGKILL; if so: which, its state, since
 * when. */
bool supervisor_is_stuck(const struct supervisor *supervisor, char *ret_text, size_t bytes);

bool supervisor_is_ready(const struct supervisor *supervisor); /* all ranks are */
bool supervisor_is_over(const struct supervisor *supervisor);
/* How it went, once it is over: 0 with *ret_paused telling whether training is to go on, or the
 * failure's code and sentence. */
int supervisor_outcome(const struct supervisor *supervisor, bool *ret_paused, struct err *err);
/* Between supervisor*.c: a rank says FAILED. */
void supervisor_take_failed(struct supervisor *supervisor, uint32_t rank,
                            const struct wire_failed *failed);
/* Between supervisor*.c: removes the group, in which nobody is. */
void supervisor_drop_group(struct supervisor *supervisor);
/* Between supervisor*.c: SIGKILL to keeper, session and group. */
void supervisor_kill(struct supervisor *supervisor);
/* Between supervisor*.c: the keeper has ended; kills what is left. False: nothing is. */
bool supervisor_sweep(struct supervisor *supervisor);

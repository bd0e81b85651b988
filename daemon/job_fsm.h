/* job_fsm: the states of a job and the one function that changes them.
 *
 *   validating -> queued -> starting -> running -> succeeded
 *   starting, running -> pausing -> paused      pausing -> succeeded (it was done already)
 *   validating -> pausing, paused               queued -> paused
 *   paused -> queued, or validating when its files were not checked yet
 *   starting, running -> queued                 (again, with the next attempt)
 *   running -> preempting -> queued             preempting -> pausing, succeeded
 *   any unfinished -> failed                    any unfinished -> cancelling -> cancelled
 *   failed -> queued                            (only when the user resumes it)
 * An end is never left otherwise. */
#pragma once
#include "daemon/host.h"
#include "daemon/store.h"

#include <stdbool.h>

const char *job_state_name(enum job_state state);        /* "running": ithaca.state */
const char *job_state_public_name(enum job_state state); /* "validating_files": status */
bool job_state_is_end(enum job_state state);
enum job_state job_state_parse(const char *name); /* JOB_STATE_COUNT when unknown */
bool job_state_may_move(enum job_state from, enum job_state to);

struct job_move {
    const char *id;
    enum job_state from;
    enum job_state to;
    enum err_code reason;         /* ERR_NONE: none */
    const char *reason_text;      /* NULL: none */
    const char *event_text;       /* NULL: reason_text, or "Job is <state>." */
    const char *fine_tuned_model; /* NULL: leave */
    int64_t trained_tokens;       /* 0: leave */
    int64_t attempt;              /* 0: leave */
    int64_t resumed_step;         /* of the checkpoint that attempt goes on from; 0: none */
    bool restarted;               /* one more restart after a fault */
};
/* Compare-and-set and its event in one transaction. ERR_BAD_STATE when the job is no longer in
 * `from`. An illegal pair is our own bug (must). */
int job_move(struct store *store, struct host *host, const struct job_move *move,
             int64_t *ret_event_row, struct err *err);

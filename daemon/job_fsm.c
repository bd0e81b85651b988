/* job_fsm: the legal moves as a bit set for each state, and job_move, which stamps time, ids and
 * words on one move and hands it to the store as one transaction. */
#include "daemon/job_fsm.h"

#include "common/must.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    const char *public_name;
    bool is_end;
} job_states[JOB_STATE_COUNT] = {
#define X(id, state_name, public_status, end) \
    [JOB_STATE_##id] = {.name = state_name, .public_name = public_status, .is_end = end},
#include "api/job_states.def"
#undef X
};

#define BIT(state) (1u << JOB_STATE_##state)
enum { JOB_UNFINISHED = BIT(FAILED) | BIT(CANCELLING) };

static const unsigned job_moves[JOB_STATE_COUNT] = {
    [JOB_STATE_VALIDATING] =
        BIT(QUEUED) | BIT(PAUSING) | BIT(PAUSED) | BIT(CANCELLED) | JOB_UNFINISHED,
    [JOB_STATE_QUEUED] = BIT(STARTING) | BIT(PAUSED) | BIT(CANCELLED) | JOB_UNFINISHED,
    [JOB_STATE_STARTING] = BIT(RUNNING) | BIT(PAUSING) | BIT(QUEUED) | JOB_UNFINISHED,
    [JOB_STATE_RUNNING] =
        BIT(SUCCEEDED) | BIT(PAUSING) | BIT(PREEMPTING) | BIT(QUEUED) | JOB_UNFINISHED,
    [JOB_STATE_PAUSING] = BIT(PAUSED) | BIT(SUCCEEDED) | JOB_UNFINISHED,
    [JOB_STATE_PAUSED] = BIT(QUEUED) | BIT(VALIDATING) | BIT(CANCELLED) | JOB_UNFINISHED,
    [JOB_STATE_PREEMPTING] = BIT(QUEUED) | BIT(SUCCEEDED) | BIT(PAUSING) | JOB_UNFINISHED,
    [JOB_STATE_CANCELLING] = BIT(CANCELLED) | BIT(FAILED),
    [JOB_STATE_FAILED] = BIT(QUEUED),
};

const char *job_state_name(enum job_state state)
{
    must(state < JOB_STATE_COUNT);
    return job_states[state].name;
}

const char *job_state_public_name(enum job_state state)
{
    must(state < JOB_STATE_COUNT);
    return job_states[state].public_name;
}

bool job_state_is_end(enum job_state state)
{
    must(state < JOB_STATE_COUNT);
    return job_states[state].is_end;
}

enum job_state job_state_parse(const char *name)
{
    int state = 0;
    while (state < JOB_STATE_COUNT && strcmp(job_states[state].name, name) != 0)
        state++;
    return (enum job_state)state;
}

bool job_state_may_move(enum job_state from, enum job_state to)
{
    must(from < JOB_STATE_COUNT && to < JOB_STATE_COUNT);
    return (job_moves[from] >> to & 1) != 0;
}

int job_move(struct store *store, struct host *host, const struct job_move *move,
             int64_t *ret_event_row, struct err *err)
{
    must(job_state_may_move(move->from, move->to));
    char event_id[LIMIT_ID_BYTES + 1], text[64];
    TRY(host_new_id(host, "ftevent-", event_id, sizeof event_id, err));
    (void)snprintf(text, sizeof text, "Job is %s.", job_state_name(move->to));
    const char *event_text = move->event_text != NULL    ? move->event_text
                             : move->reason_text != NULL ? move->reason_text
                                                         : text;
    const struct store_job_move row = {
        .id = move->id,
        .from = move->from,
        .to = move->to,
        .now_ms = host->ops->wall_ms(host),
        .reason = move->reason != ERR_NONE ? err_code_name(move->reason) : "",
        .reason_text = move->reason_text != NULL ? move->reason_text : "",
        .event_id = event_id,
        .event_text = event_text,
        .event_level = move->to == JOB_STATE_FAILED ? "error"
                       : move->restarted            ? "warn"
                                                    : "info",
        .fine_tuned_model = move->fine_tuned_model,
        .trained_tokens = move->trained_tokens,
        .attempt = move->attempt,
        .resumed_step = move->resumed_step,
        .ran = move->to == JOB_STATE_RUNNING || move->to == JOB_STATE_SUCCEEDED,
        .ended = job_state_is_end(move->to),
        .prepared = move->from == JOB_STATE_VALIDATING && move->to == JOB_STATE_QUEUED,
        .restarted = move->restarted,
        .renewed = move->from == JOB_STATE_FAILED,
    };
    return store_job_move(store, &row, ret_event_row, err);
}

/* supervisor_scene: how attempts end in tests of the supervisor, on top of coordinator_world. */
#pragma once
#include "tests/lib/coordinator_world.h"

static inline void expect_failed(struct world *w, const struct world_job *job, const char *reason,
                                 const char *text)
{
    struct world_row row = world_row(w, job);
    assert_int_equal(row.state, JOB_STATE_FAILED);
    assert_string_equal(row.reason, reason);
    if (strstr(row.text, text) == NULL)
        fail_msg("\"%s\" is not in: %s", text, row.text);
    assert_true(row.finished_ms > 0);
    assert_true(coordinator_is_idle(w->coordinator));
}

static inline void end_keeper(struct world_attempt *a, const struct exit_report *report,
                              int signal_number)
{
    if (report != NULL)
        world_exit_report(a, report);
    fake_host_end(a->keeper, 0, signal_number);
    world_hang_up(a);
    world_run(a->w);
}

static inline void beat(struct world_attempt *a, uint32_t rank, uint64_t step, uint64_t coll_seq)
{
    world_send(
        a, rank,
        (struct wire_frame){
            .type = WIRE_HEARTBEAT,
            .heartbeat = {.step = step, .phase = WIRE_PHASE_BACKWARD, .coll_seq = coll_seq}});
}

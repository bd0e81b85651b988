/* supervisor_scene: how attempts end in tests of the supervisor, on top of coordinator_world. */
#pragma once
#include "tests/lib/coordinator_world.h"

static inline void expect_failed(struct world *w, const struct world_job *job, const char *reason,
                                 const char *text)
{
    world_expect_failed(w, job, reason, text);
    assert_true(coordinator_is_idle(w->coordinator));
}

static inline void beat(struct world_attempt *a, uint32_t rank, uint64_t step, uint64_t coll_seq)
{
    world_send(
        a, rank,
        (struct wire_frame){
            .type = WIRE_HEARTBEAT,
            .heartbeat = {.step = step, .phase = WIRE_PHASE_BACKWARD, .coll_seq = coll_seq}});
}

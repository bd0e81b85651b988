/* queue_scene: what tests of the queue and of changes to its jobs share, on top of
 * coordinator_world. For cmocka programs; jobs are world_job's. */
#pragma once
#include "tests/lib/coordinator_world.h"

/* As ann, who is no admin. fields: as in "\"priority\":3". */
static inline void change_as(struct world *w, const struct world_job *job, const char *fields,
                             int wanted_rc)
{
    CLEANUP(mem_free_ptr) char *text = mem_printf("{\"ithaca\":{%s}}", fields);
    CLEANUP(json_unref) json_t *body = NULL;
    OK(w, json_parse(text, strlen(text), "test", &body, &w->err));
    int rc = coordinator_change(w->coordinator, job->id, body, "ann", false, &w->err);
    if (rc != wanted_rc)
        fail_msg("%s: %d %s", fields, rc, rc != 0 ? w->err.text : "");
}

static inline void change(struct world *w, const struct world_job *job, const char *fields)
{
    change_as(w, job, fields, 0);
    world_run(w);
}

static inline void expect_reason(struct world *w, const struct world_job *job, int64_t position,
                                 const char *reason)
{
    struct coordinator_view view;
    coordinator_view(w->coordinator, job->id, &view);
    assert_int_equal(view.queue_position, position);
    assert_string_equal(view.pending_reason, reason);
}

/* Of the job that has been started: to its end. */
static inline void finish(struct world *w, const struct world_job *job)
{
    struct world_attempt a;
    world_attempt_open(w, &a);
    assert_string_equal(a.plan.job_id, job->id);
    world_ready(&a);
    world_end_done(&a);
    world_expect(w, job, JOB_STATE_SUCCEEDED);
    world_attempt_close(&a);
}

static inline void restart(struct world *w)
{
    world_reopen(w);
    world_run(w);
}

/* rank_scene: one rank of one, open in the test's own process, on train_scene's small model.
 *
 *     struct rank_scene s;
 *     rank_scene_open(&s, "\"seq_len\":64,\"batch\":{\"sequences\":4}");
 *     step_gradients(&s.rank, 1, &result, &s.err)
 *     rank_scene_close(&s); */
#pragma once
#include "tests/dist/train_scene.h"

struct rank_scene {
    struct train_scene scene;
    struct rank rank;
    struct err err;
};

/* fields: members of `ithaca`. Files beside train.tok are written between this and the next. */
static inline void rank_scene_prepare(struct rank_scene *s, const char *fields)
{
    train_scene_open(&s->scene, fields);
    CLEANUP(mem_free_ptr) char *attempt = launch_plan_attempt_dir(&s->scene.plan);
    MUST_WORK(io_make_dirs(attempt, 0700, &s->err), &s->err);
    (void)snprintf(s->scene.plan.shm_name, sizeof s->scene.plan.shm_name, "/ithaca-rank-%d",
                   (int)getpid());
}

static inline void rank_scene_begin(struct rank_scene *s)
{
    MUST_WORK(rank_open(&s->rank, &s->scene.plan, 0, &s->err), &s->err);
}

static inline void rank_scene_open(struct rank_scene *s, const char *fields)
{
    rank_scene_prepare(s, fields);
    rank_scene_begin(s);
}

static inline void rank_scene_close(struct rank_scene *s)
{
    rank_close(&s->rank);
    train_scene_close(&s->scene);
    (void)testing_free(NULL);
    assert_int_equal(mem_live(), 0);
}

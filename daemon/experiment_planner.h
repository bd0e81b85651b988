/* experiment_planner: the points of an experiment, planned for this machine before anything runs
 * (common/experiment_plan.h), as the store keeps them.
 *
 *     struct experiment_planner planner = {.api = api, .viewer = viewer, .spec = &spec};
 *     TRY(experiment_planner_point(&planner, number, 0, &planned, err));    one point
 *     row = experiment_planned_row(&planned, number);                       for the store
 *     ...
 *     experiment_planner_done(&planner); */
#pragma once
#include "common/experiment_spec.h"
#include "common/model_shape.h"
#include "daemon/models.h"
#include "daemon/store_experiments.h"

struct experiment_planner {
    struct api *api;
    const char *viewer; /* whose tuned models and files may be named (access.h) */
    const struct experiment_spec *spec;
    char model_name[LIMIT_NAME_BYTES + 1]; /* of the two below; "": none yet */
    struct models_entry model;
    struct model_shape shape;
};
void experiment_planner_done(struct experiment_planner *planner);

struct experiment_planned {
    const char *status;      /* STORE_POINT_WAITING, _NO_ROOM or _REFUSED */
    char note[ERR_TEXT_MAX]; /* why not */
    int64_t priority;
    struct buf facts; /* JSON: struct experiment_plan's; owned */
    struct buf body;  /* JSON, of its job; owned */
};
void experiment_planned_done(struct experiment_planned *planned);
/* It as the store keeps it; the texts are borrowed of it. */
struct store_point_row experiment_planned_row(const struct experiment_planned *planned,
                                              int64_t number);

/* Point `number` of the grid, with this seq_len where it is above 0. Under find_max_seq_len and
 * seq_len 0: with the longest that the plan says fits, and that may be tried. Fails where the
 * experiment is at fault: a field that no job has, a model that is not there. */
int experiment_planner_point(struct experiment_planner *planner, int64_t number, int64_t seq_len,
                             struct experiment_planned *ret, struct err *err);

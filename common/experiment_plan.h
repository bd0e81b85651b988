/* experiment_plan: a point of an experiment as a job that measures, and what that takes of a
 * machine by the plan: whether it fits, its memory, how long its steps run.
 *
 *     TRY(experiment_job_read(&spec, number, 0, &job, err));        what it asks for
 *     ...                                                           its model's shape, rates: ask
 *     TRY(experiment_plan_make(&spec, &job, &ask, false, &plan, err));
 *     experiment_plan_done(&plan);
 *     experiment_job_done(&job);
 *
 * A point for more ranks than the machine has is rehearsed. What is left "auto" takes its plain
 * value, never a searched one: an experiment compares what it names. */
#pragma once
#include "common/experiment_spec.h"
#include "common/mem_estimate.h"

struct experiment_job {
    int64_t number;                   /* of the point in the grid */
    char label[LIMIT_NAME_BYTES + 1]; /* as struct experiment_point has it */
    struct job_spec spec;
    bool has_sequences; /* it says how many; else one a data-parallel rank */
};

enum experiment_fit {
    EXPERIMENT_FITS,
    EXPERIMENT_NO_ROOM, /* by the plan */
    EXPERIMENT_REFUSED  /* it is no legal job */
};

struct experiment_plan {
    enum experiment_fit fit;
    char note[ERR_TEXT_MAX]; /* why not; "" where it fits */
    json_t *facts;           /* columns of its results (api/experiment_columns.def), and "series":
                                its number in the grid, "slots": that its job takes; owned */
};

/* Point `number`, with this seq_len where it is above 0. Fails where the experiment is at fault: a
 * field that no job has. */
int experiment_job_read(const struct experiment_spec *spec, int64_t number, int64_t seq_len,
                        struct experiment_job *ret, struct err *err);
void experiment_job_done(struct experiment_job *job);
/* Puts which point it was before an error's text; returns rc. */
int experiment_job_wrap(const struct experiment_job *job, int rc, struct err *err);

/* Settles job->spec and plans it. ask: of the machine, for the job, with rates; its spec is
 * job->spec. longest: with the longest seq_len that fits and may be tried, where there is one.
 * Fails for want of memory alone. */
int experiment_plan_make(const struct experiment_spec *spec, struct experiment_job *job,
                         const struct mem_ask *ask, bool longest, struct experiment_plan *ret,
                         struct err *err);
void experiment_plan_done(struct experiment_plan *plan);

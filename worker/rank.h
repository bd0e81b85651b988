/* rank: everything one rank of a job holds, from the plan to the last frame.
 *
 *     TRY(rank_open(&rank, &plan, number, err));   devices, memory, weights, peers: `ready`
 *     TRY(rank_run(&rank, err));                   all steps, evaluations, the tuned model
 *     rank_close(&rank);
 *
 * rank_open declares all device memory, takes it once and loads the weights; nothing in the steps
 * allocates. step.c is the training loop. On an error the caller tells it with rank_fail(), so that
 * peers do not wait for their deadline, and closes. */
#pragma once
#include "common/err.h"
#include "common/launch_plan.h"
#include "worker/arena.h"
#include "worker/coll.h"
#include "worker/device.h"
#include "worker/fsdp.h"
#include "worker/loader.h"
#include "worker/model.h"
#include "worker/optim.h"
#include "worker/report.h"

#include <stdbool.h>
#include <stdint.h>

struct rank {
    const struct launch_plan *plan; /* borrowed; outlives the rank */
    int number;                     /* this rank */
    int world;
    struct device *device;
    struct coll *coll;
    struct stream *stream; /* NULL: the default stream */
    struct model_shape shape;
    struct arena arena;
    struct fsdp fsdp;
    struct model model;
    struct optim optim;
    struct loader train;
    struct loader valid; /* examples 0: no validation file */
    struct batch batch;
    int64_t *counts;     /* device (2): tokens and trained tokens of a step, to be summed */
    int64_t steps_total; /* optimizer steps of the job */
    struct report *report;
    int64_t phase_ns[WIRE_PHASE_COUNT]; /* time spent, by phase */
    enum wire_phase phase;              /* now */
    int64_t phase_since_ns;
};

int rank_open(struct rank *rank, const struct launch_plan *plan, int number, struct err *err);
int rank_run(struct rank *rank, struct err *err);
/* Tells peers (their collectives fail at once) and the daemon; fine when half open. */
void rank_fail(struct rank *rank, const struct err *reason);
void rank_close(struct rank *rank);

/* What this rank is doing from now, for heartbeats, last words and the account of time. */
void rank_phase(struct rank *rank, int64_t step, enum wire_phase phase);
/* Sums two counts over ranks. */
int rank_sum(struct rank *rank, int64_t counts[2], struct err *err);

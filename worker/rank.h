/* rank: everything one rank of a job holds, from the plan to the last frame.
 *
 *     TRY(rank_open(&rank, &plan, number, err));   devices, memory, weights, peers: `ready`
 *     TRY(rank_run(&rank, err));                   all steps, evaluations, checkpoints, the tuned
 * model rank_close(&rank);
 *
 * rank_open declares all memory, takes it once and loads the weights or the plan's checkpoint;
 * nothing in the steps allocates. train.c is the training loop. On an error the caller tells it
 * with rank_fail(), so that peers do not wait for their deadline, and closes. */
#pragma once
#include "common/checkpoint_manifest.h"
#include "common/err.h"
#include "common/launch_plan.h"
#include "worker/arena.h"
#include "worker/coll.h"
#include "worker/device.h"
#include "worker/exposed.h"
#include "worker/fsdp.h"
#include "worker/loader.h"
#include "worker/lora.h"
#include "worker/model.h"
#include "worker/optim.h"
#include "worker/profile_run.h"
#include "worker/report.h"

#include <stdbool.h>
#include <stdint.h>

enum { RANK_SUMS = 8 * LIMIT_RANKS };

struct rank {
    const struct launch_plan *plan; /* borrowed; outlives the rank */
    int number;                     /* this rank */
    int world; /* of the layout: more than there are processes in a rehearsal */
    struct device *device;
    struct coll *coll;
    struct coll_record *record; /* of its collectives; NULL: there is no folder for it */
    struct exposed exposed;     /* of the stream */
    struct mesh mesh;           /* how ranks share sequences */
    struct mesh_place place;    /* of this rank */
    struct stream *stream;      /* NULL: the default stream */
    struct model_shape shape;
    struct mem_plan memory; /* every buffer of it */
    struct arena arena;
    struct fsdp fsdp;     /* the model */
    struct lora lora;     /* adapters, where spec.lora */
    struct fsdp *trained; /* of the two, that which training changes */
    struct model model;
    struct optim optim;
    struct loader train;
    struct loader valid; /* examples 0: no validation file */
    struct batch batch;
    void *sums;                          /* device (RANK_SUMS) of 8 bytes: what rank_sum() sums */
    int64_t steps_total;                 /* optimizer steps of the job */
    struct checkpoint_progress progress; /* how far training has come */
    int64_t saved_step;                  /* of the newest checkpoint; -1: none */
    struct report *report;
    bool peaks_told;                    /* of the arena, by category */
    struct profile_run profiling;       /* steps that are profiled */
    int64_t phase_ns[WIRE_PHASE_COUNT]; /* time spent, by phase */
    int64_t exposed_ns[EXPOSED_KINDS];  /* of it, waited for in steps */
    enum wire_phase phase;              /* now */
    int64_t phase_since_ns;
};

int rank_open(struct rank *rank, const struct launch_plan *plan, int number, struct err *err);
/* Device and communicator alone: for what needs no model. */
int rank_open_device(struct rank *rank, struct err *err);
/* 0 too when the job is paused, or orphaned: then the checkpoint is written and a next attempt goes
 * on. */
int rank_run(struct rank *rank, struct err *err);
/* Tells peers (their collectives fail at once) and the daemon; fine when half open. */
void rank_fail(struct rank *rank, const struct err *reason);
void rank_close(struct rank *rank);

/* What this rank is doing from now, for heartbeats, last words and the account of time. */
void rank_phase(struct rank *rank, int64_t step, enum wire_phase phase);
/* Nothing was allocated since the arena was: what is held, on the device and pinned on the host, is
 * what was planned. */
void rank_check_memory(struct rank *rank);
/* Sums values of 8 bytes over ranks, in place; count at most RANK_SUMS. dtype: I64 or F64. */
int rank_sum(struct rank *rank, void *values, int64_t count, enum dtype dtype, struct err *err);
/* After work that may fail on some ranks: rc of each goes in; 0 when all succeeded, else a failure
 * on every rank: its own (err stays), or code and sentence of the first rank that failed. */
int rank_agree(struct rank *rank, int rc, struct err *err);

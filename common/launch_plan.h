/* launch_plan: everything a rank needs to know, made by the daemon for one attempt of a job.
 *
 * The daemon writes it to <attempt folder>/plan.json for the keeper, and sends the same bytes to
 * each rank in its PLAN frame. Serialised as JSON; unknown keys are refused (daemon and worker are
 * one build).
 *
 * Job folder (all of it the daemon's; the API shows ids, never paths):
 *   <data_dir>/jobs/<job id>/
 *       tokens/train.tok, valid.tok   token shards made by the prepare child (common/dataset.h)
 *       tokens/report.json            its report: kept, dropped, reasons by line
 *       checkpoints/step-N/           state after N steps (common/checkpoint_manifest.h)
 *       model/                        the tuned model, a Hugging Face folder, or PEFT's
 *                                     (worker/export.h); appears by rename
 *       profile/rank-R, ready.json    the newest profile (worker/profile_file.h)
 *       kept-R                        kept tensors of rank R under offload file; its name goes as
 *                                     soon as it is open (worker/offload_file.h)
 *       attempt-N/plan.json           this plan, mode 0600
 *                 rank-R.log          stdout and stderr of rank R
 *                 keeper.log          the keeper's own
 *                 last-words-R        a dying rank's sentence
 *                 collectives-R       rank R's last collectives (worker/coll_record.h); removed
 *                                     when all ranks ended well
 *                 unsent-R            frames of rank R that no daemon had seen (worker/report.h)
 *                 exit.json           written by the keeper when all ranks have ended
 *                                     (common/exit_report.h) */
#pragma once
#include "common/err.h"
#include "common/io.h"
#include "common/job_spec.h"
#include "common/json.h"
#include "common/limits.h"
#include "common/mem_plan.h"
#include "common/mesh.h"
#include "common/wire.h"

#include <stdint.h>

enum launch_device {
    LAUNCH_CPU, /* ranks share the cores: `threads` each */
    LAUNCH_CUDA /* rank r computes on gpus[r] */
};

/* X(id, name): what ranks are started for */
#define LAUNCH_PURPOSE_TABLE(X)                                                             \
    X(TRAIN, "train")                                                                       \
    X(MEASURE, "measure")     /* steps with random weights; nothing is saved or exported */ \
    X(CALIBRATE, "calibrate") /* worker/calibrate.h; of the spec time_limit_s counts */
#define X(id, name) LAUNCH_##id,
enum launch_purpose { LAUNCH_PURPOSE_TABLE(X) LAUNCH_PURPOSE_COUNT };
#undef X

struct launch_plan {
    char job_id[LIMIT_ID_BYTES + 1];
    uint32_t attempt;                  /* 1, 2, ... */
    enum launch_purpose purpose;       /* TRAIN but where the command line starts ranks itself */
    uint32_t world;                    /* ranks that have a process */
    uint8_t secret[WIRE_SECRET_BYTES]; /* hex in JSON; proves a HELLO */
    char socket[108]; /* the daemon's job socket; "" runs without a daemon (tests) */
    char shm_name[LIMIT_ID_BYTES +
                  1]; /* shared memory of coll_shm, "/ithaca-..."; "" with world 1 */
    char *job_dir;    /* absolute; owned */
    char *model_dir;  /* base model, Hugging Face folder; owned */
    char model_name[LIMIT_NAME_BYTES + 1];
    int64_t heartbeat_limit_ms; /* a rank silent this long is hung */
    int64_t coll_timeout_ms;    /* deadline of one collective */
    int64_t orphan_limit_ms;    /* without a daemon this long: checkpoint and exit */
    uint32_t threads;           /* OMP threads of each rank */
    enum launch_device device;
    char gpus[LIMIT_RANKS][LIMIT_GPU_BYTES]; /* (world) "GPU-...", as CUDA_VISIBLE_DEVICES names */
                                             /* them: ranks see these, in this order; CPU: unused */
    char *resume_from;  /* checkpoint to go on from, absolute; NULL ("" in JSON): none */
    int64_t steps_done; /* its step; 0 without one */
    char memory_digest[IO_HASH_BYTES]; /* of the memory plan that the job was admitted with
                                          (common/mem_plan.h); "": not known */
    int64_t peak_flops;                /* of a rank's device, for MFU; 0: not known */
    char *cgroup;         /* control group of the attempt (common/cgroup.h); owned; NULL: none */
    struct job_spec spec; /* resolved */
};

int launch_plan_parse(const json_t *object, struct launch_plan *ret_plan, struct err *err);
json_t *
launch_plan_json(const struct launch_plan *plan); /* new reference; NULL when out of memory */
void launch_plan_done(struct launch_plan *plan);

/* The plan.json of an attempt's folder. ERR_CORRUPT names the file where its text is no plan. */
int launch_plan_read(const char *attempt_dir, struct launch_plan *ret_plan, struct err *err);
/* Ranks that the layout is of: world, or more in a rehearsal. */
uint32_t launch_plan_ranks(const struct launch_plan *plan);
/* The layout of the ranks: their number and the spec's degrees, "auto" being 1. */
struct mesh launch_plan_mesh(const struct launch_plan *plan);

/* The plan of each rank's memory: the daemon makes it for its digest, the rank to work by. */
int launch_plan_memory(const struct launch_plan *plan, const struct model_shape *shape,
                       struct mem_plan *ret, struct err *err);

char *launch_plan_attempt_dir(const struct launch_plan *plan); /* caller mem_free()s */

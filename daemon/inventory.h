/* inventory: what ranks run on: the GPUs of this machine, one a rank, or slots of its CPU.
 *
 * CPU: by default a slot a core that the process may use, but at least two: a job of two ranks is
 * the smallest that shows the whole road, and two ranks on one core are slow, not wrong.
 *
 * GPUs: those of the first report (gpu_watch.h); they stay in the list, in the order of the bus,
 * for the daemon's life, and their places in it name them here; to everyone else their UUIDs do.
 * Each later report says of each GPU what it looks like:
 *
 *   taken      a job has it
 *   checking   a job has given it back; a look has not yet found it empty
 *   unclean    still not, INVENTORY_CLEAN_MS later: given to nobody until it is
 *   foreign    processes or memory are on it that are no job's: left alone until it is empty
 *   drained    an operator wants it to be given to nobody
 *   set_aside  it is sick (an XID of its own, uncorrectable ECC errors, fallen off the bus): given
 *              to nobody until an operator undrains it
 *   free       none of these */
#pragma once
#include "common/err.h"
#include "common/launch_plan.h"
#include "common/limits.h"
#include "daemon/gpu_report.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    INVENTORY_CLEAN_MS = 30000, /* drivers free a process's memory within a second or two */
    INVENTORY_BLIND_MS = 10000, /* without a report this long nothing is known of the GPUs */
    INVENTORY_MISSING_MAX = 2,  /* one call to the driver may fail */
    INVENTORY_WHY_BYTES = 192,
    INVENTORY_REASON_BYTES = 256,
};

/* X(id, name): of a GPU; the first that holds */
#define INVENTORY_STATES(X)   \
    X(TAKEN, "taken")         \
    X(SET_ASIDE, "set_aside") \
    X(DRAINED, "drained")     \
    X(UNCLEAN, "unclean")     \
    X(CHECKING, "checking")   \
    X(FOREIGN, "foreign")     \
    X(FREE, "free")
enum inventory_state {
#define X(id, name) INVENTORY_##id,
    INVENTORY_STATES(X)
#undef X
        INVENTORY_STATE_COUNT
};
const char *inventory_state_name(enum inventory_state state);

struct inventory_gpu {
    char name[GPU_NAME_BYTES];  /* "NVIDIA H200" */
    char uuid[LIMIT_GPU_BYTES]; /* "GPU-..." */
    int64_t bytes;              /* of memory */
    bool taken;
    bool given;                      /* back by a job, and not yet found empty */
    bool drained;                    /* by an operator */
    int64_t missing;                 /* newest reports that it is not in */
    int64_t given_ms;                /* when a look first found it given; 0: none yet */
    int64_t xids_told;               /* of seen.xid_count: inventory_next_xid() */
    enum inventory_state told;       /* its state when somebody last told it */
    int64_t ecc_before;              /* uncorrected errors that are no news */
    char aside[INVENTORY_WHY_BYTES]; /* why it is set aside; "": it is not */
    struct gpu_sample seen;          /* the newest look */
};

struct inventory {
    int64_t cores;                          /* cores the process may use */
    int64_t slots;                          /* ranks that may run at once: without GPUs that are */
                                            /* drained, set aside or in others' use */
    int64_t taken;                          /* slots of jobs that have processes, or are about to */
    int64_t gpu_count;                      /* 0: the slots are the CPU's */
    int64_t looked_ms;                      /* time of the newest report (monotonic) */
    bool blind;                             /* it is older than INVENTORY_BLIND_MS */
    bool played;                            /* a file plays the GPUs: ranks compute on the CPU */
    struct inventory_gpu gpus[LIMIT_RANKS]; /* (gpu_count) */
};

/* slots 0: the default. */
void inventory_cpu_init(struct inventory *inventory, int64_t slots);
/* After inventory_cpu_init(): GPUs instead, those of the report that `visible` leaves. visible:
 * what CUDA_VISIBLE_DEVICES holds, or NULL: a list of numbers or of UUIDs or their beginnings, of
 * which those before the first that names no GPU count, as in CUDA. ERR_UNSUPPORTED when none is
 * left, and for slices of GPUs ("MIG-..."). */
int inventory_gpu_init(struct inventory *inventory, const struct gpu_report *report,
                       const char *visible, struct err *err);

/* ---- giving and taking --------------------------------------------------------------------- */

/* Slots of the machine, whatever has become of them: what a job may ask for. */
int64_t inventory_total(const struct inventory *inventory);
int64_t inventory_free_slots(const struct inventory *inventory);
/* Of those that a job has: they will not be given out after it, as things are. */
int64_t inventory_lost(const struct inventory *inventory, int64_t ranks, const uint32_t *gpus);
/* Must fit. ret_gpus: (ranks) places of the GPUs taken, lowest first; untouched on the CPU. */
void inventory_take(struct inventory *inventory, int64_t ranks, uint32_t *ret_gpus);
/* The same; gpus holds places that are taken only where there are too few others: those of an
 * attempt that a fault of the node has ended. */
void inventory_take_elsewhere(struct inventory *inventory, int64_t ranks, uint32_t *gpus);
/* Those of a job that runs already; false when they are not there or not free. CPU: gpus unused. */
bool inventory_take_again(struct inventory *inventory, int64_t ranks, const uint32_t *gpus);
void inventory_give(struct inventory *inventory, int64_t ranks, const uint32_t *gpus);
/* What ranks compute on. */
enum launch_device inventory_device(const struct inventory *inventory);
/* UUIDs of the GPUs at these places, with commas; "" on the CPU. */
void inventory_uuids(const struct inventory *inventory, int64_t ranks, const uint32_t *gpus,
                     char *ret_text, size_t bytes);
/* The places of such a list; false: not all are there, or there are fewer. */
bool inventory_places(const struct inventory *inventory, const char *uuids, int64_t ranks,
                      uint32_t *ret_gpus);
/* OpenMP threads of each rank of a job: cores / ranks, at least 1. */
int64_t inventory_threads(const struct inventory *inventory, int64_t ranks);

/* ---- how GPUs are -------------------------------------------------------------------------- */

/* Place of a GPU; -1: there is none of this UUID. */
int64_t inventory_find(const struct inventory *inventory, const char *uuid);
/* Takes a report in, NULL: there is no newer one. */
void inventory_update(struct inventory *inventory, const struct gpu_report *report, int64_t now_ms);
/* The next XID of a GPU that was not told yet; false: there is none. */
bool inventory_next_xid(struct inventory_gpu *gpu, uint32_t *ret_xid);
/* Whether the newest look found it sick, and why; to be set aside then. */
bool inventory_is_sick(const struct inventory_gpu *gpu, char ret_why[INVENTORY_WHY_BYTES]);
/* why "": no longer. What was wrong so far is no news then. */
void inventory_set_aside(struct inventory *inventory, int64_t gpu, const char *why);
void inventory_set_drained(struct inventory *inventory, int64_t gpu, bool drained);

enum inventory_state inventory_state(const struct inventory_gpu *gpu, int64_t now_ms);
/* What keeps it from being given out, a sentence without its full stop; "" when nothing does. */
void inventory_reason(const struct inventory_gpu *gpu, int64_t now_ms,
                      char ret_text[INVENTORY_REASON_BYTES]);
/* Of the GPUs that nobody of ours has and that are not free: "2 of 8 GPUs are not given out: GPU 3
 * is drained; ..."; "" when there are none. */
void inventory_explain(const struct inventory *inventory, char *ret_text, size_t bytes);

/* mem_estimate: what a job would take on a machine, whether that fits, and what would.
 *
 *     TRY(mem_estimate_make(&ask, &estimate, err));     values settled, memory planned
 *     TRY(mem_estimate_check(&ask, &estimate, err));    or: need, what there is, changes that fit
 *     mem_estimate_done(&estimate);
 *
 * With rates (common/time_rates.h) it also says how long a step takes.
 *
 * Used at submit and by /v1/fine_tuning/estimate (daemon), and by `ithaca plan`. */
#pragma once
#include "common/buf.h"
#include "common/mem_plan.h"
#include "common/time_plan.h"

#include <stdbool.h>
#include <stdint.h>

/* On disk, of a parameter. */
enum {
    MEM_CHECKPOINT_PARAMETER_BYTES = 12, /* master, m and v in fp32 */
    MEM_MODEL_PARAMETER_BYTES = 4        /* in the widest type */
};

/* Of so many checkpoints and of what the job leaves: of one that measures none. INT64_MAX where
 * that cannot be counted. */
int64_t mem_disk_bytes(const struct model_shape *shape, const struct job_spec *spec,
                       int64_t checkpoints);

struct mem_ask {
    const struct model_shape *shape;
    const struct job_spec *spec; /* as asked for: "auto" not settled */
    enum mem_backend backend;
    int64_t ranks_max;              /* of the machine */
    int64_t device_bytes;           /* of each rank's device; 0: no limit */
    int64_t host_bytes;             /* of the machine, for all ranks; 0: no limit */
    bool planned;                   /* values that are not served yet are taken */
    bool unchecked;                 /* so is what mem_layout_check() refuses */
    const struct time_rates *rates; /* of the machine, borrowed; NULL: times are not asked for */
    int64_t disk_bytes;             /* free for the job, where a search looks; 0: no limit */
    int64_t document_tokens;        /* of each document in a sequence; 0: one fills it */
};

struct mem_estimate {
    struct job_spec spec; /* settled; borrows the metadata of the one asked for */
    struct mem_plan plan;
    int64_t device_limit; /* bytes a rank may use of its device; 0: no limit */
    int64_t host_limit;   /* bytes of all ranks together; 0: no limit */
    int64_t host_bytes;   /* of all ranks: pinned, and on the CPU backend their devices' too */
    int64_t file_bytes;   /* of all ranks: kept tensors offloaded to files */
    int64_t disk_bytes;   /* of the job: these, the checkpoints that are kept and the one being
                             written, the model */
    bool served;          /* this version can run it */
    bool fits;
    const struct time_rates *rates; /* the ask's */
    struct time_plan time;          /* of a step; zeros without rates */
};

/* Fails where the job's values do, or the plan cannot be made; not where it does not fit. */
int mem_estimate_make(const struct mem_ask *ask, struct mem_estimate *ret, struct err *err);
void mem_estimate_done(struct mem_estimate *estimate);
/* 0 when it fits, else ERR_DOES_NOT_FIT with what mem_advice_write() has to say. */
int mem_estimate_check(const struct mem_ask *ask, const struct mem_estimate *estimate,
                       struct err *err);
/* The same without changes that fit, which take a hundred times as long to find. */
int mem_estimate_check_need(const struct mem_estimate *estimate, struct err *err);

/* The settled values and the time of a step alone, without the plan; fails as mem_estimate_make.
 * The ask must have rates. */
int mem_estimate_time(const struct mem_ask *ask, struct job_spec *ret_settled,
                      struct time_plan *ret_time, struct err *err);

/* The longest seq_len that fits with all else as asked for; a multiple of 1024 from there on. 0
 * when none does. */
int mem_estimate_longest(const struct mem_ask *ask, int64_t *ret_seq_len, struct err *err);

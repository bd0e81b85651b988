/* mem_ladder: what each technique of the stack saves, one after the other: the same job with
 * nothing, then with FSDP, Ulysses, recomputation, offload, tiles, Untied Ulysses, and with
 * attention's output kept off the device too. Each bar is a plan. */
#pragma once
#include "common/json.h"
#include "common/mem_estimate.h"

enum { MEM_LADDER_BARS = 8 };

/* What steps that were run took, of one rank. */
struct mem_measured {
    bool run;
    char why[ERR_TEXT_MAX];           /* if not: a sentence, "" when it was not tried */
    double processor_s;               /* of a rank's process in such a step */
    double step_s;                    /* the median of the steps after the first */
    double layer_s;                   /* of one layer in these, forward and backward */
    int64_t layers;                   /* that worked: a rehearsal leaves some out */
    int64_t device_bytes, host_bytes; /* held on the device, pinned on the host */
    int64_t taken_bytes;              /* of the whole device, by all its users; 0: it has none */
    int64_t peak[MEM_CATEGORY_COUNT]; /* of the device's block, in the peak phase */
};

struct mem_ladder_bar {
    const char *name;       /* "+ Ulysses" */
    const char *text;       /* what it adds, a phrase */
    bool legal;             /* it could be planned */
    char why[ERR_TEXT_MAX]; /* if not */
    struct mem_estimate estimate;
    struct mem_measured measured; /* filled by who runs it */
};
struct mem_ladder {
    struct mem_ladder_bar bars[MEM_LADDER_BARS];
};

/* ask->spec gives seq_len, gpus and what the techniques do not touch; others are set by each bar.
 */
int mem_ladder_make(const struct mem_ask *ask, struct mem_ladder *ret, struct err *err);
void mem_ladder_done(struct mem_ladder *ladder);

/* {"run", "why", "step_s", "processor_s", "layers", "layer_s", "device_bytes", "host_bytes",
 * "taken_bytes", "peak"}; NULL: out of memory */
json_t *mem_measured_json(const struct mem_measured *measured);
json_t *mem_ladder_json(const struct mem_ladder *ladder); /* new reference; NULL: out of memory */
void mem_ladder_text(const struct mem_ladder *ladder, struct buf *out);

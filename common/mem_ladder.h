/* mem_ladder: what each technique of the stack saves, one after the other: the same job with
 * nothing, then with FSDP, Ulysses, recomputation, offload, tiles, Untied Ulysses, and with
 * attention's output kept off the device too. Each bar is a plan. */
#pragma once
#include "common/mem_measured.h"

enum { MEM_LADDER_BARS = 8 };

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

json_t *mem_ladder_json(const struct mem_ladder *ladder); /* new reference; NULL: out of memory */
void mem_ladder_text(const struct mem_ladder *ladder, struct buf *out);

/* gpu_load: how busy, warm and hungry for power a rank's GPU was between two of its steps: what the
 * looks at it (gpu_report.h) said, made into points of the later step. */
#pragma once
#include "common/wire.h"
#include "daemon/gpu_report.h"

#include <stdint.h>

struct gpu_load {
    uint64_t step;                     /* that took points last: a step takes them once */
    int64_t busy_sum, busy_looks;      /* percent, and how many looks told it */
    int64_t power_sum_mw, power_looks; /* the same */
    int64_t hottest_c, heat_looks;     /* the highest, not a sum */
};

/* Zeroed is empty. What a GPU does not tell (-1) is left out. */
void gpu_load_add(struct gpu_load *load, const struct gpu_sample *seen);
/* Adds points to those of a step, where there was a look since the step before and room for them,
 * and begins anew. Nothing happens for more frames of the same step. */
void gpu_load_take(struct gpu_load *load, struct wire_metrics *metrics);

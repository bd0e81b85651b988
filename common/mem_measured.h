/* mem_measured: what steps of a planned job took when they were run: time, memory, what the device
 * waited for. Rank 0 leaves it as <job folder>/measured.json (worker/measure.h); here it is read
 * and told, to people and programs.
 *
 * Of a rehearsal (job field `rehearse`) more is told: what a whole step of the node would take,
 *
 *     predicted_step_s = whole_step_s   measured, the layers left out at the time of the others
 *                      + network_wait_s modelled (common/time_plan.h): what collectives add
 *
 * With keep_input_every backward replays layers, but few or none of the last ones, which are those
 * that work: in whole_step_s each replay counts by itself, at mlp_s.
 *
 * The copies that stand for the network are in whole_step_s, so that predicted_step_s is rather too
 * long than too short. */
#pragma once
#include "common/buf.h"
#include "common/json.h"
#include "common/mem_estimate.h"
#include "common/metric.h"

#include <stdbool.h>

/* METRIC_GATHER_WAIT_S to METRIC_COMPUTE_S */
enum { MEM_WAITS = METRIC_COMPUTE_S - METRIC_GATHER_WAIT_S + 1, MEM_MEASURED_STEPS_MAX = 100 };

struct mem_measured {
    bool run;
    char why[ERR_TEXT_MAX];           /* if not: a sentence, "" when it was not tried */
    double processor_s;               /* of a rank's process in such a step */
    double step_s;                    /* the median of the steps after the first */
    double layer_s;                   /* of one layer in one micro-step, forward and backward */
    double mlp_s;                     /* of its MLP half forward, which is what a replay does */
    double waits_s[MEM_WAITS];        /* of these, what each kind is; below 0: there is none */
    int64_t layers;                   /* that worked: a rehearsal leaves some out */
    int64_t device_bytes, host_bytes; /* held on the device, pinned on the host */
    int64_t taken_bytes;              /* of the whole device, by all its users; 0: it has none */
    int64_t peak[MEM_CATEGORY_COUNT]; /* of the device's block, in the peak phase */
};

/* A rank's measured.json. */
int mem_measured_read(const char *path, struct mem_measured *ret, struct err *err);
/* {"run", "why", "step_s", "processor_s", "layers", "layer_s", "mlp_s", "waits": {metric: seconds},
 * "device_bytes", "host_bytes", "taken_bytes", "peak"}; NULL: out of memory */
json_t *mem_measured_json(const struct mem_measured *measured);
/* Of a job that was planned as `estimate`, with rates. */
void mem_measured_text(const struct mem_estimate *estimate, const struct mem_measured *measured,
                       struct buf *out);
/* {"rehearsed", "world", "layers", "layers_worked", "layer_s", "step_s", "whole_step_s",
 * "network_s", "network_wait_s" (0 unless rehearsed), "network": where its figures are from,
 * "predicted_step_s", "tokens_per_s", "tokens_per_s_gpu", "mfu_causal", "mfu_full" (or null),
 * "device_bytes", "planned_device_bytes": of the arena, "taken_bytes", "planned_taken_bytes": of
 * the whole device, "host_bytes", "planned_host_bytes": pinned, of a rank, "waits"}; NULL: out of
 * memory */
json_t *mem_measured_report_json(const struct mem_estimate *estimate,
                                 const struct mem_measured *measured);

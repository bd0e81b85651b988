/* time_report: the predicted time of a step for people and for programs. */
#pragma once
#include "common/buf.h"
#include "common/json.h"
#include "common/mem_estimate.h"

/* New reference, NULL when out of memory:
 *   {"object": "time_plan", "predicted_step_s", "tokens_per_s", "tokens_per_s_gpu", "mfu_causal",
 *    "mfu_full" (shares of the peak; null where it is not known), "peak_flops" (or null),
 *    "calibrated" (measured on this machine), "rates": where they are from,
 *    "phases": [{"phase": "forward", "seconds", "attention", "products", ...}]} seconds of each
 * part. The estimate must have rates. */
json_t *time_report_json(const struct mem_estimate *estimate);
void time_report_text(const struct mem_estimate *estimate, struct buf *out);

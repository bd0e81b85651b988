/* mem_timeline: a memory plan along a step: what is needed in each phase, the peak and the buffers
 * that make it, and the life of every buffer. A pure function of the plan. */
#pragma once
#include "common/buf.h"
#include "common/json.h"
#include "common/mem_plan.h"

/* New reference, NULL when out of memory: {"peak_phase", "peak_device_bytes",
 * "buffers": [{"name", "count", "bytes"}]}: those on the device in the peak's phase by name, the
 * largest `max` first, others as one row. They add up to the phase's bytes. */
json_t *mem_timeline_peak_json(const struct mem_plan *plan, int max);

/* A line a phase with its bytes as a bar, the buffers at the peak, and for each kind of buffer its
 * bytes, offset and the phases in which it is needed. */
void mem_timeline_text(const struct mem_plan *plan, struct buf *out);

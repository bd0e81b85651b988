/* profile_summary: a job's profile on one page, as JSON:
 *
 *   {"object": "fine_tuning.job.profile", "job_id", "attempt", "first_step", "last_step", "ranks",
 *    "device", "taken_at", "dropped_events", "kernels_traced",
 *    "step_ms": a rank's, mean, "phases", "parts", "kernels", "waits", "collectives", "copies":
 *        [{"name", "count", "total_ms": over ranks and steps, "share": of all their time}],
 *    "overlap": {"collectives_ms", "collectives_hidden": share under which a kernel ran, or null,
 *                "copies_ms", "copies_hidden"},
 *    "idle": {"total_ms", "share", "longest": [{"rank", "step", "phase", "at_ms", "ms"}]},
 *    "by_rank": [{"rank", "step_ms", "kernels", "waits", "idle": shares of its steps}],
 *    "memory": {"peak_phase", "peak_device_bytes", "buffers": [{"name", "count", "bytes"}]},
 *    "suggestions": [...]}                                          (profile_advice.h)
 *
 * Where events found no room, "overlap" and "idle" are null: what is missing would count as idle.
 */
#pragma once
#include "common/json.h"
#include "worker/profile_job.h"

int profile_summary_make(const struct profile_job *job, json_t **ret, struct err *err);

/* compare: jobs side by side, from the daemon's answers about each. One JSON value, which
 * `ithaca compare --json` prints:
 *   {"object": "comparison", "metric": "loss", "settings": [paths in which they differ],
 *    "jobs": [{"id", "settings": {path: value}, "results": {"state", "steps_done", "steps_total",
 *      "last", "best", "best_step", "valid_loss", "tokens_per_s", "mfu_causal", "step_time_s",
 *      "peak_bytes", "planned_bytes", "time_s"}, "points": [[step, value, time], ...]}]}
 * best is the highest of a ratio or a speed, the lowest of all others; valid_loss the lowest;
 * tokens_per_s, mfu_causal and step_time_s are medians of the points there are; peak_bytes is what
 * the rank that took most of its device took, planned_bytes its plan; time_s is from the first
 * start to the end, or until now. What is not known is null. */
#pragma once
#include "common/buf.h"
#include "common/json.h"

enum { COMPARE_JOBS_MAX = 16 };

/* What the daemon says of a job: Job, Metrics (down-sampled: extremes are kept) and Memory. */
struct compare_answers {
    json_t *job, *metrics, *memory;
};

/* New reference. metric: a name of api/metrics.def; now_s: Unix time. */
int compare_make(const struct compare_answers *jobs, size_t count, const char *metric,
                 int64_t now_s, json_t **ret, struct err *err);

/* A table, a job a column, and a chart of the metric where there is one; columns: of the terminal,
 * 0: as wide as it is. */
int compare_text(const json_t *comparison, size_t columns, struct buf *out, struct err *err);
/* RFC 4180: a line of names, then a line a job. */
void compare_csv(const json_t *comparison, struct buf *out);

/* measure: a few steps of a job, timed, and what they hold of memory: a rank's part where a plan's
 * purpose is MEASURE. Its weights are random, nothing is saved or exported.
 *
 * Rank 0 leaves <job_dir>/measured.json:
 *   {"steps": [seconds, ...], "processor": [seconds, ...], "device_bytes", "host_bytes",
 *    "peak": {category: bytes}}
 * processor: time of this process, which other load hardly moves; bytes held by this rank: on its
 * device, pinned on the host, and of the device's block what the peak phase needs, as the worker's
 * own code asked for it. */
#pragma once
#include "common/err.h"

struct rank;

/* Of an open rank; the plan's max_steps steps. */
int measure_run(struct rank *rank, struct err *err);

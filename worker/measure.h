/* measure: a few steps of a job, timed, and what they hold of memory: a rank's part where a plan's
 * purpose is MEASURE: under `ithaca plan --run`, and a job that measures or rehearses. Its weights
 * are random, nothing is saved or exported; paused between two steps, it starts over.
 *
 * Rank 0 leaves <job_dir>/measured.json (common/mem_measured.h reads it):
 *   {"steps": [seconds, ...], "processor": [seconds, ...], "layer": [seconds, ...], "layers",
 *    "waits": {metric: [seconds, ...]}, "device_bytes", "host_bytes", "taken_bytes",
 *    "peak": {category: bytes}}
 *
 * processor: time of this process, which other load hardly moves; layer: of one layer, forward and
 * backward, of the `layers` that worked (a rehearsal leaves some out); waits: what the step is made
 * of (exposed.h); taken_bytes: of the whole device, by all its users, 0 on the CPU backend; the
 * other bytes are held by this rank: on its device, pinned on the host, and of the device's block
 * what the peak phase needs, as the worker's own code asked for it. */
#pragma once
#include "common/err.h"

struct rank;

/* Of an open rank; the plan's max_steps steps. */
int measure_run(struct rank *rank, struct err *err);

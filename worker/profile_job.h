/* profile_job: the profile of a job, of all its ranks, as summary and trace are made of it, in a
 * child of the daemon:
 *
 *     TRY(profile_job_open(&job, job_dir, device_bytes, err));
 *     ...                                       profile_summary.h, profile_trace.h
 *     profile_job_done(&job);
 *
 * Where the table of a rank was full, the steps before are what there is; where the first step
 * filled it, all of them, and what was dropped is counted.
 *
 * Events outside the steps that were profiled are left out, others cut to their step; those of a
 * rank are in the order of their begin, whoever another lies in first. */
#pragma once
#include "common/launch_plan.h"
#include "common/mem_plan.h"
#include "common/model_shape.h"
#include "worker/profile_file.h"

#include <stdbool.h>

struct profile_job {
    struct launch_plan plan; /* of the attempt that was profiled */
    struct model_shape shape;
    struct mem_plan memory; /* a rank's */
    int64_t device_bytes;   /* of a rank's device; 0: not known, or the host's */
    uint32_t world;         /* ranks that have a process */
    int64_t first_step, last_step, taken_ms;
    int64_t began_ns;           /* the first of all steps, on the monotonic clock */
    int64_t dropped;            /* events of all ranks that found no room, of these steps */
    int64_t left_out;           /* steps after these of which some event found no room */
    struct profile_file *files; /* (world) */
};

int profile_job_open(struct profile_job *ret, const char *job_dir, int64_t device_bytes,
                     struct err *err);
void profile_job_done(struct profile_job *job);
/* Whether all that the devices did is in it: else what is missing would count as idle. */
bool profile_job_is_whole(const struct profile_job *job);

const char *profile_event_name(const struct profile_file *file, const struct profile_event *event);

/* `ithaca-worker --profile JOB_DIR DEVICE_BYTES OUT_DIR`: OUT_DIR appears whole, with summary.json
 * and trace.json.gz in it. */
int profile_job_make(const char *job_dir, int64_t device_bytes, const char *out_dir,
                     struct err *err);

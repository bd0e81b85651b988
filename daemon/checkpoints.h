/* checkpoints: the checkpoints of a job as the daemon sees them: the folders that have a valid
 * manifest (common/checkpoint_manifest.h). There is no list of them beside the folders, so none can
 * be torn or out of date. The hashes of the rank files are checked by the ranks that load them.
 *
 * A checkpoint's id is made of the job's id and its step: "ftckpt_<end of the job's id>_<step>". */
#pragma once
#include "common/checkpoint_manifest.h"
#include "common/err.h"
#include "common/limits.h"

#include <stdbool.h>
#include <stdint.h>

void checkpoints_id(const char *job_id, int64_t step, char ret_id[LIMIT_ID_BYTES + 1]);
/* The step that an id of this job names; -1 when it is none. */
int64_t checkpoints_step(const char *job_id, const char *id);

/* Whether a text is the id of a checkpoint, and of which job, if there is that. */
bool checkpoints_is_id(const char *id, char ret_job_id[LIMIT_ID_BYTES + 1], int64_t *ret_step);

typedef int checkpoints_fn(void *context, const struct checkpoint_manifest *manifest,
                           struct err *err);
/* Each of them, newest first; a result other than 0 ends the walk and is returned. */
int checkpoints_each(const char *job_dir, checkpoints_fn *each, void *context, struct err *err);
/* Step of the newest; -1 when there is none. */
int checkpoints_newest(const char *job_dir, int64_t *ret_step, struct err *err);

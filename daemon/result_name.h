/* result_name: the names of what a job makes, in the way of OpenAI's:
 *
 *   ft:<base model>:local:<suffix>:<end of the job's id>                     the tuned model
 *   ft:<base model>:local:<suffix>:<end of the job's id>:ckpt-step-<N>       a checkpoint */
#pragma once
#include "common/limits.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    RESULT_NAME_BYTES = LIMIT_NAME_BYTES + 32
}; /* with the NUL; a model's fits LIMIT_NAME_BYTES */

/* Whether a text may be the name of a checkpoint: the step and the end of the job's id in it. */
bool result_name_read(const char *name, char ret_job_tail[RESULT_NAME_BYTES], int64_t *ret_step);
/* step: of a checkpoint; -1: the tuned model. */
void result_name(const char *model, const char *suffix, const char *job_id, int64_t step,
                 char ret_name[RESULT_NAME_BYTES]);

/* disk_budget: has the data folder room for a job? It takes two checkpoints, the one being written
 * and the last good one, the model, and what is offloaded to files. Asked at submit, so that a job
 * does not find out at its first save; what other jobs will write is not known then. */
#pragma once
#include "common/err.h"
#include "common/job_spec.h"
#include "common/model_shape.h"

/* kept_bytes: of all ranks' files for kept tensors. ERR_NO_SPACE with what is needed and what is
 * free. */
int disk_budget_check(const char *data_dir, const struct model_shape *shape,
                      const struct job_spec *spec, int64_t kept_bytes, struct err *err);
/* Bytes free in the data folder; 0 where that is not known. */
int64_t disk_budget_free(const char *data_dir);

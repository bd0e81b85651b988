/* preview: the preview child, `ithaca-worker --preview MODEL_DIR`: the first rows of a training
 * file, outside the daemon's process.
 *
 * request: {"path": "/...", "name": "as uploaded", "rows": n, "spec": {the job, as job_spec_json()
 * prints it}}; answer: dataset_preview.h's, one line of JSON. */
#pragma once
#include "common/err.h"

#include <stdio.h>

int preview_main(const char *model_dir, FILE *request, FILE *answer, struct err *err);

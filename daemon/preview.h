/* preview: POST /v1/fine_tuning/preview: the first rows of a training file as a job would train on
 * them (common/dataset_preview.h). The body is a job's, with "rows" beside it; a child of the kind
 * of chat.h reads the file, never the daemon. */
#pragma once
#include "daemon/api.h"

api_handler preview_create;

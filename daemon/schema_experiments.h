/* schema_experiments: the shapes of experiments, from api/experiment_fields.def and
 * api/experiment_columns.def. */
#pragma once
#include "common/json.h"

/* Adds them to the schemas by name; non-zero: out of memory. */
int schema_experiments(json_t *objects);

/* measurement: a job with `measure` or `rehearse` ends with a report instead of a model: <job
 * folder>/measurement.json, made of what its rank 0 measured (measured.json) and of the job's plan
 * for this machine; its shape is mem_measured_report_json()'s. */
#pragma once
#include "common/err.h"
#include "common/json.h"
#include "daemon/inventory.h"

struct measurement {
    const struct inventory *inventory;
    const char *data_dir, *job_dir, *model_dir;
    const struct job_spec *spec; /* resolved */
};

/* Whether the rank has left its measurement. */
bool measurement_is_there(const char *job_dir);
/* What an earlier attempt has left. */
int measurement_clear(const char *job_dir, struct err *err);
/* Writes the report, and says it in a sentence. ERR_NOT_FOUND without a measurement. */
int measurement_report(const struct measurement *measurement, char *ret_text, size_t bytes,
                       struct err *err);
/* New reference: a job's report, or null. */
json_t *measurement_json(const char *data_dir, const char *job_id);

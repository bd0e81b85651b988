/* rehearsal: a job with `rehearse` ends with a report instead of a model: <job
 * folder>/rehearsal.json, made of what its rank measured (measured.json) and of the job's plan for
 * this machine; its shape is mem_measured_rehearsal_json()'s. */
#pragma once
#include "common/err.h"
#include "common/json.h"
#include "daemon/inventory.h"

struct rehearsal {
    const struct inventory *inventory;
    const char *data_dir, *job_dir, *model_dir;
    const struct job_spec *spec; /* resolved */
};

/* Whether the rank has left its measurement. */
bool rehearsal_is_measured(const char *job_dir);
/* What an earlier attempt has left. */
int rehearsal_clear(const char *job_dir, struct err *err);
/* Writes the report, and says it in a sentence. ERR_NOT_FOUND without a measurement. */
int rehearsal_report(const struct rehearsal *rehearsal, char *ret_text, size_t bytes,
                     struct err *err);
/* New reference: a job's report, or null. */
json_t *rehearsal_json(const char *data_dir, const char *job_id);

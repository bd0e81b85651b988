/* job_request: OpenAI's own fields of POST /v1/fine_tuning/jobs: everything beside `ithaca`.
 *
 * Choices where OpenAI's contract meets ours:
 *   - null stands for an absent field, as in OpenAI's schema.
 *   - Hyperparameters stand in method.supervised.hyperparameters or in the deprecated top-level
 *     `hyperparameters`, not in both. batch_size is ithaca.batch.sequences,
 * learning_rate_multiplier multiplies the default of ithaca.optimizer.learning_rate, n_epochs
 * stands against ithaca.max_steps. A value other than "auto" given under both names is refused:
 * neither wins silently.
 *   - integrations are refused unless null or empty; method other than supervised is refused.
 *   - seed defaults to 0, so that a job sent twice trains the same model. */
#pragma once
#include "common/job_spec.h"

#include <stddef.h>

struct job_request_field {
    const char *name; /* key of the body */
    bool required;    /* absent or null: ERR_MISSING_FIELD */
    int (*parse)(const json_t *value, const json_t *body, struct job_spec *spec, struct err *err);
    const char *schema; /* JSON schema, for json_literal */
};

extern const struct job_request_field job_request_fields[];
extern const size_t job_request_field_count;

/* Takes all of OpenAI's fields of the body into the spec, whose ithaca fields are parsed already.
 */
int job_request_parse(const json_t *body, struct job_spec *spec, struct err *err);

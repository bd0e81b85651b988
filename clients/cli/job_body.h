/* job_body: the JSON of a job from a file and options of the command line, for submit and plan. */
#pragma once
#include "clients/cli/cli.h"

/* The job of the next argument, a file, or an empty one where there is none. New reference. */
int job_body_start(struct cli *cli, json_t **ret_job, struct err *err);
/* Takes --model, --suffix, --seed and every --set FIELD=VALUE. */
int job_body_options(struct cli *cli, json_t *job, struct err *err);
/* Takes every --set alone. */
int job_body_sets(struct cli *cli, json_t *job, struct err *err);
/* The same, each FIELD a dotted path in this object. */
int job_body_sets_into(struct cli *cli, json_t *object, struct err *err);
/* One, "FIELD=VALUE": VALUE as JSON where it is JSON (8, true, null, [..]), else as a string. */
int job_body_set(json_t *object, const char *assignment, struct err *err);
int job_body_set_string(json_t *job, const char *key, const char *value, struct err *err);

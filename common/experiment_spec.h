/* experiment_spec: what an experiment is asked for, and its points as bodies of jobs.
 *
 *     TRY(experiment_spec_parse(body, &spec, err));
 *     for (int64_t i = 0; i < spec.points; i++)
 *         TRY(experiment_spec_point(&spec, i, &point, err));   a job's body, and what it is called
 *
 * A point is a combination of the grid's values, the last axis changing first. Its body is the base
 * with these put in: model; a field of `ithaca`, whole, or one in an object of it ("lora.r"); the
 * objects of the axis `settings`, merged.
 * Whether that is a job is for job_spec_parse() to say. The fields are rows of
 * api/experiment_fields.def. */
#pragma once
#include "common/err.h"
#include "common/json.h"
#include "common/limits.h"

#include <stdbool.h>
#include <stdint.h>

enum { EXPERIMENT_PRIORITY = -100 }; /* of its jobs, unless the base says otherwise */

struct experiment_spec {
#define EXPERIMENT_TEXT(name, max, doc) char name[max + 1];
#define EXPERIMENT_CHOICE(name, first, second, doc) bool name;
#define EXPERIMENT_INT(name, def, min, max, unit, doc) int64_t name;
#define EXPERIMENT_OBJECT(name, required, doc) json_t *name; /* owned */
#include "api/experiment_fields.def"
#undef EXPERIMENT_TEXT
#undef EXPERIMENT_CHOICE
#undef EXPERIMENT_INT
#undef EXPERIMENT_OBJECT
    int64_t points; /* of the grid */
};

struct experiment_point {
    json_t *body;                     /* of a job; owned */
    char label[LIMIT_NAME_BYTES + 1]; /* of all axes but seq_len: "upipe 1, offload"; "" for none */
};

/* Whether it looks for the longest seq_len of each point (kind), and whether it ends with the first
 * point that fails (on_failure). */
static inline bool experiment_spec_searches(const struct experiment_spec *spec)
{
    return spec->kind;
}
static inline bool experiment_spec_stops(const struct experiment_spec *spec)
{
    return spec->on_failure;
}

/* ERR_UNKNOWN_FIELD, ERR_MISSING_FIELD, ERR_INVALID_VALUE: also for no points, and for more than
 * LIMIT_EXPERIMENT_POINTS. */
int experiment_spec_parse(const json_t *body, struct experiment_spec *ret, struct err *err);
void experiment_spec_done(struct experiment_spec *spec);
/* New reference: every field, as experiment_spec_parse() takes it back. */
json_t *experiment_spec_json(const struct experiment_spec *spec);

int experiment_spec_point(const struct experiment_spec *spec, int64_t number,
                          struct experiment_point *ret, struct err *err);
void experiment_point_done(struct experiment_point *point);

/* New reference: the schema of the body. */
json_t *experiment_spec_schema(void);

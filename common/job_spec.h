/* job_spec: the one constructor of a job's specification.
 *
 * job_spec_parse() takes the body of POST /v1/fine_tuning/jobs and returns a spec that cannot be
 * wrong: every field in range, defaults filled, OpenAI's hyperparameters mapped, unknown keys under
 * `ithaca` refused by name, legal values that this version cannot serve refused by name
 * (ERR_UNSUPPORTED). Nothing re-validates later. What depends on the model, the file or the machine
 * ("auto" values, divisibility) is settled by job_spec_resolve().
 *
 * Rows of api/job_fields.def give fields, defaults, ranges, enumerations, help texts and the JSON
 * schema. The spec is plain memory apart from `metadata`; job_spec_done() releases it. */
#pragma once
#include "common/err.h"
#include "common/json.h"
#include "common/limits.h"

#include <stdbool.h>
#include <stdint.h>

/* Enumerations of api/job_enums.def: enum job_recompute with JOB_recompute_NONE ... and
 * JOB_recompute_COUNT, and job_recompute_name(): the name in JSON. */
#define JOB_ENUM_BEGIN(kind) \
    enum job_##kind          \
    {
#define JOB_ENUM_VALUE(kind, id, name, served) JOB_##kind##_##id,
#define JOB_ENUM_END(kind) \
    JOB_##kind##_COUNT     \
    }                      \
    ;
#include "api/job_enums.def"
#undef JOB_ENUM_BEGIN
#undef JOB_ENUM_VALUE
#undef JOB_ENUM_END

#define JOB_ENUM_BEGIN(kind) const char *job_##kind##_name(enum job_##kind value);
#define JOB_ENUM_VALUE(kind, id, name, served)
#define JOB_ENUM_END(kind)
#include "api/job_enums.def"
#undef JOB_ENUM_BEGIN
#undef JOB_ENUM_VALUE
#undef JOB_ENUM_END

enum { JOB_AUTO = -1 }; /* integer fields: chosen by job_spec_resolve */

struct job_list { /* of a JOB_FIELD_LIST */
    int64_t count;
    char items[LIMIT_LIST_ITEMS][LIMIT_ID_BYTES + 1]; /* (count), none empty */
};

struct job_span { /* of a JOB_FIELD_SPAN */
    int64_t first, last;
};

struct job_spec {
    /* OpenAI's fields */
    char model[LIMIT_NAME_BYTES + 1];
    char training_file[LIMIT_ID_BYTES + 1];   /* "" where none is needed */
    char validation_file[LIMIT_ID_BYTES + 1]; /* "" when none */
    char suffix[LIMIT_SUFFIX_BYTES + 1];      /* "" when none */
    int64_t seed;
    json_t *metadata; /* object of strings, or NULL */
    double n_epochs;  /* <= 0: not given */
    json_t *asked; /* job_spec_json() of it before anything was settled, to submit it again; or */
                   /* NULL: not known. No parser sets it */
    /* `ithaca`: one member for each row of api/job_fields.def, named by the row */
#define JOB_FIELD_INT(name, path, def, min, max, unit, doc) int64_t name;
#define JOB_FIELD_NUM(name, path, def, min, max, unit, doc) double name;
#define JOB_FIELD_BOOL(name, path, def, doc) bool name;
#define JOB_FIELD_ENUM(name, path, kind, def, doc) enum job_##kind name;
#define JOB_FIELD_LIST(name, path, doc) struct job_list name;
#define JOB_FIELD_SPAN(name, path, first, last, min, max, unit, doc) struct job_span name;
#define JOB_FIELD_TEXT(name, path, doc) char name[LIMIT_TEXT_BYTES + 1]; /* "": null */
#include "api/job_fields.def"
#undef JOB_FIELD_INT
#undef JOB_FIELD_NUM
#undef JOB_FIELD_BOOL
#undef JOB_FIELD_ENUM
#undef JOB_FIELD_LIST
#undef JOB_FIELD_SPAN
#undef JOB_FIELD_TEXT
};

int job_spec_parse(const json_t *body, struct job_spec *ret_spec, struct err *err);
void job_spec_done(struct job_spec *spec);

/* What a user may change of a job that is there: the body is {"ithaca": {...}} with fields of
 * job_spec_changeable (ended by NULL), which are about waiting and running, not about training. */
extern const char *const job_spec_changeable[];
int job_spec_change(const struct job_spec *spec, const json_t *body, struct job_spec *ret_spec,
                    struct err *err);

/* For planning: the same, legal values that this version cannot serve included; and whether there
 * are any (ERR_UNSUPPORTED, naming the first). */
int job_spec_parse_legal(const json_t *body, struct job_spec *ret_spec, struct err *err);
int job_spec_check_served(const struct job_spec *spec, struct err *err);

/* Whether it only measures: a job that says so, or that rehearses. It may be without a training
 * file: training_file is "" then. */
bool job_spec_measures(const struct job_spec *spec);

/* Ranks that have a process: all, but one in a rehearsal. */
int64_t job_spec_slots(const struct job_spec *spec);

/* What the model, the data and the machine say, for the values that depend on them. */
struct job_facts {
    int64_t ranks_max; /* GPUs or CPU slots of the machine */
    int64_t heads;     /* query heads */
    int64_t kv_heads;
    int64_t layers;
    int64_t context_max; /* max_position_embeddings: seq_len beyond it is a warning, not an error */
};
/* Fills every JOB_AUTO and AUTO; refuses what the facts forbid, naming field and legal values. */
int job_spec_resolve(struct job_spec *spec, const struct job_facts *facts, struct err *err);
/* The same for planning: whether values are served is not asked. */
int job_spec_settle(struct job_spec *spec, const struct job_facts *facts, struct err *err);

/* New reference: the `ithaca` object of the answer, every field, resolved values. And the whole
 * spec, as job_spec_parse takes it back (used by launch plans and the database). */
json_t *job_spec_ithaca_json(const struct job_spec *spec);
json_t *job_spec_json(const struct job_spec *spec);

/* New reference: JSON Schema 2020-12 of the request body, from the tables. */
json_t *job_spec_schema(void);

/* job_field: the rows of api/job_fields.def as data: what job_spec's parser, printer and schema
 * walk.
 *
 * A field is a member of struct job_spec with a dotted path below `ithaca`, a default and legal
 * values. Messages name it by a full path that the caller gives, because OpenAI's hyperparameters
 * use the same fields under other names. */
#pragma once
#include "common/job_spec.h"

#include <stddef.h>

enum job_field_kind {
    JOB_FIELD_KIND_INT,      /* an integer; "auto" too where that is the default */
    JOB_FIELD_KIND_NUM,      /* a number */
    JOB_FIELD_KIND_BOOL,     /* true or false */
    JOB_FIELD_KIND_ENUM,     /* a name from api/job_enums.def, or a boolean there called "true" */
    JOB_FIELD_KIND_NULLABLE, /* an integer or null */
    JOB_FIELD_KIND_SET,   /* "all", or a list of names from api/job_enums.def: an integer's bits */
    JOB_FIELD_KIND_GROUP, /* an object or null: whether the fields below its path count */
    JOB_FIELD_KIND_LIST,  /* a list of texts */
    JOB_FIELD_KIND_SPAN,  /* a list of two integers */
    JOB_FIELD_KIND_TEXT,  /* a text or null */
};

struct job_enum_value {
    const char *name; /* in JSON; "true" and "false" stand for the booleans */
    bool served;      /* false: legal, refused until its code exists */
};

struct job_enum {
    const struct job_enum_value *values; /* (count) */
    int count;
};

struct job_field {
    const char *path;             /* dotted, below `ithaca` */
    enum job_field_kind kind;     /* which of the members below hold */
    size_t offset;                /* of the member in struct job_spec */
    int64_t initial;              /* default of all but NUM, LIST and TEXT; of SPAN, the first */
    int64_t initial_last;         /* of SPAN, the second */
    int64_t min, max;             /* INT, NULLABLE, SPAN */
    double num_initial;           /* NUM */
    double num_min, num_max;      /* NUM */
    const struct job_enum *names; /* ENUM, SET */
    const char *unit;             /* "" for a plain number */
    const char *doc;              /* one phrase */
};

extern const struct job_field job_fields[];
extern const size_t job_field_count;

const struct job_field *job_field_find(const char *path); /* NULL when unknown */
bool job_field_has_auto(const struct job_field *field);   /* an integer that takes "auto" */
/* Whether the group that the field is in, if any, is there. */
bool job_field_counts(const struct job_field *field, const struct job_spec *spec);

void job_field_set_default(const struct job_field *field, struct job_spec *spec);
/* `name` is what messages call the field. Legal values that are not served are taken. */
int job_field_parse(const struct job_field *field, const char *name, const json_t *value,
                    struct job_spec *spec, struct err *err);

/* Refuses a member whose value is legal and not served. */
int job_field_check_served(const struct job_field *field, const struct job_spec *spec,
                           struct err *err);

bool job_enum_is_boolean(const struct job_enum_value *value); /* true or false, not a string */

/* New references: the member's value, the default, and all values of an enumeration. */
json_t *job_field_json(const struct job_field *field, const struct job_spec *spec);
json_t *job_field_default_json(const struct job_field *field);
json_t *job_enum_list_json(const struct job_enum *names);

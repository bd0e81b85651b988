/* experiment_spec: the rows of api/experiment_fields.def walked to parse, to print and to make the
 * schema; the grid as a number in a mixed base, an axis a digit. */
#include "common/experiment_spec.h"

#include "common/buf.h"
#include "common/mem.h"
#include "common/must.h"
#include "common/utf8.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum experiment_kind { EXPERIMENT_TEXT, EXPERIMENT_CHOICE, EXPERIMENT_INT, EXPERIMENT_OBJECT };
enum { EXPERIMENT_SHOWN_BYTES = 64 };

struct experiment_field {
    const char *name;
    enum experiment_kind kind;
    size_t offset;             /* of the member in struct experiment_spec */
    int64_t initial, min, max; /* INT; TEXT: max bytes; initial below min: null */
    const char *words[2];      /* CHOICE */
    bool required;             /* OBJECT */
    const char *unit, *doc;
};

static const struct experiment_field experiment_fields[] = {
#define MEMBER(member) .name = #member, .offset = offsetof(struct experiment_spec, member)
#define EXPERIMENT_TEXT(member, bytes, text) \
    {MEMBER(member), .kind = EXPERIMENT_TEXT, .max = bytes, .doc = text},
#define EXPERIMENT_CHOICE(member, first, second, text) \
    {MEMBER(member), .kind = EXPERIMENT_CHOICE, .words = {first, second}, .doc = text},
#define EXPERIMENT_INT(member, def, low, high, of, text)                                          \
    {MEMBER(member), .kind = EXPERIMENT_INT, .initial = def, .min = low, .max = high, .unit = of, \
     .doc = text},
#define EXPERIMENT_OBJECT(member, needed, text) \
    {MEMBER(member), .kind = EXPERIMENT_OBJECT, .required = needed, .doc = text},
#include "api/experiment_fields.def"
#undef EXPERIMENT_TEXT
#undef EXPERIMENT_CHOICE
#undef EXPERIMENT_INT
#undef EXPERIMENT_OBJECT
};
enum { EXPERIMENT_FIELDS = sizeof experiment_fields / sizeof experiment_fields[0] };

static void *experiment_member(const struct experiment_field *field,
                               const struct experiment_spec *spec)
{
    return (char *)(uintptr_t)spec + field->offset;
}

/* ---- parsing ---- */

static int experiment_wrong(const struct experiment_field *field, const json_t *value,
                            struct err *err)
{
    char shown[EXPERIMENT_SHOWN_BYTES], legal[160];
    json_brief(value, shown, sizeof shown);
    if (field->kind == EXPERIMENT_TEXT)
        (void)snprintf(legal, sizeof legal, "a text of at most %lld bytes", (long long)field->max);
    else if (field->kind == EXPERIMENT_CHOICE)
        (void)snprintf(legal, sizeof legal, "\"%s\" or \"%s\"", field->words[0], field->words[1]);
    else if (field->kind == EXPERIMENT_INT)
        (void)snprintf(legal, sizeof legal, "an integer from %lld to %lld%s (%s)",
                       (long long)field->min, (long long)field->max,
                       field->initial < field->min ? " or null" : "", field->unit);
    else
        (void)snprintf(legal, sizeof legal, "an object");
    return err_set_field(err, ERR_INVALID_VALUE, field->name, "%s is %s; it must be %s",
                         field->name, shown, legal);
}

static int experiment_parse_field(const struct experiment_field *field, const json_t *value,
                                  struct experiment_spec *spec, struct err *err)
{
    void *member = experiment_member(field, spec);
    const char *text = json_string_value(value);
    switch (field->kind) {
    case EXPERIMENT_TEXT:
        if (text == NULL || json_string_length(value) > (size_t)field->max)
            return experiment_wrong(field, value, err);
        utf8_line(text, member, (size_t)field->max + 1); /* it is shown in terminals */
        return 0;
    case EXPERIMENT_CHOICE:
        *(bool *)member = text != NULL && strcmp(text, field->words[1]) == 0;
        if (*(bool *)member || (text != NULL && strcmp(text, field->words[0]) == 0))
            return 0;
        return experiment_wrong(field, value, err);
    case EXPERIMENT_INT:
        *(int64_t *)member = json_integer_value(value);
        if (json_is_integer(value) && json_integer_value(value) >= field->min &&
            json_integer_value(value) <= field->max)
            return 0;
        return experiment_wrong(field, value, err);
    case EXPERIMENT_OBJECT:
        if (!json_is_object(value))
            return experiment_wrong(field, value, err);
        *(json_t **)member = json_incref((json_t *)(uintptr_t)value);
        return 0;
    }
    must(false);
    return 0;
}

static int experiment_check_keys(const json_t *body, struct err *err)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)body, key, value)
    {
        int i = 0;
        while (i < EXPERIMENT_FIELDS && strcmp(experiment_fields[i].name, key) != 0)
            i++;
        if (i < EXPERIMENT_FIELDS)
            continue;
        char names[512] = "";
        for (i = 0; i < EXPERIMENT_FIELDS; i++)
            (void)snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s",
                           i > 0 ? ", " : "", experiment_fields[i].name);
        return err_set_field(err, ERR_UNKNOWN_FIELD, key,
                             "%.64s is not a field of an experiment, which has %s; those of a job "
                             "are in base and grid",
                             key, names);
    }
    return 0;
}

static int experiment_parse_fields(const json_t *body, struct experiment_spec *spec,
                                   struct err *err)
{
    TRY(experiment_check_keys(body, err));
    for (int i = 0; i < EXPERIMENT_FIELDS; i++) {
        const struct experiment_field *field = &experiment_fields[i];
        const json_t *value = json_object_get(body, field->name);
        if (field->kind == EXPERIMENT_INT)
            *(int64_t *)experiment_member(field, spec) = field->initial;
        if (value != NULL && !json_is_null(value))
            TRY(experiment_parse_field(field, value, spec, err));
        else if (field->required)
            return err_set_field(err, ERR_MISSING_FIELD, field->name,
                                 "%s is missing; an experiment needs it", field->name);
    }
    return 0;
}

/* A field and the object that it is in cannot both vary: the later one would undo the other. A path
 * of more parts than any has is refused with its first point. */
static int experiment_check_axis(const struct experiment_spec *spec, const char *axis,
                                 struct err *err)
{
    const char *dot = strchr(axis, '.');
    for (int part = 1; dot != NULL && part < LIMIT_JSON_DEPTH; part++) {
        if (json_object_getn(spec->grid, axis, (size_t)(dot - axis)) != NULL)
            return err_set_field(err, ERR_INVALID_VALUE, "grid",
                                 "grid.%.64s is a field of grid.%.*s, which varies, too; put its "
                                 "values into the objects there",
                                 axis, (int)(dot - axis), axis);
        dot = strchr(dot + 1, '.');
    }
    return 0;
}

static int experiment_count(struct experiment_spec *spec, struct err *err)
{
    const char *axis;
    json_t *values;
    const int max =
        experiment_spec_searches(spec) ? LIMIT_EXPERIMENT_SEARCHES : LIMIT_EXPERIMENT_POINTS;
    spec->points = 1;
    json_object_foreach(spec->grid, axis, values)
    {
        size_t count = json_array_size(values);
        if (count == 0)
            return err_set_field(err, ERR_INVALID_VALUE, "grid",
                                 "grid.%.64s must be a list of one value or more; the axis of a "
                                 "field in an object is called \"batch.sequences\", say",
                                 axis);
        TRY(experiment_check_axis(spec, axis, err));
        if (count > (size_t)max || (spec->points *= (int64_t)count) > max)
            return err_set_field(err, ERR_INVALID_VALUE, "grid",
                                 "grid has more than %d points, which is more than can be planned "
                                 "while a request waits, and than a table for people holds; make "
                                 "several experiments of it",
                                 max);
    }
    if (!experiment_spec_searches(spec) && json_object_size(spec->grid) == 0)
        return err_set_field(err, ERR_INVALID_VALUE, "grid",
                             "grid is empty; give an axis, such as {\"seq_len\": [8192, 16384]}");
    if (experiment_spec_searches(spec) && json_object_get(spec->grid, "seq_len") != NULL)
        return err_set_field(err, ERR_INVALID_VALUE, "grid",
                             "grid.seq_len is what find_max_seq_len finds; leave it out, or give "
                             "seq_len_min and seq_len_max");
    return 0;
}

int experiment_spec_parse(const json_t *body, struct experiment_spec *ret, struct err *err)
{
    struct experiment_spec spec = {.base = NULL};
    if (!json_is_object(body))
        return err_set(err, ERR_BAD_REQUEST, "an experiment must be a JSON object");
    int rc = experiment_parse_fields(body, &spec, err);
    if (rc == 0)
        rc = experiment_count(&spec, err);
    if (rc == 0 && spec.seq_len_max > 0 && spec.seq_len_max < spec.seq_len_min)
        rc = err_set_field(err, ERR_INVALID_VALUE, "seq_len_max",
                           "seq_len_max is %lld, below seq_len_min, %lld",
                           (long long)spec.seq_len_max, (long long)spec.seq_len_min);
    if (rc != 0) {
        experiment_spec_done(&spec);
        return rc;
    }
    *ret = spec;
    return 0;
}

void experiment_spec_done(struct experiment_spec *spec)
{
    json_decref(spec->base);
    json_decref(spec->grid);
    spec->base = spec->grid = NULL;
}

json_t *experiment_spec_json(const struct experiment_spec *spec)
{
    json_t *body = json_object();
    int bad = body == NULL;
    for (int i = 0; i < EXPERIMENT_FIELDS; i++) {
        const struct experiment_field *field = &experiment_fields[i];
        const void *member = experiment_member(field, spec);
        json_t *value = NULL;
        if (field->kind == EXPERIMENT_TEXT)
            value = json_string(member);
        else if (field->kind == EXPERIMENT_CHOICE)
            value = json_string(field->words[*(const bool *)member]);
        else if (field->kind == EXPERIMENT_OBJECT)
            value = json_incref(*(json_t *const *)member);
        else
            value = *(const int64_t *)member < field->min ? json_null()
                                                          : json_integer(*(const int64_t *)member);
        bad |= json_object_set_new(body, field->name, value);
    }
    if (bad != 0)
        json_unref(&body);
    return body;
}

/* ---- points ---- */

/* "upipe, heads_per_stage 1" of an object, which may have a name; "offload host" of a value. */
static void experiment_label(const char *axis, const json_t *value, struct buf *out)
{
    const json_t *name = json_object_get(value, "name");
    const char *key, *before = out->length > 0 ? ", " : "";
    json_t *member;
    char shown[EXPERIMENT_SHOWN_BYTES];
    if (json_is_string(name)) {
        buf_printf(out, "%s%s", before, json_string_value(name));
        return;
    }
    json_object_foreach((json_t *)(uintptr_t)value, key, member)
    {
        experiment_label(key, member, out);
    }
    if (json_is_object(value))
        return;
    bool plain = strcmp(axis, "model") == 0 || strcmp(axis, "kind") == 0; /* said by the value */
    json_brief(value, shown, sizeof shown);
    buf_printf(out, "%s%s%s%s", before, plain ? "" : axis, plain ? "" : " ",
               json_is_string(value) ? json_string_value(value) : shown);
}

/* Puts a value of an axis into a job's body. */
static int experiment_put(json_t *body, const char *axis, json_t *value, struct err *err)
{
    json_t *ithaca = json_object_get(body, "ithaca");
    if (strcmp(axis, "settings") != 0) { /* a copy: later axes may be merged into it */
        json_t *copy = json_deep_copy(value);
        if (copy == NULL)
            return mem_fail(err, 0, "a point");
        int rc = json_set_path(strcmp(axis, "model") == 0 ? body : ithaca, axis, copy,
                               ERR_INVALID_VALUE, err);
        if (rc == -ERR_INVALID_VALUE)
            (void)snprintf(err->field, sizeof err->field, "grid");
        return rc;
    }
    if (!json_is_object(value))
        return err_set_field(err, ERR_INVALID_VALUE, "grid",
                             "grid.settings must be a list of objects of a job's ithaca fields");
    const json_t *name = json_object_get(value, "name");
    if (name != NULL && !json_is_string(name))
        return err_set_field(err, ERR_INVALID_VALUE, "grid",
                             "the name of one of grid.settings must be a text");
    CLEANUP(json_unref) json_t *fields = json_deep_copy(value);
    (void)json_object_del(fields, "name"); /* it may have none */
    return fields != NULL && json_object_update_recursive(ithaca, fields) == 0
               ? 0
               : mem_fail(err, 0, "a point");
}

static int experiment_fill(const struct experiment_spec *spec, int64_t number, json_t *body,
                           struct buf *label, struct err *err)
{
    const char *axis;
    json_t *values;
    int64_t left = spec->points;
    json_object_foreach(spec->grid, axis, values)
    {
        left /= (int64_t)json_array_size(values);
        json_t *value = json_array_get(values, (size_t)(number / left));
        number %= left;
        TRY(experiment_put(body, axis, value, err));
        if (strcmp(axis, "seq_len") != 0)
            experiment_label(axis, value, label);
    }
    return 0;
}

int experiment_spec_point(const struct experiment_spec *spec, int64_t number,
                          struct experiment_point *ret, struct err *err)
{
    must(number >= 0 && number < spec->points);
    CLEANUP(json_unref) json_t *body = json_deep_copy(spec->base);
    CLEANUP(buf_done) struct buf label;
    buf_init(&label, LIMIT_JSON_BODY_BYTES);
    if (body == NULL)
        return mem_fail(err, 0, "a point");
    const json_t *ithaca = json_object_get(body, "ithaca");
    if ((ithaca == NULL || json_is_null(ithaca)) &&
        json_object_set_new(body, "ithaca", json_object()) != 0)
        return mem_fail(err, 0, "a point");
    if (!json_is_object(json_object_get(body, "ithaca")))
        return err_set_field(err, ERR_INVALID_VALUE, "base", "base.ithaca must be an object");
    TRY(experiment_fill(spec, number, body, &label, err));
    TRY(buf_error(&label, err));
    utf8_line(buf_str(&label), ret->label, sizeof ret->label);
    ret->body = json_incref(body);
    return 0;
}

void experiment_point_done(struct experiment_point *point)
{
    json_decref(point->body);
    point->body = NULL;
}

/* ---- schema ---- */

static json_t *experiment_field_schema(const struct experiment_field *field)
{
    switch (field->kind) {
    case EXPERIMENT_TEXT:
        return json_pack("{s:[s, s], s:I}", "type", "string", "null", "maxLength",
                         (json_int_t)field->max);
    case EXPERIMENT_CHOICE:
        return json_pack("{s:[s, s, n], s:s}", "enum", field->words[0], field->words[1], "default",
                         field->words[0]);
    case EXPERIMENT_INT:
        return json_pack("{s:[s, s], s:I, s:I, s:o, s:s}", "type", "integer", "null", "minimum",
                         (json_int_t)field->min, "maximum", (json_int_t)field->max, "default",
                         field->initial < field->min ? json_null() : json_integer(field->initial),
                         "x-unit", field->unit);
    case EXPERIMENT_OBJECT:
        return json_pack("{s:s}", "type", "object");
    }
    must(false);
    return NULL;
}

json_t *experiment_spec_schema(void)
{
    json_t *properties = json_object(), *required = json_array();
    int bad = 0;
    for (int i = 0; i < EXPERIMENT_FIELDS; i++) {
        const struct experiment_field *field = &experiment_fields[i];
        json_t *schema = experiment_field_schema(field);
        bad |= json_object_set_new(schema, "description", json_string(field->doc));
        bad |= json_object_set_new(properties, field->name, schema);
        if (field->required)
            bad |= json_array_append_new(required, json_string(field->name));
    }
    json_t *root = json_pack("{s:s, s:o, s:b, s:o}", "type", "object", "required", required,
                             "additionalProperties", 0, "properties", properties);
    if (bad != 0)
        json_unref(&root);
    return root;
}

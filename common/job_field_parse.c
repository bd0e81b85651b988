/* job_field_parse: one JSON value into its member. A value that is not legal is answered with the
 * field's name, the value and what is legal, so that the sender needs no manual. */
#include "common/job_field.h"

#include "common/buf.h"
#include "common/mem.h"
#include "common/must.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { JOB_VALUE_SHOWN_BYTES = 64, JOB_LEGAL_BYTES = 512 };

/* `"auto", "none" or "input"`: the names that are served, or all, the others marked. */
static void job_enum_list(const struct job_enum *names, bool served_only, struct buf *out)
{
    int shown = 0;
    int total = 0;
    for (int i = 0; i < names->count; i++)
        total += names->values[i].served || !served_only;
    for (int i = 0; i < names->count; i++) {
        const struct job_enum_value *value = &names->values[i];
        if (served_only && !value->served)
            continue;
        const char *quote = job_enum_is_boolean(value) ? "" : "\"";
        shown++;
        buf_printf(out, "%s%s%s%s%s",
                   shown == 1       ? ""
                   : shown == total ? " or "
                                    : ", ",
                   quote, value->name, quote, value->served ? "" : " (not served yet)");
    }
}

/* What the field takes, as the end of "it must be ...". */
static void job_field_legal(const struct job_field *field, struct buf *out)
{
    switch (field->kind) {
    case JOB_FIELD_KIND_INT:
    case JOB_FIELD_KIND_NULLABLE:
        buf_printf(out, "an integer from %lld to %lld", (long long)field->min,
                   (long long)field->max);
        break;
    case JOB_FIELD_KIND_NUM:
        buf_printf(out, "a number from %g to %g", field->num_min, field->num_max);
        break;
    case JOB_FIELD_KIND_BOOL:
        buf_text(out, "true or false");
        break;
    case JOB_FIELD_KIND_ENUM:
        job_enum_list(field->names, false, out);
        break;
    case JOB_FIELD_KIND_SET:
        buf_text(out, "\"all\" or a list of ");
        job_enum_list(field->names, false, out);
        break;
    case JOB_FIELD_KIND_GROUP:
        buf_text(out, "an object or null");
        break;
    case JOB_FIELD_KIND_LIST:
        buf_printf(out, "a list of at most %d texts of 1 to %d bytes", LIMIT_LIST_ITEMS,
                   LIMIT_ID_BYTES);
        break;
    case JOB_FIELD_KIND_SPAN:
        buf_printf(out, "[first, last], integers from %lld to %lld, the second not below the first",
                   (long long)field->min, (long long)field->max);
        break;
    case JOB_FIELD_KIND_TEXT:
        buf_printf(out, "a text of 1 to %d printable ASCII characters, or null", LIMIT_TEXT_BYTES);
        break;
    }
    if (field->unit[0] != '\0')
        buf_printf(out, " (%s)", field->unit);
    if (field->kind == JOB_FIELD_KIND_NULLABLE)
        buf_text(out, " or null");
    if (job_field_has_auto(field))
        buf_text(out, " or \"auto\"");
}

static int job_field_wrong(const struct job_field *field, const char *name, const json_t *value,
                           struct err *err)
{
    char shown[JOB_VALUE_SHOWN_BYTES];
    json_brief(value, shown, sizeof shown);
    CLEANUP(buf_done) struct buf legal;
    buf_init(&legal, JOB_LEGAL_BYTES);
    job_field_legal(field, &legal);
    return err_set_field(err, ERR_INVALID_VALUE, name, "%s is %s; it must be %s", name, shown,
                         buf_str(&legal));
}

/* A number that is a whole number, written 8192 or 8192.0; beyond 2^53 a real is not exact. */
static bool job_value_integer(const json_t *value, int64_t *ret)
{
    if (json_is_integer(value)) {
        *ret = json_integer_value(value);
        return true;
    }
    double real = json_is_real(value) ? json_real_value(value) : NAN;
    if (!(fabs(real) <= 0x1p53) || floor(real) != real)
        return false;
    *ret = (int64_t)real;
    return true;
}

static bool job_value_is_auto(const json_t *value)
{
    return json_is_string(value) && strcmp(json_string_value(value), "auto") == 0;
}

static int job_field_parse_integer(const struct job_field *field, const char *name,
                                   const json_t *value, int64_t *ret, struct err *err)
{
    int64_t integer;
    if (field->kind == JOB_FIELD_KIND_NULLABLE && json_is_null(value))
        integer = 0;
    else if (job_field_has_auto(field) && job_value_is_auto(value))
        integer = JOB_AUTO;
    else if (!job_value_integer(value, &integer) || integer < field->min || integer > field->max)
        return job_field_wrong(field, name, value, err);
    *ret = integer;
    return 0;
}

static bool job_enum_matches(const struct job_enum_value *legal, const json_t *value)
{
    if (job_enum_is_boolean(legal))
        return json_is_boolean(value) && json_is_true(value) == (legal->name[0] == 't');
    return json_is_string(value) && strcmp(json_string_value(value), legal->name) == 0;
}

static int job_enum_check_served(const struct job_enum *names, const char *name, int choice,
                                 struct err *err)
{
    must(choice >= 0 && choice < names->count);
    if (names->values[choice].served)
        return 0;
    CLEANUP(buf_done) struct buf served;
    buf_init(&served, JOB_LEGAL_BYTES);
    job_enum_list(names, true, &served);
    return err_set_field(err, ERR_UNSUPPORTED, name,
                         "%s: \"%s\" is not served by this version yet; use %s", name,
                         names->values[choice].name, buf_str(&served));
}

/* The value's place among the names; their count when it is none of them. */
static int job_enum_find(const struct job_enum *names, const json_t *value)
{
    int choice = 0;
    while (choice < names->count && !job_enum_matches(&names->values[choice], value))
        choice++;
    return choice;
}

static int job_field_parse_enum(const struct job_field *field, const char *name,
                                const json_t *value, int *ret, struct err *err)
{
    int choice = job_enum_find(field->names, value);
    if (choice == field->names->count)
        return job_field_wrong(field, name, value, err);
    *ret = choice;
    return 0;
}

/* A name that is there twice counts once. */
static int job_field_parse_set(const struct job_field *field, const char *name, const json_t *value,
                               int64_t *ret, struct err *err)
{
    int64_t set = 0;
    for (size_t i = 0; i < json_array_size(value); i++) {
        int choice = job_enum_find(field->names, json_array_get(value, i));
        if (choice == field->names->count)
            return job_field_wrong(field, name, json_array_get(value, i), err);
        set |= INT64_C(1) << choice;
    }
    if (json_is_string(value) && strcmp(json_string_value(value), "all") == 0)
        set = field->initial;
    if (set == 0)
        return job_field_wrong(field, name, value, err);
    *ret = set;
    return 0;
}

/* A text that is there twice counts once. */
static int job_field_parse_list(const struct job_field *field, const char *name,
                                const json_t *value, struct job_list *ret, struct err *err)
{
    struct job_list list = {.count = 0};
    if (!json_is_array(value) || json_array_size(value) > LIMIT_LIST_ITEMS)
        return job_field_wrong(field, name, value, err);
    for (size_t i = 0; i < json_array_size(value); i++) {
        const char *text = json_string_value(json_array_get(value, i));
        if (text == NULL || text[0] == '\0' || strlen(text) > LIMIT_ID_BYTES)
            return job_field_wrong(field, name, json_array_get(value, i), err);
        int64_t same = 0;
        while (same < list.count && strcmp(list.items[same], text) != 0)
            same++;
        if (same == list.count)
            (void)snprintf(list.items[list.count++], sizeof list.items[0], "%s", text);
    }
    *ret = list;
    return 0;
}

static int job_field_parse_text(const struct job_field *field, const char *name,
                                const json_t *value, char ret[LIMIT_TEXT_BYTES + 1],
                                struct err *err)
{
    const char *text = json_is_null(value) ? "" : json_string_value(value);
    size_t length = text != NULL ? strlen(text) : 0;
    bool good = json_is_null(value) || (length > 0 && length <= LIMIT_TEXT_BYTES);
    for (size_t i = 0; good && i < length; i++)
        good = text[i] > ' ' && text[i] <= '~';
    if (!good)
        return job_field_wrong(field, name, value, err);
    memcpy(ret, text, length + 1);
    return 0;
}

int job_field_check_served(const struct job_field *field, const struct job_spec *spec,
                           struct err *err)
{
    if (field->kind != JOB_FIELD_KIND_ENUM)
        return 0;
    int choice;
    memcpy(&choice, (const char *)spec + field->offset, sizeof choice);
    char name[ERR_FIELD_MAX];
    (void)snprintf(name, sizeof name, "ithaca.%s", field->path);
    return job_enum_check_served(field->names, name, choice, err);
}

static int job_field_parse_span(const struct job_field *field, const char *name,
                                const json_t *value, struct job_span *ret, struct err *err)
{
    struct job_span span = {0};
    if (json_array_size(value) != 2 || !job_value_integer(json_array_get(value, 0), &span.first) ||
        !job_value_integer(json_array_get(value, 1), &span.last) || span.first < field->min ||
        span.last < span.first || span.last > field->max)
        return job_field_wrong(field, name, value, err);
    *ret = span;
    return 0;
}

int job_field_parse(const struct job_field *field, const char *name, const json_t *value,
                    struct job_spec *spec, struct err *err)
{
    void *member = (char *)spec + field->offset;
    switch (field->kind) {
    case JOB_FIELD_KIND_INT:
    case JOB_FIELD_KIND_NULLABLE:
        return job_field_parse_integer(field, name, value, member, err);
    case JOB_FIELD_KIND_NUM: {
        double number = json_number_value(value);
        if (!json_is_number(value) || !(number >= field->num_min && number <= field->num_max))
            return job_field_wrong(field, name, value, err);
        *(double *)member = number;
        return 0;
    }
    case JOB_FIELD_KIND_BOOL:
        if (!json_is_boolean(value))
            return job_field_wrong(field, name, value, err);
        *(bool *)member = json_is_true(value);
        return 0;
    case JOB_FIELD_KIND_ENUM: {
        int choice = 0;
        TRY(job_field_parse_enum(field, name, value, &choice, err));
        memcpy(member, &choice, sizeof choice);
        return 0;
    }
    case JOB_FIELD_KIND_SET:
        return job_field_parse_set(field, name, value, member, err);
    case JOB_FIELD_KIND_GROUP:
        if (!json_is_null(value) && !json_is_object(value))
            return job_field_wrong(field, name, value, err);
        *(bool *)member = json_is_object(value);
        return 0;
    case JOB_FIELD_KIND_LIST:
        return job_field_parse_list(field, name, value, member, err);
    case JOB_FIELD_KIND_SPAN:
        return job_field_parse_span(field, name, value, member, err);
    case JOB_FIELD_KIND_TEXT:
        return job_field_parse_text(field, name, value, member, err);
    }
    must(false);
    return 0;
}

/* job_field: the two tables of api/ as data, and a field's value in and out of its member. */
#include "common/job_field.h"

#include "common/must.h"

#include <string.h>

#define JOB_ENUM_BEGIN(kind) static const struct job_enum_value job_##kind##_values[] = {
#define JOB_ENUM_VALUE(kind, id, text, is_served) \
    [JOB_##kind##_##id] = {.name = text, .served = is_served},
#define JOB_ENUM_END(kind) \
    }                      \
    ;
#include "api/job_enums.def"
#undef JOB_ENUM_BEGIN
#undef JOB_ENUM_VALUE
#undef JOB_ENUM_END

#define JOB_ENUM_BEGIN(kind)                                                           \
    static const struct job_enum job_##kind##_enum = {.values = job_##kind##_values,   \
                                                      .count = JOB_##kind##_COUNT};    \
    _Static_assert(sizeof(enum job_##kind) == sizeof(int), "job_field stores an int"); \
    const char *job_##kind##_name(enum job_##kind value)                               \
    {                                                                                  \
        must((unsigned)value < JOB_##kind##_COUNT);                                    \
        return job_##kind##_values[value].name;                                        \
    }
#define JOB_ENUM_VALUE(kind, id, text, is_served)
#define JOB_ENUM_END(kind)
#include "api/job_enums.def"
#undef JOB_ENUM_BEGIN
#undef JOB_ENUM_VALUE
#undef JOB_ENUM_END

#define JOB_FIELD_INTEGER(name, text, of_kind, def, low, high, measure, help) \
    {.path = text,                                                            \
     .kind = of_kind,                                                         \
     .offset = offsetof(struct job_spec, name),                               \
     .initial = def,                                                          \
     .min = low,                                                              \
     .max = high,                                                             \
     .unit = measure,                                                         \
     .doc = help},
#define JOB_FIELD_INT(name, text, def, low, high, measure, help) \
    JOB_FIELD_INTEGER(name, text, JOB_FIELD_KIND_INT, def, low, high, measure, help)
#define JOB_FIELD_NULLABLE(name, text, low, high, measure, help) \
    JOB_FIELD_INTEGER(name, text, JOB_FIELD_KIND_NULLABLE, 0, low, high, measure, help)
#define JOB_FIELD_NUM(name, text, def, low, high, measure, help) \
    {.path = text,                                               \
     .kind = JOB_FIELD_KIND_NUM,                                 \
     .offset = offsetof(struct job_spec, name),                  \
     .num_initial = def,                                         \
     .num_min = low,                                             \
     .num_max = high,                                            \
     .unit = measure,                                            \
     .doc = help},
#define JOB_FIELD_BOOL(name, text, def, help)   \
    {.path = text,                              \
     .kind = JOB_FIELD_KIND_BOOL,               \
     .offset = offsetof(struct job_spec, name), \
     .initial = def,                            \
     .unit = "",                                \
     .doc = help},
#define JOB_FIELD_ENUM(name, text, of, def, help) \
    {.path = text,                                \
     .kind = JOB_FIELD_KIND_ENUM,                 \
     .offset = offsetof(struct job_spec, name),   \
     .initial = JOB_##of##_##def,                 \
     .names = &job_##of##_enum,                   \
     .unit = "",                                  \
     .doc = help},
#define JOB_FIELD_SET(name, text, of, help)           \
    {.path = text,                                    \
     .kind = JOB_FIELD_KIND_SET,                      \
     .offset = offsetof(struct job_spec, name),       \
     .initial = (INT64_C(1) << JOB_##of##_COUNT) - 1, \
     .names = &job_##of##_enum,                       \
     .unit = "",                                      \
     .doc = help},
#define JOB_FIELD_GROUP(name, text, help)       \
    {.path = text,                              \
     .kind = JOB_FIELD_KIND_GROUP,              \
     .offset = offsetof(struct job_spec, name), \
     .unit = "",                                \
     .doc = help},
#define JOB_FIELD_LIST(name, text, help)        \
    {.path = text,                              \
     .kind = JOB_FIELD_KIND_LIST,               \
     .offset = offsetof(struct job_spec, name), \
     .unit = "",                                \
     .doc = help},
#define JOB_FIELD_SPAN(name, text, def, def_last, low, high, measure, help) \
    {.path = text,                                                          \
     .kind = JOB_FIELD_KIND_SPAN,                                           \
     .offset = offsetof(struct job_spec, name),                             \
     .initial = def,                                                        \
     .initial_last = def_last,                                              \
     .min = low,                                                            \
     .max = high,                                                           \
     .unit = measure,                                                       \
     .doc = help},
#define JOB_FIELD_TEXT(name, text, help)        \
    {.path = text,                              \
     .kind = JOB_FIELD_KIND_TEXT,               \
     .offset = offsetof(struct job_spec, name), \
     .unit = "",                                \
     .doc = help},

const struct job_field job_fields[] = {
#include "api/job_fields.def"
};
const size_t job_field_count = sizeof job_fields / sizeof job_fields[0];

const struct job_field *job_field_find(const char *path)
{
    for (size_t i = 0; i < job_field_count; i++)
        if (strcmp(job_fields[i].path, path) == 0)
            return &job_fields[i];
    return NULL;
}

bool job_field_has_auto(const struct job_field *field)
{
    return field->kind == JOB_FIELD_KIND_INT && field->initial == JOB_AUTO;
}

bool job_field_counts(const struct job_field *field, const struct job_spec *spec)
{
    for (size_t i = 0; i < job_field_count; i++) {
        const struct job_field *group = &job_fields[i];
        size_t length = strlen(group->path);
        if (group->kind == JOB_FIELD_KIND_GROUP && strncmp(field->path, group->path, length) == 0 &&
            field->path[length] == '.')
            return *(const bool *)((const char *)spec + group->offset);
    }
    return true;
}

void job_field_set_default(const struct job_field *field, struct job_spec *spec)
{
    void *member = (char *)spec + field->offset;
    switch (field->kind) {
    case JOB_FIELD_KIND_INT:
    case JOB_FIELD_KIND_NULLABLE:
    case JOB_FIELD_KIND_SET:
        *(int64_t *)member = field->initial;
        break;
    case JOB_FIELD_KIND_NUM:
        *(double *)member = field->num_initial;
        break;
    case JOB_FIELD_KIND_BOOL:
    case JOB_FIELD_KIND_GROUP:
        *(bool *)member = field->initial != 0;
        break;
    case JOB_FIELD_KIND_ENUM:
        memcpy(member, &(int){(int)field->initial}, sizeof(int));
        break;
    case JOB_FIELD_KIND_LIST:
        ((struct job_list *)member)->count = 0;
        break;
    case JOB_FIELD_KIND_SPAN:
        *(struct job_span *)member =
            (struct job_span){.first = field->initial, .last = field->initial_last};
        break;
    case JOB_FIELD_KIND_TEXT:
        *(char *)member = '\0';
        break;
    }
}

bool job_enum_is_boolean(const struct job_enum_value *value)
{
    return strcmp(value->name, "true") == 0 || strcmp(value->name, "false") == 0;
}

static json_t *job_enum_json(const struct job_enum_value *value)
{
    return job_enum_is_boolean(value) ? json_boolean(value->name[0] == 't')
                                      : json_string(value->name);
}

json_t *job_enum_list_json(const struct job_enum *names)
{
    json_t *list = json_array();
    for (int i = 0; i < names->count; i++) {
        if (json_array_append_new(list, job_enum_json(&names->values[i])) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

static json_t *job_set_json(const struct job_field *field, int64_t set)
{
    if (set == field->initial)
        return json_string("all");
    json_t *list = json_array();
    for (int i = 0; i < field->names->count; i++) {
        if ((set >> i & 1) != 0 &&
            json_array_append_new(list, json_string(field->names->values[i].name)) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

static json_t *job_list_json(const struct job_list *texts)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < texts->count; i++) {
        if (json_array_append_new(list, json_string(texts->items[i])) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

json_t *job_field_json(const struct job_field *field, const struct job_spec *spec)
{
    const void *member = (const char *)spec + field->offset;
    int64_t integer = 0;
    int choice = 0;
    switch (field->kind) {
    case JOB_FIELD_KIND_INT:
    case JOB_FIELD_KIND_NULLABLE:
        integer = *(const int64_t *)member;
        if (field->kind == JOB_FIELD_KIND_NULLABLE && integer == 0)
            return json_null();
        if (job_field_has_auto(field) && integer == JOB_AUTO)
            return json_string("auto");
        return json_integer(integer);
    case JOB_FIELD_KIND_NUM:
        return json_number(*(const double *)member);
    case JOB_FIELD_KIND_BOOL:
        return json_boolean(*(const bool *)member);
    case JOB_FIELD_KIND_ENUM:
        memcpy(&choice, member, sizeof choice);
        must(choice >= 0 && choice < field->names->count);
        return job_enum_json(&field->names->values[choice]);
    case JOB_FIELD_KIND_SET:
        return job_set_json(field, *(const int64_t *)member);
    case JOB_FIELD_KIND_GROUP:
        return *(const bool *)member ? json_object() : json_null();
    case JOB_FIELD_KIND_LIST:
        return job_list_json(member);
    case JOB_FIELD_KIND_SPAN:
        return json_pack("[I, I]", (json_int_t)((const struct job_span *)member)->first,
                         (json_int_t)((const struct job_span *)member)->last);
    case JOB_FIELD_KIND_TEXT:
        return *(const char *)member != '\0' ? json_string(member) : json_null();
    }
    must(false);
    return NULL;
}

json_t *job_field_default_json(const struct job_field *field)
{
    struct job_spec spec = {0};
    job_field_set_default(field, &spec);
    return job_field_json(field, &spec);
}

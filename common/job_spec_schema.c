/* job_spec_schema: JSON Schema 2020-12 of the request body. The fields of `ithaca` come from the
 * rows of api/job_fields.def, OpenAI's from the rows of job_request; nothing is listed here. Legal
 * values that are not served yet are in the schema, and named so in the field's description. */
#include "common/job_field.h"
#include "common/job_request.h"
#include "common/mem.h"

#include <string.h>

enum { SCHEMA_DOC_BYTES = 1024 };

/* 10, not 10.0, where a limit is whole. */
static json_t *schema_number(double value)
{
    if (value == (double)(int64_t)value)
        return json_integer((int64_t)value);
    return json_number(value);
}

/* The keywords that say which values are legal. */
static json_t *schema_legal(const struct job_field *field)
{
    json_int_t min = field->min;
    json_int_t max = field->max;
    switch (field->kind) {
    case JOB_FIELD_KIND_INT:
        if (job_field_has_auto(field))
            return json_pack("{s:[{s:s}, {s:s}], s:I, s:I}", "anyOf", "const", "auto", "type",
                             "integer", "minimum", min, "maximum", max);
        return json_pack("{s:s, s:I, s:I}", "type", "integer", "minimum", min, "maximum", max);
    case JOB_FIELD_KIND_NULLABLE:
        return json_pack("{s:[s, s], s:I, s:I}", "type", "integer", "null", "minimum", min,
                         "maximum", max);
    case JOB_FIELD_KIND_NUM:
        return json_pack("{s:s, s:o, s:o}", "type", "number", "minimum",
                         schema_number(field->num_min), "maximum", schema_number(field->num_max));
    case JOB_FIELD_KIND_BOOL:
        return json_pack("{s:s}", "type", "boolean");
    case JOB_FIELD_KIND_ENUM:
        return json_pack("{s:o}", "enum", job_enum_list_json(field->names));
    case JOB_FIELD_KIND_SET:
        return json_pack("{s:[{s:s}, {s:s, s:i, s:{s:o}}]}", "anyOf", "const", "all", "type",
                         "array", "minItems", 1, "items", "enum", job_enum_list_json(field->names));
    case JOB_FIELD_KIND_GROUP: /* the fields below come with their rows */
        return json_literal(
            "{'type':['object','null'],'additionalProperties':false,'properties':{}}");
    case JOB_FIELD_KIND_LIST:
        return json_pack("{s:s, s:i, s:{s:s, s:i, s:i}}", "type", "array", "maxItems",
                         LIMIT_LIST_ITEMS, "items", "type", "string", "minLength", 1, "maxLength",
                         LIMIT_ID_BYTES);
    case JOB_FIELD_KIND_SPAN:
        return json_pack("{s:s, s:i, s:i, s:{s:s, s:I, s:I}}", "type", "array", "minItems", 2,
                         "maxItems", 2, "items", "type", "integer", "minimum", min, "maximum", max);
    case JOB_FIELD_KIND_TEXT:
        return json_pack("{s:[s, s], s:i, s:i}", "type", "string", "null", "minLength", 1,
                         "maxLength", LIMIT_TEXT_BYTES);
    }
    return NULL;
}

/* The row's phrase, and what of it this version does not serve. */
static json_t *schema_description(const struct job_field *field)
{
    CLEANUP(buf_done) struct buf text;
    buf_init(&text, SCHEMA_DOC_BYTES);
    buf_text(&text, field->doc);
    const char *before = ". Not served yet: ";
    for (int i = 0; field->names != NULL && i < field->names->count; i++) {
        if (field->names->values[i].served)
            continue;
        buf_printf(&text, "%s%s", before, field->names->values[i].name);
        before = ", ";
    }
    struct err err;
    return buf_error(&text, &err) == 0 ? json_string(buf_str(&text)) : NULL;
}

static json_t *schema_field(const struct job_field *field)
{
    json_t *schema = schema_legal(field);
    int bad = 0;
    bad |= json_object_set_new(schema, "default",
                               field->kind == JOB_FIELD_KIND_NUM ? schema_number(field->num_initial)
                                                                 : job_field_default_json(field));
    bad |= json_object_set_new(schema, "description", schema_description(field));
    if (field->unit[0] != '\0')
        bad |= json_object_set_new(schema, "x-unit", json_string(field->unit));
    if (bad == 0)
        return schema;
    json_decref(schema);
    return NULL;
}

/* Puts a field below `properties`, making the groups of its path on the way. */
static int schema_put(json_t *properties, const char *path, json_t *field)
{
    const char *dot = strchr(path, '.');
    if (dot == NULL)
        return json_object_set_new(properties, path, field);
    size_t length = (size_t)(dot - path);
    json_t *group = json_object_getn(properties, path, length);
    if (group == NULL) {
        group = json_literal("{'type':'object','additionalProperties':false,'properties':{}}");
        if (json_object_setn_new(properties, path, length, group) != 0) {
            json_decref(field);
            return -1;
        }
    }
    return schema_put(json_object_get(group, "properties"), dot + 1, field);
}

static int schema_fill(json_t *root)
{
    json_t *properties = json_object_get(root, "properties");
    json_t *required = json_object_get(root, "required");
    int bad = 0;
    for (size_t i = 0; i < job_request_field_count; i++) {
        const struct job_request_field *field = &job_request_fields[i];
        bad |= json_object_set_new(properties, field->name, json_literal(field->schema));
        if (field->required)
            bad |= json_array_append_new(required, json_string(field->name));
    }
    json_t *ithaca = json_literal("{'type':['object','null'],'additionalProperties':false,"
                                  "'description':'How Ithaca trains','properties':{}}");
    bad |= json_object_set_new(properties, "ithaca", ithaca);
    for (size_t i = 0; i < job_field_count && bad == 0; i++)
        bad |= schema_put(json_object_get(ithaca, "properties"), job_fields[i].path,
                          schema_field(&job_fields[i]));
    return bad;
}

json_t *job_spec_schema(void)
{
    json_t *root = json_literal("{'$schema':'https://json-schema.org/draft/2020-12/schema',"
                                "'title':'Body of POST /v1/fine_tuning/jobs','type':'object',"
                                "'required':[],'additionalProperties':false,'properties':{}}");
    if (schema_fill(root) == 0)
        return root;
    json_decref(root);
    return NULL;
}

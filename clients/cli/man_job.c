/* man_job: ithaca-job(5), from the job's JSON schema (api/job_fields.def), api/job_states.def and
 * api/metrics.def. */
#include "clients/cli/man.h"
#include "common/job_field.h"
#include "common/json.h"
#include "common/mem.h"

#include <stdio.h>
#include <string.h>

enum { MAN_VALUE_BYTES = 1024, MAN_FIELD_BYTES = 4096 };

/* "auto, none, ring" */
static void man_job_names(const struct job_enum *names, char *ret, size_t size)
{
    size_t used = 0;
    ret[0] = '\0';
    for (int i = 0; names != NULL && i < names->count && used < size; i++)
        used += (size_t)snprintf(ret + used, size - used, "%s%s", i > 0 ? ", " : "",
                                 names->values[i].name);
}

/* " 1 to 64 ranks.", " One of auto, none, ring." */
static void man_job_values(const struct job_field *field, char ret[MAN_VALUE_BYTES])
{
    char list[MAN_VALUE_BYTES / 2];
    man_job_names(field->names, list, sizeof list);
    ret[0] = '\0';
    switch (field->kind) {
    case JOB_FIELD_KIND_INT:
    case JOB_FIELD_KIND_NULLABLE:
        (void)snprintf(ret, MAN_VALUE_BYTES, " %lld to %lld%s%s%s.", (long long)field->min,
                       (long long)field->max, field->unit[0] != '\0' ? " " : "", field->unit,
                       field->kind == JOB_FIELD_KIND_NULLABLE ? ", or null" : "");
        break;
    case JOB_FIELD_KIND_NUM:
        (void)snprintf(ret, MAN_VALUE_BYTES, " %g to %g%s%s.", field->num_min, field->num_max,
                       field->unit[0] != '\0' ? " " : "", field->unit);
        break;
    case JOB_FIELD_KIND_ENUM:
        (void)snprintf(ret, MAN_VALUE_BYTES, " One of %s.", list);
        break;
    case JOB_FIELD_KIND_SET:
        (void)snprintf(ret, MAN_VALUE_BYTES, " \"all\", or a list of %s.", list);
        break;
    case JOB_FIELD_KIND_BOOL:
        (void)snprintf(ret, MAN_VALUE_BYTES, " true or false.");
        break;
    case JOB_FIELD_KIND_GROUP:
        (void)snprintf(ret, MAN_VALUE_BYTES, " An object of the fields below it, or null.");
        break;
    case JOB_FIELD_KIND_LIST:
        (void)snprintf(ret, MAN_VALUE_BYTES, " A list of texts.");
        break;
    case JOB_FIELD_KIND_TEXT:
        (void)snprintf(ret, MAN_VALUE_BYTES, " A text, or null.");
        break;
    case JOB_FIELD_KIND_SPAN:
        (void)snprintf(ret, MAN_VALUE_BYTES, " A list of two integers of %lld to %lld.",
                       (long long)field->min, (long long)field->max);
        break;
    }
}

static void man_job_field(const struct job_field *field, struct buf *out)
{
    CLEANUP(json_unref) json_t *initial = job_field_default_json(field);
    char value[MAN_VALUE_BYTES], values[MAN_VALUE_BYTES], text[MAN_FIELD_BYTES];
    json_brief(initial, value, sizeof value);
    man_job_values(field, values);
    (void)snprintf(text, sizeof text, "%s.%s Default: %s.", field->doc, values, value);
    man_item(field->path, text, out);
}

/* OpenAI's own fields have their prose in the schema. */
static void man_job_request(struct buf *out)
{
    CLEANUP(json_unref) json_t *schema = job_spec_schema();
    const char *key;
    const json_t *field;
    json_object_foreach(json_object_get(schema, "properties"), key, field)
    {
        const char *doc = json_string_value(json_object_get(field, "description"));
        if (strcmp(key, "ithaca") != 0)
            man_item(key, doc != NULL ? doc : "As OpenAI's.", out);
    }
}

void man_job(struct buf *out)
{
    man_section("DESCRIPTION", out);
    man_text_line(
        "A job is a JSON object, as `ithaca submit` and POST /v1/fine_tuning/jobs take it: "
        "OpenAI's fields, and in `ithaca` those of Ithaca. A field that does not exist, or a "
        "value out of its range, is refused by name. Dots in a name stand for nested objects; "
        "`--set lora.r=16` sets one of them on the command line.",
        out);
    man_section("FIELDS", out);
    man_job_request(out);
    man_item("ithaca", "An object of the fields of the next section.", out);
    man_section("FIELDS OF ITHACA", out);
    for (size_t i = 0; i < job_field_count; i++)
        man_job_field(&job_fields[i], out);
    man_section("STATES", out);
    man_text_line("In `ithaca.state`; behind it the `status` that OpenAI's clients see.", out);
#define X(id, name, status, end) man_item(name, status, out);
#include "api/job_states.def"
#undef X
    man_section("METRICS", out);
    man_text_line("Kept for each step, at /v1/fine_tuning/jobs/{id}/metrics.", out);
#define X(id, name, unit, scope, label, doc) man_item(name, doc ".", out);
#include "api/metrics.def"
#undef X
    man_section("EXAMPLES", out);
    man_example("{\"model\": \"tiny-llama\",\n"
                " \"training_file\": \"file-...\",\n"
                " \"ithaca\": {\"gpus\": 2, \"seq_len\": 512, \"lora\": {\"r\": 16}}}\n",
                out);
}

/* cmd_fields: the fields of `ithaca` in a job, for people: a walk over the job's JSON schema, which
 * is printed from api/job_fields.def. */
#include "clients/cli/cli.h"
#include "common/job_spec.h"
#include "common/limits.h"
#include "common/mem.h"

#include <stdio.h>

static int fields_range(const json_t *field, struct buf *out, struct err *err)
{
    const json_t *low = json_object_get(field, "minimum");
    const json_t *high = json_object_get(field, "maximum");
    const json_t *list = json_array_get(json_object_get(field, "anyOf"), 1);
    const json_t *values = json_object_get(list, "items"); /* of a list */
    const json_t *names = json_object_get(values != NULL ? values : field, "enum");
    if (names != NULL) {
        TRY(json_print(names, out, err));
    } else if (low != NULL && high != NULL) {
        TRY(json_print(low, out, err));
        buf_text(out, "..");
        TRY(json_print(high, out, err));
    }
    return buf_error(out, err);
}

static int fields_line(const json_t *field, const char *name, struct err *err)
{
    CLEANUP(buf_done) struct buf text;
    buf_init(&text, LIMIT_JSON_BODY_BYTES);
    const json_t *fallback = json_object_get(field, "default");
    if (fallback != NULL)
        TRY(json_print(fallback, &text, err));
    const char *doc = json_string_value(json_object_get(field, "description"));
    (void)printf("%-34s %-12s %s  ", name, buf_str(&text), doc != NULL ? doc : "");
    buf_clear(&text);
    TRY(fields_range(field, &text, err));
    (void)printf("%s\n", buf_str(&text));
    return 0;
}

/* An object with a default is a field itself, which may be null. */
static int fields_print(const json_t *schema, const char *path, struct err *err)
{
    const char *key;
    const json_t *field;
    json_object_foreach((json_t *)schema, key, field)
    {
        CLEANUP(mem_free_ptr)
        char *name = mem_printf("%s%s%s", path, path[0] != '\0' ? "." : "", key);
        if (name == NULL)
            return mem_fail(err, LIMIT_NAME_BYTES, "a field's name");
        const json_t *nested = json_object_get(field, "properties");
        if (nested == NULL || json_object_get(field, "default") != NULL)
            TRY(fields_line(field, name, err));
        if (nested != NULL)
            TRY(fields_print(nested, name, err));
    }
    return 0;
}

int cmd_fields(struct cli *cli, struct err *err)
{
    TRY(cli_finish_arguments(cli, err));
    CLEANUP(json_unref) json_t *schema = job_spec_schema();
    if (schema == NULL)
        return mem_fail(err, 0, "the schema");
    if (cli->json)
        return cli_print_json(schema, err);
    const json_t *ithaca = json_object_get(json_object_get(schema, "properties"), "ithaca");
    return fields_print(json_object_get(ithaca, "properties"), "", err);
}

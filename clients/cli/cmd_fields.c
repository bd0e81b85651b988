/* cmd_fields: the table of api/job_fields.def for people. */
#include "clients/cli/cli.h"
#include "common/job_spec.h"

#include <stdio.h>

struct fields_row {
    const char *path;     /* below `ithaca` */
    const char *fallback; /* the default, as text */
    const char *range;
    const char *doc;
};

static const struct fields_row fields_rows[] = {
#define TEXT(value) #value
#define JOB_FIELD_INT(name, path, def, min, max, unit, doc) \
    {path, TEXT(def), TEXT(min) ".." TEXT(max) " " unit, doc},
#define JOB_FIELD_NUM(name, path, def, min, max, unit, doc) \
    {path, TEXT(def), TEXT(min) ".." TEXT(max) " " unit, doc},
#define JOB_FIELD_BOOL(name, path, def, doc) {path, TEXT(def), "true, false", doc},
#define JOB_FIELD_ENUM(name, path, kind, def, doc) {path, TEXT(def), "", doc},
#define JOB_FIELD_NULLABLE(name, path, min, max, unit, doc) \
    {path, "null", TEXT(min) ".." TEXT(max) " " unit, doc},
#include "api/job_fields.def"
};

int cmd_fields(struct cli *cli, struct err *err)
{
    TRY(cli_finish_arguments(cli, err));
    if (cli->json) {
        CLEANUP(json_unref) json_t *schema = job_spec_schema();
        return schema != NULL ? cli_print_json(schema, err) : mem_fail(err, 0, "the schema");
    }
    for (size_t i = 0; i < sizeof fields_rows / sizeof fields_rows[0]; i++) {
        const struct fields_row *row = &fields_rows[i];
        (void)printf("%-34s %-12s %s%s%s\n", row->path, row->fallback, row->doc,
                     row->range[0] ? "; " : "", row->range);
    }
    return 0;
}

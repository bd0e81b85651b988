/* experiment_table: the rows of api/experiment_columns.def walked once for each form. */
#include "daemon/experiment_table.h"

#include "common/csv.h"
#include "common/mem.h"
#include "common/number.h"
#include "daemon/api.h"

#include <string.h>

enum table_kind { TABLE_TEXT, TABLE_WHOLE, TABLE_NUMBER, TABLE_FLAG };

static const struct table_column {
    const char *name;
    enum table_kind kind;
    const char *unit, *label, *doc;
} table_columns[] = {
#define X(column, of_kind, of_unit, head, text) \
    {.name = #column, .kind = TABLE_##of_kind, .unit = of_unit, .label = head, .doc = text},
#include "api/experiment_columns.def"
#undef X
};
enum { TABLE_COLUMNS = sizeof table_columns / sizeof table_columns[0] };

/* ---- a row ---- */

/* Where a report has a column under another name: the first that is there and not 0. */
static const struct {
    const char *column, *names[2];
} table_measured[] = {
    {.column = "step_s", .names = {"predicted_step_s", "step_s"}},
    {.column = "device_bytes", .names = {"taken_bytes", "device_bytes"}},
};

static json_t *table_measured_value(const json_t *measured, const char *column)
{
    for (size_t i = 0; i < sizeof table_measured / sizeof table_measured[0]; i++)
        for (int n = 0; n < 2 && strcmp(column, table_measured[i].column) == 0; n++) {
            json_t *value = json_object_get(measured, table_measured[i].names[n]);
            if (json_number_value(value) > 0)
                return value;
        }
    return json_object_get(measured, column);
}

static json_t *table_parse(const char *text, struct err *err)
{
    json_t *value = NULL;
    if (text[0] == '\0')
        return json_object();
    return json_parse(text, strlen(text), "a point", &value, err) == 0 ? value : NULL;
}

static json_t *table_value(const struct table_column *column, const json_t *facts,
                           const json_t *measured, const json_t *own)
{
    json_t *value = json_object_get(own, column->name);
    if (value == NULL)
        value = json_object_get(facts, column->name);
    if (value == NULL)
        value = table_measured_value(measured, column->name);
    return value != NULL ? json_incref(value) : json_null();
}

int experiment_table_row(const struct store_point_row *point, const char *job_state, json_t **ret,
                         struct err *err)
{
    err->code = ERR_NONE;
    CLEANUP(json_unref) json_t *facts = table_parse(point->facts_json, err);
    CLEANUP(json_unref) json_t *measured = table_parse(point->measured_json, err);
    CLEANUP(json_unref)
    json_t *own = json_pack("{s:I, s:s, s:o, s:o}", "number", (json_int_t)point->number, "status",
                            job_state[0] != '\0' ? job_state : point->status, "job",
                            api_text(point->job_id), "note", api_text(point->note));
    CLEANUP(json_unref) json_t *row = json_object();
    int bad = facts == NULL || measured == NULL || own == NULL || row == NULL;
    for (int i = 0; i < TABLE_COLUMNS && bad == 0; i++)
        bad |= json_object_set_new(row, table_columns[i].name,
                                   table_value(&table_columns[i], facts, measured, own));
    if (bad != 0)
        return err->code != ERR_NONE ? -(int)err->code : mem_fail(err, 0, "a row of results");
    *ret = json_incref(row);
    return 0;
}

/* ---- tables ---- */

static void table_plain(const json_t *value, int digits, struct buf *out)
{
    if (json_is_string(value))
        csv_put(json_string_value(value), out);
    else if (json_is_boolean(value))
        buf_text(out, json_is_true(value) ? "true" : "false");
    else if (json_is_integer(value))
        buf_printf(out, "%lld", (long long)json_integer_value(value));
    else if (json_is_real(value))
        buf_text(out, number_plain(json_real_value(value), digits).text);
}

void experiment_table_csv(const json_t *rows, struct buf *out)
{
    size_t i;
    json_t *row;
    for (int c = 0; c < TABLE_COLUMNS; c++)
        buf_printf(out, "%s%s", c > 0 ? "," : "", table_columns[c].name);
    buf_text(out, "\r\n");
    json_array_foreach(rows, i, row)
    {
        for (int c = 0; c < TABLE_COLUMNS; c++) {
            if (c > 0)
                buf_char(out, ',');
            table_plain(json_object_get(row, table_columns[c].name), 15, out);
        }
        buf_text(out, "\r\n");
    }
}

/* No cell ends another's. */
static void table_cell_text(const char *text, struct buf *out)
{
    for (; *text != '\0'; text++) {
        if (*text == '|' || *text == '\\')
            buf_char(out, '\\');
        if (*text == '\n' || *text == '\r')
            buf_char(out, ' ');
        else
            buf_char(out, *text);
    }
}

static void table_cell(const struct table_column *column, const json_t *value, struct buf *out)
{
    buf_text(out, " ");
    if (json_is_string(value))
        table_cell_text(json_string_value(value), out);
    else if (json_is_boolean(value))
        buf_text(out, json_is_true(value) ? "yes" : "");
    else if (json_is_number(value) && strcmp(column->unit, "bytes") == 0)
        buf_text(out, number_plain(json_number_value(value) * 0x1p-30, 3).text);
    else if (json_is_number(value) && strcmp(column->unit, "ratio") == 0)
        buf_printf(out, "%.1f %%", json_number_value(value) * 100);
    else
        table_plain(value, 5, out);
    buf_text(out, " |");
}

void experiment_table_markdown(const json_t *rows, struct buf *out)
{
    size_t i;
    json_t *row;
    for (int line = 0; line < 2; line++) {
        buf_char(out, '|');
        for (int c = 0; c < TABLE_COLUMNS; c++) {
            const struct table_column *column = &table_columns[c];
            bool number = column->kind == TABLE_WHOLE || column->kind == TABLE_NUMBER;
            if (column->label[0] != '\0')
                buf_printf(out, " %s |", line == 0 ? column->label : number ? "---:" : "---");
        }
        buf_char(out, '\n');
    }
    json_array_foreach(rows, i, row)
    {
        buf_char(out, '|');
        for (int c = 0; c < TABLE_COLUMNS; c++)
            if (table_columns[c].label[0] != '\0')
                table_cell(&table_columns[c], json_object_get(row, table_columns[c].name), out);
        buf_char(out, '\n');
    }
}

/* ---- schema ---- */

json_t *experiment_table_schema(void)
{
    static const char *const types[] = {[TABLE_TEXT] = "string",
                                        [TABLE_WHOLE] = "integer",
                                        [TABLE_NUMBER] = "number",
                                        [TABLE_FLAG] = "boolean"};
    json_t *properties = json_object(), *required = json_array();
    int bad = 0;
    for (int c = 0; c < TABLE_COLUMNS; c++) {
        const struct table_column *column = &table_columns[c];
        json_t *schema = json_pack("{s:[s, s], s:s}", "type", types[column->kind], "null",
                                   "description", column->doc);
        if (column->unit[0] != '\0')
            bad |= json_object_set_new(schema, "x-unit", json_string(column->unit));
        bad |= json_object_set_new(properties, column->name, schema);
        bad |= json_array_append_new(required, json_string(column->name));
    }
    json_t *root = json_pack("{s:s, s:o, s:o}", "type", "object", "required", required,
                             "properties", properties);
    if (bad != 0)
        json_unref(&root);
    return root;
}

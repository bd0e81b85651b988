/* compare_text: a comparison for people (a job a column, as they are few and their settings many)
 * and for spreadsheets (a job a line). */
#include "clients/cli/chart.h"
#include "clients/cli/compare.h"
#include "clients/cli/table.h"
#include "common/clock.h"
#include "common/csv.h"
#include "common/limits.h"
#include "common/mem.h"
#include "common/metric.h"
#include "common/must.h"
#include "common/number.h"

#include <stdio.h>
#include <string.h>

enum { COMPARE_VALUE_BYTES = 256, COMPARE_CHART_WIDTH = 80, COMPARE_CHART_HEIGHT = 14 };

enum compare_form { FORM_TEXT, FORM_WHOLE, FORM_NUMBER, FORM_PERCENT, FORM_GIB, FORM_TIME };

/* Results, in order; %s of a title stands for the metric. */
static const struct compare_row {
    const char *key;
    const char *title;
    enum compare_form form;
} compare_rows[] = {
    {.key = "state", .title = "state", .form = FORM_TEXT},
    {.key = "steps_done", .title = "steps done", .form = FORM_WHOLE},
    {.key = "steps_total", .title = "steps in all", .form = FORM_WHOLE},
    {.key = "last", .title = "last %s", .form = FORM_NUMBER},
    {.key = "best", .title = "best %s", .form = FORM_NUMBER},
    {.key = "best_step", .title = "at step", .form = FORM_WHOLE},
    {.key = "valid_loss", .title = "lowest valid_loss", .form = FORM_NUMBER},
    {.key = "tokens_per_s", .title = "tokens/s, median", .form = FORM_NUMBER},
    {.key = "mfu_causal", .title = "MFU (causal), median", .form = FORM_PERCENT},
    {.key = "step_time_s", .title = "step time s, median", .form = FORM_NUMBER},
    {.key = "peak_bytes", .title = "peak GiB of a rank", .form = FORM_GIB},
    {.key = "planned_bytes", .title = "planned GiB", .form = FORM_GIB},
    {.key = "time_s", .title = "time", .form = FORM_TIME},
};

static void compare_text_value(const json_t *value, enum compare_form form,
                               char ret[COMPARE_VALUE_BYTES])
{
    const double number = json_number_value(value);
    if (value == NULL || json_is_null(value))
        (void)snprintf(ret, COMPARE_VALUE_BYTES, "-");
    else if (json_is_string(value))
        (void)snprintf(ret, COMPARE_VALUE_BYTES, "%s", json_string_value(value));
    else if (form == FORM_NUMBER)
        (void)snprintf(ret, COMPARE_VALUE_BYTES, "%s", number_plain(number, 5).text);
    else if (form == FORM_PERCENT)
        (void)snprintf(ret, COMPARE_VALUE_BYTES, "%.2f%%", number * 100);
    else if (form == FORM_GIB)
        (void)snprintf(ret, COMPARE_VALUE_BYTES, "%.3f", number * 0x1p-30);
    else if (form == FORM_TIME)
        clock_duration((int64_t)number, ret);
    else
        json_brief(value, ret, COMPARE_VALUE_BYTES);
}

/* A line of the table: a title, and a member of each job's settings or results. */
static void compare_text_line(struct table *table, const json_t *jobs, const char *title,
                              const char *part, const char *key, enum compare_form form)
{
    size_t i;
    const json_t *job;
    table_cell(table, "%s", title);
    json_array_foreach(jobs, i, job)
    {
        char value[COMPARE_VALUE_BYTES];
        compare_text_value(json_object_get(json_object_get(job, part), key), form, value);
        table_cell(table, "%s", value);
    }
}

static void compare_text_title(const char *format, const char *metric, char ret[LIMIT_NAME_BYTES])
{
    const char *hole = strstr(format, "%s");
    if (hole == NULL)
        (void)snprintf(ret, LIMIT_NAME_BYTES, "%s", format);
    else
        (void)snprintf(ret, LIMIT_NAME_BYTES, "%.*s%s%s", (int)(hole - format), format, metric,
                       hole + 2);
}

static int compare_text_table(const json_t *comparison, struct buf *out, struct err *err)
{
    const json_t *jobs = json_object_get(comparison, "jobs");
    const char *metric = json_string_value(json_object_get(comparison, "metric"));
    struct table_column columns[COMPARE_JOBS_MAX + 1] = {{.title = ""}};
    CLEANUP(table_done) struct table table;
    size_t i;
    const json_t *one;
    must(json_array_size(jobs) <= COMPARE_JOBS_MAX);
    json_array_foreach(jobs, i, one)
    {
        columns[i + 1].title = json_string_value(json_object_get(one, "id"));
        columns[i + 1].title = columns[i + 1].title != NULL ? columns[i + 1].title : "-";
        columns[i + 1].right = true;
    }
    table_init(&table, columns, json_array_size(jobs) + 1);
    json_array_foreach(json_object_get(comparison, "settings"), i, one) compare_text_line(
        &table, jobs, json_string_value(one), "settings", json_string_value(one), FORM_WHOLE);
    for (i = 0; i < sizeof compare_rows / sizeof compare_rows[0]; i++) {
        const struct compare_row *row = &compare_rows[i];
        char title[LIMIT_NAME_BYTES];
        compare_text_title(row->title, metric, title);
        compare_text_line(&table, jobs, title, "results", row->key, row->form);
    }
    TRY(buf_error(&table.text, err));
    table_fit(&table, 0);
    table_print(&table, out);
    return 0;
}

static void compare_text_chart(const json_t *comparison, size_t columns, struct buf *out)
{
    const json_t *jobs = json_object_get(comparison, "jobs");
    struct chart chart = {.width = columns, .height = COMPARE_CHART_HEIGHT};
    const size_t before = out->length;
    if (chart.width < CHART_LABEL + 10 || chart.width > COMPARE_CHART_WIDTH)
        chart.width = COMPARE_CHART_WIDTH;
    for (; chart.count < CHART_SERIES_MAX && chart.count < json_array_size(jobs); chart.count++)
        chart.series[chart.count] = json_object_get(json_array_get(jobs, chart.count), "points");
    buf_printf(out, "\n%s\n", json_string_value(json_object_get(comparison, "metric")));
    const size_t titled = out->length;
    chart_draw(&chart, out);
    if (out->length == titled) { /* there are no points */
        out->length = before;
        out->data[before] = '\0';
        return;
    }
    for (size_t i = 0; i < chart.count; i++)
        buf_printf(out, "%c %s\n", chart_mark(i),
                   json_string_value(json_object_get(json_array_get(jobs, i), "id")));
    if (chart.count < json_array_size(jobs))
        buf_printf(out, "the first %zu alone\n", chart.count);
}

int compare_text(const json_t *comparison, size_t columns, struct buf *out, struct err *err)
{
    TRY(compare_text_table(comparison, out, err));
    compare_text_chart(comparison, columns, out);
    return buf_error(out, err);
}

/* A field, behind the gap; nothing of what is not there. */
static void compare_csv_put(const json_t *value, const char *gap, struct buf *out)
{
    char brief[COMPARE_VALUE_BYTES];
    const char *text = json_string_value(value);
    buf_text(out, gap);
    if (value == NULL || json_is_null(value))
        return;
    if (text == NULL)
        json_brief(value, brief, sizeof brief);
    if (json_is_number(value))
        buf_text(out, brief);
    else
        csv_put(text != NULL ? text : brief, out);
}

void compare_csv(const json_t *comparison, struct buf *out)
{
    const json_t *paths = json_object_get(comparison, "settings");
    size_t i, p;
    const json_t *job, *path;
    buf_text(out, "id");
    json_array_foreach(paths, p, path) compare_csv_put(path, ",", out);
    for (i = 0; i < sizeof compare_rows / sizeof compare_rows[0]; i++)
        buf_printf(out, ",%s", compare_rows[i].key);
    buf_text(out, "\r\n");
    json_array_foreach(json_object_get(comparison, "jobs"), i, job)
    {
        const json_t *settings = json_object_get(job, "settings");
        const json_t *results = json_object_get(job, "results");
        compare_csv_put(json_object_get(job, "id"), "", out);
        json_array_foreach(paths, p, path)
            compare_csv_put(json_object_get(settings, json_string_value(path)), ",", out);
        for (size_t row = 0; row < sizeof compare_rows / sizeof compare_rows[0]; row++)
            compare_csv_put(json_object_get(results, compare_rows[row].key), ",", out);
        buf_text(out, "\r\n");
    }
}

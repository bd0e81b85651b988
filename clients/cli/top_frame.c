/* top_frame: one screen, from top to bottom: a summary, what jobs run on, the jobs that run and
 * those that wait (a window of them around the selected one), what was said, the keys. A terminal
 * too small for all of it shows fewer of each, and how many are not shown. */
#include "clients/cli/cli.h"
#include "clients/cli/table.h"
#include "clients/cli/top.h"
#include "common/clock.h"
#include "common/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
    TOP_BAR_CELLS = 10,
    TOP_LINE_BYTES = 1024,
    TOP_FOOT_LINES = 2,
    TOP_HIGH = 16 /* lines from which on there are empty ones above tables */
};

/* ---- texts ---- */

/* A time to come, from now; "-" where it is not known. */
static void top_until(const struct top *top, const json_t *time,
                      char ret_text[CLOCK_DURATION_BYTES])
{
    if (json_is_integer(time))
        clock_duration(json_integer_value(time) - top->now_s, ret_text);
    else
        (void)snprintf(ret_text, CLOCK_DURATION_BYTES, "-");
}

static double top_gib(const json_t *bytes)
{
    return json_number_value(bytes) / (1 << 30);
}

void top_memory_text(const json_t *entry, char ret_text[32])
{
    const json_t *peak = json_object_get(json_object_get(entry, "latest"), "arena_peak_bytes");
    const json_t *planned = json_object_get(entry, "planned_bytes");
    char used[16] = "-", whole[16] = "-";
    if (json_is_number(peak))
        (void)snprintf(used, sizeof used, "%.2f", top_gib(peak));
    if (json_is_number(planned))
        (void)snprintf(whole, sizeof whole, "%.2f", top_gib(planned));
    (void)snprintf(ret_text, 32, "%s/%s", used, whole);
}

void top_steps_text(const json_t *entry, char ret_text[32])
{
    const json_t *ithaca = json_object_get(json_object_get(entry, "job"), "ithaca");
    if (!json_is_integer(json_object_get(ithaca, "steps_done")))
        (void)snprintf(ret_text, 32, "-");
    else
        (void)snprintf(ret_text, 32, "%lld/%lld", cli_whole(ithaca, "steps_done"),
                       cli_whole(ithaca, "steps_total"));
}

void top_latest_text(const json_t *entry, const char *metric, int decimals, char ret_text[32])
{
    const json_t *value = json_object_get(json_object_get(entry, "latest"), metric);
    (void)snprintf(ret_text, 32, "-");
    if (json_is_number(value))
        (void)snprintf(ret_text, 32, "%.*f", decimals, json_number_value(value));
}

/* ---- lines ---- */

void top_line(struct top_lines *lines, enum top_style style, const char *text)
{
    static const char *const starts[] = {[TOP_PLAIN] = "",
                                         [TOP_BOLD] = "\x1b[1m",
                                         [TOP_FAINT] = "\x1b[2m",
                                         [TOP_RED] = "\x1b[31m",
                                         [TOP_SELECTED] = "\x1b[7m"};
    const struct top *top = lines->top;
    const bool styled = top->colour && style != TOP_PLAIN;
    if (top->rows > 0 && lines->count >= top->rows)
        return;
    lines->count++;
    buf_text(lines->out, styled ? starts[style] : "");
    if (top->columns > 0)
        table_clip(text, top->columns, lines->out);
    else
        buf_text(lines->out, text);
    buf_text(lines->out, styled ? "\x1b[0m\n" : "\n");
}

void top_linef(struct top_lines *lines, enum top_style style, const char *format, ...)
{
    char text[TOP_LINE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments); /* longer than a terminal is wide */
    va_end(arguments);
    top_line(lines, style, text);
}

size_t top_room(const struct top_lines *lines)
{
    const size_t rows = lines->top->rows;
    if (rows == 0)
        return SIZE_MAX;
    return lines->count + TOP_FOOT_LINES < rows ? rows - TOP_FOOT_LINES - lines->count : 0;
}

/* An empty line above a table, where there is room for such. */
static void top_gap(struct top_lines *lines)
{
    if (lines->top->rows == 0 || lines->top->rows >= TOP_HIGH)
        top_line(lines, TOP_PLAIN, "");
}

/* A row of a table, or its titles, behind a mark of two columns. */
static void top_row(struct top_lines *lines, const struct table *table, int row, bool selected)
{
    CLEANUP(buf_done) struct buf text;
    buf_init(&text, TOP_FRAME_BYTES);
    buf_text(&text, selected ? "> " : "  ");
    table_line(table, row, &text);
    top_line(lines,
             row == TABLE_TITLES ? TOP_BOLD
             : selected          ? TOP_SELECTED
                                 : TOP_PLAIN,
             buf_str(&text));
}

static void top_fit(const struct top *top, struct table *table)
{
    table_fit(table, top->columns > 3 ? top->columns - 2 : top->columns);
}

/* ---- summary and GPUs ---- */

static void top_summary(struct top_lines *lines)
{
    const struct top *top = lines->top;
    const json_t *queue = json_object_get(top->data, "queue");
    char when[CLOCK_ISO_BYTES];
    clock_iso(top->now_s * 1000, when);
    if (queue == NULL) {
        top_linef(lines, TOP_BOLD, "ithaca top  %.8sZ  %s", when + 11, top->url);
        return;
    }
    top_linef(lines, TOP_BOLD,
              "ithaca top  %.8sZ  %zu running, %lld waiting  %lld of %lld slots free%s  %s",
              when + 11, json_array_size(json_object_get(queue, "running")),
              cli_whole(queue, "waiting_count"), cli_whole(queue, "free_slots"),
              cli_whole(queue, "slots"),
              json_is_true(json_object_get(queue, "drained")) ? "  DRAINED: nothing starts" : "",
              top->url);
}

/* "#####----- 51%" */
static void top_bar(struct table *table, const json_t *share)
{
    char bar[TOP_BAR_CELLS + 1];
    if (!json_is_number(share)) {
        table_cell(table, "-");
        return;
    }
    double value = json_number_value(share);
    int full = (int)(value * TOP_BAR_CELLS + 0.5);
    for (int i = 0; i < TOP_BAR_CELLS; i++)
        bar[i] = i < full ? '#' : '-';
    bar[TOP_BAR_CELLS] = '\0';
    table_cell(table, "%s %3.0f%%", bar, value * 100);
}

static void top_optional(struct table *table, const json_t *value, const char *unit)
{
    if (json_is_number(value))
        table_cell(table, "%.0f %s", json_number_value(value), unit);
    else
        table_cell(table, "-");
}

static const struct table_column top_gpu_columns[] = {
    {.title = "GPU", .right = true},
    {.title = "NAME", .dropped = 3},
    {.title = "STATE"},
    {.title = "BUSY"},
    {.title = "MEMORY GiB", .right = true},
    {.title = "POWER", .right = true, .dropped = 5},
    {.title = "TEMP", .right = true, .dropped = 4},
    {.title = "OWNER", .dropped = 1},
    {.title = "JOB", .dropped = 6},
    {.title = "WHY", .cut = true, .dropped = 2},
};

static void top_gpu_cells(struct table *table, const json_t *gpu)
{
    const json_t *reason = json_object_get(gpu, "reason");
    table_cell(table, "%lld", cli_whole(gpu, "number"));
    table_cell(table, "%s", cli_text(gpu, "name"));
    table_cell(table, "%s", cli_text(gpu, "state"));
    top_bar(table, json_object_get(gpu, "utilization"));
    table_cell(table, "%.1f/%.1f", top_gib(json_object_get(gpu, "used_bytes")),
               top_gib(json_object_get(gpu, "total_bytes")));
    top_optional(table, json_object_get(gpu, "power_w"), "W");
    top_optional(table, json_object_get(gpu, "temperature_c"), "C");
    table_cell(table, "%s", cli_text(gpu, "owner"));
    table_cell(table, "%s", cli_text(gpu, "job_id"));
    table_cell(table, "%s", json_is_string(reason) ? json_string_value(reason) : "");
}

/* Slots of the CPU differ in nothing but who has them, which the jobs say. */
static bool top_is_cpu(const json_t *gpus)
{
    const char *kind = json_string_value(json_object_get(json_array_get(gpus, 0), "kind"));
    return kind == NULL || strcmp(kind, "cpu") == 0;
}

static void top_gpus(struct top_lines *lines)
{
    const json_t *gpus = json_object_get(json_object_get(lines->top->data, "gpus"), "data");
    const size_t count = json_array_size(gpus);
    if (count == 0 || top_is_cpu(gpus))
        return;
    CLEANUP(table_done) struct table table;
    table_init(&table, top_gpu_columns, sizeof top_gpu_columns / sizeof top_gpu_columns[0]);
    for (size_t i = 0; i < count; i++)
        top_gpu_cells(&table, json_array_get(gpus, i));
    top_fit(lines->top, &table);
    size_t shown = table_rows(&table), most = top_room(lines) / 2;
    shown = shown <= most ? shown : most;
    top_gap(lines);
    top_row(lines, &table, TABLE_TITLES, false);
    for (size_t i = 0; i < shown; i++)
        top_row(lines, &table, (int)i, false);
    if (shown < count)
        top_linef(lines, TOP_FAINT, "  and %zu more GPUs", count - shown);
}

/* ---- jobs ---- */

static const struct table_column top_running_columns[] = {
    {.title = "RUNNING"},
    {.title = "OWNER", .dropped = 4},
    {.title = "STATE"},
    {.title = "STEP", .right = true},
    {.title = "LOSS", .right = true, .dropped = 8},
    {.title = "TOKENS/S", .right = true, .dropped = 6},
    {.title = "MFU", .right = true, .dropped = 3},
    {.title = "LEFT", .right = true, .dropped = 7},
    {.title = "GiB/PLAN", .right = true, .dropped = 5},
    {.title = "SLOTS", .right = true, .dropped = 2},
    {.title = "MODEL", .cut = true, .dropped = 1},
};

static void top_running_cells(const struct top *top, struct table *table, const json_t *entry)
{
    const char *id = json_string_value(json_object_get(entry, "id"));
    const json_t *known =
        id != NULL ? json_object_get(json_object_get(top->data, "jobs"), id) : NULL;
    const json_t *mfu = json_object_get(json_object_get(known, "latest"), "mfu_causal");
    const json_t *eta =
        json_object_get(json_object_get(json_object_get(known, "job"), "ithaca"), "eta");
    char text[32], left[CLOCK_DURATION_BYTES];
    table_cell(table, "%s", id != NULL ? id : "(another user's)");
    table_cell(table, "%s", cli_text(entry, "owner"));
    table_cell(table, "%s", cli_text(entry, "state"));
    top_steps_text(known, text);
    table_cell(table, "%s", text);
    top_latest_text(known, "loss", 4, text);
    table_cell(table, "%s", text);
    top_latest_text(known, "tokens_per_s", 0, text);
    table_cell(table, "%s", text);
    if (json_is_number(mfu))
        table_cell(table, "%.1f%%", json_number_value(mfu) * 100);
    else
        table_cell(table, "-");
    top_until(top, json_is_integer(eta) ? eta : json_object_get(entry, "estimated_end"), left);
    table_cell(table, "%s", left);
    top_memory_text(known, text);
    table_cell(table, "%s", text);
    table_cell(table, "%lld", cli_whole(entry, "slots"));
    table_cell(table, "%s", cli_text(json_object_get(known, "job"), "model"));
}

static const struct table_column top_waiting_columns[] = {
    {.title = "#", .right = true},
    {.title = "WAITING"},
    {.title = "OWNER", .dropped = 3},
    {.title = "STATE", .dropped = 4},
    {.title = "PRIORITY", .right = true, .dropped = 1},
    {.title = "SLOTS", .right = true, .dropped = 2},
    {.title = "STARTS IN", .right = true, .dropped = 5},
    {.title = "WHY", .cut = true, .dropped = 6},
};

static void top_waiting_cells(const struct top *top, struct table *table, const json_t *entry)
{
    const json_t *position = json_object_get(entry, "queue_position");
    const char *id = json_string_value(json_object_get(entry, "id"));
    char starts[CLOCK_DURATION_BYTES];
    if (json_is_integer(position))
        table_cell(table, "%lld", (long long)json_integer_value(position));
    else
        table_cell(table, "-");
    table_cell(table, "%s", id != NULL ? id : "(another user's)");
    table_cell(table, "%s", cli_text(entry, "owner"));
    table_cell(table, "%s", cli_text(entry, "state"));
    table_cell(table, "%lld", cli_whole(entry, "priority"));
    table_cell(table, "%lld", cli_whole(entry, "slots"));
    top_until(top, json_object_get(entry, "estimated_start"), starts);
    table_cell(table, "%s", starts);
    table_cell(table, "%s", cli_text(entry, "pending_reason"));
}

/* Rows from first to last of the table, whose first one is the job of place `base`. */
static void top_window(struct top_lines *lines, struct table *table, size_t base, size_t first,
                       size_t last)
{
    const struct top *top = lines->top;
    const size_t rows = table_rows(table);
    top_fit(top, table);
    if (rows == 0 || first >= base + rows || last <= base)
        return;
    top_gap(lines);
    top_row(lines, table, TABLE_TITLES, false);
    for (size_t i = 0; i < rows; i++)
        if (base + i >= first && base + i < last)
            top_row(lines, table, (int)i, top->rows > 0 && base + i == top->selected);
}

static void top_jobs(struct top_lines *lines)
{
    const struct top *top = lines->top;
    const json_t *queue = json_object_get(top->data, "queue");
    CLEANUP(table_done) struct table running, waiting;
    table_init(&running, top_running_columns,
               sizeof top_running_columns / sizeof top_running_columns[0]);
    table_init(&waiting, top_waiting_columns,
               sizeof top_waiting_columns / sizeof top_waiting_columns[0]);
    size_t i;
    const json_t *entry;
    json_array_foreach(json_object_get(queue, "running"), i, entry)
        top_running_cells(top, &running, entry);
    json_array_foreach(json_object_get(queue, "waiting"), i, entry)
        top_waiting_cells(top, &waiting, entry);
    const size_t count = table_rows(&running) + table_rows(&waiting);
    const size_t room = top_room(lines);
    const size_t visible = room > 6 ? room - 5 : 1; /* gaps, titles, a line of the rest */
    const size_t selected = top->selected != TOP_NONE ? top->selected : 0;
    const size_t first = selected >= visible ? selected - visible + 1 : 0;
    const size_t last = count - first > visible ? first + visible : count;
    const size_t waits = (size_t)cli_whole(queue, "waiting_count"); /* those not listed, too */
    const size_t all =
        table_rows(&running) + (waits > table_rows(&waiting) ? waits : table_rows(&waiting));
    const size_t unseen = all - (last - first);
    top_window(lines, &running, 0, first, last);
    top_window(lines, &waiting, table_rows(&running), first, last);
    if (count == 0)
        top_linef(lines, TOP_FAINT, "  no job runs or waits");
    else if (unseen > 0)
        top_linef(lines, TOP_FAINT, "  and %zu more jobs", unseen);
}

/* ---- the whole ---- */

static void top_foot(struct top_lines *lines)
{
    const struct top *top = lines->top;
    if (top->gone[0] != '\0')
        top_linef(lines, TOP_RED, "%s: %s", top->data == NULL ? "waiting for the daemon" : "lost",
                  top->gone);
    else if (top->asking)
        top_linef(lines, TOP_RED, "cancel %s? y: yes, any other key: no", top->selected_id);
    else if (top->said[0] != '\0')
        top_line(lines, TOP_PLAIN, top->said);
    while (top->rows > 0 && lines->count + 1 < top->rows)
        top_line(lines, TOP_PLAIN, "");
    if (top->rows > 0)
        top_line(lines, TOP_FAINT,
                 top->detail ? "q, escape: back   c: cancel   p: pause"
                             : "q: quit   arrows: select   enter: more   c: cancel   p: pause");
}

void top_frame(const struct top *top, struct buf *out)
{
    struct top_lines lines = {.top = top, .out = out};
    top_summary(&lines);
    if (top->detail) {
        top_detail(&lines);
    } else if (top->data != NULL) {
        top_gpus(&lines);
        top_jobs(&lines);
    }
    top_foot(&lines);
}

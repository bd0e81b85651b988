/* top_detail: one job on the whole screen: where it stands, its loss as a chart, its last events.
 */
#include "clients/cli/chart.h"
#include "clients/cli/cli.h"
#include "clients/cli/table.h"
#include "clients/cli/top.h"
#include "common/clock.h"
#include "common/mem.h"
#include "common/number.h"
#include "common/utf8.h"

#include <stdio.h>

enum {
    DETAIL_CHART_LINES = 12,
    DETAIL_EVENT_LINES = 4,
    DETAIL_WIDTH = 80,
    DETAIL_NUMBER_BYTES = 40
};

/* Lines of a text that came from elsewhere. */
static void detail_lines(struct top_lines *lines, enum top_style style, const char *label,
                         const char *text)
{
    char clean[TABLE_CELL_BYTES];
    utf8_line(text, clean, sizeof clean);
    top_linef(lines, style, "%s%s", label, clean);
}

/* The newest value of a metric, so many digits of it that count; "-" where there is none. */
static void detail_number(const json_t *detail, const char *metric, int digits, const char *unit,
                          char ret_text[DETAIL_NUMBER_BYTES])
{
    const json_t *value = json_object_get(json_object_get(detail, "latest"), metric);
    const bool known = json_is_number(value);
    (void)snprintf(ret_text, DETAIL_NUMBER_BYTES, "%s%s",
                   known ? number_plain(json_number_value(value), digits).text : "-",
                   known ? unit : "");
}

static void detail_facts(struct top_lines *lines, const json_t *detail)
{
    const json_t *job = json_object_get(detail, "job"), *error = json_object_get(job, "error");
    const json_t *ithaca = json_object_get(job, "ithaca");
    const json_t *reason = json_object_get(ithaca, "pending_reason");
    char steps[32], loss[32], speed[32], memory[32];
    char rate[DETAIL_NUMBER_BYTES], norm[DETAIL_NUMBER_BYTES], step_s[DETAIL_NUMBER_BYTES];
    top_steps_text(detail, steps);
    top_latest_text(detail, "loss", 4, loss);
    detail_number(detail, "learning_rate", 3, "", rate);
    detail_number(detail, "grad_norm", 4, "", norm);
    top_latest_text(detail, "tokens_per_s", 0, speed);
    detail_number(detail, "step_time_s", 3, " s", step_s);
    top_memory_text(detail, memory);
    top_linef(lines, TOP_BOLD, "%s  %s  %s  of %s", cli_text(job, "id"), cli_text(ithaca, "state"),
              cli_text(job, "model"), cli_text(ithaca, "owner"));
    top_linef(lines, TOP_PLAIN,
              "step %s  loss %s  learning rate %s  gradient norm %s  tokens/s %s  step %s", steps,
              loss, rate, norm, speed, step_s);
    top_linef(lines, TOP_PLAIN, "memory of a rank: %s GiB (peak of the last step / planned)",
              memory);
    if (json_is_string(reason))
        detail_lines(lines, TOP_PLAIN, "waits: ", json_string_value(reason));
    if (json_is_object(error))
        detail_lines(lines, TOP_RED, "failed: ", cli_text(error, "message"));
}

static void detail_chart(struct top_lines *lines, const json_t *detail)
{
    const struct top *top = lines->top;
    const size_t room = top_room(lines);
    struct chart chart = {.series = {json_object_get(detail, "loss")},
                          .count = 1,
                          .width = top->columns > 0 ? top->columns : DETAIL_WIDTH,
                          .height = DETAIL_CHART_LINES};
    if (room < DETAIL_EVENT_LINES + 3 || chart.width < CHART_LABEL + 10 ||
        json_array_size(chart.series[0]) < 2)
        return;
    if (room < DETAIL_EVENT_LINES + DETAIL_CHART_LINES)
        chart.height = room - DETAIL_EVENT_LINES;
    CLEANUP(buf_done) struct buf text;
    buf_init(&text, TOP_FRAME_BYTES);
    chart_draw(&chart, &text);
    for (char *line = text.data; line != NULL && *line != '\0';) {
        char *end = line;
        while (*end != '\n')
            end++;
        *end = '\0';
        top_line(lines, TOP_PLAIN, line);
        line = end + 1;
    }
}

/* The newest that there is room for, the last one at the bottom. */
static void detail_events(struct top_lines *lines, const json_t *detail)
{
    const json_t *events = json_object_get(detail, "events"); /* newest first */
    size_t count = json_array_size(events), room = top_room(lines);
    count = count < room ? count : room;
    for (size_t i = count; i > 0; i--) {
        const json_t *event = json_array_get(events, i - 1);
        const char *level = cli_text(event, "level");
        char when[CLOCK_ISO_BYTES], label[64];
        clock_iso(json_integer_value(json_object_get(event, "created_at")) * 1000, when);
        (void)snprintf(label, sizeof label, "%.8sZ  %-5.5s  ", when + 11, level);
        detail_lines(lines, level[0] == 'e' ? TOP_RED : TOP_PLAIN, label,
                     cli_text(event, "message"));
    }
}

void top_detail(struct top_lines *lines)
{
    const json_t *detail = json_object_get(lines->top->data, "detail");
    if (!json_is_object(detail)) {
        top_linef(lines, TOP_PLAIN, "%s ...", lines->top->selected_id);
        return;
    }
    detail_facts(lines, detail);
    detail_chart(lines, detail);
    detail_events(lines, detail);
}

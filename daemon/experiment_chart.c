/* experiment_chart: two panels, one above the other, and a legend. Context is on a logarithmic
 * scale, with a mark at each length that was asked for; the other axis is linear, from 0. Measured
 * is drawn as a line with dots, planned memory as dashes, which points that were not run have too.
 * What cannot run may need a hundred times as much as what can: the scale is that of what can, and
 * dashes leave the panel. */
#include "daemon/experiment_chart.h"

#include "common/mem.h"
#include "common/number.h"
#include "daemon/store_experiments.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    CHART_WIDTH = 800,
    CHART_PANEL = 300, /* height of one */
    CHART_LEFT = 64,   /* of it, for the scale */
    CHART_RIGHT = 280, /* for the legend */
    CHART_TOP = 36,    /* for its title */
    CHART_BOTTOM = 44, /* for the lengths */
    CHART_LINES = 5,   /* of the linear scale */
    CHART_LEGEND = 14, /* labels named: what a panel has room for */
    CHART_LABEL = 40,  /* characters of each */
    CHART_COLOURS = 8
};

/* Okabe and Ito's, told apart by the colour-blind too; legible on light and dark. */
static const char *const chart_colours[CHART_COLOURS] = {
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6bb1", "#999999"};

enum chart_value { CHART_SPEED, CHART_DEVICE, CHART_PLANNED, CHART_VALUES };

struct chart_dot {
    size_t series;
    double seq_len;
    double values[CHART_VALUES]; /* NaN: there is none */
    bool runs;                   /* else it does not fit, or is no legal job */
};

struct chart {
    struct chart_dot *dots; /* (count) by series, then by seq_len; owned */
    size_t count;
    const char **labels; /* (series) borrowed of the rows; owned */
    size_t series;
    double low, high; /* seq_len */
};

/* ---- data ---- */

static double chart_number(const json_t *row, const char *column)
{
    const json_t *value = json_object_get(row, column);
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

static bool chart_runs(const json_t *row)
{
    const char *status = json_string_value(json_object_get(row, "status"));
    return status == NULL ||
           (strcmp(status, STORE_POINT_NO_ROOM) != 0 && strcmp(status, STORE_POINT_REFUSED) != 0);
}

static size_t chart_series(struct chart *chart, const json_t *row)
{
    const char *label = json_string_value(json_object_get(row, "label"));
    if (label == NULL || label[0] == '\0')
        label = json_string_value(json_object_get(row, "model"));
    if (label == NULL)
        label = "";
    size_t i = 0;
    while (i < chart->series && strcmp(chart->labels[i], label) != 0)
        i++;
    chart->labels[i] = label;
    chart->series += i == chart->series;
    return i;
}

static int chart_by_series(const void *a, const void *b)
{
    const struct chart_dot *x = a, *y = b;
    if (x->series != y->series)
        return x->series < y->series ? -1 : 1;
    return (x->seq_len > y->seq_len) - (x->seq_len < y->seq_len);
}

static int chart_fill(struct chart *chart, const json_t *rows)
{
    const size_t all = json_array_size(rows);
    size_t i;
    json_t *row;
    chart->dots = mem_new(all, sizeof *chart->dots);
    chart->labels = mem_new(all, sizeof *chart->labels);
    if (chart->dots == NULL || chart->labels == NULL)
        return -1;
    json_array_foreach(rows, i, row)
    {
        struct chart_dot *dot = &chart->dots[chart->count];
        dot->seq_len = chart_number(row, "seq_len");
        if (!(dot->seq_len > 0))
            continue;
        dot->series = chart_series(chart, row);
        dot->runs = chart_runs(row);
        dot->values[CHART_SPEED] = chart_number(row, "tokens_per_s_gpu");
        dot->values[CHART_DEVICE] = chart_number(row, "device_bytes") * 0x1p-30;
        dot->values[CHART_PLANNED] = chart_number(row, "planned_device_bytes") * 0x1p-30;
        chart->low = chart->count == 0 ? dot->seq_len : fmin(chart->low, dot->seq_len);
        chart->high = fmax(chart->high, dot->seq_len);
        chart->count++;
    }
    qsort(chart->dots, chart->count, sizeof *chart->dots, chart_by_series);
    return 0;
}

static void chart_done(struct chart *chart)
{
    mem_free(chart->dots);
    mem_free(chart->labels);
}

/* ---- drawing ---- */

static double chart_x(const struct chart *chart, double seq_len)
{
    const double width = CHART_WIDTH - CHART_LEFT - CHART_RIGHT;
    if (chart->high <= chart->low)
        return CHART_LEFT + width / 2;
    return CHART_LEFT + width * log(seq_len / chart->low) / log(chart->high / chart->low);
}

static double chart_y(double top, double share)
{
    return top + CHART_PANEL - CHART_BOTTOM - share * (CHART_PANEL - CHART_TOP - CHART_BOTTOM);
}

/* The most there is, of all points or of those that can run. */
static double chart_most(const struct chart *chart, const bool shown[CHART_VALUES], bool all)
{
    double most = 0;
    for (size_t i = 0; i < chart->count; i++)
        for (int v = 0; v < CHART_VALUES; v++)
            if (shown[v] && (all || chart->dots[i].runs) && chart->dots[i].values[v] > most)
                most = chart->dots[i].values[v];
    return most;
}

/* 1, 2 or 5 times a power of ten, so that CHART_LINES of it reach the most there is. */
static double chart_unit(const struct chart *chart, const bool shown[CHART_VALUES])
{
    double most = chart_most(chart, shown, false);
    if (!(most > 0))
        most = chart_most(chart, shown, true);
    if (!(most > 0))
        return 1;
    double unit = pow(10, floor(log10(most / CHART_LINES)));
    const double steps[] = {1, 2, 5, 10};
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++)
        if (unit * steps[i] * CHART_LINES >= most)
            return unit * steps[i];
    return unit * 10;
}

static void chart_escape(const char *text, size_t characters, struct buf *out)
{
    for (; *text != '\0'; text++) {
        if (((unsigned char)*text & 0xc0) != 0x80 && characters-- == 0) {
            buf_text(out, "…");
            return;
        }
        if (*text == '<' || *text == '&' || *text == '>')
            buf_printf(out, "&#%d;", *text);
        else
            buf_char(out, *text);
    }
}

/* "128K", "1M": as people write them here. */
static void chart_length(double seq_len, struct buf *out)
{
    if (seq_len >= 0x1p20 && fmod(seq_len, 0x1p20) == 0)
        buf_printf(out, "%.0fM", seq_len * 0x1p-20);
    else if (seq_len >= 1024 && fmod(seq_len, 1024) == 0)
        buf_printf(out, "%.0fK", seq_len / 1024);
    else
        buf_printf(out, "%.0f", seq_len);
}

static void chart_scale(const struct chart *chart, double top, double unit, struct buf *out)
{
    for (int i = 0; i <= CHART_LINES; i++) {
        double y = chart_y(top, (double)i / CHART_LINES);
        buf_printf(out,
                   "<path d=\"M%d %.1fH%d\" stroke=\"currentColor\" stroke-opacity=\"%s\"/>"
                   "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n",
                   CHART_LEFT, y, CHART_WIDTH - CHART_RIGHT, i == 0 ? "0.6" : "0.15",
                   CHART_LEFT - 6, y + 4, number_plain(unit * i, 4).text);
    }
    double last = -1e9;
    for (size_t i = 0; i < chart->count; i++) { /* of each length once, where there is room */
        double x = chart_x(chart, chart->dots[i].seq_len);
        bool seen = false;
        for (size_t k = 0; k < i; k++)
            seen |= chart->dots[k].seq_len == chart->dots[i].seq_len;
        if (seen || fabs(x - last) < 34)
            continue;
        last = x;
        buf_printf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">", x,
                   top + CHART_PANEL - CHART_BOTTOM + 18);
        chart_length(chart->dots[i].seq_len, out);
        buf_text(out, "</text>\n");
    }
}

/* One series' line of one value, and a dot with its words at each point. */
static void chart_line(const struct chart *chart, size_t series, enum chart_value value, double top,
                       double most, struct buf *out)
{
    const char *colour = chart_colours[series % CHART_COLOURS], *command = "M";
    const bool dashed = value == CHART_PLANNED;
    buf_printf(out, "<path fill=\"none\" stroke=\"%s\" stroke-width=\"2\"%s d=\"", colour,
               dashed ? " stroke-dasharray=\"5 4\"" : "");
    for (size_t i = 0; i < chart->count; i++) {
        const struct chart_dot *dot = &chart->dots[i];
        if (dot->series != series || !isfinite(dot->values[value]))
            continue;
        buf_printf(out, "%s%.1f %.1f", command, chart_x(chart, dot->seq_len),
                   chart_y(top, dot->values[value] / most));
        command = "L";
    }
    buf_text(out, "\"/>\n");
    for (size_t i = 0; i < chart->count && !dashed; i++) {
        const struct chart_dot *dot = &chart->dots[i];
        if (dot->series != series || !isfinite(dot->values[value]))
            continue;
        buf_printf(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\" fill=\"%s\"><title>",
                   chart_x(chart, dot->seq_len), chart_y(top, dot->values[value] / most), colour);
        chart_escape(chart->labels[series], 128, out);
        buf_text(out, ", ");
        chart_length(dot->seq_len, out);
        buf_printf(out, ": %s</title></circle>\n", number_plain(dot->values[value], 5).text);
    }
}

static void chart_legend(const struct chart *chart, double top, struct buf *out)
{
    for (size_t i = 0; i < chart->series && i < CHART_LEGEND; i++) {
        double y = top + CHART_TOP + (double)i * 16;
        buf_printf(out,
                   "<rect x=\"%d\" y=\"%.1f\" width=\"10\" height=\"10\" fill=\"%s\"/>"
                   "<text x=\"%d\" y=\"%.1f\">",
                   CHART_WIDTH - CHART_RIGHT + 12, y - 9, chart_colours[i % CHART_COLOURS],
                   CHART_WIDTH - CHART_RIGHT + 28, y);
        chart_escape(chart->labels[i], CHART_LABEL, out);
        buf_text(out, "</text>\n");
    }
}

static void chart_panel(const struct chart *chart, double top, const char *title,
                        const bool shown[CHART_VALUES], struct buf *out)
{
    double unit = chart_unit(chart, shown);
    buf_printf(out, "<text x=\"%d\" y=\"%.1f\" font-weight=\"bold\">%s</text>\n", CHART_LEFT,
               top + 20, title);
    chart_scale(chart, top, unit, out);
    buf_printf(out,
               "<clipPath id=\"panel-%.0f\"><rect x=\"0\" y=\"%.0f\" width=\"%d\" height=\"%d\"/>"
               "</clipPath><g clip-path=\"url(#panel-%.0f)\">\n",
               top, top + CHART_TOP - 4, CHART_WIDTH, CHART_PANEL - CHART_TOP, top);
    for (size_t series = 0; series < chart->series; series++)
        for (int v = 0; v < CHART_VALUES; v++)
            if (shown[v])
                chart_line(chart, series, (enum chart_value)v, top, unit * CHART_LINES, out);
    buf_text(out, "</g>\n");
    chart_legend(chart, top, out);
}

void experiment_chart_svg(const json_t *rows, struct buf *out)
{
    static const bool speed[CHART_VALUES] = {[CHART_SPEED] = true};
    static const bool memory[CHART_VALUES] = {[CHART_DEVICE] = true, [CHART_PLANNED] = true};
    CLEANUP(chart_done) struct chart chart = {.dots = NULL};
    if (chart_fill(&chart, rows) != 0) {
        out->bad = ERR_NOMEM;
        return;
    }
    buf_printf(out,
               "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" role=\"img\" "
               "font-family=\"sans-serif\" font-size=\"12\" fill=\"currentColor\">\n"
               "<title>Throughput and memory against context length</title>\n"
               "<rect class=\"paper\" width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
               CHART_WIDTH, 2 * CHART_PANEL);
    chart_panel(&chart, 0, "Tokens/s a GPU, by context length", speed, out);
    chart_panel(&chart, CHART_PANEL,
                "Device memory of a rank, GiB, by context length (dashed: planned)", memory, out);
    buf_text(out, "</svg>\n");
}

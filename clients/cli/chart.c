/* chart: points fall into cells of a grid. A column that lies between two points of a series and
 * has none of its own gets the value on the line between them. */
#include "clients/cli/chart.h"

#include "common/must.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

struct chart_area {
    double step_low, step_high, low, high; /* of all points */
    size_t width, height;                  /* cells */
    char cells[CHART_HEIGHT_MAX][CHART_WIDTH_MAX];
};

char chart_mark(size_t series)
{
    return "*+ox#@%="[series % CHART_SERIES_MAX];
}

/* Point i of a series; false where its value is not finite. */
static bool chart_point(const json_t *series, size_t i, double *ret_step, double *ret_value)
{
    const json_t *point = json_array_get(series, i);
    const json_t *value = json_array_get(point, 1);
    *ret_step = json_number_value(json_array_get(point, 0));
    *ret_value = json_number_value(value);
    return json_is_number(value);
}

static bool chart_measure(const struct chart *chart, struct chart_area *area)
{
    double step, value;
    area->step_low = area->low = DBL_MAX;
    area->step_high = area->high = -DBL_MAX;
    for (size_t s = 0; s < chart->count; s++)
        for (size_t i = 0; i < json_array_size(chart->series[s]); i++) {
            if (!chart_point(chart->series[s], i, &step, &value))
                continue;
            area->step_low = fmin(area->step_low, step);
            area->step_high = fmax(area->step_high, step);
            area->low = fmin(area->low, value);
            area->high = fmax(area->high, value);
        }
    return area->low <= area->high;
}

/* The cell that a share of 0 to 1 of `cells` falls into. */
static size_t chart_cell(double at, double low, double high, size_t cells)
{
    double share = high > low ? (at - low) / (high - low) : 0.5;
    return (size_t)lround(share * (double)(cells - 1));
}

static void chart_plot(struct chart_area *area, double step, double value, char mark)
{
    size_t column = chart_cell(step, area->step_low, area->step_high, area->width);
    size_t row = area->height - 1 - chart_cell(value, area->low, area->high, area->height);
    area->cells[row][column] = mark;
}

/* From one point to the next, a mark in every column between. */
static void chart_join(struct chart_area *area, const double from[2], const double to[2], char mark)
{
    size_t first = chart_cell(from[0], area->step_low, area->step_high, area->width);
    size_t last = chart_cell(to[0], area->step_low, area->step_high, area->width);
    for (size_t column = first + 1; column < last; column++) {
        double share = (double)(column - first) / (double)(last - first);
        chart_plot(area, from[0] + share * (to[0] - from[0]), from[1] + share * (to[1] - from[1]),
                   mark);
    }
}

static void chart_series(struct chart_area *area, const json_t *series, char mark)
{
    double before[2], point[2];
    bool joined = false; /* before is a point */
    for (size_t i = 0; i < json_array_size(series); i++) {
        if (!chart_point(series, i, &point[0], &point[1])) {
            joined = false; /* a gap */
            continue;
        }
        if (joined)
            chart_join(area, before, point, mark);
        chart_plot(area, point[0], point[1], mark);
        memcpy(before, point, sizeof before);
        joined = true;
    }
}

void chart_draw(const struct chart *chart, struct buf *out)
{
    struct chart_area area;
    must(chart->count <= CHART_SERIES_MAX && chart->height >= 3 &&
         chart->width >= CHART_LABEL + 10);
    area.width = chart->width - CHART_LABEL - 2;
    area.width = area.width < CHART_WIDTH_MAX ? area.width : CHART_WIDTH_MAX;
    area.height = chart->height - 1 < CHART_HEIGHT_MAX ? chart->height - 1 : CHART_HEIGHT_MAX;
    if (!chart_measure(chart, &area))
        return;
    memset(area.cells, ' ', sizeof area.cells);
    for (size_t s = 0; s < chart->count; s++)
        chart_series(&area, chart->series[s], chart_mark(s));
    for (size_t row = 0; row < area.height; row++) {
        size_t used = area.width;
        while (used > 0 && area.cells[row][used - 1] == ' ')
            used--;
        if (row == 0 || row == area.height - 1)
            buf_printf(out, "%*.5g |", CHART_LABEL, row == 0 ? area.high : area.low);
        else
            buf_printf(out, "%*s |", CHART_LABEL, "");
        buf_append(out, area.cells[row], used);
        buf_char(out, '\n');
    }
    char last[32];
    int length = snprintf(last, sizeof last, "%.0f", area.step_high);
    int gap = (int)area.width - length;
    buf_printf(out, "%*s  %-*.0f%s\n", CHART_LABEL, "", gap > 0 ? gap : 0, area.step_low, last);
}

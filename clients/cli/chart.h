/* chart: a line chart of a few series in characters, for terminals and pipes.
 *
 *     2.3148 |*
 *            | *+
 *            |  **++
 *     0.4120 |     ****
 *             1      300
 *
 * Each series has a mark of its own (chart_mark); where two meet, the later one is seen. */
#pragma once
#include "common/buf.h"
#include "common/json.h"

#include <stddef.h>

enum { CHART_SERIES_MAX = 8, CHART_WIDTH_MAX = 200, CHART_HEIGHT_MAX = 60, CHART_LABEL = 10 };

struct chart {
    const json_t *series[CHART_SERIES_MAX]; /* each [[step, value or null, ...], ...] */
    size_t count;
    size_t width;  /* columns, labels included; at least CHART_LABEL + 10 */
    size_t height; /* lines, the one with the steps included; at least 3 */
};

char chart_mark(size_t series);
/* Nothing where no series has a finite value. */
void chart_draw(const struct chart *chart, struct buf *out);

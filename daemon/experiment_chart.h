/* experiment_chart: an experiment's results as a picture: throughput and memory against context
 * length, a line for each label. */
#pragma once
#include "common/buf.h"
#include "common/json.h"

/* rows: of experiment_table_row(). SVG with nothing in it but shapes and escaped text; ink is
 * currentColor, so that a page can give it its own, and class "paper" is the ground. What has no
 * figure yet is not drawn. */
void experiment_chart_svg(const json_t *rows, struct buf *out);

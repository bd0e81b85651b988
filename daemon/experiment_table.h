/* experiment_table: the results of an experiment, a row a point, with the columns of
 * api/experiment_columns.def: as JSON, CSV and Markdown. */
#pragma once
#include "common/buf.h"
#include "common/json.h"
#include "daemon/store_experiments.h"

/* New reference: a row as an object, every column there. job_state: of the point's job, while it
 * has not ended. */
int experiment_table_row(const struct store_point_row *point, const char *job_state, json_t **ret,
                         struct err *err);
/* rows: an array of these. RFC 4180, figures as they are. */
void experiment_table_csv(const json_t *rows, struct buf *out);
/* For people: GiB, percent, five digits. */
void experiment_table_markdown(const json_t *rows, struct buf *out);
/* New reference: the schema of a row. */
json_t *experiment_table_schema(void);

/* table: lines of text in columns, as wide as their cells, or as a terminal allows: where it is too
 * narrow the least important columns are left out, then the cells of the last one are cut.
 *
 *     static const struct table_column columns[] = {{.title = "JOB"}, {.title = "LOSS", ...}};
 *     struct table table;
 *     table_init(&table, columns, 2);
 *     table_cell(&table, "%s", id);
 *     table_cell(&table, "%.4f", loss);        row after row, cell after cell
 *     table_fit(&table, 80);
 *     table_line(&table, TABLE_TITLES, &out);  then rows 0, 1, ...
 *     table_done(&table);
 *
 * Cells are texts for a terminal: control characters and bytes that are no UTF-8 become '?', so
 * what others wrote cannot move its cursor. Characters count as one column each. When memory runs
 * out the table lacks its last cells, and buf_error(&table.text) says so. */
#pragma once
#include "common/buf.h"

#include <stdbool.h>
#include <stddef.h>

enum { TABLE_COLUMNS_MAX = 32, TABLE_CELL_BYTES = 512, TABLE_TITLES = -1 };

struct table_column {
    const char *title;
    bool right;  /* numbers */
    bool cut;    /* may be cut to what is left; one column of a table */
    int dropped; /* where it is narrow: 1 goes first, 2 next; 0 stays */
};

struct table {
    const struct table_column *columns; /* the caller's */
    size_t column_count;
    struct buf text;                  /* cells, each with a NUL */
    size_t cell_count;                /* of all rows */
    size_t widths[TABLE_COLUMNS_MAX]; /* in characters; 0: left out */
};

void table_init(struct table *table, const struct table_column *columns, size_t count);
void table_done(struct table *table);
void table_cell(struct table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));
size_t table_rows(const struct table *table);
/* Settles the widths; columns 0: as wide as it is. */
void table_fit(struct table *table, size_t columns);
/* One row, or TABLE_TITLES, without a newline or spaces at its end. */
void table_line(const struct table *table, int row, struct buf *out);
/* Titles and all rows, a line each. */
void table_print(const struct table *table, struct buf *out);

size_t table_width(const char *text); /* characters */
/* At most `columns` characters of a text; a cut one ends with "~". */
void table_clip(const char *text, size_t columns, struct buf *out);

/* table: cells lie one after the other in a buffer; a line by itself walks to its row's. */
#include "clients/cli/table.h"

#include "common/must.h"
#include "common/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { TABLE_GAP = 2, TABLE_TEXT_BYTES = 1 << 24, TABLE_CUT_MIN = 8 };

void table_init(struct table *table, const struct table_column *columns, size_t count)
{
    must(count > 0 && count <= TABLE_COLUMNS_MAX);
    *table = (struct table){.columns = columns, .column_count = count};
    buf_init(&table->text, TABLE_TEXT_BYTES);
}

void table_done(struct table *table)
{
    buf_done(&table->text);
}

void table_cell(struct table *table, const char *format, ...)
{
    char raw[TABLE_CELL_BYTES], clean[TABLE_CELL_BYTES];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(raw, sizeof raw, format, arguments); /* a longer one is cut */
    va_end(arguments);
    utf8_cut(raw);
    utf8_line(raw, clean, sizeof clean);
    buf_append(&table->text, clean, strlen(clean) + 1);
    table->cell_count += table->text.bad == ERR_NONE;
}

size_t table_rows(const struct table *table)
{
    must(table->column_count > 0);
    return table->cell_count / table->column_count;
}

size_t table_width(const char *text)
{
    return utf8_count(text, strlen(text));
}

void table_clip(const char *text, size_t columns, struct buf *out)
{
    if (table_width(text) <= columns) {
        buf_text(out, text);
        return;
    }
    const char *end = text;
    for (size_t left = columns; left > 1 && *end != '\0'; left--)
        do
            end++;
        while (((unsigned char)*end & 0xc0) == 0x80);
    buf_append(out, text, (size_t)(end - text));
    if (columns > 0)
        buf_char(out, '~');
}

static size_t table_total(const struct table *table)
{
    size_t total = 0;
    for (size_t i = 0; i < table->column_count; i++)
        if (table->widths[i] > 0)
            total += table->widths[i] + (total > 0 ? TABLE_GAP : 0);
    return total;
}

/* Leaves out the column that goes first of those that are there; false: none may go. */
static bool table_drop(struct table *table)
{
    size_t first = table->column_count;
    for (size_t i = 0; i < table->column_count; i++) {
        const struct table_column *column = &table->columns[i];
        if (table->widths[i] == 0 || column->dropped == 0)
            continue;
        if (first == table->column_count || column->dropped < table->columns[first].dropped)
            first = i;
    }
    if (first == table->column_count)
        return false;
    table->widths[first] = 0;
    return true;
}

/* Narrows the column that may be cut, no further than it can still be read. */
static void table_cut(struct table *table, size_t columns)
{
    for (size_t i = 0; i < table->column_count; i++) {
        size_t over = table_total(table) > columns ? table_total(table) - columns : 0;
        size_t *width = &table->widths[i];
        if (!table->columns[i].cut || *width <= TABLE_CUT_MIN)
            continue;
        *width = *width > over + TABLE_CUT_MIN ? *width - over : TABLE_CUT_MIN;
    }
}

void table_fit(struct table *table, size_t columns)
{
    size_t full[TABLE_COLUMNS_MAX] = {0};
    const char *cell = buf_str(&table->text);
    for (size_t i = 0; i < table->column_count; i++)
        full[i] = table_width(table->columns[i].title);
    for (size_t i = 0; i < table_rows(table) * table->column_count; i++) {
        size_t width = table_width(cell), *widest = &full[i % table->column_count];
        *widest = width > *widest ? width : *widest;
        cell += strlen(cell) + 1;
    }
    memcpy(table->widths, full, sizeof table->widths[0] * table->column_count);
    if (columns == 0)
        return;
    do { /* a column that goes may make room for the whole of the one that is cut */
        for (size_t i = 0; i < table->column_count; i++)
            if (table->columns[i].cut && table->widths[i] > 0)
                table->widths[i] = full[i];
        table_cut(table, columns);
    } while (table_total(table) > columns && table_drop(table));
}

static void table_put(const struct table *table, size_t column, const char *cell, struct buf *out)
{
    size_t wide = table->widths[column], used = table_width(cell);
    int pad = used < wide ? (int)(wide - used) : 0;
    if (table->columns[column].right)
        buf_printf(out, "%*s", pad, "");
    table_clip(cell, wide, out);
    if (!table->columns[column].right)
        buf_printf(out, "%*s", pad, "");
}

/* The line of a row whose first cell is `cell`, or of the titles (NULL). Returns the cell after its
 * last. */
static const char *table_row(const struct table *table, const char *cell, struct buf *out)
{
    const char *gap = "";
    const bool titles = cell == NULL;
    for (size_t i = 0; i < table->column_count; i++) {
        const char *text = titles ? table->columns[i].title : cell;
        if (table->widths[i] > 0) {
            buf_text(out, gap);
            table_put(table, i, text, out);
            gap = "  ";
        }
        if (!titles)
            cell += strlen(cell) + 1;
    }
    while (out->length > 0 && out->data[out->length - 1] == ' ')
        out->data[--out->length] = '\0';
    return cell;
}

void table_line(const struct table *table, int row, struct buf *out)
{
    const char *cell = buf_str(&table->text);
    for (size_t skip = row > 0 ? (size_t)row * table->column_count : 0; skip > 0; skip--)
        cell += strlen(cell) + 1;
    (void)table_row(table, row == TABLE_TITLES ? NULL : cell, out);
}

void table_print(const struct table *table, struct buf *out)
{
    const char *cell = buf_str(&table->text);
    (void)table_row(table, NULL, out);
    buf_char(out, '\n');
    for (size_t row = 0; row < table_rows(table); row++) {
        cell = table_row(table, cell, out);
        buf_char(out, '\n');
    }
}

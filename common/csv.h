/* csv: fields of RFC 4180, for programs and for spreadsheets.
 *
 * A spreadsheet takes a field that begins with = + - @ (or with a tab or a line's end before one)
 * as a formula, which may read files or call addresses. People name models, experiments and
 * settings, and others open the table, so such a text gets a ' in front, as typed into a
 * spreadsheet. Numbers are not text: buf_printf() them. */
#pragma once
#include "common/buf.h"

/* A text; one with a comma, a quote or a line's end is put in quotes. */
void csv_put(const char *text, struct buf *out);

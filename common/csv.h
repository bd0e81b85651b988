/* csv: fields of RFC 4180. */
#pragma once
#include "common/buf.h"

/* A field; one with a comma, a quote or a line's end is put in quotes. */
void csv_put(const char *text, struct buf *out);

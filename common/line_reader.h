/* line_reader: the lines of a file, one at a time, in memory bounded by the longest line served.
 *
 * A byte-order mark at the start of the file and a carriage return before a line feed are not part
 * of a line; a last line without a line feed is a line. A line beyond the limit is not kept: it is
 * reported with its length and skipped.
 *
 *     struct line_reader reader;
 *     TRY(line_reader_open(&reader, path, LIMIT_LINE_BYTES, err));
 *     struct line line;
 *     do {
 *         rc = line_reader_next(&reader, &line, err);
 *         ...
 *     } while (rc == 0 && !line.end);
 *     line_reader_done(&reader); */
#pragma once
#include "common/buf.h"
#include "common/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct line {
    const char *bytes; /* length of them and a NUL; valid until the next call; "" when too long */
    int64_t length;    /* of the whole line, kept or not */
    int64_t number;    /* 1-based */
    bool too_long;     /* length is over the limit */
    bool end;          /* no line: the file has ended */
};

struct line_reader {
    int fd;
    const char *path;    /* borrowed; for errors */
    struct buf kept;     /* the current line */
    char *chunk;         /* LINE_READER_CHUNK bytes of the file */
    size_t chunk_used;   /* of chunk, consumed */
    size_t chunk_filled; /* of chunk, read */
    int64_t lines;       /* given out */
};

int line_reader_open(struct line_reader *ret_reader, const char *path, size_t line_bytes_max,
                     struct err *err);
int line_reader_next(struct line_reader *reader, struct line *ret_line, struct err *err);
void line_reader_done(struct line_reader *reader);

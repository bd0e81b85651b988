/* line_reader: the rows of a file, one at a time, in memory bounded by the longest row served. The
 * file may be gzip or zstd (io_stream.h).
 *
 * A row is a line. When the file's first character is '[' it is one JSON array and a row is an
 * element of it, however many lines it takes; the file of a text reader (plain) is rows of up to
 * `row_bytes_max` bytes that end at a line feed where there is one.
 *
 * A byte-order mark at the start of the file and a carriage return before a line feed are not part
 * of a line; a last line without a line feed is a line. A row beyond the limit is not kept: it is
 * reported with its length and skipped.
 *
 *     struct line_reader reader;
 *     TRY(line_reader_open(&reader, path, LINE_READER_LINES, LIMIT_LINE_BYTES, err));
 *     struct line line;
 *     do {
 *         rc = line_reader_next(&reader, &line, err);
 *         ...
 *     } while (rc == 0 && !line.end);
 *     line_reader_done(&reader); */
#pragma once
#include "common/buf.h"
#include "common/err.h"
#include "common/io_stream.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct line {
    const char *bytes; /* length of them and a NUL; valid until the next call; "" when too long */
    int64_t length;    /* of the whole row, kept or not */
    int64_t number;    /* of its first line, 1-based */
    bool too_long;     /* length is over the limit */
    bool end;          /* no row: the file has ended */
};

enum line_reader_kind {
    LINE_READER_LINES, /* or a JSON array */
    LINE_READER_ARRAY, /* found, never asked for */
    LINE_READER_TEXT,
};

struct line_reader {
    struct io_stream stream;
    enum line_reader_kind kind;
    bool started;        /* the first bytes were looked at */
    bool closed;         /* the array has ended */
    struct buf kept;     /* the current row */
    char *chunk;         /* bytes of the file; owned */
    size_t chunk_used;   /* of chunk, consumed */
    size_t chunk_filled; /* of chunk, read */
    int64_t lines;       /* line feeds passed */
    int64_t rows;        /* given out */
};

int line_reader_open(struct line_reader *ret_reader, const char *path, enum line_reader_kind kind,
                     size_t row_bytes_max, struct err *err);
/* ERR_DATA when an array is not well-formed between its elements, or io_stream_read() says so. */
int line_reader_next(struct line_reader *reader, struct line *ret_line, struct err *err);
/* Gives up the memory of the row given out last, which is as much as that row is long. */
void line_reader_release(struct line_reader *reader);
void line_reader_done(struct line_reader *reader);

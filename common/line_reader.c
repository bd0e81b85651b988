/* line_reader: reads chunks and cuts them into rows. The buffer of the row grows by doubling up to
 * the limit, so a row of any length costs reading it once.
 *
 * An element of an array ends where its brackets close outside of strings, or, where it is no
 * object or list, before the next comma or the array's end. Whether it is JSON is the caller's
 * business. */
#include "common/line_reader.h"

#include "common/mem.h"
#include "common/must.h"
#include "common/utf8.h"

#include <string.h>

enum { LINE_READER_CHUNK = 1 << 18 };

int line_reader_open(struct line_reader *ret_reader, const char *path, enum line_reader_kind kind,
                     size_t row_bytes_max, struct err *err)
{
    struct line_reader reader = {.kind = kind, .chunk = mem_new(1, LINE_READER_CHUNK)};
    if (reader.chunk == NULL)
        return mem_fail(err, LINE_READER_CHUNK, "reading a file");
    buf_init(&reader.kept, row_bytes_max);
    int rc = io_stream_open(&reader.stream, path, err);
    if (rc != 0) {
        mem_free(reader.chunk);
        return rc;
    }
    *ret_reader = reader;
    return 0;
}

void line_reader_release(struct line_reader *reader)
{
    size_t row_bytes_max = reader->kept.length_max;
    buf_done(&reader->kept);
    buf_init(&reader->kept, row_bytes_max);
}

void line_reader_done(struct line_reader *reader)
{
    if (reader->chunk != NULL)
        io_stream_close(&reader->stream);
    mem_free(reader->chunk);
    buf_done(&reader->kept);
    *reader = (struct line_reader){.chunk = NULL};
}

/* More bytes into an empty chunk; false at the end of the file. */
static int line_reader_fill(struct line_reader *reader, bool *ret_more, struct err *err)
{
    if (reader->chunk_used == reader->chunk_filled) {
        reader->chunk_used = 0;
        reader->chunk_filled = 0;
        TRY(io_stream_read(&reader->stream, reader->chunk, LINE_READER_CHUNK, &reader->chunk_filled,
                           err));
    }
    *ret_more = reader->chunk_used < reader->chunk_filled;
    return 0;
}

/* Adds bytes of the chunk to the row. */
static int line_reader_take(struct line_reader *reader, size_t taken, struct line *line,
                            struct err *err)
{
    if (line->length + (int64_t)taken <= (int64_t)reader->kept.length_max) {
        buf_append(&reader->kept, reader->chunk + reader->chunk_used, taken);
        TRY(buf_error(&reader->kept, err));
    } else {
        line->too_long = true;
        buf_clear(&reader->kept);
    }
    line->length += (int64_t)taken;
    reader->chunk_used += taken;
    return 0;
}

/* The line as it stands in the file, without its line feed. */
static int line_reader_collect(struct line_reader *reader, struct line *line, struct err *err)
{
    for (;;) {
        bool more = false;
        TRY(line_reader_fill(reader, &more, err));
        if (!more) {
            line->end = line->length == 0;
            return 0;
        }
        const char *from = reader->chunk + reader->chunk_used;
        size_t left = reader->chunk_filled - reader->chunk_used;
        const char *feed = memchr(from, '\n', left);
        TRY(line_reader_take(reader, feed != NULL ? (size_t)(feed - from) : left, line, err));
        if (feed == NULL)
            continue;
        reader->chunk_used++;
        reader->lines++;
        if (!line->too_long && reader->kept.length > 0 &&
            reader->kept.data[reader->kept.length - 1] == '\r')
            reader->kept.data[--reader->kept.length] = '\0';
        return 0;
    }
}

/* Bytes of the chunk that go into a row of text with so much room; *ret_ends when the row is done:
 * at the first line feed of its second half, or where it is full, between two characters. */
static size_t line_reader_text_end(const struct line_reader *reader, size_t room, bool *ret_ends)
{
    const char *from = reader->chunk + reader->chunk_used;
    size_t left = reader->chunk_filled - reader->chunk_used;
    const char *feed = NULL;
    if (room <= reader->kept.length_max / 2)
        feed = memchr(from, '\n', left < room ? left : room);
    *ret_ends = feed != NULL || left >= room;
    if (feed != NULL)
        return (size_t)(feed - from) + 1;
    if (left < room)
        return left;
    size_t end = room; /* the row ends before a character */
    if (left > room) {
        while (end > 0 && ((unsigned char)from[end] & 0xc0) == 0x80)
            end--;
        return end;
    }
    while (end > 0 && ((unsigned char)from[end - 1] & 0xc0) == 0x80)
        end--;
    end -= end > 0; /* the last one begins here; its rest may not be in the chunk */
    return utf8_next(from + end, room - end) > 0 ? room : end;
}

static int line_reader_collect_text(struct line_reader *reader, struct line *line, struct err *err)
{
    for (bool ends = false; !ends;) {
        bool more = false;
        TRY(line_reader_fill(reader, &more, err));
        if (!more)
            break;
        size_t room = reader->kept.length_max - reader->kept.length;
        size_t taken = line_reader_text_end(reader, room, &ends);
        TRY(line_reader_take(reader, taken, line, err));
    }
    line->end = reader->kept.length == 0;
    for (size_t i = 0; i < reader->kept.length; i++)
        reader->lines += reader->kept.data[i] == '\n';
    return 0;
}

/* Passes white space and commas before an element, or the array's end. */
static int line_reader_seek(struct line_reader *reader, struct line *line, struct err *err)
{
    int commas = 0;
    for (;;) {
        bool more = false;
        TRY(line_reader_fill(reader, &more, err));
        if (!more && !reader->closed)
            return err_set(err, ERR_DATA, "the JSON array does not end: \"]\" is missing");
        if (!more) {
            line->end = true;
            return 0;
        }
        char c = reader->chunk[reader->chunk_used];
        bool space = c == ' ' || c == '\t' || c == '\r' || c == '\n';
        if (reader->closed && !space)
            return err_set(err, ERR_DATA,
                           "line %lld: more data after the JSON array; a file is one array, or "
                           "one object a line",
                           (long long)reader->lines + 1);
        if (c == ',')
            commas++;
        else if (c == ']')
            reader->closed = true;
        else if (!space)
            break;
        if (commas > (reader->rows > 0 ? 1 : 0) || (c == ']' && commas > 0))
            return err_set(err, ERR_DATA, "line %lld: a comma too many between array elements",
                           (long long)reader->lines + 1);
        reader->lines += c == '\n';
        reader->chunk_used++;
    }
    if (commas == 0 && reader->rows > 0)
        return err_set(err, ERR_DATA, "line %lld: a comma is missing between array elements",
                       (long long)reader->lines + 1);
    line->number = reader->lines + 1;
    return 0;
}

static int line_reader_collect_element(struct line_reader *reader, struct line *line,
                                       struct err *err)
{
    int depth = 0;
    bool string = false, escaped = false, ended = false;
    TRY(line_reader_seek(reader, line, err));
    while (!line->end && !ended) {
        bool more = false;
        TRY(line_reader_fill(reader, &more, err));
        if (!more)
            return err_set(err, ERR_DATA,
                           "line %lld: the array element that begins here does not "
                           "end",
                           (long long)line->number);
        size_t at = reader->chunk_used;
        for (; at < reader->chunk_filled && !ended; at++) {
            char c = reader->chunk[at];
            reader->lines += c == '\n';
            if (string) {
                string = escaped || c != '"';
                escaped = !escaped && c == '\\';
            } else if (c == '"') {
                string = true;
            } else if (c == '{' || c == '[') {
                depth++;
            } else if (depth > 0 && (c == '}' || c == ']')) {
                ended = --depth == 0;
            } else if (depth == 0 && (c == ',' || c == ']')) {
                ended = true;
                break; /* not part of it */
            }
        }
        TRY(line_reader_take(reader, at - reader->chunk_used, line, err));
    }
    return 0;
}

/* Looks at the file's first bytes: a byte-order mark, the '[' of an array. */
static int line_reader_start(struct line_reader *reader, struct err *err)
{
    bool more = false;
    reader->started = true;
    TRY(line_reader_fill(reader, &more, err));
    if (utf8_begins(reader->chunk, reader->chunk_filled, UTF8_MARK))
        reader->chunk_used = sizeof UTF8_MARK - 1;
    if (reader->kind != LINE_READER_LINES)
        return 0;
    size_t at = reader->chunk_used;
    while (at < reader->chunk_filled && strchr(" \t\r\n", reader->chunk[at]) != NULL &&
           reader->chunk[at] != '\0')
        at++;
    if (at == reader->chunk_filled || reader->chunk[at] != '[')
        return 0;
    for (; reader->chunk_used < at; reader->chunk_used++)
        reader->lines += reader->chunk[reader->chunk_used] == '\n';
    reader->chunk_used++;
    reader->kind = LINE_READER_ARRAY;
    return 0;
}

int line_reader_next(struct line_reader *reader, struct line *ret_line, struct err *err)
{
    must(reader->chunk != NULL);
    if (!reader->started)
        TRY(line_reader_start(reader, err));
    struct line line = {.number = reader->lines + 1};
    buf_clear(&reader->kept);
    TRY(reader->kind == LINE_READER_ARRAY  ? line_reader_collect_element(reader, &line, err)
        : reader->kind == LINE_READER_TEXT ? line_reader_collect_text(reader, &line, err)
                                           : line_reader_collect(reader, &line, err));
    if (!line.too_long)
        line.length = (int64_t)reader->kept.length;
    line.bytes = buf_str(&reader->kept);
    reader->rows += !line.end;
    *ret_line = line;
    return 0;
}

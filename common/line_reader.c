/* line_reader: reads chunks and cuts them at line feeds. The buffer of the line grows by doubling
 * up to the limit, so a line of any length costs reading it once. */
#include "common/line_reader.h"

#include "common/mem.h"
#include "common/must.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum { LINE_READER_CHUNK = 1 << 18 };
static const char line_reader_mark[] = "\xef\xbb\xbf"; /* U+FEFF in UTF-8 */

int line_reader_open(struct line_reader *ret_reader, const char *path, size_t line_bytes_max,
                     struct err *err)
{
    struct line_reader reader = {.path = path, .chunk = mem_new(1, LINE_READER_CHUNK)};
    if (reader.chunk == NULL)
        return mem_fail(err, LINE_READER_CHUNK, "reading a file");
    buf_init(&reader.kept, line_bytes_max);
    reader.fd = open(path, O_RDONLY | O_CLOEXEC);
    if (reader.fd < 0) {
        mem_free(reader.chunk);
        return err_set_errno(err, errno, "%s", path);
    }
    *ret_reader = reader;
    return 0;
}

void line_reader_done(struct line_reader *reader)
{
    if (reader->chunk != NULL)
        (void)close(reader->fd); /* opened for reading */
    mem_free(reader->chunk);
    buf_done(&reader->kept);
    *reader = (struct line_reader){.fd = -1};
}

static int line_reader_fill(struct line_reader *reader, struct err *err)
{
    ssize_t got;
    do
        got = read(reader->fd, reader->chunk, LINE_READER_CHUNK);
    while (got < 0 && errno == EINTR);
    if (got < 0)
        return err_set_errno(err, errno, "%s", reader->path);
    reader->chunk_used = 0;
    reader->chunk_filled = (size_t)got;
    return 0;
}

/* The line as it stands in the file, without its line feed. */
static int line_reader_collect(struct line_reader *reader, struct line *line, struct err *err)
{
    buf_clear(&reader->kept);
    *line = (struct line){.number = reader->lines + 1};
    for (;;) {
        if (reader->chunk_used == reader->chunk_filled) {
            TRY(line_reader_fill(reader, err));
            if (reader->chunk_filled == 0) {
                line->end = line->length == 0;
                return 0;
            }
        }
        const char *from = reader->chunk + reader->chunk_used;
        size_t left = reader->chunk_filled - reader->chunk_used;
        const char *feed = memchr(from, '\n', left);
        size_t taken = feed != NULL ? (size_t)(feed - from) : left;
        if (line->length + (int64_t)taken <= (int64_t)reader->kept.length_max) {
            buf_append(&reader->kept, from, taken);
            TRY(buf_error(&reader->kept, err));
        } else {
            line->too_long = true;
            buf_clear(&reader->kept);
        }
        line->length += (int64_t)taken;
        reader->chunk_used += taken + (feed != NULL);
        if (feed != NULL)
            return 0;
    }
}

int line_reader_next(struct line_reader *reader, struct line *ret_line, struct err *err)
{
    must(reader->chunk != NULL);
    struct line line;
    TRY(line_reader_collect(reader, &line, err));
    const size_t mark = sizeof line_reader_mark - 1;
    if (!line.too_long) {
        if (line.number == 1 && reader->kept.length >= mark &&
            memcmp(reader->kept.data, line_reader_mark, mark) == 0)
            buf_drop_front(&reader->kept, mark);
        if (reader->kept.length > 0 && reader->kept.data[reader->kept.length - 1] == '\r')
            reader->kept.data[--reader->kept.length] = '\0';
        line.length = (int64_t)reader->kept.length;
    }
    line.bytes = buf_str(&reader->kept);
    reader->lines += !line.end;
    *ret_line = line;
    return 0;
}

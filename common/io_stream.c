/* io_stream: read() into one buffer, and from there through the decoder. The libraries keep their
 * own window (gzip 32 KiB, zstd what the frame asks for, refused above 128 MiB by default). */
#include "common/io_stream.h"

#include "common/limits.h"
#include "common/mem.h"
#include "common/must.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

enum { STREAM_IN_BYTES = 1 << 18, STREAM_GZIP_ONLY = 16 /* added to window bits: gzip's header */ };
#define STREAM_GZIP "\x1f\x8b"
#define STREAM_AFTER "bytes of another kind follow its end"

void io_stream_close(struct io_stream *stream)
{
    if (stream->fd >= 0)
        (void)close(stream->fd); /* opened for reading */
    if (stream->kind == IO_STREAM_GZIP && stream->decoder != NULL) {
        (void)inflateEnd(stream->decoder); /* frees; its state does not matter any more */
        mem_free(stream->decoder);
    } else if (stream->kind == IO_STREAM_ZSTD) {
        (void)ZSTD_freeDStream(stream->decoder);
    }
    mem_free(stream->in);
    *stream = (struct io_stream){.fd = -1};
}

static int stream_fill(struct io_stream *stream, struct err *err)
{
    ssize_t got;
    do
        got = read(stream->fd, stream->in, STREAM_IN_BYTES);
    while (got < 0 && errno == EINTR);
    if (got < 0)
        return err_set_errno(err, errno, "%s", stream->path);
    stream->in_used = 0;
    stream->in_filled = (size_t)got;
    stream->file_bytes += got;
    return 0;
}

/* A zstd frame of a writer's own, which pzstd begins a file with: 0x184D2A50 to 5F. */
static bool stream_is_skippable(const char *bytes)
{
    return (bytes[0] & 0xf0) == 0x50 && memcmp(bytes + 1, "\x2a\x4d\x18", 3) == 0;
}

static int stream_start(struct io_stream *stream, struct err *err)
{
    static const char zstd[] = "\x28\xb5\x2f\xfd";
    TRY(stream_fill(stream, err));
    if (stream->in_filled >= 2 && memcmp(stream->in, STREAM_GZIP, 2) == 0) {
        z_stream *decoder = mem_new(1, sizeof *decoder);
        if (decoder == NULL || inflateInit2(decoder, MAX_WBITS + STREAM_GZIP_ONLY) != Z_OK) {
            mem_free(decoder);
            return mem_fail(err, sizeof *decoder, "decompressing");
        }
        stream->decoder = decoder;
        stream->kind = IO_STREAM_GZIP;
    } else if (stream->in_filled >= 4 &&
               (memcmp(stream->in, zstd, 4) == 0 || stream_is_skippable(stream->in))) {
        stream->decoder = ZSTD_createDStream();
        if (stream->decoder == NULL)
            return mem_fail(err, STREAM_IN_BYTES, "decompressing");
        stream->kind = IO_STREAM_ZSTD;
    }
    return 0;
}

int io_stream_open(struct io_stream *stream, const char *path, struct err *err)
{
    *stream = (struct io_stream){.path = path, .fd = open(path, O_RDONLY | O_CLOEXEC)};
    if (stream->fd < 0)
        return err_set_errno(err, errno, "%s", path);
    stream->in = mem_new(1, STREAM_IN_BYTES);
    int rc = stream->in == NULL ? mem_fail(err, STREAM_IN_BYTES, "reading a file")
                                : stream_start(stream, err);
    if (rc != 0)
        io_stream_close(stream);
    return rc;
}

static int stream_damaged(const struct io_stream *stream, const char *why, struct err *err)
{
    return err_set(
        err, ERR_DATA, "the %s compression of the file is damaged near byte %lld: %s",
        stream->kind == IO_STREAM_GZIP ? "gzip" : "zstd",
        (long long)(stream->file_bytes - (int64_t)stream->in_filled + (int64_t)stream->in_used),
        why);
}

static int stream_gzip(struct io_stream *stream, void *bytes, size_t size, size_t *ret_got,
                       struct err *err)
{
    z_stream *decoder = stream->decoder;
    while (stream->whole && stream->in_used < stream->in_filled && stream->in[stream->in_used] == 0)
        stream->in_used++; /* padding of tapes and blocks, which gzip passes over too */
    if (stream->in_used == stream->in_filled)
        return 0;
    if (stream->whole && stream->in[stream->in_used] != STREAM_GZIP[0])
        return stream_damaged(stream, STREAM_AFTER, err);
    if (stream->whole && inflateReset(decoder) != Z_OK) /* another member follows */
        return stream_damaged(stream, "it cannot be begun again", err);
    decoder->next_in = (Bytef *)stream->in + stream->in_used;
    decoder->avail_in = (uInt)(stream->in_filled - stream->in_used);
    decoder->next_out = bytes;
    decoder->avail_out = (uInt)size;
    int rc = inflate(decoder, Z_NO_FLUSH);
    stream->in_used = stream->in_filled - decoder->avail_in;
    *ret_got = size - decoder->avail_out;
    stream->whole = rc == Z_STREAM_END;
    if (rc != Z_OK && rc != Z_STREAM_END && rc != Z_BUF_ERROR)
        return stream_damaged(stream, decoder->msg != NULL ? decoder->msg : "unreadable", err);
    return 0;
}

static int stream_zstd(struct io_stream *stream, void *bytes, size_t size, size_t *ret_got,
                       struct err *err)
{
    ZSTD_inBuffer in = {.src = stream->in, .size = stream->in_filled, .pos = stream->in_used};
    ZSTD_outBuffer out = {.dst = bytes, .size = size};
    size_t rc = ZSTD_decompressStream(stream->decoder, &out, &in);
    stream->in_used = in.pos;
    *ret_got = out.pos;
    stream->whole = rc == 0;
    if (!ZSTD_isError(rc))
        return 0;
    bool after = ZSTD_getErrorCode(rc) == ZSTD_error_prefix_unknown;
    return stream_damaged(stream, after ? STREAM_AFTER : ZSTD_getErrorName(rc), err);
}

static int stream_plain(struct io_stream *stream, void *bytes, size_t size, size_t *ret_got)
{
    size_t left = stream->in_filled - stream->in_used;
    *ret_got = left < size ? left : size;
    memcpy(bytes, stream->in + stream->in_used, *ret_got);
    stream->in_used += *ret_got;
    return 0;
}

int io_stream_read(struct io_stream *stream, void *bytes, size_t size, size_t *ret_got,
                   struct err *err)
{
    must(stream->fd >= 0 && size > 0);
    if (size > UINT32_MAX)
        size = UINT32_MAX;
    size_t got = 0;
    while (got == 0) {
        if (stream->in_used == stream->in_filled) {
            TRY(stream_fill(stream, err));
            if (stream->in_filled == 0) {
                if (stream->kind != IO_STREAM_PLAIN && !stream->whole)
                    return stream_damaged(stream, "it ends early; was it copied whole?", err);
                break;
            }
        }
        TRY(stream->kind == IO_STREAM_GZIP   ? stream_gzip(stream, bytes, size, &got, err)
            : stream->kind == IO_STREAM_ZSTD ? stream_zstd(stream, bytes, size, &got, err)
                                             : stream_plain(stream, bytes, size, &got));
    }
    stream->bytes += (int64_t)got;
    if (stream->bytes > LIMIT_FILE_BYTES)
        return err_set(err, ERR_DATA, "the file has more than %lld bytes, decompressed",
                       (long long)LIMIT_FILE_BYTES);
    *ret_got = got;
    return 0;
}

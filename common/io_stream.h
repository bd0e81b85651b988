/* io_stream: the bytes of a file from its start to its end, decompressed when it is gzip or zstd
 * (told by its first bytes, not by its name), in bounded memory. Several members or frames one
 * after the other are one stream, as gzip and zstd have it.
 *
 *     struct io_stream stream;
 *     TRY(io_stream_open(&stream, path, err));
 *     do
 *         rc = io_stream_read(&stream, chunk, sizeof chunk, &got, err);
 *     while (rc == 0 && got > 0);
 *     io_stream_close(&stream); */
#pragma once
#include "common/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum io_stream_kind { IO_STREAM_PLAIN, IO_STREAM_GZIP, IO_STREAM_ZSTD };

struct io_stream {
    int fd;           /* -1: closed */
    const char *path; /* borrowed; for errors */
    enum io_stream_kind kind;
    char *in;           /* bytes of the file; owned */
    size_t in_used;     /* of in, consumed */
    size_t in_filled;   /* of in, read */
    int64_t file_bytes; /* read from the file so far */
    int64_t bytes;      /* given out so far */
    bool whole;         /* at the end of a member or frame */
    void *decoder;      /* z_stream or ZSTD_DStream; owned */
};
int io_stream_open(struct io_stream *stream, const char *path, struct err *err);
void io_stream_close(struct io_stream *stream);
/* Up to `size` bytes; *ret_got is 0 only at the end. ERR_DATA when the compression is damaged or
 * ends early, or gives more than LIMIT_FILE_BYTES. */
int io_stream_read(struct io_stream *stream, void *bytes, size_t size, size_t *ret_got,
                   struct err *err);

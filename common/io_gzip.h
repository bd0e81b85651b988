/* io_gzip: a gzip file written in pieces, which appears whole.
 *
 *     TRY(io_gzip_create(&out, path, err));
 *     rc = io_gzip_write(&out, bytes, length, err);      any number of times
 *     rc = rc == 0 ? io_gzip_commit(&out, err) : rc;
 *     io_gzip_abort(&out); */
#pragma once
#include "common/io.h"

struct io_gzip {
    struct io_file file;
    void *stream; /* zlib's */
};
int io_gzip_create(struct io_gzip *out, const char *path, struct err *err);
int io_gzip_write(struct io_gzip *out, const void *bytes, size_t length, struct err *err);
int io_gzip_commit(struct io_gzip *out, struct err *err);
void io_gzip_abort(struct io_gzip *out); /* removes what is unfinished; fine after commit */

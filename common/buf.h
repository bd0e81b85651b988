/* buf: a growing byte buffer with a maximum.
 *
 * Built with its limit (limits.h), so no input can grow it without bound. The data is always
 * NUL-terminated (the NUL is not counted). The first failure sticks: later appends do nothing and
 * buf_error() reports it, so a sequence of appends needs one check at its end.
 *
 *     struct buf out;
 *     buf_init(&out, LIMIT_HTTP_BODY_BYTES);
 *     buf_printf(&out, "{\"id\":\"%s\"}", id);
 *     TRY(buf_error(&out, err));
 *     ...
 *     buf_done(&out); */
#pragma once
#include "common/err.h"

#include <stddef.h>

struct buf {
    char *data;        /* length bytes and a NUL; NULL while empty */
    size_t length;     /* bytes used */
    size_t capacity;   /* bytes allocated, NUL included */
    size_t length_max; /* from limits.h */
    enum err_code bad; /* ERR_NONE, ERR_NOMEM or ERR_TOO_LARGE: sticks */
};

void buf_init(struct buf *buf, size_t length_max);
void buf_done(struct buf *buf);  /* frees; usable again only after buf_init */
void buf_clear(struct buf *buf); /* empties and forgets the error; keeps the memory */
void buf_append(struct buf *buf, const void *bytes, size_t length);
void buf_text(struct buf *buf, const char *text);
void buf_char(struct buf *buf, char c);
void buf_printf(struct buf *buf, const char *format, ...) __attribute__((format(printf, 2, 3)));
void buf_drop_front(struct buf *buf, size_t length); /* removes the first bytes */
void buf_drop_newlines(struct buf *buf);             /* removes those at the end */
const char *buf_str(const struct buf *buf);          /* never NULL */
char *buf_steal(struct buf *buf); /* caller mem_free()s; buf is empty again; NULL on failure */
int buf_error(const struct buf *buf, struct err *err); /* 0 or the first failure */

/* buf: doubling growth up to the limit given at init. */
#include "common/buf.h"

#include "common/mem.h"
#include "common/must.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void buf_init(struct buf *buf, size_t length_max)
{
    must(length_max > 0);
    *buf = (struct buf){.length_max = length_max};
}

void buf_done(struct buf *buf)
{
    mem_free(buf->data);
    *buf = (struct buf){.length_max = buf->length_max};
}

void buf_clear(struct buf *buf)
{
    buf->length = 0;
    buf->bad = ERR_NONE;
    if (buf->data != NULL)
        buf->data[0] = '\0';
}

/* Makes room for `more` bytes and the NUL; false when that fails or already failed. */
static int buf_reserve(struct buf *buf, size_t more)
{
    must(buf->length_max > 0);
    if (buf->bad != ERR_NONE)
        return 0;
    if (more > buf->length_max - buf->length) {
        buf->bad = ERR_TOO_LARGE;
        return 0;
    }
    size_t need = buf->length + more + 1;
    if (need <= buf->capacity)
        return 1;
    size_t capacity = buf->capacity > 0 ? buf->capacity : 64;
    while (capacity < need)
        capacity *= 2;
    char *data = mem_grow(buf->data, capacity, 1);
    if (data == NULL) {
        buf->bad = ERR_NOMEM;
        return 0;
    }
    buf->data = data;
    buf->capacity = capacity;
    return 1;
}

void buf_append(struct buf *buf, const void *bytes, size_t length)
{
    if (!buf_reserve(buf, length))
        return;
    if (length > 0)
        memcpy(buf->data + buf->length, bytes, length);
    buf->length += length;
    buf->data[buf->length] = '\0';
}

void buf_text(struct buf *buf, const char *text)
{
    buf_append(buf, text, strlen(text));
}

void buf_char(struct buf *buf, char c)
{
    buf_append(buf, &c, 1);
}

void buf_printf(struct buf *buf, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    must(length >= 0);
    if (!buf_reserve(buf, (size_t)length))
        return;
    va_start(args, format);
    (void)vsnprintf(buf->data + buf->length, (size_t)length + 1, format, args);
    va_end(args);
    buf->length += (size_t)length;
}

void buf_drop_front(struct buf *buf, size_t length)
{
    must(length <= buf->length);
    if (length == 0)
        return;
    memmove(buf->data, buf->data + length, buf->length - length + 1);
    buf->length -= length;
}

void buf_drop_newlines(struct buf *buf)
{
    while (buf->length > 0 && buf->data[buf->length - 1] == '\n')
        buf->data[--buf->length] = '\0';
}

const char *buf_str(const struct buf *buf)
{
    return buf->data != NULL ? buf->data : "";
}

char *buf_steal(struct buf *buf)
{
    if (!buf_reserve(buf, 0))
        return NULL;
    char *data = buf->data;
    data[buf->length] = '\0';
    *buf = (struct buf){.length_max = buf->length_max};
    return data;
}

int buf_error(const struct buf *buf, struct err *err)
{
    if (buf->bad == ERR_NONE)
        return 0;
    if (buf->bad == ERR_TOO_LARGE)
        return err_set(err, ERR_TOO_LARGE, "more than %zu bytes", buf->length_max);
    return mem_fail(err, buf->length, "a buffer");
}

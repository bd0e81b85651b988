/* json_python: floats are repr()'s: the shortest digits that read back, with an exponent below 1e-4
 * and from 1e16 on, and ".0" on whole numbers. Depth is bounded where the JSON was read. */
#include "common/json_python.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void python_string(const char *text, size_t length, struct buf *out)
{
    static const char short_for[] = "\"\\\n\r\t\b\f";
    static const char letters[] = "\"\\nrtbf";
    buf_char(out, '"');
    size_t plain = 0; /* start of what needs no escape */
    for (size_t i = 0; i < length; i++) {
        unsigned char byte = (unsigned char)text[i];
        if (byte >= 0x20 && byte != '"' && byte != '\\')
            continue;
        buf_append(out, text + plain, i - plain);
        plain = i + 1;
        const char *found = byte != 0 ? strchr(short_for, byte) : NULL;
        if (found != NULL)
            buf_printf(out, "\\%c", letters[found - short_for]);
        else
            buf_printf(out, "\\u%04x", byte);
    }
    buf_append(out, text + plain, length - plain);
    buf_char(out, '"');
}

static void python_real(double value, struct buf *out)
{
    char text[32];
    int digits = 1;
    do /* digits after the point of the form d.ddde+xx */
        (void)snprintf(text, sizeof text, "%.*e", digits - 1, value);
    while (strtod(text, NULL) != value && digits++ < 17);
    int exponent = (int)strtol(strchr(text, 'e') + 1, NULL, 10);
    if (exponent >= -4 && exponent < 16) {
        int after = digits - 1 - exponent; /* digits behind the point */
        (void)snprintf(text, sizeof text, "%.*f", after > 0 ? after : 1, value);
    } else if (digits == 1) {
        (void)snprintf(text, sizeof text, "%.0e", value);
    }
    buf_text(out, text);
}

static void python_line(int indent, int level, struct buf *out)
{
    if (indent > 0)
        buf_printf(out, "\n%*s", indent * level, "");
}

static void python_value(const json_t *value, int indent, int level, struct buf *out)
{
    const char *between = indent > 0 ? "," : ", ";
    size_t at = 0;
    const char *key;
    const json_t *member;
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        buf_char(out, '{');
        json_object_foreach((json_t *)value, key, member) /* reads only; it wants non-const */
        {
            buf_text(out, at++ > 0 ? between : "");
            python_line(indent, level + 1, out);
            python_string(key, strlen(key), out);
            buf_text(out, ": ");
            python_value(member, indent, level + 1, out);
        }
        if (at > 0)
            python_line(indent, level, out);
        buf_char(out, '}');
        return;
    case JSON_ARRAY:
        buf_char(out, '[');
        for (; at < json_array_size(value); at++) {
            buf_text(out, at > 0 ? between : "");
            python_line(indent, level + 1, out);
            python_value(json_array_get(value, at), indent, level + 1, out);
        }
        if (at > 0)
            python_line(indent, level, out);
        buf_char(out, ']');
        return;
    case JSON_STRING:
        python_string(json_string_value(value), json_string_length(value), out);
        return;
    case JSON_INTEGER:
        buf_printf(out, "%lld", (long long)json_integer_value(value));
        return;
    case JSON_REAL:
        python_real(json_real_value(value), out);
        return;
    case JSON_TRUE:
        buf_text(out, "true");
        return;
    case JSON_FALSE:
        buf_text(out, "false");
        return;
    case JSON_NULL:
        buf_text(out, "null");
    }
}

void json_python_print(const json_t *value, int indent, struct buf *out)
{
    python_value(value, indent, 0, out);
}

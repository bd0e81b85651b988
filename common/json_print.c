/* json_print: our own printer, because jansson's prints 0.1 as 0.10000000000000001. A real takes
 * the first of 15, 16 and 17 digits that reads back as the same double; all else is as jansson
 * prints it. */
#include "common/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { JSON_INDENT_STEP = 2, JSON_INDENT_NONE = -1, JSON_REAL_BYTES = 32 };

static void json_print_real(double value, struct buf *out)
{
    char text[JSON_REAL_BYTES];
    if (!isfinite(value)) { /* jansson refuses to hold one; JSON has no word for it */
        buf_text(out, "null");
        return;
    }
    for (int digits = 15; digits <= 17; digits++) {
        (void)snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    buf_text(out, text);
    if (strpbrk(text, ".e") == NULL)
        buf_text(out, ".0"); /* it stays a real when read back */
}

static void json_print_string(const char *text, size_t length, struct buf *out)
{
    static const char escaped[] = "\"\\\b\f\n\r\t";
    static const char letters[] = "\"\\bfnrt";
    buf_char(out, '"');
    for (size_t start = 0, at = 0; at <= length; at++) {
        unsigned char byte = at < length ? (unsigned char)text[at] : '\0';
        if (at < length && byte >= 0x20 && byte != '"' && byte != '\\')
            continue;
        buf_append(out, text + start, at - start);
        start = at + 1;
        if (at == length)
            break;
        const char *found = byte != '\0' ? strchr(escaped, byte) : NULL;
        if (found != NULL)
            buf_printf(out, "\\%c", letters[found - escaped]);
        else
            buf_printf(out, "\\u%04X", byte);
    }
    buf_char(out, '"');
}

static void json_print_break(int indent, struct buf *out)
{
    if (indent == JSON_INDENT_NONE)
        return;
    buf_printf(out, "\n%*s", indent, "");
}

static void json_print_value(const json_t *value, int indent, struct buf *out);

/* The members of an object or array, between its brackets. */
static void json_print_members(const json_t *value, int indent, struct buf *out)
{
    int inner = indent == JSON_INDENT_NONE ? indent : indent + JSON_INDENT_STEP;
    const char *separator = "";
    const char *key;
    json_t *member;
    size_t i;
    json_object_foreach((json_t *)value, key, member)
    {
        buf_text(out, separator);
        json_print_break(inner, out);
        json_print_string(key, strlen(key), out);
        buf_text(out, indent == JSON_INDENT_NONE ? ":" : ": ");
        json_print_value(member, inner, out);
        separator = ",";
    }
    json_array_foreach(value, i, member)
    {
        buf_text(out, separator);
        json_print_break(inner, out);
        json_print_value(member, inner, out);
        separator = ",";
    }
    if (separator[0] != '\0')
        json_print_break(indent, out);
}

static void json_print_value(const json_t *value, int indent, struct buf *out)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        buf_char(out, '{');
        json_print_members(value, indent, out);
        buf_char(out, '}');
        break;
    case JSON_ARRAY:
        buf_char(out, '[');
        json_print_members(value, indent, out);
        buf_char(out, ']');
        break;
    case JSON_STRING:
        json_print_string(json_string_value(value), json_string_length(value), out);
        break;
    case JSON_INTEGER:
        buf_printf(out, "%lld", (long long)json_integer_value(value));
        break;
    case JSON_REAL:
        json_print_real(json_real_value(value), out);
        break;
    case JSON_TRUE:
        buf_text(out, "true");
        break;
    case JSON_FALSE:
        buf_text(out, "false");
        break;
    case JSON_NULL:
        buf_text(out, "null");
        break;
    }
}

static int json_print_root(const json_t *value, int indent, struct buf *out, struct err *err)
{
    if (value == NULL)
        return err_set(err, ERR_NOMEM, "out of host memory: a JSON value");
    json_print_value(value, indent, out);
    return buf_error(out, err);
}

int json_print(const json_t *value, struct buf *out, struct err *err)
{
    return json_print_root(value, JSON_INDENT_NONE, out, err);
}

int json_print_pretty(const json_t *value, struct buf *out, struct err *err)
{
    TRY(json_print_root(value, 0, out, err));
    buf_char(out, '\n');
    return buf_error(out, err);
}

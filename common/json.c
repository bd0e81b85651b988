/* json: jansson with limits. Its default depth (2048) is cut to LIMIT_JSON_DEPTH by a scan before
 * parsing, because the library has no setting for it. */
#include "common/json.h"

#include "common/io.h"
#include "common/limits.h"
#include "common/mem.h"
#include "common/must.h"
#include "common/utf8.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void json_unref(json_t **value)
{
    json_decref(*value);
    *value = NULL;
}

/* Deepest nesting of brackets outside strings. */
static int json_depth(const char *bytes, size_t length)
{
    int depth = 0;
    int deepest = 0;
    bool in_string = false;
    for (size_t i = 0; i < length; i++) {
        char c = bytes[i];
        if (in_string) {
            if (c == '\\')
                i++;
            else if (c == '"')
                in_string = false;
        } else if (c == '"') {
            in_string = true;
        } else if (c == '{' || c == '[') {
            if (++depth > deepest)
                deepest = depth;
        } else if (c == '}' || c == ']') {
            depth--;
        }
    }
    return deepest;
}

static int json_parse_flags(const char *bytes, size_t length, const char *what_for, size_t flags,
                            json_t **ret_value, struct err *err)
{
    size_t mark = utf8_begins(bytes, length, UTF8_MARK) ? sizeof UTF8_MARK - 1 : 0;
    bytes += mark;
    length -= mark;
    if (utf8_begins(bytes, length, IO_LFS_START))
        return err_set(err, ERR_BAD_JSON, "%s: " IO_LFS_POINTER, what_for);
    if (json_depth(bytes, length) > LIMIT_JSON_DEPTH)
        return err_set(err, ERR_BAD_JSON, "%s: nested deeper than %d levels", what_for,
                       LIMIT_JSON_DEPTH);
    json_error_t where;
    json_t *value =
        json_loadb(bytes, length, flags | JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &where);
    if (value == NULL) {
        char text[JSON_ERROR_TEXT_LENGTH]; /* it may quote the input */
        utf8_line(where.text, text, sizeof text);
        if (json_error_code(&where) == json_error_invalid_utf8)
            (void)snprintf(text, sizeof text, "a byte that is not UTF-8%s",
                           memchr(bytes, '\0', length) != NULL ? ", it looks like UTF-16" : "");
        return err_set(err, ERR_BAD_JSON, "%s: not valid JSON, line %d column %d: %s", what_for,
                       where.line, where.column, text);
    }
    *ret_value = value;
    return 0;
}

int json_parse(const char *bytes, size_t length, const char *what_for, json_t **ret_value,
               struct err *err)
{
    return json_parse_flags(bytes, length, what_for, 0, ret_value, err);
}

int json_parse_stream(FILE *stream, size_t max_bytes, const char *what_for, json_t **ret_value,
                      struct err *err)
{
    CLEANUP(buf_done) struct buf bytes;
    buf_init(&bytes, max_bytes);
    char piece[4096];
    for (size_t got; (got = fread(piece, 1, sizeof piece, stream)) > 0;)
        buf_append(&bytes, piece, got);
    TRY(buf_error(&bytes, err));
    return json_parse(buf_str(&bytes), bytes.length, what_for, ret_value, err);
}

static int json_parse_file_flags(const char *path, size_t max_bytes, size_t flags,
                                 json_t **ret_value, struct err *err)
{
    CLEANUP(buf_done) struct buf bytes;
    buf_init(&bytes, max_bytes);
    TRY(io_read_file(path, max_bytes, &bytes, err));
    return json_parse_flags(buf_str(&bytes), bytes.length, path, flags, ret_value, err);
}

int json_parse_file(const char *path, size_t max_bytes, json_t **ret_value, struct err *err)
{
    return json_parse_file_flags(path, max_bytes, 0, ret_value, err);
}

int json_parse_file_reals(const char *path, size_t max_bytes, json_t **ret_value, struct err *err)
{
    return json_parse_file_flags(path, max_bytes, JSON_DECODE_INT_AS_REAL, ret_value, err);
}

int json_parse_own_file(const char *path, size_t max_bytes, json_t **ret_value, struct err *err)
{
    int rc = json_parse_file(path, max_bytes, ret_value, err);
    if (rc != -ERR_BAD_JSON && rc != -ERR_TOO_LARGE)
        return rc;
    err->code = ERR_CORRUPT;
    return -ERR_CORRUPT;
}

int json_write_file(const char *path, const json_t *value, mode_t mode, struct err *err)
{
    CLEANUP(buf_done) struct buf text;
    buf_init(&text, (size_t)LIMIT_TOKENIZER_BYTES);
    TRY(json_print_pretty(value, &text, err));
    return io_write_file(path, buf_str(&text), text.length, mode, err);
}

int json_write_scratch(const char *path, const json_t *value, struct err *err)
{
    CLEANUP(buf_done) struct buf text;
    buf_init(&text, (size_t)LIMIT_TOKENIZER_BYTES);
    TRY(json_print_pretty(value, &text, err));
    return io_write_scratch(path, buf_str(&text), text.length, 0600, err);
}

json_t *json_number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

json_t *json_literal(const char *text)
{
    CLEANUP(mem_free_ptr) char *quoted = mem_strdup(text);
    if (quoted == NULL)
        return NULL;
    for (char *at = quoted; (at = strchr(at, '\'')) != NULL;)
        *at = '"';
    return json_loads(quoted, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, NULL);
}

void json_brief(const json_t *value, char *ret_text, size_t size)
{
    must(size > 8);
    struct err ignored; /* a value that cannot be shown is shown as far as it goes */
    CLEANUP(buf_done) struct buf text;
    buf_init(&text, LIMIT_JSON_BODY_BYTES);
    (void)json_print(value, &text, &ignored);
    (void)snprintf(ret_text, size, "%s", buf_str(&text));
    if (text.length < size)
        return;
    ret_text[size - 4] = '\0';
    utf8_cut(ret_text);
    memcpy(ret_text + strlen(ret_text), "...", 4);
}

int json_set_path(json_t *object, const char *path, json_t *value, enum err_code code,
                  struct err *err)
{
    CLEANUP(json_unref) json_t *held = value;
    const char *part = path;
    for (int depth = 1;; depth++) {
        size_t length = strcspn(part, ".");
        if (length == 0)
            return err_set(err, code, "a part of the field's name \"%.64s\" is empty", path);
        if (depth > LIMIT_JSON_DEPTH) /* jansson, and who reads it, go down by calling themselves */
            return err_set(err, code, "the field's name \"%.64s...\" has more than %d parts", path,
                           LIMIT_JSON_DEPTH);
        if (part[length] == '\0')
            return json_object_set(object, part, held) == 0 ? 0 : mem_fail(err, length, "a field");
        json_t *next = json_object_getn(object, part, length);
        if (!json_is_object(next)) {
            if (json_object_setn_new(object, part, length, json_object()) != 0)
                return mem_fail(err, length, "a field");
            next = json_object_getn(object, part, length);
        }
        object = next;
        part += length + 1;
    }
}

static int json_wrong(enum err_code code, const char *key, const json_t *found, const char *wanted,
                      struct err *err)
{
    if (found == NULL)
        return err_set_field(err, code, key, "\"%s\" is missing; it must be %s", key, wanted);
    return err_set_field(err, code, key, "\"%s\" must be %s", key, wanted);
}

int json_get_string(const json_t *object, const char *key, enum err_code code, const char **ret,
                    struct err *err)
{
    const json_t *found = json_object_get(object, key);
    if (!json_is_string(found))
        return json_wrong(code, key, found, "a string", err);
    *ret = json_string_value(found);
    return 0;
}

int json_get_i64(const json_t *object, const char *key, enum err_code code, int64_t *ret,
                 struct err *err)
{
    const json_t *found = json_object_get(object, key);
    if (!json_is_integer(found))
        return json_wrong(code, key, found, "an integer", err);
    *ret = json_integer_value(found);
    return 0;
}

int json_get_f64(const json_t *object, const char *key, enum err_code code, double *ret,
                 struct err *err)
{
    const json_t *found = json_object_get(object, key);
    if (!json_is_number(found))
        return json_wrong(code, key, found, "a number", err);
    *ret = json_number_value(found);
    return 0;
}

int json_get_bool(const json_t *object, const char *key, enum err_code code, bool *ret,
                  struct err *err)
{
    const json_t *found = json_object_get(object, key);
    if (!json_is_boolean(found))
        return json_wrong(code, key, found, "true or false", err);
    *ret = json_is_true(found);
    return 0;
}

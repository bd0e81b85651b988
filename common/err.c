/* err: the table of api/errors.def as arrays, and the few ways to fill a struct err. */
#define ERR_IMPLEMENTATION /* err.h: the functions themselves */
#include "common/err.h"

#include "common/utf8.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct err_row {
    const char *name; /* API code */
    const char *type; /* API type */
    int http;         /* HTTP status */
    int exit_code;    /* process exit status */
};

static const struct err_row err_rows[ERR_COUNT] = {
    [ERR_NONE] = {.name = "none", .type = "none", .http = 200, .exit_code = 0},
#define X(id, str, status, kind, code, doc) \
    [ERR_##id] = {.name = str, .type = kind, .http = status, .exit_code = code},
#include "api/errors.def"
#undef X
};

/* A sentence may quote any bytes and be cut anywhere; what is kept is UTF-8. */
static void err_clean(char *text)
{
    utf8_cut(text); /* a longer sentence is cut, never lost */
    utf8_scrub(text);
}

static int err_vset(struct err *err, enum err_code code, const char *format, va_list args)
{
    err->code = code;
    (void)vsnprintf(err->text, sizeof err->text, format, args);
    err_clean(err->text);
    return -(int)code;
}

int err_set(struct err *err, enum err_code code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    err->field[0] = '\0';
    int rc = err_vset(err, code, format, args);
    va_end(args);
    return rc;
}

int err_set_field(struct err *err, enum err_code code, const char *field, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)snprintf(err->field, sizeof err->field, "%s", field);
    err_clean(err->field);
    int rc = err_vset(err, code, format, args);
    va_end(args);
    return rc;
}

static enum err_code err_code_of_errno(int errnum)
{
    switch (errnum) {
    case ENOSPC:
    case EDQUOT:
        return ERR_NO_SPACE;
    case ENOENT:
        return ERR_NOT_FOUND;
    case ENOMEM:
        return ERR_NOMEM;
    case EMFILE: /* descriptors: others give theirs back */
    case ENFILE:
        return ERR_UNAVAILABLE;
    default:
        return ERR_IO;
    }
}

int err_set_errno(struct err *err, int errnum, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    err->field[0] = '\0';
    int rc = err_vset(err, err_code_of_errno(errnum), format, args);
    va_end(args);
    size_t len = strlen(err->text);
    (void)snprintf(err->text + len, sizeof err->text - len, ": %s", strerror(errnum));
    return rc;
}

int err_wrap(struct err *err, int rc, const char *format, ...)
{
    char inner[ERR_TEXT_MAX];
    memcpy(inner, err->text, sizeof inner);
    va_list args;
    va_start(args, format);
    (void)vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);
    size_t len = strlen(err->text);
    (void)snprintf(err->text + len, sizeof err->text - len, "%s", inner);
    err_clean(err->text);
    return rc;
}

bool err_is_shortage(int rc)
{
    return rc == -ERR_NOMEM || rc == -ERR_UNAVAILABLE;
}

static const struct err_row *err_row_of(enum err_code code)
{
    return &err_rows[(unsigned)code < ERR_COUNT ? code : ERR_INTERNAL];
}

const char *err_code_name(enum err_code code)
{
    return err_row_of(code)->name;
}

const char *err_code_type(enum err_code code)
{
    return err_row_of(code)->type;
}

int err_code_http(enum err_code code)
{
    return err_row_of(code)->http;
}

int err_code_exit(enum err_code code)
{
    return err_row_of(code)->exit_code;
}

enum err_code err_code_parse(const char *name)
{
    for (int code = 1; code < ERR_COUNT; code++)
        if (strcmp(err_rows[code].name, name) == 0)
            return (enum err_code)code;
    return ERR_NONE;
}

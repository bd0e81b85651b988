/* err: errors as values.
 *
 * Anything that can fail returns int: 0, or -ERR_X (a row of api/errors.def), and puts one sentence
 * for a person into the `struct err *` it was given as its last parameter. The sentence names the
 * field, file or line, what is wrong, and (where there is one) the fix. Callers add context on the
 * way up with err_wrap().
 *
 *     TRY(job_spec_parse(json, &spec, err));
 *     if (rows == 0)
 *         return err_set(err, ERR_DATA, "%s: no example can be trained on", path);
 *
 * Library code never logs and never exits; the main that ends the story prints err->text once.
 * `err` is never NULL. A struct err is plain memory: nothing to free. */
#pragma once
#include <stdbool.h>

#include <stdarg.h>

#ifdef __cplusplus
extern "C" {
#endif

enum err_code {
    ERR_NONE = 0,
#define X(name, str, http, type, exit_code, doc) ERR_##name,
#include "api/errors.def"
#undef X
    ERR_COUNT
};

enum { ERR_TEXT_MAX = 1024, ERR_FIELD_MAX = 96 };

struct err {
    enum err_code code;        /* ERR_NONE until something failed */
    char field[ERR_FIELD_MAX]; /* request field, dotted ("ithaca.batch.sequences"); "" when none */
    char text[ERR_TEXT_MAX];   /* the sentence, UTF-8, no newline at the end */
};

/* Record an error; returns -code. Overwrites what was there. */
int err_set(struct err *err, enum err_code code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The same for a fault in one field of a request. */
int err_set_field(struct err *err, enum err_code code, const char *field, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Record a failed system call: "<what>: <strerror(errno)>". Picks ERR_NO_SPACE, ERR_NOT_FOUND,
 * ERR_NOMEM, ERR_UNAVAILABLE (no descriptor is left) or ERR_IO. */
int err_set_errno(struct err *err, int errnum, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Put context in front of the sentence: "load shard 3: " + text. Keeps code and field; returns rc.
 */
int err_wrap(struct err *err, int rc, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Memory or descriptors are short: that says nothing about the thing that was asked for. */
bool err_is_shortage(int rc);

const char *err_code_name(enum err_code code);  /* "invalid_value": the API's `code` */
const char *err_code_type(enum err_code code);  /* "invalid_request_error": the API's `type` */
int err_code_http(enum err_code code);          /* HTTP status */
int err_code_exit(enum err_code code);          /* process exit status of the command line */
enum err_code err_code_parse(const char *name); /* ERR_NONE when unknown */

#define TRY(expr)             \
    do {                      \
        int try_rc_ = (expr); \
        if (try_rc_ != 0)     \
            return try_rc_;   \
    } while (0)

#if defined(__clang_analyzer__) && !defined(ERR_IMPLEMENTATION)
/* clang-tidy sees one file at a time: it must be told that these never return 0. */
#define err_set(...) (err_set(__VA_ARGS__), -1)
#define err_set_field(...) (err_set_field(__VA_ARGS__), -1)
#define err_set_errno(...) (err_set_errno(__VA_ARGS__), -1)
#define err_wrap(...) (err_wrap(__VA_ARGS__), -1)
#endif

#ifdef __cplusplus
}
#endif

/* json: the house rules over jansson (https://jansson.readthedocs.io).
 *
 * Parsing rejects duplicate keys, NUL and depth over LIMIT_JSON_DEPTH, and says line and column; a
 * byte-order mark in front is passed over.
 * Printing never emits NaN or Inf: json_number() turns them into null. json_t pointers follow
 * jansson's reference rules: "new reference" is released by json_decref, CLEANUP(json_unref) does
 * it at the end of scope. */
#pragma once
#include "common/buf.h"
#include "common/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

void json_unref(json_t **value); /* for CLEANUP; NULL is fine */

/* New reference. ERR_BAD_JSON with "line L column C: what". what_for names the source ("request
 * body"). */
int json_parse(const char *bytes, size_t length, const char *what_for, json_t **ret_value,
               struct err *err);
/* All that is left of a stream, a program's request on its stdin. */
int json_parse_stream(FILE *stream, size_t max_bytes, const char *what_for, json_t **ret_value,
                      struct err *err);
int json_parse_file(const char *path, size_t max_bytes, json_t **ret_value, struct err *err);
/* The same with all numbers as reals: other programs write integers beyond 64 bits
 * (tokenizer_config.json's "model_max_length": 1000000000000000019884624838656). */
int json_parse_file_reals(const char *path, size_t max_bytes, json_t **ret_value, struct err *err);
/* The same for a file that we wrote: one that is not JSON or is too long is ERR_CORRUPT. */
int json_parse_own_file(const char *path, size_t max_bytes, json_t **ret_value, struct err *err);

/* Compact, keys in insertion order, reals with 15 digits where they read back the same, else 16
 * or 17. ERR_NOMEM, also for a NULL value (what jansson gives when it runs out). */
int json_print(const json_t *value, struct buf *out, struct err *err);
int json_print_pretty(const json_t *value, struct buf *out,
                      struct err *err); /* indent 2, ends with a newline */
int json_write_file(const char *path, const json_t *value, mode_t mode, struct err *err);
/* See io_write_scratch(); mode 0600. */
int json_write_scratch(const char *path, const json_t *value, struct err *err); /* pretty, atomic */

/* New reference: a real, or null when not finite. */
json_t *json_number(double value);

/* New reference: JSON of our own source, written with ' for ". NULL when out of memory (and for a
 * fault in the text, which jansson cannot tell from it: use it where a test runs). */
json_t *json_literal(const char *text);

/* The value as compact JSON for a sentence, cut with "..." where it is longer than `size`. */
void json_brief(const json_t *value, char *ret_text, size_t size);

/* Sets what a path names ("batch.sequences"), making the objects on its way, also in the place of
 * values that are none. Takes over `value`. `code` where a part of the path is empty, or there are
 * more than LIMIT_JSON_DEPTH. */
int json_set_path(json_t *object, const char *path, json_t *value, enum err_code code,
                  struct err *err);

/* Typed members of an object; missing or of another type is an error naming the key, with `code` as
 * its class (ERR_CORRUPT for our own files, ERR_MODEL for config.json, ERR_BAD_REQUEST for
 * requests). Strings are borrowed. */
int json_get_string(const json_t *object, const char *key, enum err_code code, const char **ret,
                    struct err *err);
int json_get_i64(const json_t *object, const char *key, enum err_code code, int64_t *ret,
                 struct err *err);
int json_get_f64(const json_t *object, const char *key, enum err_code code, double *ret,
                 struct err *err);
int json_get_bool(const json_t *object, const char *key, enum err_code code, bool *ret,
                  struct err *err);

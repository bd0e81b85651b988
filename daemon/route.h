/* route: which handler a request is for, decided on the raw target as the client sent it.
 *
 * libmicrohttpd would decode %2f to / and cut at %00 before anyone looks; so paths are matched
 * undecoded, and an id or model name may hold only [A-Za-z0-9_.:-]: a percent sign anywhere in the
 * path matches nothing, but for the one slash of a model's name, which clients may send as %2F.
 * Query values are decoded here, by whoever asks for them.
 *
 * Pure functions over text; the rows are api/routes.def and api/queries.def. */
#pragma once
#include "common/err.h"
#include "common/limits.h"
#include "daemon/auth.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum route_id {
#define X(id, method, path, access, request, response, summary) ROUTE_##id,
#include "api/routes.def"
#undef X
    ROUTE_COUNT
};

enum {
    ROUTE_NAME_BYTES = 128,
    ROUTE_KEY_BYTES = 4 * LIMIT_METADATA_KEY_CHARS + 16, /* metadata[key] */
    ROUTE_VALUE_BYTES = 4 * LIMIT_METADATA_VALUE_CHARS,
    ROUTE_ALLOW_BYTES = 64
};

struct route_match {
    enum route_id route;
    char name[ROUTE_NAME_BYTES + 1]; /* the {id} or {model} segment; "" when the path has none */
    const char *query;               /* after the '?', still encoded, inside target; never NULL */
};

/* HEAD counts as GET. ERR_BAD_REQUEST for a target that is no path, ERR_NOT_FOUND, or ERR_METHOD
 * with ret_allow ("GET, HEAD, POST") filled. */
int route_find(const char *method, const char *target, struct route_match *ret_match,
               char ret_allow[ROUTE_ALLOW_BYTES], struct err *err);
enum auth_scope route_scope(enum route_id route); /* what a token needs */
const char *route_method(enum route_id route);    /* "GET", of HEAD too */
bool route_changes(enum route_id route);          /* its method is not GET */
const char *route_path(enum route_id route);

/* May this be an id in a path? 1..ROUTE_NAME_BYTES of [A-Za-z0-9_.:-], no dot in
 * front. */
bool route_is_name(const char *text, size_t length);
/* The same for a model, which may be "org/name". */
bool route_is_model(const char *text, size_t length);

/* A parameter of a route's query: a row of api/queries.def. */
struct route_query {
    enum route_id route;
    const char *name;   /* its key */
    const char *schema; /* for json_literal */
    const char *doc;    /* one phrase */
};
extern const struct route_query route_queries[];
extern const size_t route_query_count;
bool route_query_is_object(const struct route_query *query); /* it comes as name[member]=value */

/* Every key of the query is one that the route takes (api/queries.def), else ERR_UNKNOWN_FIELD.
 * What lies outside /v1/ takes anything: programs that watch and browsers add to it. */
int route_query_check(const struct route_match *match, struct err *err);

/* The next key and value of a query, decoded. *ret_more false at its end. ERR_INVALID_VALUE for bad
 * encoding, NUL, or more than ROUTE_VALUE_BYTES. */
struct route_pair {
    char key[ROUTE_KEY_BYTES + 1];
    char value[ROUTE_VALUE_BYTES + 1];
};
int route_query_next(const char **cursor, struct route_pair *ret_pair, bool *ret_more,
                     struct err *err);

/* The value of a key; *ret_found false when it is not there. Given twice is ERR_INVALID_VALUE. */
int route_query_text(const char *query, const char *key, char ret_value[ROUTE_VALUE_BYTES + 1],
                     bool *ret_found, struct err *err);
/* *value keeps what it holds (the default) when the key is absent. */
int route_query_int(const char *query, const char *key, int64_t min, int64_t max, int64_t *value,
                    struct err *err);

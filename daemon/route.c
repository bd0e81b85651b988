/* route: a linear walk over some twenty rows; matching is a comparison segment by segment. */
#include "daemon/route.h"

#include "common/must.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct route_row {
    const char *method; /* "GET" */
    const char *path;   /* "/v1/files/{id}" */
    enum auth_scope scope;
};

static const struct route_row route_rows[ROUTE_COUNT] = {
#define X(id, verb, pattern, rights, request, response, summary) \
    [ROUTE_##id] = {.method = #verb, .path = pattern, .scope = AUTH_SCOPE_##rights},
#include "api/routes.def"
#undef X
};

const struct route_query route_queries[] = {
#define X(row, key, shape, text) {.route = ROUTE_##row, .name = key, .schema = shape, .doc = text},
#include "api/queries.def"
#undef X
};
const size_t route_query_count = sizeof route_queries / sizeof route_queries[0];

enum auth_scope route_scope(enum route_id route)
{
    must(route < ROUTE_COUNT);
    return route_rows[route].scope;
}

const char *route_method(enum route_id route)
{
    must(route < ROUTE_COUNT);
    return route_rows[route].method;
}

bool route_changes(enum route_id route)
{
    return strcmp(route_method(route), "GET") != 0;
}

const char *route_path(enum route_id route)
{
    must(route < ROUTE_COUNT);
    return route_rows[route].path;
}

bool route_is_name(const char *text, size_t length)
{
    if (length == 0 || length > ROUTE_NAME_BYTES)
        return false;
    for (size_t i = 0; i < length; i++) {
        char c = text[i];
        bool letter = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
        if (!letter && strchr("_.:-", c) == NULL)
            return false;
    }
    return text[0] != '.'; /* neither "." nor ".." nor a hidden file is a name */
}

bool route_is_model(const char *text, size_t length)
{
    const char *slash = memchr(text, '/', length);
    if (slash == NULL || length > ROUTE_NAME_BYTES)
        return route_is_name(text, length);
    size_t before = (size_t)(slash - text);
    return route_is_name(text, before) && route_is_name(slash + 1, length - before - 1);
}

/* A model's name as the path has it, its slash decoded; false when it is none. */
static bool route_take_model(const char *text, size_t length, char ret_name[ROUTE_NAME_BYTES + 1])
{
    size_t used = 0;
    for (size_t i = 0; i < length && used < ROUTE_NAME_BYTES; i++) {
        bool slash = length - i >= 3 && strncasecmp(text + i, "%2f", 3) == 0;
        ret_name[used] = text[i];
        if (slash)
            ret_name[used] = '/';
        used++;
        i += slash ? 2 : 0;
        if (i + 1 == length) {
            ret_name[used] = '\0';
            return route_is_model(ret_name, used);
        }
    }
    return false;
}

/* Does path (length bytes) match the pattern? The segment at its brace becomes ret_name. */
static bool route_matches(const char *pattern, const char *path, size_t length,
                          char ret_name[ROUTE_NAME_BYTES + 1])
{
    const char *brace = strchr(pattern, '{');
    if (brace == NULL) {
        ret_name[0] = '\0';
        return strlen(pattern) == length && memcmp(pattern, path, length) == 0;
    }
    size_t before = (size_t)(brace - pattern);
    const char *rest = strchr(brace, '}') + 1;
    size_t after = strlen(rest);
    if (length <= before + after || memcmp(pattern, path, before) != 0 ||
        memcmp(rest, path + length - after, after) != 0)
        return false;
    size_t name_length = length - before - after;
    if (strncmp(brace, "{model}", strlen("{model}")) == 0)
        return route_take_model(path + before, name_length, ret_name);
    if (!route_is_name(path + before, name_length))
        return false;
    memcpy(ret_name, path + before, name_length);
    ret_name[name_length] = '\0';
    return true;
}

static void route_allow(char allow[ROUTE_ALLOW_BYTES], const char *method)
{
    size_t used = strlen(allow);
    bool get = strcmp(method, "GET") == 0;
    (void)snprintf(allow + used, ROUTE_ALLOW_BYTES - used, "%s%s%s", used > 0 ? ", " : "", method,
                   get ? ", HEAD" : "");
}

int route_find(const char *method, const char *target, struct route_match *ret_match,
               char ret_allow[ROUTE_ALLOW_BYTES], struct err *err)
{
    ret_allow[0] = '\0';
    if (target[0] != '/')
        return err_set(err, ERR_BAD_REQUEST, "the request target must be a path");
    for (const char *c = target; *c != '\0'; c++)
        if (*c <= ' ' || *c > '~')
            return err_set(err, ERR_BAD_REQUEST,
                           "the request target holds a byte that must be "
                           "percent-encoded");
    size_t length = strcspn(target, "?");
    const char *wanted = strcmp(method, "HEAD") == 0 ? "GET" : method;
    for (int i = 0; i < ROUTE_COUNT; i++) {
        struct route_match match = {.route = (enum route_id)i};
        if (!route_matches(route_rows[i].path, target, length, match.name))
            continue;
        if (strcmp(route_rows[i].method, wanted) == 0) {
            match.query = target + length + (target[length] == '?');
            *ret_match = match;
            return 0;
        }
        route_allow(ret_allow, route_rows[i].method);
    }
    if (ret_allow[0] != '\0')
        return err_set(err, ERR_METHOD, "%s is not served here; this path takes %s", method,
                       ret_allow);
    return err_set(err, ERR_NOT_FOUND, "there is nothing at %.*s", length > 200 ? 200 : (int)length,
                   target);
}

static int route_hex(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return -1;
}

static int route_decode(const char *text, size_t length, char *ret, size_t ret_bytes,
                        struct err *err)
{
    size_t used = 0;
    for (size_t i = 0; i < length; i++) {
        int c = text[i] == '+' ? ' ' : text[i];
        if (c == '%') {
            int high = i + 2 < length ? route_hex(text[i + 1]) : -1;
            int low = high >= 0 ? route_hex(text[i + 2]) : -1;
            if (low < 0 || (high | low) == 0)
                return err_set(err, ERR_INVALID_VALUE, "the query has a bad %%-escape");
            c = high * 16 + low;
            i += 2;
        }
        if (used + 1 >= ret_bytes)
            return err_set(err, ERR_INVALID_VALUE, "a name or value in the query is too long");
        ret[used++] = (char)c;
    }
    ret[used] = '\0';
    return 0;
}

int route_query_next(const char **cursor, struct route_pair *ret_pair, bool *ret_more,
                     struct err *err)
{
    *cursor += strspn(*cursor, "&");
    *ret_more = **cursor != '\0';
    if (!*ret_more)
        return 0;
    size_t length = strcspn(*cursor, "&");
    size_t key_length = strcspn(*cursor, "=&");
    const char *value = *cursor + key_length + (key_length < length);
    TRY(route_decode(*cursor, key_length, ret_pair->key, sizeof ret_pair->key, err));
    TRY(route_decode(value, (size_t)(*cursor + length - value), ret_pair->value,
                     sizeof ret_pair->value, err));
    *cursor += length;
    return 0;
}

int route_query_text(const char *query, const char *key, char ret_value[ROUTE_VALUE_BYTES + 1],
                     bool *ret_found, struct err *err)
{
    struct route_pair pair;
    bool found = false;
    bool more;
    for (;;) {
        TRY(route_query_next(&query, &pair, &more, err));
        if (!more)
            break;
        if (strcmp(pair.key, key) != 0)
            continue;
        if (found)
            return err_set_field(err, ERR_INVALID_VALUE, key, "%s is given twice", key);
        found = true;
        memcpy(ret_value, pair.value, sizeof pair.value);
    }
    *ret_found = found;
    return 0;
}

int route_query_int(const char *query, const char *key, int64_t min, int64_t max, int64_t *value,
                    struct err *err)
{
    char text[ROUTE_VALUE_BYTES + 1];
    bool found;
    TRY(route_query_text(query, key, text, &found, err));
    if (!found)
        return 0;
    char *end;
    errno = 0;
    long long number = strtoll(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || number < min || number > max)
        return err_set_field(err, ERR_INVALID_VALUE, key, "%s must be an integer from %lld to %lld",
                             key, (long long)min, (long long)max);
    *value = number;
    return 0;
}

bool route_query_is_object(const struct route_query *query)
{
    return strstr(query->schema, "'object'") != NULL;
}

/* Whether a key is a parameter's: its name, or name[member] of an object. */
static bool route_query_is(const struct route_query *query, const char *key)
{
    size_t length = strlen(query->name);
    if (strncmp(query->name, key, length) != 0)
        return false;
    const char *member = key + length;
    if (*member == '\0')
        return true;
    return route_query_is_object(query) && *member == '[' && strlen(member) > 2 &&
           member[strlen(member) - 1] == ']';
}

static int route_query_unknown(enum route_id route, const char *key, struct err *err)
{
    char names[ROUTE_VALUE_BYTES] = "";
    size_t used = 0;
    for (size_t i = 0; i < route_query_count; i++) {
        if (route_queries[i].route != route)
            continue;
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", used > 0 ? ", " : "",
                                 route_queries[i].name);
        must(used < sizeof names);
    }
    return err_set_field(err, ERR_UNKNOWN_FIELD, key, "the query has no \"%s\" here; it takes %s",
                         key, used > 0 ? names : "nothing");
}

int route_query_check(const struct route_match *match, struct err *err)
{
    const char *cursor = match->query;
    struct route_pair pair;
    bool more = strncmp(route_path(match->route), "/v1/", strlen("/v1/")) == 0;
    while (more) {
        TRY(route_query_next(&cursor, &pair, &more, err));
        bool known = !more;
        for (size_t i = 0; i < route_query_count && !known; i++)
            known = route_queries[i].route == match->route &&
                    route_query_is(&route_queries[i], pair.key);
        if (!known)
            return route_query_unknown(match->route, pair.key, err);
    }
    return 0;
}

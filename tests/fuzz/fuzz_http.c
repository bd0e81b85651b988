/* fuzz_http: the head of a request, as text. It is taken apart here as libmicrohttpd would do it
 * and goes through http_check, route_find and the query's readers. A route that is found spells the
 * path again; a Host that is served is one of ours; a pair of the query has no more bytes than the
 * query. */
#include "common/mem.h"
#include "common/must.h"
#include "daemon/http_check.h"
#include "daemon/route.h"
#include "daemon/settings.h"
#include "tests/fuzz/fuzz.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

static struct settings_pair http_names[] = {{.value = "train.example"}, {.value = "10.0.0.7"}};
static const struct settings_list http_hosts = {.items = http_names, .count = 2};
static const char http_listen[] = "192.0.2.1";

static void http_header(struct http_facts *facts, const char *line)
{
    const struct {
        const char *name;
        int *count;
        const char **value;
    } rows[] = {
        {"Host:", &facts->hosts, &facts->host},
        {"Content-Length:", &facts->content_lengths, &facts->content_length},
        {"Transfer-Encoding:", &facts->transfer_encodings, &facts->transfer_encoding},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        size_t length = strlen(rows[i].name);
        if (strncasecmp(line, rows[i].name, length) != 0)
            continue;
        ++*rows[i].count;
        *rows[i].value = line + length + strspn(line + length, " \t");
    }
}

static bool http_framing(const struct http_facts *facts)
{
    struct err err = {.code = ERR_NONE};
    int64_t length = -2;
    int rc = http_check(facts, http_listen, &http_hosts, &length, &err);
    if (rc != 0) {
        fuzz_refused(rc, &err);
        must(length == -2);
        return false;
    }
    must(facts->target[0] == '/' && facts->content_lengths + facts->transfer_encodings <= 1);
    must((length >= 0) == (facts->content_length != NULL) && length >= -1);
    must(facts->host != NULL || facts->http_1_0);
    if (facts->host == NULL)
        return true;
    static const char *const ours[] = {"localhost", "127.0.0.1",     "::1",
                                       "10.0.0.7",  "train.example", http_listen};
    const char *name = facts->host + (facts->host[0] == '[');
    bool served = false;
    for (size_t i = 0; i < sizeof ours / sizeof ours[0]; i++)
        served = served ||
                 (strncasecmp(name, ours[i], strlen(ours[i])) == 0 &&
                  (name[strlen(ours[i])] == '\0' || strchr(":]", name[strlen(ours[i])]) != NULL));
    must(served);
    return true;
}

static void http_query(const char *query)
{
    struct err err = {.code = ERR_NONE};
    const char *cursor = query;
    for (bool more = true; more;) {
        struct route_pair pair = {.key = ""};
        const char *before = cursor;
        int rc = route_query_next(&cursor, &pair, &more, &err);
        if (rc != 0) {
            fuzz_refused(rc, &err);
            return;
        }
        must(!more || cursor > before);
        must(strlen(pair.key) + strlen(pair.value) <= (size_t)(cursor - before));
        if (!more)
            break;
        char value[ROUTE_VALUE_BYTES + 1];
        bool found = false;
        int64_t number = 5;
        rc = route_query_text(query, pair.key, value, &found, &err);
        must(rc != 0 || (found && strcmp(value, pair.value) == 0));
        rc = route_query_int(query, pair.key, 1, 10, &number, &err);
        must(number >= 1 && number <= 10);
        if (rc != 0)
            fuzz_refused(rc, &err);
    }
}

static bool http_route(const char *method, const char *target)
{
    struct err err = {.code = ERR_NONE};
    struct route_match match;
    char allow[ROUTE_ALLOW_BYTES] = "";
    int rc = route_find(method, target, &match, allow, &err);
    if (rc != 0) {
        fuzz_refused(rc, &err);
        must((rc == -ERR_METHOD) == (allow[0] != '\0'));
        return false;
    }
    const char *pattern = route_path(match.route);
    const char *brace = strchr(pattern, '{');
    char spelt[2 * ROUTE_NAME_BYTES];
    int length = snprintf(spelt, sizeof spelt, "%.*s%s%s", (int)strcspn(pattern, "{"), pattern,
                          match.name, brace != NULL ? strchr(brace, '}') + 1 : "");
    size_t path = strcspn(target, "?"), name_length = strlen(match.name);
    if (memchr(target, '%', path) != NULL) { /* only as the slash of a model's name */
        must(match.route == ROUTE_MODELS_GET && strchr(match.name, '/') != NULL);
        must(path == (size_t)length + 2);
    } else {
        must(length > 0 && (size_t)length == path && memcmp(spelt, target, path) == 0);
    }
    must(brace == NULL ||
         (match.route == ROUTE_MODELS_GET ? route_is_model(match.name, name_length)
                                          : route_is_name(match.name, name_length)));
    must(match.query >= target + path && match.query <= target + strlen(target));
    (void)route_scope(match.route); /* every route has one */
    rc = route_query_check(&match, &err);
    if (rc != 0)
        fuzz_refused(rc, &err);
    http_query(match.query);
    return true;
}

/* The next line without its end; NULL after the last. */
static char *http_line(char **rest)
{
    char *line = *rest;
    if (line == NULL)
        return NULL;
    char *end = strchr(line, '\n');
    *rest = end != NULL ? end + 1 : NULL;
    if (end != NULL)
        *end = '\0';
    size_t length = strlen(line);
    if (length > 0 && line[length - 1] == '\r')
        line[length - 1] = '\0';
    return line;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int64_t live = mem_live();
    char *head = mem_strndup((const char *)data, size);
    must(head != NULL);
    char *rest = head;
    char *method = http_line(&rest);
    char *target = strchr(method, ' ');
    if (target != NULL) {
        *target++ = '\0';
        struct http_facts facts = {.target = target};
        char *version = strrchr(target, ' ');
        if (version != NULL) {
            *version++ = '\0';
            facts.http_1_0 = strcmp(version, "HTTP/1.0") == 0;
        }
        for (char *line; (line = http_line(&rest)) != NULL;)
            http_header(&facts, line);
        bool framed = http_framing(&facts);
        bool routed = http_route(method, target);
        fuzz_taken += framed && routed;
        http_query(target);
    }
    mem_free(head);
    must(mem_live() == live);
    return 0;
}

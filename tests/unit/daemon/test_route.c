/* route: every row is found, nothing else is; queries decode or are refused. */
#include "daemon/route.h"
#include "tests/lib/cmocka.h"

#include <stdio.h>
#include <string.h>

static int find(const char *method, const char *target, struct route_match *match)
{
    struct err err;
    char allow[ROUTE_ALLOW_BYTES];
    return route_find(method, target, match, allow, &err);
}

static void test_every_row_is_found(void **state)
{
    static const char *const methods[ROUTE_COUNT] = {
#define X(id, method, path, access, request, response, summary) [ROUTE_##id] = #method,
#include "api/routes.def"
#undef X
    };
    for (int route = 0; route < ROUTE_COUNT; route++) {
        char target[256];
        const char *path = route_path((enum route_id)route);
        const char *brace = strchr(path, '{');
        if (brace != NULL)
            (void)snprintf(target, sizeof target, "%.*sft:a.b:c-_1%s?q=1", (int)(brace - path),
                           path, strchr(brace, '}') + 1);
        else
            (void)snprintf(target, sizeof target, "%s", path);
        struct route_match match;
        assert_int_equal(find(methods[route], target, &match), 0);
        assert_int_equal(match.route, route);
        assert_string_equal(match.name, brace != NULL ? "ft:a.b:c-_1" : "");
        assert_string_equal(match.query, brace != NULL ? "q=1" : "");
    }
}

/* A model's name may have one slash, as it is or as clients encode it; an id may not. */
static void test_models(void **state)
{
    static const char *const good[] = {"/v1/models/Qwen/Qwen3-4B", "/v1/models/Qwen%2FQwen3-4B",
                                       "/v1/models/Qwen%2fQwen3-4B?x=%2F"};
    static const char *const bad[] = {
        "/v1/models/Qwen/",       "/v1/models//Qwen3",   "/v1/models/a/b/c", "/v1/models/a%2Fb%2Fc",
        "/v1/models/a%2F..",      "/v1/models/..%2Fa",   "/v1/models/.a/b",  "/v1/models/a%2F.b",
        "/v1/models/a%252Fb",     "/v1/models/a%2",      "/v1/models/a%00b", "/v1/models/%2F",
        "/v1/files/Qwen%2FQwen3", "/v1/files/Qwen/Qwen3"};
    struct route_match match;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        assert_int_equal(find("GET", good[i], &match), 0);
        assert_int_equal(match.route, ROUTE_MODELS_GET);
        assert_string_equal(match.name, "Qwen/Qwen3-4B");
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (find("GET", bad[i], &match) != -ERR_NOT_FOUND)
            fail_msg("%s is found", bad[i]);
    for (int length = 126; length <= 130; length++) { /* 128 is the longest */
        char target[256];
        (void)snprintf(target, sizeof target, "/v1/models/o%%2F%0*d", length - 2, 1);
        assert_int_equal(find("GET", target, &match), length <= 128 ? 0 : -ERR_NOT_FOUND);
    }
}

static void test_head_and_methods(void **state)
{
    struct route_match match;
    struct err err;
    char allow[ROUTE_ALLOW_BYTES];
    assert_int_equal(find("HEAD", "/v1/files", &match), 0);
    assert_int_equal(match.route, ROUTE_FILES_LIST);
    assert_int_equal(route_find("PUT", "/v1/files", &match, allow, &err), -ERR_METHOD);
    assert_string_equal(allow, "POST, GET, HEAD");
    assert_int_equal(route_find("get", "/v1/files", &match, allow, &err), -ERR_METHOD);
    assert_int_equal(route_find("POST", "/v1/files/a", &match, allow, &err), -ERR_METHOD);
    assert_string_equal(allow, "GET, HEAD, DELETE");
}

static void test_no_other_path(void **state)
{
    static const char *const absent[] = {
        "//",
        "/dashboard",
        "/dashboard/",
        "/dashboard/a/b",
        "/dashboard/..",
        "/v1",
        "/v1/files/",
        "/v1//files",
        "/v1/files/a/b",
        "/v1/files/..",
        "/v1/files/.hidden",
        "/v1/files/a%2fb",
        "/v1/files/%61",
        "/v1/files/a/content/",
        "/v1/files//content",
        "/healthz/",
        "/HEALTHZ",
        "/v1/files#a",
        "/v1/fine_tuning/jobs/a/cancel/b",
    };
    struct route_match match;
    for (size_t i = 0; i < sizeof absent / sizeof absent[0]; i++)
        assert_int_equal(find("GET", absent[i], &match), -ERR_NOT_FOUND);
    static const char *const bad[] = {"", "*", "http://a/v1/files", "v1/files", "/v1/\x80", "/ v1"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(find("GET", bad[i], &match), -ERR_BAD_REQUEST);
}

static void test_name_length(void **state)
{
    char target[256] = "/v1/files/";
    size_t start = strlen(target);
    memset(target + start, 'a', ROUTE_NAME_BYTES);
    struct route_match match;
    assert_int_equal(find("GET", target, &match), 0);
    assert_int_equal(strlen(match.name), ROUTE_NAME_BYTES);
    target[start + ROUTE_NAME_BYTES] = 'a';
    assert_int_equal(find("GET", target, &match), -ERR_NOT_FOUND);
}

static void test_query_values(void **state)
{
    struct err err;
    char value[ROUTE_VALUE_BYTES + 1];
    bool found;
    const char *query = "&a=1&b=x%20y+z%2B&c&metadata%5Bk%5D=v&d=&";
    assert_int_equal(route_query_text(query, "b", value, &found, &err), 0);
    assert_true(found);
    assert_string_equal(value, "x y z+");
    assert_int_equal(route_query_text(query, "c", value, &found, &err), 0);
    assert_true(found);
    assert_string_equal(value, "");
    assert_int_equal(route_query_text(query, "metadata[k]", value, &found, &err), 0);
    assert_string_equal(value, "v");
    assert_int_equal(route_query_text(query, "e", value, &found, &err), 0);
    assert_false(found);
    assert_int_equal(route_query_text("", "e", value, &found, &err), 0);
    assert_false(found);
    static const char *const bad[] = {"a=%", "a=%1", "a=%1g", "a=%00", "%zz=1", "a=1&a=2"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(route_query_text(bad[i], "a", value, &found, &err), -ERR_INVALID_VALUE);
}

static void test_query_limits(void **state)
{
    struct err err;
    char query[ROUTE_VALUE_BYTES + 8] = "a=";
    char value[ROUTE_VALUE_BYTES + 1];
    bool found;
    memset(query + 2, 'v', ROUTE_VALUE_BYTES);
    assert_int_equal(route_query_text(query, "a", value, &found, &err), 0);
    assert_int_equal(strlen(value), ROUTE_VALUE_BYTES);
    query[2 + ROUTE_VALUE_BYTES] = 'v';
    assert_int_equal(route_query_text(query, "a", value, &found, &err), -ERR_INVALID_VALUE);
}

static int query_check(const char *target, struct err *err)
{
    struct route_match match;
    assert_int_equal(find("GET", target, &match), 0);
    return route_query_check(&match, err);
}

static void test_what_a_query_may_have(void **state)
{
    struct err err;
    static const char *const good[] = {
        "/v1/files?limit=1&order=asc&&purpose=x",
        "/v1/fine_tuning/jobs?metadata=null",
        "/v1/fine_tuning/jobs?metadata%5Ba%5D=b&metadata[c]=d&after=x",
        "/v1/models",
        "/healthz?probe=7", /* what watches adds of its own */
        "/?utm=x",
    };
    static const char *const bad[][2] = {
        {"/v1/files?limt=1", "limt"},
        {"/v1/files?Limit=1", "Limit"},
        {"/v1/files?limit%00=1", ""}, /* no query at all */
        {"/v1/files?limit[a]=1", "limit[a]"},
        {"/v1/files?=1", ""},
        {"/v1/files?after=x&metadata=null", "metadata"},
        {"/v1/fine_tuning/jobs?metadata%5Ba=b", "metadata[a"},
        {"/v1/fine_tuning/jobs?metadata[]=b", "metadata[]"},
        {"/v1/fine_tuning/jobs?metadata[a]x=b", "metadata[a]x"},
        {"/v1/fine_tuning/jobs?status=failed", "status"},
        {"/v1/models?limit=1", "limit"},
        {"/v1/models?a=%ff", "a"},
    };
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        if (query_check(good[i], &err) != 0)
            fail_msg("%s: %s", good[i], err.text);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_not_equal(query_check(bad[i][0], &err), 0);
        assert_string_equal(err.field, bad[i][1]);
    }
    assert_int_equal(query_check("/v1/files?limt=1", &err), -ERR_UNKNOWN_FIELD);
    assert_string_equal(err.text, "the query has no \"limt\" here; it takes after, limit, order, "
                                  "purpose");
}

static void test_query_integers(void **state)
{
    struct err err;
    int64_t value = 20;
    assert_int_equal(route_query_int("", "limit", 1, 100, &value, &err), 0);
    assert_int_equal(value, 20);
    assert_int_equal(route_query_int("limit=100", "limit", 1, 100, &value, &err), 0);
    assert_int_equal(value, 100);
    static const char *const bad[] = {
        "limit=0", "limit=101", "limit=", "limit=1x", "limit=0x10", "limit=99999999999999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(route_query_int(bad[i], "limit", 1, 100, &value, &err),
                         -ERR_INVALID_VALUE);
        assert_string_equal(err.field, "limit");
        assert_int_equal(value, 100);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_row_is_found),    cmocka_unit_test(test_models),
        cmocka_unit_test(test_head_and_methods),      cmocka_unit_test(test_no_other_path),
        cmocka_unit_test(test_name_length),           cmocka_unit_test(test_query_values),
        cmocka_unit_test(test_query_limits),          cmocka_unit_test(test_query_integers),
        cmocka_unit_test(test_what_a_query_may_have),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* schema: the committed printouts are today's; every row of the tables is in them. */
#include "common/io.h"
#include "common/mem.h"
#include "daemon/schema.h"
#include "tests/lib/cmocka.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SCHEMA_BYTES_MAX = 4 << 20 };

static void compare(const char *which, const char *file)
{
    struct err err;
    struct buf fresh;
    struct buf committed;
    buf_init(&fresh, SCHEMA_BYTES_MAX);
    buf_init(&committed, SCHEMA_BYTES_MAX);
    const char *root = getenv("ITHACA_SOURCE_DIR");
    assert_non_null(root);
    char *path = io_join(root, file);
    MUST_WORK(schema_print(which, &fresh, &err), &err);
    MUST_WORK(io_read_file(path, SCHEMA_BYTES_MAX, &committed, &err), &err);
    if (strcmp(buf_str(&fresh), buf_str(&committed)) != 0)
        fail_msg("%s is not what the tables say. Regenerate it from the root of the source: "
                 "ithacad schema %s > %s",
                 file, which, file);
    mem_free(path);
    buf_done(&fresh);
    buf_done(&committed);
}

static void test_committed_openapi(void **state)
{
    compare("openapi", "api/openapi.json");
}

static void test_committed_job_schema(void **state)
{
    compare("job", "api/job.schema.json");
}

static void test_unknown_schema(void **state)
{
    struct err err;
    struct buf out;
    buf_init(&out, SCHEMA_BYTES_MAX);
    assert_int_equal(schema_print("jobs", &out, &err), -ERR_USAGE);
    assert_int_equal(out.length, 0);
    buf_done(&out);
}

static void test_every_route_is_an_operation(void **state)
{
    json_t *openapi = schema_openapi();
    json_t *paths = json_object_get(openapi, "paths");
    size_t rows = 0;
    size_t operations = 0;
#define X(id, method, path, access, request, response, summary) \
    rows++;                                                     \
    assert_non_null(json_object_get(paths, path));
#include "api/routes.def"
#undef X
    const char *key;
    json_t *path;
    json_object_foreach(paths, key, path) operations += json_object_size(path);
    assert_int_equal(operations, rows);
    json_decref(openapi);
}

/* Whether a "$ref" of this document leads somewhere. */
static bool leads_somewhere(json_t *root, const char *reference)
{
    char text[256];
    (void)snprintf(text, sizeof text, "%s", reference);
    if (strncmp(text, "#/", 2) != 0)
        return false;
    json_t *at = root;
    for (char *key = text + 2, *next; key != NULL && at != NULL; key = next) {
        next = strchr(key, '/');
        if (next != NULL)
            *next++ = '\0';
        at = json_object_get(at, key);
    }
    return at != NULL;
}

static size_t check_references(json_t *root, json_t *value)
{
    size_t count = 0;
    size_t i;
    const char *key;
    json_t *member;
    json_object_foreach(value, key, member)
    {
        if (strcmp(key, "$ref") == 0) {
            if (!leads_somewhere(root, json_string_value(member)))
                fail_msg("%s leads nowhere", json_string_value(member));
            count++;
        }
        count += check_references(root, member);
    }
    json_array_foreach(value, i, member) count += check_references(root, member);
    return count;
}

static void test_every_reference_leads_somewhere(void **state)
{
    json_t *openapi = schema_openapi();
    assert_true(check_references(openapi, openapi) > 20);
    json_decref(openapi);
}

static void test_tables_are_filled_in(void **state)
{
    json_t *objects = schema_objects();
    struct err err;
    struct buf text;
    buf_init(&text, SCHEMA_BYTES_MAX);
    assert_int_equal(json_print(objects, &text, &err), 0);
#define X(id, name, http, type, exit, doc) assert_non_null(strstr(buf_str(&text), name ": " doc));
#include "api/errors.def"
#undef X
#define X(id, name, status, is_end)                          \
    assert_non_null(strstr(buf_str(&text), "\"" name "\"")); \
    assert_non_null(strstr(buf_str(&text), "\"" status "\""));
#include "api/job_states.def"
#undef X
#define X(id, name, unit, scope, label, doc) \
    assert_non_null(strstr(buf_str(&text), "\"" name "\""));
#include "api/metrics.def"
#undef X
    buf_done(&text);
    json_decref(objects);
    assert_int_equal(mem_live(), 0);
}

/* jansson 2.14 reads past a string when its lexer's text, a power of two, could not grow for the
 * closing quote: those allocations do not fail here. */
static void *json_allocate(size_t bytes)
{
    void *memory = mem_new(1, bytes);
    bool text = bytes >= 32 && (bytes & (bytes - 1)) == 0;
    return memory == NULL && text ? mem_new(1, bytes) : memory;
}

static void test_failing_allocations(void **state)
{
    int failures = 0;
    int64_t before = mem_live();
    for (int64_t fault = 1; fault < 12000;
         fault += 41) { /* a prime: not always the same place of a loop */
        mem_fault_after(fault);
        json_t *openapi = schema_openapi();
        mem_fault_after(0);
        failures += openapi == NULL;
        json_decref(openapi);
        assert_int_equal(mem_live(), before);
    }
    assert_true(failures > 50);
}

int main(void)
{
    json_set_alloc_funcs(json_allocate, mem_free);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_committed_openapi),
        cmocka_unit_test(test_committed_job_schema),
        cmocka_unit_test(test_unknown_schema),
        cmocka_unit_test(test_every_route_is_an_operation),
        cmocka_unit_test(test_every_reference_leads_somewhere),
        cmocka_unit_test(test_tables_are_filled_in),
        cmocka_unit_test(test_failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

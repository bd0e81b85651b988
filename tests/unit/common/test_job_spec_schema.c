/* job_spec_schema: every row is described, and the parser takes and refuses what the schema says.
 */
#include "common/job_field.h"
#include "common/job_request.h"
#include "common/mem.h"
#include "tests/lib/cmocka.h"

#include <stdio.h>
#include <string.h>

/* Walks the `ithaca` schema; calls check for every field, with its dotted path. */
static size_t walk(json_t *properties, const char *prefix,
                   void (*check)(const char *path, json_t *schema))
{
    size_t count = 0;
    const char *key;
    json_t *schema;
    json_object_foreach(properties, key, schema)
    {
        char path[128];
        (void)snprintf(path, sizeof path, "%s%s%s", prefix, prefix[0] != '\0' ? "." : "", key);
        json_t *inner = json_object_get(schema, "properties");
        if (inner != NULL) {
            assert_true(json_is_false(json_object_get(schema, "additionalProperties")));
            count += walk(inner, path, check);
        }
        if (inner == NULL || json_object_get(schema, "default") != NULL) { /* a row */
            check(path, schema);
            count++;
        }
    }
    return count;
}

static size_t walk_ithaca(void (*check)(const char *path, json_t *schema))
{
    json_t *root = job_spec_schema();
    assert_non_null(root);
    json_t *ithaca = json_object_get(json_object_get(root, "properties"), "ithaca");
    size_t count = walk(json_object_get(ithaca, "properties"), "", check);
    json_decref(root);
    return count;
}

static void check_described(const char *path, json_t *schema)
{
    assert_non_null(job_field_find(path));
    assert_true(json_string_length(json_object_get(schema, "description")) > 0);
    assert_non_null(json_object_get(schema, "default"));
}

static void test_every_row_is_described(void **state)
{
    assert_int_equal(walk_ithaca(check_described), job_field_count);
}

/* Result of the parser for one value of one field. */
static int parse(const char *path, json_t *value)
{
    struct err err;
    struct job_spec spec;
    int rc = job_field_parse(job_field_find(path), path, value, &spec, &err);
    json_decref(value);
    return rc;
}

static void check_agrees(const char *path, json_t *schema)
{
    assert_int_equal(parse(path, json_incref(json_object_get(schema, "default"))), 0);
    size_t i;
    json_t *name;
    json_array_foreach(json_object_get(schema, "enum"), i, name)
    {
        int rc = parse(path, json_incref(name));
        assert_true(rc == 0 || rc == -ERR_UNSUPPORTED);
    }
    const json_t *low = json_object_get(schema, "minimum");
    const json_t *high = json_object_get(schema, "maximum");
    if (low == NULL)
        return;
    double min = json_number_value(low);
    double max = json_number_value(high);
    assert_int_equal(parse(path, json_real(min)), 0);
    assert_int_equal(parse(path, json_real(max)), 0);
    assert_int_equal(parse(path, json_real(min - 2)), -ERR_INVALID_VALUE);
    assert_int_equal(parse(path, json_real(max + 1)), -ERR_INVALID_VALUE);
}

static void test_parser_agrees(void **state)
{
    (void)walk_ithaca(check_agrees);
}

static void test_top_level(void **state)
{
    json_t *root = job_spec_schema();
    assert_string_equal(json_string_value(json_object_get(root, "$schema")),
                        "https://json-schema.org/draft/2020-12/schema");
    json_t *required = json_object_get(root, "required");
    assert_int_equal(json_array_size(required), 1); /* which jobs need a file is in the words */
    assert_string_equal(json_string_value(json_array_get(required, 0)), "model");
    assert_int_equal(json_object_size(json_object_get(root, "properties")),
                     job_request_field_count + 1);
    json_decref(root);
    assert_int_equal(mem_live(), 0);
}

static void check_not_served(const char *path, json_t *schema)
{
    const char *text = json_string_value(json_object_get(schema, "description"));
    if (strcmp(path, "launcher") == 0)
        assert_non_null(strstr(text, "Not served yet: slurm"));
    if (strcmp(path, "offload") == 0)
        assert_null(strstr(text, "served"));
    if (strcmp(path, "gpus") == 0)
        assert_null(strstr(text, "served"));
}

static void test_what_is_not_served_is_said(void **state)
{
    (void)walk_ithaca(check_not_served);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_row_is_described),
        cmocka_unit_test(test_parser_agrees),
        cmocka_unit_test(test_top_level),
        cmocka_unit_test(test_what_is_not_served_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

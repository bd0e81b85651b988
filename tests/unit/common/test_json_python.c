/* json_python: what Python's json.dumps(..., ensure_ascii=False) gives. */
#include "common/json_python.h"
#include "tests/lib/cmocka.h"

#include <string.h>

static void expect(const char *text, int indent, const char *wanted)
{
    struct buf out;
    buf_init(&out, 1 << 20);
    json_t *value = json_loadb(text, strlen(text), JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    assert_non_null(value);
    json_python_print(value, indent, &out);
    assert_string_equal(buf_str(&out), wanted);
    json_decref(value);
    buf_done(&out);
}

static void test_values(void **state)
{
    expect("{\"b\":[1,true,null],\"a\":{}}", 0, "{\"b\": [1, true, null], \"a\": {}}");
    expect("[]", 0, "[]");
    expect("\"\\\"\\\\\\/\\n\\t\\u0001\\u007f\\u0000\\u00e9\\u2028\"", 0,
           "\"\\\"\\\\/\\n\\t\\u0001\x7f\\u0000\xc3\xa9\xe2\x80\xa8\"");
    expect("{\"a\":[1,{}],\"b\":{\"c\":[]}}", 4,
           "{\n    \"a\": [\n        1,\n        {}\n    ],\n    \"b\": {\n        \"c\": []\n    "
           "}\n}");
}

/* repr() of a float. */
static void test_reals(void **state)
{
    static const char *const cases[][2] = {
        {"1.0", "1.0"},
        {"-0.0", "-0.0"},
        {"0.1", "0.1"},
        {"100.0", "100.0"},
        {"1e5", "100000.0"},
        {"123456.789", "123456.789"},
        {"1e15", "1000000000000000.0"},
        {"1e16", "1e+16"},
        {"1.5e300", "1.5e+300"},
        {"0.0001", "0.0001"},
        {"0.00001", "1e-05"},
        {"1.25e-7", "1.25e-07"},
        {"0.30000000000000004", "0.30000000000000004"},
        {"9007199254740993.0", "9007199254740992.0"},
        {"5e-324", "5e-324"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        expect(cases[i][0], 0, cases[i][1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_values), cmocka_unit_test(test_reals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

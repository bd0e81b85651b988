/* json: what is refused, where it says the fault is, and that print and parse are inverse. */
#include "common/io.h"
#include "common/json.h"
#include "common/limits.h"
#include "common/mem.h"
#include "common/rng.h"
#include "tests/lib/cmocka.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int parse(const char *text, json_t **ret_value, struct err *err)
{
    return json_parse(text, strlen(text), "test", ret_value, err);
}

static void refuse(const char *text, const char *wanted)
{
    struct err err;
    json_t *value = NULL;
    if (parse(text, &value, &err) != -ERR_BAD_JSON)
        fail_msg("%s is taken", text);
    assert_null(value);
    if (strstr(err.text, wanted) == NULL)
        fail_msg("%s: \"%s\" does not say \"%s\"", text, err.text, wanted);
}

static void test_refused_with_line_and_column(void **state)
{
    refuse("", "test: not valid JSON, line 1 column 0");
    refuse("{\n\"a\": 1,\n\"b\": x}", "line 3 column 6");
    refuse("{\"a\":1}x", "line 1 column 8");
    refuse("{\"a\":1,\"a\":2}", "duplicate");
    refuse("[1,]", "line 1");
    refuse("[NaN]", "line 1");
    refuse("[1e999]", "line 1");
    refuse("[12345678901234567890]", "too big");
    refuse("[\"\xff\"]", "line 1 column 2: a byte that is not UTF-8");
    refuse("[1, tru, \"\xff\"]", "line 1 column 7: invalid token near 'tru'");
    refuse("[\"a\\u0000b\"]", "line 1");
    refuse("[\"a\nb\"]", "line 1");
    refuse("\xef\xbb\xbf{\"a\": x}", "line 1 column 7"); /* the mark is no column */
    refuse("version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "run git lfs pull");
    struct err err;
    json_t *value = NULL;
    assert_int_equal(json_parse("[1]\0", 4, "test", &value, &err), -ERR_BAD_JSON);
    assert_int_equal(parse("\xef\xbb\xbf[1]", &value, &err), 0); /* saved by a Windows editor */
    assert_int_equal(json_array_size(value), 1);
    json_decref(value);
}

static int set_path(json_t *object, const char *path, struct err *err)
{
    return json_set_path(object, path, json_integer(7), ERR_USAGE, err);
}

static void test_set_path(void **state)
{
    struct err err;
    CLEANUP(json_unref) json_t *object = json_literal("{'a':{'b':1},'c':null}");
    CLEANUP(json_unref) json_t *want = json_literal("{'a':{'b':1,'x':7},'c':{'d':{'e':7}},'f':7}");
    assert_int_equal(set_path(object, "a.x", &err), 0);
    assert_int_equal(set_path(object, "c.d.e", &err), 0);
    assert_int_equal(set_path(object, "f", &err), 0);
    assert_true(json_equal(object, want));
    static const char *const empty[] = {"", ".", ".a", "a.", "a..b"};
    for (size_t i = 0; i < sizeof empty / sizeof empty[0]; i++) {
        assert_int_equal(set_path(object, empty[i], &err), -ERR_USAGE);
        assert_non_null(strstr(err.text, "is empty"));
    }
}

/* As deep as what is parsed may be, no deeper. */
static void test_set_path_deep(void **state)
{
    struct err err;
    char path[2 * (LIMIT_JSON_DEPTH + 1)];
    for (size_t i = 0; i < sizeof path; i++)
        path[i] = i % 2 == 0 ? 'a' : '.';
    path[sizeof path - 1] = '\0';
    CLEANUP(json_unref) json_t *object = json_object();
    assert_int_equal(set_path(object, path, &err), -ERR_USAGE);
    assert_non_null(strstr(err.text, "more than 32 parts"));
    assert_int_equal(set_path(object, path + 2, &err), 0);
}

static void nested(struct buf *out, int depth, const char *open, const char *close)
{
    buf_clear(out);
    for (int i = 0; i < depth; i++)
        buf_text(out, open);
    for (int i = 0; i < depth; i++)
        buf_text(out, close);
}

static void test_depth(void **state)
{
    struct err err;
    json_t *value = NULL;
    struct buf text;
    buf_init(&text, 1 << 20);
    nested(&text, LIMIT_JSON_DEPTH, "[", "]");
    assert_int_equal(parse(buf_str(&text), &value, &err), 0);
    json_decref(value);
    nested(&text, LIMIT_JSON_DEPTH + 1, "[", "]");
    refuse(buf_str(&text), "deeper than 32");
    nested(&text, 100000, "[", "");
    refuse(buf_str(&text), "deeper than 32");
    nested(&text, 100, "[{", "");
    char *quoted = mem_printf("[\"\\\"%s\"]", buf_str(&text)); /* brackets in a string are text */
    assert_int_equal(parse(quoted, &value, &err), 0);
    json_decref(value);
    mem_free(quoted);
    buf_done(&text);
}

static void assert_prints(const char *text, const char *compact)
{
    struct err err;
    struct buf out;
    json_t *value = NULL;
    json_t *again = NULL;
    buf_init(&out, 1 << 16);
    assert_int_equal(parse(text, &value, &err), 0);
    assert_int_equal(json_print(value, &out, &err), 0);
    assert_string_equal(buf_str(&out), compact);
    assert_int_equal(parse(buf_str(&out), &again, &err), 0);
    assert_true(json_equal(value, again));
    json_decref(value);
    json_decref(again);
    buf_done(&out);
}

static void test_print(void **state)
{
    assert_prints(" { \"b\" : [ 1 , 2.0 , true , false , null ] , \"a\" : { } , \"c\":[] } ",
                  "{\"b\":[1,2.0,true,false,null],\"a\":{},\"c\":[]}"); /* order is kept */
    assert_prints("[0.1,1e-5,1e300,-0.0,2.5e-300,9007199254740993,-9223372036854775808]",
                  "[0.1,1e-05,1e+300,-0.0,2.5e-300,9007199254740993,-9223372036854775808]");
    assert_prints("\"a\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0001\\u001f\\u007f\\u20ac\\ud83d\\ude00\"",
                  "\"a\\\"\\\\/\\b\\f\\n\\r\\t\\u0001\\u001F\x7f\xe2\x82\xac\xf0\x9f\x98\x80\"");
    assert_prints("{\"k\\n\\\"\":\"\"}", "{\"k\\n\\\"\":\"\"}");
}

static void test_print_pretty(void **state)
{
    struct err err;
    struct buf out;
    buf_init(&out, 1000);
    json_t *value = json_literal("{'a':[1,{'b':2}],'c':{},'d':[]}");
    assert_int_equal(json_print_pretty(value, &out, &err), 0);
    assert_string_equal(buf_str(&out), "{\n  \"a\": [\n    1,\n    {\n      \"b\": 2\n    }\n  ],\n"
                                       "  \"c\": {},\n  \"d\": []\n}\n");
    buf_done(&out);
    buf_init(&out, 10);
    assert_int_equal(json_print_pretty(value, &out, &err), -ERR_TOO_LARGE);
    buf_done(&out);
    buf_init(&out, 10);
    assert_int_equal(json_print(NULL, &out, &err), -ERR_NOMEM);
    buf_done(&out);
    json_decref(value);
}

/* Any bits of a double come back the same, in at most 17 digits. */
static void test_reals_round_trip(void **state)
{
    const uint64_t seed = 99;
    struct err err;
    struct buf out;
    buf_init(&out, 100);
    print_message("seed %llu\n", (unsigned long long)seed);
    for (uint64_t i = 0; i < 20000; i++) {
        uint64_t bits = rng_u64(seed, RNG_STREAM_TEST, i);
        double number;
        memcpy(&number, &bits, sizeof number);
        if (!isfinite(number))
            continue;
        buf_clear(&out);
        json_t *value = json_real(number);
        json_t *back = NULL;
        assert_int_equal(json_print(value, &out, &err), 0);
        assert_int_equal(parse(buf_str(&out), &back, &err), 0);
        assert_true(json_is_real(back) && json_real_value(back) == number);
        json_decref(value);
        json_decref(back);
    }
    buf_done(&out);
}

static void test_not_finite_is_null(void **state)
{
    json_t *values[] = {json_number(NAN), json_number(INFINITY), json_number(-INFINITY)};
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++)
        assert_true(json_is_null(values[i]));
    json_t *one = json_number(1);
    assert_true(json_is_real(one));
    json_decref(one);
}

static void test_brief(void **state)
{
    char text[16];
    json_t *value = json_literal("{'a':0.1}");
    json_brief(value, text, sizeof text);
    assert_string_equal(text, "{\"a\":0.1}");
    json_decref(value);
    value = json_string("0123456789\xe2\x82\xac\xe2\x82\xac");
    json_brief(value, text, sizeof text);
    assert_string_equal(text, "\"0123456789..."); /* the character that did not fit is gone whole */
    json_decref(value);
    value = json_string("0123456789abc");
    json_brief(value, text, sizeof text);
    assert_string_equal(text, "\"0123456789abc\"");
    json_decref(value);
    json_brief(NULL, text, sizeof text);
    assert_string_equal(text, "");
}

static void test_typed_members(void **state)
{
    struct err err;
    json_t *object = json_literal("{'s':'x','i':7,'r':1.5,'b':true,'n':null}");
    const char *text;
    int64_t integer;
    double number;
    bool flag;
    assert_int_equal(json_get_string(object, "s", ERR_CORRUPT, &text, &err), 0);
    assert_string_equal(text, "x");
    assert_int_equal(json_get_i64(object, "i", ERR_CORRUPT, &integer, &err), 0);
    assert_int_equal(integer, 7);
    assert_int_equal(json_get_f64(object, "i", ERR_CORRUPT, &number, &err), 0);
    assert_true(number == 7);
    assert_int_equal(json_get_f64(object, "r", ERR_CORRUPT, &number, &err), 0);
    assert_true(number == 1.5);
    assert_int_equal(json_get_bool(object, "b", ERR_CORRUPT, &flag, &err), 0);
    assert_true(flag);
    assert_int_equal(json_get_i64(object, "r", ERR_MODEL, &integer, &err), -ERR_MODEL);
    assert_string_equal(err.text, "\"r\" must be an integer");
    assert_string_equal(err.field, "r");
    assert_int_equal(json_get_string(object, "n", ERR_CORRUPT, &text, &err), -ERR_CORRUPT);
    assert_int_equal(json_get_bool(object, "x", ERR_CORRUPT, &flag, &err), -ERR_CORRUPT);
    assert_string_equal(err.text, "\"x\" is missing; it must be true or false");
    assert_int_equal(json_get_f64(object, "s", ERR_CORRUPT, &number, &err), -ERR_CORRUPT);
    assert_int_equal(json_get_string(NULL, "s", ERR_CORRUPT, &text, &err), -ERR_CORRUPT);
    json_decref(object);
}

static void test_files(void **state)
{
    struct err err;
    char folder[] = "/tmp/test_json-XXXXXX";
    assert_non_null(mkdtemp(folder));
    char *path = io_join(folder, "x.json");
    json_t *value = json_literal("{'a':1}");
    json_t *back = NULL;
    assert_int_equal(json_write_file(path, value, 0600, &err), 0);
    assert_int_equal(json_parse_file(path, 100, &back, &err), 0);
    assert_true(json_equal(value, back));
    json_decref(back);
    assert_int_equal(json_parse_file(path, 3, &back, &err), -ERR_TOO_LARGE);
    FILE *stream = fopen(path, "re");
    assert_non_null(stream);
    assert_int_equal(json_parse_stream(stream, 100, "the request", &back, &err), 0);
    assert_true(json_equal(value, back));
    json_decref(back);
    rewind(stream);
    assert_int_equal(json_parse_stream(stream, 3, "the request", &back, &err), -ERR_TOO_LARGE);
    assert_int_equal(fclose(stream), 0);
    assert_int_equal(io_write_file(path, "{", 1, 0600, &err), 0);
    assert_int_equal(json_parse_file(path, 100, &back, &err), -ERR_BAD_JSON);
    assert_non_null(strstr(err.text, path));
    assert_int_equal(io_remove_tree(folder, &err), 0);
    json_decref(value);
    mem_free(path);
    assert_int_equal(mem_live(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused_with_line_and_column),
        cmocka_unit_test(test_set_path),
        cmocka_unit_test(test_set_path_deep),
        cmocka_unit_test(test_depth),
        cmocka_unit_test(test_print),
        cmocka_unit_test(test_print_pretty),
        cmocka_unit_test(test_reals_round_trip),
        cmocka_unit_test(test_not_finite_is_null),
        cmocka_unit_test(test_brief),
        cmocka_unit_test(test_typed_members),
        cmocka_unit_test(test_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

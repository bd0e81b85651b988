/* err: the table, and what happens to sentences that are too long. */
#include "common/err.h"
#include "common/utf8.h"
#include "tests/lib/cmocka.h"

#include <errno.h>
#include <string.h>

static void test_table(void **state)
{
    for (int code = 1; code < ERR_COUNT; code++) {
        const char *name = err_code_name((enum err_code)code);
        assert_int_equal(err_code_parse(name), code); /* so names are unique, too */
        assert_true(name[0] != '\0' && strspn(name, "abcdefghijklmnopqrstuvwxyz_") == strlen(name));
        assert_in_range(err_code_http((enum err_code)code), 400, 599);
        assert_in_range(err_code_exit((enum err_code)code), 64, 78); /* sysexits.h */
        assert_true(err_code_type((enum err_code)code)[0] != '\0');
    }
    assert_int_equal(err_code_parse("no_such_code"), ERR_NONE);
    assert_string_equal(err_code_name((enum err_code)9999), "internal");
    assert_int_equal(err_code_exit(ERR_NONE), 0);
}

static void test_set_and_wrap(void **state)
{
    struct err err;
    int rc = err_set_field(&err, ERR_INVALID_VALUE, "a.b", "%s is %d", "a.b", 7);
    assert_int_equal(rc, -ERR_INVALID_VALUE);
    assert_string_equal(err.field, "a.b");
    assert_string_equal(err.text, "a.b is 7");
    assert_int_equal(err_wrap(&err, rc, "job %d: ", 3), rc);
    assert_string_equal(err.text, "job 3: a.b is 7");
    assert_string_equal(err.field, "a.b");
    assert_int_equal(err.code, ERR_INVALID_VALUE);
    assert_int_equal(err_set(&err, ERR_IO, "gone"), -ERR_IO);
    assert_string_equal(err.field, ""); /* the field of the older error is forgotten */
}

static void test_errno(void **state)
{
    struct err err;
    assert_int_equal(err_set_errno(&err, ENOENT, "%s", "/x"), -ERR_NOT_FOUND);
    assert_string_equal(err.text, "/x: No such file or directory");
    assert_int_equal(err_set_errno(&err, ENOSPC, "x"), -ERR_NO_SPACE);
    assert_int_equal(err_set_errno(&err, EDQUOT, "x"), -ERR_NO_SPACE);
    assert_true(err_is_shortage(err_set_errno(&err, EMFILE, "x"))); /* others give theirs back */
    assert_true(err_is_shortage(err_set_errno(&err, ENFILE, "x")));
    assert_true(err_is_shortage(err_set_errno(&err, ENOMEM, "x")));
    assert_false(err_is_shortage(err_set_errno(&err, ENOENT, "x")));
    assert_false(err_is_shortage(0));
    assert_int_equal(err_set_errno(&err, ENOMEM, "x"), -ERR_NOMEM);
    assert_int_equal(err_set_errno(&err, EACCES, "x"), -ERR_IO);
}

static void test_long_sentences_are_cut_at_a_character(void **state)
{
    struct err err;
    char text[ERR_TEXT_MAX + 64];
    for (size_t start = 0; start < 3; start++) { /* the cut falls on every byte of a character */
        memset(text, 'x', start);
        for (size_t at = start; at + 3 < sizeof text; at += 3)
            memcpy(text + at, "\xe2\x82\xac", 4);
        (void)err_set_field(&err, ERR_DATA, text, "%s", text);
        assert_in_range(strlen(err.text), ERR_TEXT_MAX - 4, ERR_TEXT_MAX - 1);
        assert_true(utf8_valid(err.text, strlen(err.text)));
        assert_true(utf8_valid(err.field, strlen(err.field)));
        (void)err_wrap(&err, -ERR_DATA, "in %d: ", 1);
        assert_in_range(strlen(err.text), ERR_TEXT_MAX - 4, ERR_TEXT_MAX - 1);
        assert_true(utf8_valid(err.text, strlen(err.text)));
        (void)err_wrap(&err, -ERR_DATA, "%s", text);
        assert_true(utf8_valid(err.text, strlen(err.text)));
    }
}

static int fails(struct err *err)
{
    TRY(0);
    TRY(err_set(err, ERR_IO, "first"));
    return err_set(err, ERR_DATA, "not reached");
}

static void test_try_returns_the_first_failure(void **state)
{
    struct err err;
    assert_int_equal(fails(&err), -ERR_IO);
    assert_string_equal(err.text, "first");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_set_and_wrap),
        cmocka_unit_test(test_errno),
        cmocka_unit_test(test_long_sentences_are_cut_at_a_character),
        cmocka_unit_test(test_try_returns_the_first_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

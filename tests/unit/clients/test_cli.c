/* cli: options are taken from anywhere, what is left over is named. */
#include "clients/cli/cli.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* The library is linked without main.c, whose table the lookup reads. */
const struct cli_command cli_commands[] = {{.name = "ls"}};
const size_t cli_command_count = 1;

static void test_options_are_taken_from_anywhere(void **state)
{
    (void)state;
    char *argv[] = {"first", "--name", "value", "--flag", "--other=x=y", "second"};
    struct cli cli = {.argc = 6, .argv = argv};
    struct err err;
    const char *value = NULL;
    assert_int_equal(cli_take_option(&cli, "--name", &value, &err), 0);
    assert_string_equal(value, "value");
    assert_int_equal(cli_take_option(&cli, "--other", &value, &err), 0);
    assert_string_equal(value, "x=y");
    assert_int_equal(cli_take_option(&cli, "--absent", &value, &err), 0);
    assert_null(value);
    assert_true(cli_take_flag(&cli, "--flag"));
    assert_false(cli_take_flag(&cli, "--flag"));
    assert_int_equal(cli_take_argument(&cli, "one", &value, &err), 0);
    assert_string_equal(value, "first");
    assert_int_equal(cli_take_argument(&cli, "two", &value, &err), 0);
    assert_string_equal(value, "second");
    assert_int_equal(cli_finish_arguments(&cli, &err), 0);
}

static void test_mistakes_are_named(void **state)
{
    (void)state;
    struct err err;
    const char *value = NULL;
    char *missing[] = {"--limit"};
    struct cli cli = {.argc = 1, .argv = missing};
    assert_int_equal(cli_take_option(&cli, "--limit", &value, &err), -ERR_USAGE);
    assert_non_null(strstr(err.text, "--limit needs a value"));
    char *unknown[] = {"--typo"};
    cli = (struct cli){.argc = 1, .argv = unknown};
    assert_int_equal(cli_finish_arguments(&cli, &err), -ERR_USAGE);
    assert_non_null(strstr(err.text, "--typo"));
    assert_int_equal(cli_take_argument(&cli, "the id", &value, &err), -ERR_USAGE);
    cli.argc = 0;
    assert_int_equal(cli_take_argument(&cli, "the job's id", &value, &err), -ERR_USAGE);
    assert_non_null(strstr(err.text, "the job's id is missing"));
}

static void test_double_dash_ends_options(void **state)
{
    (void)state;
    char *argv[] = {"--", "--name", "x"};
    struct cli cli = {.argc = 3, .argv = argv};
    struct err err;
    const char *value = NULL;
    assert_int_equal(cli_take_option(&cli, "--name", &value, &err), 0);
    assert_null(value);
    assert_int_equal(cli_take_argument(&cli, "a word", &value, &err), 0);
    assert_string_equal(value, "--name");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_options_are_taken_from_anywhere),
        cmocka_unit_test(test_mistakes_are_named),
        cmocka_unit_test(test_double_dash_ends_options),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

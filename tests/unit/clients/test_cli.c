/* cli: options are taken from anywhere, what is left over is named; output that cannot be written.
 */
#include "clients/cli/cli.h"

#include "common/mem.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

static void test_option_edges(void **state)
{
    (void)state;
    struct err err;
    const char *value = NULL;
    char *argv[] = {"--names", "x", "--name=", "--name", "last", "-", "-n"};
    struct cli cli = {.argc = 7, .argv = argv};
    assert_int_equal(cli_take_option(&cli, "--name", &value, &err), 0);
    assert_string_equal(value, ""); /* the first, and not --names */
    assert_int_equal(cli_take_option(&cli, "--name", &value, &err), 0);
    assert_string_equal(value, "last");
    assert_int_equal(cli_take_option(&cli, "--name", &value, &err), 0);
    assert_null(value);
    assert_int_equal(cli.argc, 4);
    assert_false(cli_take_flag(&cli, "--name"));
    assert_int_equal(cli_take_argument(&cli, "one", &value, &err), -ERR_USAGE);
    assert_non_null(strstr(err.text, "--names"));
    assert_int_equal(cli_take_option(&cli, "--names", &value, &err), 0);
    assert_int_equal(cli_take_argument(&cli, "one", &value, &err), 0);
    assert_string_equal(value, "-"); /* a lone dash is a word */
    assert_int_equal(cli_take_argument(&cli, "two", &value, &err), -ERR_USAGE);
    assert_non_null(strstr(err.text, "-n"));
}

static void test_lookups(void **state)
{
    (void)state;
    assert_ptr_equal(cli_command_find("ls"), &cli_commands[0]);
    assert_null(cli_command_find("l"));
    assert_null(cli_command_find(""));
    assert_int_equal(setenv("ITHACA_TEST_X", "", 1), 0);
    assert_null(cli_environment("ITHACA_TEST_X"));
    assert_int_equal(setenv("ITHACA_TEST_X", "a", 1), 0);
    assert_string_equal(cli_environment("ITHACA_TEST_X"), "a");
    assert_int_equal(unsetenv("ITHACA_TEST_X"), 0);
    assert_null(cli_environment("ITHACA_TEST_X"));
}

/* A full disk behind stdout. */
static void test_print_json(void **state)
{
    (void)state;
    struct err err = {.code = ERR_NONE};
    CLEANUP(json_unref) json_t *value = json_array();
    for (int i = 0; i < 5000; i++) /* more than stdio keeps back */
        assert_int_equal(json_array_append_new(value, json_integer(i)), 0);
    (void)fflush(stdout);
    int kept = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 10);
    int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
    assert_true(kept >= 0 && full >= 0);
    assert_int_equal(dup2(full, STDOUT_FILENO), STDOUT_FILENO);
    int rc = cli_print_json(value, &err);
    rc = rc == 0 && fflush(stdout) != 0 ? -ERR_IO : rc; /* main.c flushes */
    clearerr(stdout);
    assert_int_equal(dup2(kept, STDOUT_FILENO), STDOUT_FILENO);
    (void)close(full);
    (void)close(kept);
    assert_int_equal(rc, -ERR_IO);
    assert_int_equal(cli_print_json(NULL, &err), -ERR_NOMEM);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_options_are_taken_from_anywhere),
        cmocka_unit_test(test_mistakes_are_named),
        cmocka_unit_test(test_double_dash_ends_options),
        cmocka_unit_test(test_option_edges),
        cmocka_unit_test(test_lookups),
        cmocka_unit_test(test_print_json),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

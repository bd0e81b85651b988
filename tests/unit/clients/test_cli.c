/* cli: the command line sorted by the table; every mistake is named, with what was likely meant;
 * output that cannot be written. */
#include "clients/cli/cli.h"

#include "common/mem.h"
#include "tests/lib/cmocka.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct err err;

/* Sorts a command line of up to 15 words, NULL at the end. */
static int parse(struct cli *cli, const char *const words[])
{
    static char *argv[16];
    int argc = 0;
    for (; words[argc] != NULL; argc++)
        argv[argc] = (char *)(uintptr_t)words[argc];
    *cli = (struct cli){.json = false};
    err = (struct err){.code = ERR_NONE};
    return cli_parse(cli, argc, argv, &err);
}

#define PARSE(cli, ...) parse(cli, (const char *const[]){__VA_ARGS__, NULL})
#define EXPECT_USAGE(says, ...)                                  \
    do {                                                         \
        struct cli cli_;                                         \
        assert_int_equal(PARSE(&cli_, __VA_ARGS__), -ERR_USAGE); \
        assert_string_equal(err.text, says);                     \
    } while (0)

static void test_options_are_taken_from_anywhere(void **state)
{
    struct cli cli;
    const char *value = NULL;
    assert_int_equal(PARSE(&cli, "--json", "submit", "first", "--model", "m", "--follow",
                           "--suffix=x=y", "second", "--url", "http://a"),
                     0);
    assert_string_equal(cli.command->name, "submit");
    assert_string_equal(cli_take_option(&cli, "--model"), "m");
    assert_string_equal(cli_take_option(&cli, "--suffix"), "x=y");
    assert_string_equal(cli_take_option(&cli, "--url"), "http://a");
    assert_null(cli_take_option(&cli, "--seed"));
    assert_true(cli_take_flag(&cli, "--follow"));
    assert_true(cli_take_flag(&cli, "--json"));
    assert_false(cli_take_flag(&cli, "--version"));
    assert_int_equal(cli_take_argument(&cli, "one", &value, &err), 0);
    assert_string_equal(value, "first");
    assert_int_equal(cli_take_argument(&cli, "two", &value, &err), 0);
    assert_string_equal(value, "second");
    assert_int_equal(cli_take_argument(&cli, "a third", &value, &err), -ERR_USAGE);
    assert_string_equal(err.text, "a third is missing");
    assert_int_equal(cli_finish_arguments(&cli, &err), 0);
}

static void test_mistakes_are_named(void **state)
{
    EXPECT_USAGE("--limit needs a value", "ls", "--limit");
    EXPECT_USAGE("--limit 5x: write a number", "ls", "--limit", "5x");
    EXPECT_USAGE("--limit : write a number", "ls", "--limit=");
    EXPECT_USAGE("--json takes no value", "ls", "--json=yes");
    EXPECT_USAGE("unknown option --colour", "ls", "--colour");
    EXPECT_USAGE("unknown option -l", "ls", "-l");
    EXPECT_USAGE("unknown option --limt=5; did you mean --limit?", "ls", "--limt=5");
    EXPECT_USAGE("unknown option --jsn; did you mean --json?", "ls", "--jsn");
    EXPECT_USAGE("unknown option --limit", "--limit", "5", "ls"); /* no command's yet */
    EXPECT_USAGE("unknown option --set", "show", "--set", "x");   /* another command's */
    EXPECT_USAGE("unknown command shwo; did you mean show? (see `ithaca --help`)", "shwo", "x");
    EXPECT_USAGE("unknown command dance (see `ithaca --help`)", "dance");
    EXPECT_USAGE("--scope all: write read, submit or admin", "tokens", "--scope", "all");
    EXPECT_USAGE("--backend cud: write cpu, cuda or cuda_own", "plan", "--backend=cud");
    EXPECT_USAGE("unknown option --first", "ls", "--first", "--second"); /* the first counts */
}

/* The first mistake does not hide how errors are to be reported. */
static void test_json_after_a_mistake(void **state)
{
    struct cli cli;
    assert_int_equal(PARSE(&cli, "dance", "--colour", "--json"), -ERR_USAGE);
    assert_true(cli_take_flag(&cli, "--json"));
}

static void test_what_is_left(void **state)
{
    struct cli cli;
    assert_int_equal(PARSE(&cli, "ls", "me"), 0);
    assert_int_equal(cli_finish_arguments(&cli, &err), -ERR_USAGE);
    assert_string_equal(err.text, "unexpected argument me");
    assert_int_equal(PARSE(&cli, "ls", "--limit", "1", "--limit", "2"), 0);
    assert_string_equal(cli_take_option(&cli, "--limit"), "1");
    assert_int_equal(cli_finish_arguments(&cli, &err), -ERR_USAGE);
    assert_string_equal(err.text, "--limit is given twice");
    assert_int_equal(PARSE(&cli, "files", "ls", "--output", "x"), 0);
    cli.argc = 0;
    assert_int_equal(cli_finish_arguments(&cli, &err), -ERR_USAGE);
    assert_string_equal(err.text, "--output does not belong here");
    struct cli many = {.command = command_find("submit")};
    char *words[2 * CLI_GIVEN_MAX + 2];
    for (int i = 0; i < 2 * CLI_GIVEN_MAX + 2; i++)
        words[i] = (char *)(uintptr_t)(i % 2 == 0 ? "--set" : "a=1");
    assert_int_equal(cli_parse(&many, 2 * CLI_GIVEN_MAX, words, &err), 0);
    many.given_count = 0;
    assert_int_equal(cli_parse(&many, 2 * CLI_GIVEN_MAX + 2, words, &err), -ERR_USAGE);
    assert_non_null(strstr(err.text, "more than 256 options"));
}

/* What follows an option is its value, whatever it looks like. */
static void test_values_that_look_like_options(void **state)
{
    struct cli cli;
    assert_int_equal(PARSE(&cli, "sample", "--prompt", "--json", "--job=--help"), 0);
    assert_string_equal(cli_take_option(&cli, "--prompt"), "--json");
    assert_string_equal(cli_take_option(&cli, "--job"), "--help");
    assert_false(cli_take_flag(&cli, "--json"));
    assert_false(cli_take_flag(&cli, "--help"));
    assert_int_equal(PARSE(&cli, "sample", "--prompt="), 0);
    assert_string_equal(cli_take_option(&cli, "--prompt"), "");
    assert_int_equal(PARSE(&cli, "ls", "-h"), 0);
    assert_true(cli_take_flag(&cli, "--help"));
}

static void test_double_dash_ends_options(void **state)
{
    struct cli cli;
    const char *value = NULL;
    assert_int_equal(PARSE(&cli, "show", "-", "--", "--limit", "--", "-x"), 0);
    assert_int_equal(cli.argc, 4);
    assert_int_equal(cli_take_argument(&cli, "a word", &value, &err), 0);
    assert_string_equal(value, "-"); /* a lone dash is a word */
    assert_int_equal(cli_take_argument(&cli, "a word", &value, &err), 0);
    assert_string_equal(value, "--limit");
}

static void test_verbs(void **state)
{
    struct cli cli;
    const char *verb = NULL;
    assert_int_equal(PARSE(&cli, "queue", "drain"), 0);
    assert_int_equal(cli_take_verb(&cli, &verb, &err), 0);
    assert_string_equal(verb, "drain");
    assert_int_equal(cli_take_verb(&cli, &verb, &err), -ERR_USAGE);
    assert_string_equal(err.text, "what to do is missing: one of drain, undrain");
    assert_int_equal(PARSE(&cli, "queue", "drai"), 0);
    assert_int_equal(cli_take_verb(&cli, &verb, &err), -ERR_USAGE);
    assert_string_equal(err.text, "unknown verb drai; use one of drain, undrain");
}

static void test_environment(void **state)
{
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
        cmocka_unit_test(test_json_after_a_mistake),
        cmocka_unit_test(test_what_is_left),
        cmocka_unit_test(test_values_that_look_like_options),
        cmocka_unit_test(test_double_dash_ends_options),
        cmocka_unit_test(test_verbs),
        cmocka_unit_test(test_environment),
        cmocka_unit_test(test_print_json),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

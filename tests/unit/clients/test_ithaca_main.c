/* main of ithaca, the program itself: help, versions, and errors as a line or as JSON, with their
 * exit statuses. */
#include "common/json.h"
#include "tests/lib/program.h"

static int setup(void **state)
{
    static const char *const variables[] = {"ITHACA_URL", "ITHACA_TOKEN", "ITHACA_DATA_DIR",
                                            "XDG_DATA_HOME"};
    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++)
        (void)unsetenv(variables[i]);
    program_open("clients/ithaca");
    return 0;
}

static int teardown(void **state)
{
    program_close();
    assert_int_equal(mem_live(), 0);
    return 0;
}

static void test_help(void **state)
{
    static const char *const commands[] = {"submit", "ls",     "show",  "watch",       "events",
                                           "logs",   "cancel", "pause", "resume",      "download",
                                           "sample", "models", "files", "checkpoints", "fields"};
    assert_int_equal(PROGRAM("--version"), 0);
    assert_string_equal(program.out, "ithaca " ITHACA_VERSION "\n");
    assert_int_equal(PROGRAM("--help"), 0);
    CLEANUP(mem_free_ptr) char *help = mem_strdup(program.out);
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        char usage[64];
        (void)snprintf(usage, sizeof usage, "  %s ", commands[i]);
        assert_non_null(strstr(help, usage));
        if (i % 5 != 0)
            continue; /* a process each: a few of them */
        assert_int_equal(PROGRAM(commands[i], "--help"), 0);
        (void)snprintf(usage, sizeof usage, "usage: ithaca %s", commands[i]);
        assert_memory_equal(program.out, usage, strlen(usage));
    }
    assert_string_equal(program.err, "");
}

static void test_mistakes(void **state)
{
    assert_int_equal(PROGRAM("dance"), err_code_exit(ERR_USAGE));
    program_expect_line("ithaca: unknown command dance (see `ithaca --help`)");
    assert_int_equal(PROGRAM(NULL), err_code_exit(ERR_USAGE));
    program_expect_line("a command (see `ithaca --help`) is missing");
    assert_int_equal(PROGRAM("--colour", "ls"), err_code_exit(ERR_USAGE));
    program_expect_line("--colour");
    assert_int_equal(PROGRAM("show"), err_code_exit(ERR_USAGE));
    program_expect_line("show: the job's id is missing"); /* whose it is */
    assert_int_equal(PROGRAM("ls", "--url"), err_code_exit(ERR_USAGE));
    program_expect_line("--url needs a value");
    assert_string_equal(program.out, "");
}

static void test_no_daemon(void **state)
{
    struct err err;
    CLEANUP(json_unref) json_t *json = NULL;
    assert_int_equal(PROGRAM("ls", "--url", "http://127.0.0.1:1"), err_code_exit(ERR_UNAVAILABLE));
    program_expect_line("http://127.0.0.1:1");
    assert_int_equal(PROGRAM("--json", "ls", "--url=http://127.0.0.1:1"),
                     err_code_exit(ERR_UNAVAILABLE));
    assert_int_equal(json_parse(program.err, strlen(program.err), "stderr", &json, &err), 0);
    const json_t *error = json_object_get(json, "error");
    assert_string_equal(json_string_value(json_object_get(error, "code")), "unavailable");
    assert_true(json_is_null(json_object_get(error, "param")));
    assert_int_equal(PROGRAM("ls", "--data-dir", program.folder), err_code_exit(ERR_UNAVAILABLE));
    program_expect_line("no daemon found");
}

static void test_full_disk(void **state)
{
    int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
    assert_int_equal(program_run(full, (const char *const[]){"fields", NULL}),
                     err_code_exit(ERR_IO));
    program_expect_line("standard output cannot be written");
    (void)close(full);
}

#define MAIN_TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        MAIN_TEST(test_help),
        MAIN_TEST(test_mistakes),
        MAIN_TEST(test_no_daemon),
        MAIN_TEST(test_full_disk),
    };
    if (getenv("ITHACA_BUILD_DIR") == NULL)
        return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}

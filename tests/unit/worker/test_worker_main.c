/* main of ithaca-worker, the program itself: its roles' command lines, its exit statuses, and the
 * one line that says what went wrong. */
#include "tests/lib/program.h"

static void test_command_lines(void **state)
{
    static const char *const wrong[][8] = {
        {NULL},
        {"--help", NULL},
        {"--rank", "0", NULL},
        {"--rank", "0", "--dir", "/tmp", NULL},
        {"--keep", NULL},
        {"--keep", "/tmp", "more", NULL},
        {"--prepare", NULL},
        {"--init-model", "tiny-llama", NULL},
        {"--init-model", "tiny-llama", "/tmp/x", "--seed", NULL},
        {"--init-model", "tiny-llama", "/tmp/x", "--speed", "1", NULL},
        {"--export", "a", "b", NULL},
        {"--sample", NULL},
        {"--version", "please", NULL},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        int status = program_run(-1, wrong[i]);
        if (status != err_code_exit(ERR_USAGE))
            fail_msg("line %zu: %d: %s", i, status, program.err);
        program_expect_line("usage: ithaca-worker");
    }
    assert_int_equal(PROGRAM("--version"), 0);
    assert_string_equal(program.out, "ithaca-worker " ITHACA_VERSION "\n");
}

static void test_numbers(void **state)
{
    static const char *const wrong[] = {"", "x", "-1", "1x", "64", "99999999999999999999"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        int status = PROGRAM("--rank", wrong[i], "--attempt-dir", program.folder);
        if (status != err_code_exit(ERR_USAGE) || strstr(program.err, "from 0 to 63") == NULL)
            fail_msg("\"%s\": %d: %s", wrong[i], status, program.err);
    }
    CLEANUP(mem_free_ptr) char *model = io_join(program.folder, "model");
    assert_int_equal(PROGRAM("--init-model", "tiny-llama", model, "--seed", "-3"),
                     err_code_exit(ERR_USAGE));
    assert_false(io_exists(model));
}

/* What a role's own failure becomes. */
static void test_roles_that_fail(void **state)
{
    struct err err;
    CLEANUP(mem_free_ptr) char *absent = io_join(program.folder, "absent");
    CLEANUP(mem_free_ptr) char *words = io_join(program.folder, "last-words-3");
    CLEANUP(buf_done) struct buf text;
    buf_init(&text, 10000);
    assert_int_equal(PROGRAM("--rank", "3", "--attempt-dir", program.folder),
                     err_code_exit(ERR_NOT_FOUND));
    assert_memory_equal(program.err, "ithaca-worker: ", 15);
    assert_non_null(strstr(program.err, "plan.json"));
    assert_int_equal(io_read_file(words, 10000, &text, &err), 0); /* for the keeper */
    assert_non_null(strstr(buf_str(&text), "plan.json"));
    CLEANUP(mem_free_ptr) char *plan = io_join(program.folder, "plan.json");
    assert_int_equal(io_write_file(plan, "{}", 2, 0600, &err), 0);
    assert_int_not_equal(PROGRAM("--rank", "0", "--attempt-dir", program.folder),
                         0); /* no plan of ours */
    assert_int_equal(PROGRAM("--keep", absent), err_code_exit(ERR_NOT_FOUND));
    assert_int_equal(PROGRAM("--prepare", absent), err_code_exit(ERR_NOT_FOUND));
    assert_int_equal(PROGRAM("--export", absent, absent, absent), err_code_exit(ERR_NOT_FOUND));
    assert_int_equal(PROGRAM("--init-model", "no-llama", absent), err_code_exit(ERR_NOT_FOUND));
    assert_int_equal(PROGRAM("--sample", absent), err_code_exit(ERR_BAD_JSON)); /* stdin is empty */
    assert_int_equal(PROGRAM("--init-model", "tiny-llama", program.folder),
                     err_code_exit(ERR_IN_USE));
}

static int setup(void **state)
{
    program_open("worker/ithaca-worker");
    return 0;
}

static int teardown(void **state)
{
    program_close();
    assert_int_equal(mem_live(), 0);
    return 0;
}

#define MAIN_TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        MAIN_TEST(test_command_lines),
        MAIN_TEST(test_numbers),
        MAIN_TEST(test_roles_that_fail),
    };
    if (getenv("ITHACA_BUILD_DIR") == NULL)
        return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}

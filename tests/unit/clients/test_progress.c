/* progress: plain lines in a pipe: few of them, and the last state always. */
#include "clients/cli/progress.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void test_pipe_prints_first_and_last(void **state)
{
    (void)state;
    char text[4096] = "";
    FILE *out = tmpfile();
    assert_non_null(out);
    struct progress progress;
    progress_init(&progress, out);
    assert_false(progress.terminal);
    progress.steps_total = 200;
    for (int64_t step = 1; step <= 200; step++) {
        progress_step(&progress, step, 2.0 / (double)step, 5000, 0.5);
        progress_show(&progress);
    }
    progress_say(&progress, "a sentence");
    progress_finish(&progress);
    rewind(out);
    size_t length = fread(text, 1, sizeof text - 1, out);
    (void)fclose(out);
    assert_true(length > 0 && length < 600); /* 200 steps, not 200 lines */
    assert_non_null(strstr(text, "1/200  loss 2.0000  5.0k tok/s  eta 1:40\n"));
    assert_non_null(strstr(text, "[########################]  200/200  loss 0.0100"));
    assert_non_null(strstr(text, "\na sentence\n"));
    assert_null(strchr(text, '\r'));
}

static void test_unknown_values_are_left_out(void **state)
{
    (void)state;
    char text[256] = "";
    FILE *out = tmpfile();
    assert_non_null(out);
    struct progress progress;
    progress_init(&progress, out);
    progress_step(&progress, 1, NAN, NAN, NAN);
    progress_show(&progress);
    rewind(out);
    assert_non_null(fgets(text, sizeof text, out));
    (void)fclose(out);
    assert_string_equal(text, "step 1\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pipe_prints_first_and_last),
        cmocka_unit_test(test_unknown_values_are_left_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

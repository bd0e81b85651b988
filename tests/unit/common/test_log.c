/* log: what comes out on stderr, a write a line. */
#include "common/clock.h"
#include "common/limits.h"
#include "common/log.h"
#include "tests/lib/cmocka.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static char out[3 * LIMIT_LOG_LINE_BYTES]; /* what was written, NUL-terminated */

/* Runs `say` with stderr in a pipe. */
static void capture(void (*say)(void))
{
    int ends[2];
    int saved = dup(STDERR_FILENO);
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    assert_true(dup2(ends[1], STDERR_FILENO) >= 0);
    say();
    assert_true(dup2(saved, STDERR_FILENO) >= 0);
    (void)close(saved);
    (void)close(ends[1]);
    size_t length = 0;
    ssize_t got;
    while ((got = read(ends[0], out + length, sizeof out - 1 - length)) > 0)
        length += (size_t)got;
    out[length] = '\0';
    (void)close(ends[0]);
}

static void say_plain(void)
{
    log_info("supervisor", "rank %d of %s", 3, "ftjob-1");
}

static void test_shape_of_a_line(void **state)
{
    char before[CLOCK_ISO_BYTES];
    clock_iso(clock_wall_ms(), before);
    capture(say_plain);
    assert_string_equal(strchr(out, ' '), " info supervisor: rank 3 of ftjob-1\n");
    assert_int_equal(strcspn(out, " "), strlen("2026-11-29T12:00:00.123Z"));
    assert_true(strncmp(out, before, strlen(before)) >= 0); /* ISO times sort as text */
}

static void say_all_levels(void)
{
    log_debug("x", "1");
    log_info("x", "2");
    log_warn("x", "3");
    log_error("x", "4");
}

static void test_levels(void **state)
{
    log_set_level(LOG_LEVEL_WARN);
    capture(say_all_levels);
    assert_null(strstr(out, "info"));
    assert_non_null(strstr(out, "warn x: 3\n"));
    assert_non_null(strstr(out, "error x: 4\n"));
    log_set_level(LOG_LEVEL_DEBUG);
    capture(say_all_levels);
    assert_non_null(strstr(out, "debug x: 1\n"));
    for (int level = 0; level < LOG_LEVEL_COUNT; level++)
        assert_int_equal(log_level_parse(log_level_name((enum log_level)level)), level);
    assert_int_equal(log_level_parse("loud"), LOG_LEVEL_COUNT);
    log_set_level(LOG_LEVEL_INFO);
}

static void say_control_characters(void)
{
    log_info("x", "%s",
             "a\nb\rc\td\x1b[31me\x7f"
             "f\xc3\xa9");
}

static void test_control_characters_are_replaced(void **state)
{
    capture(say_control_characters);
    assert_non_null(strstr(out, "x: a b c d [31me f\xc3\xa9\n"));
    assert_int_equal(strcspn(out, "\n"), strlen(out) - 1);
}

static char long_text[2 * LIMIT_LOG_LINE_BYTES];

static void say_long(void)
{
    log_info("x", "%s", long_text);
    log_info("y", "short");
}

static void test_long_lines_are_cut(void **state)
{
    for (size_t length = LIMIT_LOG_LINE_BYTES - 60; length < sizeof long_text; length += 7) {
        memset(long_text, 'z', length);
        long_text[length] = '\0';
        capture(say_long);
        size_t first = strcspn(out, "\n") + 1;
        assert_in_range(first, LIMIT_LOG_LINE_BYTES - 40, LIMIT_LOG_LINE_BYTES);
        assert_string_equal(strchr(out + first, ' '), " info y: short\n");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shape_of_a_line),
        cmocka_unit_test(test_levels),
        cmocka_unit_test(test_control_characters_are_replaced),
        cmocka_unit_test(test_long_lines_are_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

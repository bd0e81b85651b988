/* clock: known instants, and time that goes forward. */
#include "common/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static void test_iso(void **state)
{
    (void)state;
    char text[CLOCK_ISO_BYTES];
    clock_iso(0, text);
    assert_string_equal(text, "1970-01-01T00:00:00.000Z");
    clock_iso(951782400007, text); /* a leap day of a year divisible by 400 */
    assert_string_equal(text, "2000-02-29T00:00:00.007Z");
    clock_iso(4102444799999, text);
    assert_string_equal(text, "2099-12-31T23:59:59.999Z");
}

static void test_durations(void **state)
{
    (void)state;
    static const struct {
        int64_t seconds;
        const char *text;
    } rows[] = {{-5, "0s"},        {0, "0s"},        {59, "59s"},
                {60, "1m00s"},     {3599, "59m59s"}, {3600, "1h00m"},
                {86399, "23h59m"}, {86400, "1d00h"}, {8640000, "100d00h"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[CLOCK_DURATION_BYTES];
        clock_duration(rows[i].seconds, text);
        assert_string_equal(text, rows[i].text);
    }
}

static void test_monotonic(void **state)
{
    (void)state;
    int64_t before = clock_monotonic_ns();
    clock_sleep_ms(2);
    int64_t after = clock_monotonic_ns();
    assert_true(after - before >= 2000000);
    assert_true(clock_monotonic_ms() >= after / 1000000);
    assert_true(clock_wall_ms() > 1700000000000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_iso),
        cmocka_unit_test(test_durations),
        cmocka_unit_test(test_monotonic),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

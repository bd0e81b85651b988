/* clock: known instants, and time that goes forward. */
#include "common/clock.h"
#include "tests/lib/cmocka.h"

#include <stdlib.h>
#include <time.h>

static void test_iso(void **state)
{
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

/* Days of a zone: of 24 hours, of 23 and 25, and one whose midnight the clock leaves out. */
static void test_days(void **state)
{
    static const struct {
        const char *zone;
        int64_t at_ms;
        const char *date;
        int64_t next_ms;
    } rows[] = {
        {"UTC0", 1764460800000, "2025-11-30", 1764547200000},
        {"UTC0", 1764547199999, "2025-11-30", 1764547200000},
        {"CET-1CEST,M3.5.0,M10.5.0/3", 1774738800000, "2026-03-29", 1774821600000}, /* 23 h */
        {"CET-1CEST,M3.5.0,M10.5.0/3", 1792879200000, "2026-10-25", 1792969200000}, /* 25 h */
        {"<-03>3<-02>,M11.1.0/0,M2.3.0/0", 1541242800000, "2018-11-03", 1541300400000},
        {"<-03>3<-02>,M11.1.0/0,M2.3.0/0", 1541300399999, "2018-11-03", 1541300400000},
        {"<-03>3<-02>,M11.1.0/0,M2.3.0/0", 1541300400000, "2018-11-04", 1541383200000},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char date[CLOCK_DATE_BYTES];
        int64_t next_ms = 0, begin_ms = 0;
        assert_int_equal(setenv("TZ", rows[i].zone, 1), 0);
        tzset();
        clock_day(rows[i].at_ms, date, &next_ms);
        assert_string_equal(date, rows[i].date);
        assert_int_equal(next_ms, rows[i].next_ms);
        assert_true(clock_parse_date(date, &begin_ms));
        assert_true(begin_ms <= rows[i].at_ms);
        clock_day(begin_ms, date, &next_ms);
        assert_string_equal(date, rows[i].date);
        assert_int_equal(next_ms, rows[i].next_ms);
    }
    int64_t ms = 7;
    assert_int_equal(setenv("TZ", "UTC0", 1), 0);
    tzset();
    assert_true(clock_parse_date("2000-02-29", &ms));
    assert_int_equal(ms, 951782400000);
    const char *const wrong[] = {"",          "2026",       "2026-13-01", "2026-11-30T00:00",
                                 "yesterday", "2026-02-30", "2026-11-31", "2100-02-29"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_false(clock_parse_date(wrong[i], &ms));
    assert_int_equal(ms, 951782400000);
}

static void test_monotonic(void **state)
{
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
        cmocka_unit_test(test_days),
        cmocka_unit_test(test_monotonic),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

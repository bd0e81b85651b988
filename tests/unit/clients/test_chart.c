/* chart: where marks fall, gaps, series of one value, what has nothing to draw. */
#include "clients/cli/chart.h"

#include "common/mem.h"
#include "tests/lib/cmocka.h"

#include <string.h>

static void expect(const char *const series[], size_t count, size_t width, size_t height,
                   const char *text)
{
    struct chart chart = {.count = count, .width = width, .height = height};
    struct buf out;
    struct err err;
    json_t *parsed[CHART_SERIES_MAX];
    buf_init(&out, 1 << 16);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(json_parse(series[i], strlen(series[i]), "points", &parsed[i], &err), 0);
        chart.series[i] = parsed[i];
    }
    chart_draw(&chart, &out);
    assert_string_equal(buf_str(&out), text);
    for (size_t i = 0; i < count; i++)
        json_decref(parsed[i]);
    buf_done(&out);
}

static void test_line(void **state)
{
    expect((const char *const[]){"[[1,4],[11,0]]"}, 1, 23, 6,
           "         4 |**\n"
           "           |  **\n"
           "           |    ***\n"
           "           |       **\n"
           "         0 |         **\n"
           "            1        11\n");
}

static void test_two_series_and_gaps(void **state)
{
    expect((const char *const[]){"[[0,1],[2,1],[4,null],[8,1],[10,1]]", "[[5,0.5,1e9]]"}, 2, 23, 4,
           "         1 |***     ***\n"
           "           |\n"
           "       0.5 |     +\n"
           "            0        10\n");
}

static void test_flat(void **state)
{
    expect((const char *const[]){"[[3,2.5]]"}, 1, 23, 4,
           "       2.5 |\n"
           "           |     *\n"
           "       2.5 |\n"
           "            3         3\n");
}

static void test_nothing(void **state)
{
    expect((const char *const[]){"[]", "[[1,null]]"}, 2, 80, 10, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_line),
        cmocka_unit_test(test_two_series_and_gaps),
        cmocka_unit_test(test_flat),
        cmocka_unit_test(test_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* number: digits as people write them, at the edges of what they are cut to. */
#include "common/number.h"
#include "tests/lib/cmocka.h"

#include <math.h>

static void test_plain(void **state)
{
    static const struct {
        double value;
        int digits;
        const char *text;
    } cases[] = {
        {0, 4, "0"},           {0.0023071, 4, "0.002307"},  {23.04, 4, "23.04"},
        {-23.456, 3, "-23.5"}, {999.4, 3, "999"},           {999.6, 3, "1000"},
        {11321.4, 4, "11321"}, {-11321.6, 4, "-11322"},     {0.99999, 3, "1"},
        {1e-9, 3, "1e-09"},    {123456789, 4, "123456789"}, {2e15, 3, "2e+15"},
        {NAN, 3, "nan"},       {INFINITY, 3, "inf"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_string_equal(number_plain(cases[i].value, cases[i].digits).text, cases[i].text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_plain)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

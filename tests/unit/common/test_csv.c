/* csv: fields come back as they were; no text is a formula of a spreadsheet. */
#include "common/csv.h"
#include "tests/lib/cmocka.h"

#include <stdio.h>
#include <string.h>

static void expect_field(const char *text, const char *field)
{
    struct buf out;
    buf_init(&out, 1 << 12);
    csv_put(text, &out);
    assert_string_equal(buf_str(&out), field);
    buf_done(&out);
}

static void test_quotes(void **state)
{
    expect_field("", "");
    expect_field("upipe 1", "upipe 1");
    expect_field("a, \"b\"", "\"a, \"\"b\"\"\"");
    expect_field("two\r\nlines", "\"two\r\nlines\"");
    expect_field("caf\xc3\xa9", "caf\xc3\xa9");
}

/* Every byte at the front and within: a quote before those that begin a formula, and no others. */
static void test_formulas(void **state)
{
    for (int byte = 1; byte < 256; byte++) {
        char text[8] = {(char)byte, '1', '+', '1'}, inside[8] = {'a', (char)byte, '1'};
        const char *quote = strchr(",\"\r\n", byte) != NULL ? "\"" : "";
        const char *twice = byte == '"' ? "\"" : "",
                   *before = strchr("=+-@\t\r\n", byte) ? "'" : "";
        char field[32];
        (void)snprintf(field, sizeof field, "%s%s%s%s%s", quote, before, twice, text, quote);
        expect_field(text, field);
        (void)snprintf(field, sizeof field, "%sa%s%s%s", quote, twice, inside + 1, quote);
        expect_field(inside, field);
    }
    expect_field("=HYPERLINK(\"http://a\",\"b\")", "\"'=HYPERLINK(\"\"http://a\"\",\"\"b\"\")\"");
    expect_field("-1", "'-1"); /* a text; numbers do not come here */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_quotes),
                                       cmocka_unit_test(test_formulas)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

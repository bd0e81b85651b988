/* man: text of any kind comes out as text: nothing of it is a request, or another character. */
#include "clients/cli/man.h"

#include "common/mem.h"
#include "tests/lib/cmocka.h"

#include <string.h>

static void test_text(void **state)
{
    static const struct {
        const char *text, *troff;
    } rows[] = {
        {"plain", "plain"},
        {".TH x", "\\&.TH x"},
        {"'x", "\\(aqx"},
        {"a\\fBb", "a\\efBb"},
        {"--json, ~/x^2 \"q\"", "\\-\\-json, \\(ti/x\\(ha2 \\(dqq\\(dq"},
        {"see `ithaca plan`.", "see \\fBithaca plan\\fR."},
        {"open `end", "open \\fBend\\fR"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct buf out;
        buf_init(&out, 4096);
        man_text(rows[i].text, &out);
        assert_string_equal(buf_str(&out), rows[i].troff);
        buf_done(&out);
    }
}

static void test_items_and_examples(void **state)
{
    struct buf out;
    buf_init(&out, 4096);
    man_item("--limit N", "at most", &out);
    man_line(".more", &out);
    man_example(".a\nb-c\n", &out);
    assert_string_equal(buf_str(&out), ".TP\n\\fB\\-\\-limit N\\fR\nat most\n.br\n\\&.more\n"
                                       ".RS 4\n.nf\n\\&.a\nb\\-c\n.fi\n.RE\n");
    buf_done(&out);
}

static void test_pages(void **state)
{
    for (size_t i = 0; i < man_page_count; i++) {
        struct buf out;
        struct err err;
        buf_init(&out, MAN_PAGE_BYTES);
        man_print(&man_pages[i], &out);
        assert_int_equal(buf_error(&out, &err), 0);
        assert_non_null(strstr(buf_str(&out), "\n.SH \"NAME\"\n"));
        assert_non_null(strstr(buf_str(&out), "\n.SH \"SEE ALSO\"\n"));
        buf_done(&out);
    }
    assert_int_equal(mem_live(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_items_and_examples),
        cmocka_unit_test(test_pages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* table: columns as wide as their cells, dropped and cut where there is no room; texts that would
 * move a terminal's cursor. */
#include "clients/cli/table.h"

#include "common/mem.h"
#include "tests/lib/cmocka.h"

static const struct table_column columns[] = {
    {.title = "JOB"},
    {.title = "LOSS", .right = true, .dropped = 2},
    {.title = "OWNER", .dropped = 1},
    {.title = "WHY", .cut = true},
};

static void fill(struct table *table)
{
    static const char *const cells[] = {"a",   "1.25", "ann", "waits behind another",
                                        "bcd", "12.5", "bob", ""};
    table_init(table, columns, 4);
    for (size_t i = 0; i < 8; i++)
        table_cell(table, "%s", cells[i]);
    assert_int_equal(table_rows(table), 2);
}

static void expect(size_t width, const char *text)
{
    struct table table;
    struct buf out;
    buf_init(&out, 4096);
    fill(&table);
    table_fit(&table, width);
    table_print(&table, &out);
    assert_string_equal(buf_str(&out), text);
    table_done(&table);
    buf_done(&out);
}

static void test_widths(void **state)
{
    expect(0, "JOB  LOSS  OWNER  WHY\n"
              "a    1.25  ann    waits behind another\n"
              "bcd  12.5  bob\n");
    expect(38, "JOB  LOSS  OWNER  WHY\n"
               "a    1.25  ann    waits behind another\n"
               "bcd  12.5  bob\n");
    expect(30, "JOB  LOSS  OWNER  WHY\n" /* the last one is cut first */
               "a    1.25  ann    waits behin~\n"
               "bcd  12.5  bob\n");
    expect(24, "JOB  LOSS  WHY\n" /* then the first goes, and the last one may grow again */
               "a    1.25  waits behind~\n"
               "bcd  12.5\n");
    expect(17, "JOB  WHY\n"
               "a    waits behin~\n"
               "bcd\n");
    expect(4, "JOB  WHY\n" /* no narrower */
              "a    waits b~\n"
              "bcd\n");
}

/* Escape sequences of whoever named a job or a file, C1 controls and broken UTF-8 among them. */
static void test_control_characters(void **state)
{
    static const struct table_column one[] = {{.title = "A"}, {.title = "B"}};
    struct table table;
    struct buf out;
    buf_init(&out, 4096);
    table_init(&table, one, 2);
    table_cell(&table, "%s", "x\x1b[2Jy\nz\x7f");
    table_cell(&table, "%s",
               "\xc2\x9b"
               "31m\xff"
               "\xc3\xa9");
    table_fit(&table, 0);
    table_line(&table, 0, &out);
    assert_string_equal(buf_str(&out), "x?[2Jy?z?  ??31m?\xc3\xa9");
    table_done(&table);
    buf_done(&out);
}

static void test_clip(void **state)
{
    static const struct {
        const char *text;
        size_t columns;
        const char *clipped;
    } rows[] = {{"abc", 3, "abc"},
                {"abcd", 3, "ab~"},
                {"", 0, ""},
                {"a", 0, ""},
                {"ab", 1, "~"},
                {"\xc3\xa9\xc3\xa9\xc3\xa9", 2, "\xc3\xa9~"},
                {"\xc3\xa9\xc3\xa9", 2, "\xc3\xa9\xc3\xa9"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct buf out;
        buf_init(&out, 64);
        table_clip(rows[i].text, rows[i].columns, &out);
        assert_string_equal(buf_str(&out), rows[i].clipped);
        buf_done(&out);
    }
}

/* Without memory the table is shorter; nothing is read beyond it. */
static void test_no_memory(void **state)
{
    for (int64_t fault = 1; fault < 4; fault++) {
        struct table table;
        struct buf out;
        struct err err;
        buf_init(&out, 1 << 20);
        table_init(&table, columns, 4);
        mem_fault_after(fault);
        for (int i = 0; i < 400; i++)
            table_cell(&table, "%d", i);
        mem_fault_after(0);
        table_fit(&table, 0);
        table_print(&table, &out);
        assert_int_equal(buf_error(&table.text, &err), -ERR_NOMEM);
        assert_true(table_rows(&table) < 100);
        table_done(&table);
        buf_done(&out);
    }
    assert_int_equal(mem_live(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_widths),
        cmocka_unit_test(test_control_characters),
        cmocka_unit_test(test_clip),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

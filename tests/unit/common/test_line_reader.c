/* line_reader: ends of lines, the mark, lines across chunks, the limit. */
#include "common/line_reader.h"

#include "common/io.h"
#include "common/mem.h"
#include "tests/lib/cmocka.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char path[64];

static int setup(void **state)
{
    (void)snprintf(path, sizeof path, "/tmp/test_line_reader.XXXXXX");
    int fd = mkstemp(path);
    return fd < 0 ? -1 : close(fd);
}

static int teardown(void **state)
{
    return unlink(path);
}

/* Reads `bytes` as a file; lines come back joined by '|', too long ones as "#length". */
static void expect(const char *bytes, size_t length, size_t limit, const char *wanted)
{
    struct err err;
    struct line_reader reader;
    struct line line;
    struct buf got;
    buf_init(&got, 1 << 20);
    assert_int_equal(io_write_file(path, bytes, length, 0644, &err), 0);
    assert_int_equal(line_reader_open(&reader, path, LINE_READER_LINES, limit, &err), 0);
    for (int64_t number = 1;; number++) {
        assert_int_equal(line_reader_next(&reader, &line, &err), 0);
        if (line.end)
            break;
        assert_int_equal(line.number, number);
        if (line.too_long)
            buf_printf(&got, "#%lld|", (long long)line.length);
        else
            buf_printf(&got, "%.*s|", (int)line.length, line.bytes);
    }
    assert_int_equal(line_reader_next(&reader, &line, &err), 0);
    assert_true(line.end); /* stays at the end */
    assert_string_equal(buf_str(&got), wanted);
    line_reader_done(&reader);
    buf_done(&got);
    assert_int_equal(mem_live(), 0);
}

#define EXPECT(text, limit, wanted) expect(text, sizeof text - 1, limit, wanted)

static void test_ends(void **state)
{
    EXPECT("", 100, "");
    EXPECT("a", 100, "a|");
    EXPECT("a\nb\n", 100, "a|b|");
    EXPECT("a\r\nb\r\n\r\nc", 100, "a|b||c|");
    EXPECT("\n\n", 100, "||");
    EXPECT("a\rb\n", 100, "a\rb|");
    EXPECT("\xef\xbb\xbf", 100, "");
    EXPECT("\xef\xbb\xbf{}\r\n\xef\xbb\xbf[]\n", 100, "{}|\xef\xbb\xbf[]|");
    EXPECT("\xef\xbb", 100, "\xef\xbb|");
}

/* Rows of an array (or of text) as "line:row|"; a failure as its sentence. */
static void expect_rows(enum line_reader_kind kind, const char *bytes, size_t limit,
                        const char *wanted)
{
    struct err err;
    struct line_reader reader;
    struct line line;
    CLEANUP(buf_done) struct buf got;
    buf_init(&got, 1 << 20);
    assert_int_equal(io_write_file(path, bytes, strlen(bytes), 0644, &err), 0);
    assert_int_equal(line_reader_open(&reader, path, kind, limit, &err), 0);
    int rc;
    while ((rc = line_reader_next(&reader, &line, &err)) == 0 && !line.end)
        buf_printf(&got, "%lld:%s|", (long long)line.number, line.too_long ? "#" : line.bytes);
    if (rc != 0) {
        assert_int_equal(rc, -ERR_DATA);
        buf_text(&got, err.text);
    }
    assert_string_equal(buf_str(&got), wanted);
    line_reader_done(&reader);
}

static void test_arrays(void **state)
{
    static const struct {
        const char *bytes, *wanted;
    } cases[] = {
        {"[]", ""},
        {"\xef\xbb\xbf \n [ ] \n", ""},
        {"[{},{}]", "1:{}|1:{}|"},
        {"[\n {\"a\":\n[1,\"]\"]},\n{\"b\":\"\\\"}\"}\n]\n",
         "2:{\"a\":\n[1,\"]\"]}|4:{\"b\":\"\\\"}\"}|"},
        {"[1, \"x\", null]", "1:1|1:\"x\"|1:null|"},
        {"[{}", "1:{}|the JSON array does not end: \"]\" is missing"},
        {"[{}{}]", "1:{}|line 1: a comma is missing between array elements"},
        {"[,{}]", "line 1: a comma too many between array elements"},
        {"[{},,{}]", "1:{}|line 1: a comma too many between array elements"},
        {"[{},]", "1:{}|line 1: a comma too many between array elements"},
        {"[{}]\n{}", "1:{}|line 2: more data after the JSON array; a file is one array, or one "
                     "object a line"},
        {"[{}, {\"a\"", "1:{}|line 1: the array element that begins here does not end"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        expect_rows(LINE_READER_LINES, cases[i].bytes, 100, cases[i].wanted);
    expect_rows(LINE_READER_LINES, "[\"123456789\",1]", 5, "1:#|1:1|");
}

static void test_text(void **state)
{
    expect_rows(LINE_READER_TEXT, "one\ntwo", 100, "1:one\ntwo|");
    expect_rows(LINE_READER_TEXT, "", 100, "");
    expect_rows(LINE_READER_TEXT, "[1]\n", 100, "1:[1]\n|"); /* no array */
    expect_rows(LINE_READER_TEXT, "ab\nc\nde\nf", 8, "1:ab\nc\nde\n|4:f|");
    expect_rows(LINE_READER_TEXT, "abcdef", 4, "1:abcd|1:ef|");
    expect_rows(LINE_READER_TEXT, "abc\xc3\xa9z", 4, "1:abc|1:\xc3\xa9z|"); /* whole characters */
}

/* A row that ends where a piece of the file does, and a character lies across. */
static void test_text_across_chunks(void **state)
{
    enum { CHUNK = 256 << 10 };
    static char bytes[CHUNK + 8];
    struct err err;
    struct line_reader reader;
    struct line line;
    memset(bytes, 'x', CHUNK - 1);
    (void)snprintf(bytes + CHUNK - 1, 9, "\xc3\xa9z");
    for (int cut = 0; cut < 2; cut++) { /* across, and wholly before the end */
        size_t limit = CHUNK, first = cut == 0 ? CHUNK - 1 : CHUNK;
        assert_int_equal(io_write_file(path, bytes + cut, strlen(bytes + cut), 0644, &err), 0);
        assert_int_equal(line_reader_open(&reader, path, LINE_READER_TEXT, limit, &err), 0);
        assert_int_equal(line_reader_next(&reader, &line, &err), 0);
        assert_int_equal(line.length, first);
        assert_int_equal(line_reader_next(&reader, &line, &err), 0);
        assert_string_equal(line.bytes, cut == 0 ? "\xc3\xa9z" : "z");
        line_reader_done(&reader);
    }
}

static void test_limit(void **state)
{
    EXPECT("12345\n123456\n12\n", 5, "12345|#6|12|");
    EXPECT("1234567890", 5, "#10|");
    EXPECT("1234567890\n", 5, "#10|");
}

static void test_long_lines(void **state)
{
    enum { LONG = 3 << 20 }; /* a dozen chunks */
    struct err err;
    CLEANUP(mem_free_ptr) char *bytes = mem_new(1, 2 * LONG + 10);
    memset(bytes, 'x', 2 * LONG + 10);
    bytes[2] = '\n';
    bytes[3 + LONG] = '\n';
    bytes[3 + LONG + 2] = '\n';
    assert_int_equal(io_write_file(path, bytes, 2 * LONG + 10, 0644, &err), 0);
    static const int64_t lengths[] = {2, LONG, 1, LONG + 4};
    for (int limited = 0; limited < 2; limited++) {
        struct line_reader reader;
        struct line line;
        assert_int_equal(
            line_reader_open(&reader, path, LINE_READER_LINES, limited ? 1000 : LONG + 4, &err), 0);
        for (int i = 0; i < 4; i++) {
            assert_int_equal(line_reader_next(&reader, &line, &err), 0);
            assert_int_equal(line.length, lengths[i]);
            assert_int_equal(line.too_long, limited && lengths[i] > 1000);
            if (!line.too_long)
                assert_int_equal(strlen(line.bytes), lengths[i]);
        }
        assert_true(reader.kept.capacity <= (limited ? 2001 : 2 * (LONG + 5)));
        assert_int_equal(line_reader_next(&reader, &line, &err), 0);
        assert_true(line.end);
        line_reader_done(&reader);
    }
}

static void test_failures(void **state)
{
    struct err err;
    struct line_reader reader = {0};
    assert_int_equal(line_reader_open(&reader, "/nonexistent-folder/x", LINE_READER_LINES, 9, &err),
                     -ERR_NOT_FOUND);
    line_reader_done(&reader); /* a zeroed one */
    for (int n = 1; n <= 2; n++) {
        struct line line;
        assert_int_equal(io_write_file(path, "abc\n", 4, 0644, &err), 0);
        mem_fault_after(n);
        int rc = line_reader_open(&reader, path, LINE_READER_LINES, 100, &err);
        if (rc == 0)
            rc = line_reader_next(&reader, &line, &err);
        assert_int_equal(mem_fault_after(0), rc != 0);
        assert_int_equal(rc, -ERR_NOMEM);
        line_reader_done(&reader);
    }
    assert_int_equal(mem_live(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ends),     cmocka_unit_test(test_arrays),
        cmocka_unit_test(test_text),     cmocka_unit_test(test_text_across_chunks),
        cmocka_unit_test(test_limit),    cmocka_unit_test(test_long_lines),
        cmocka_unit_test(test_failures),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

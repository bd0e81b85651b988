/* utf8: every code point passes; overlong forms, surrogates and cuts do not. */
#include "common/utf8.h"
#include "tests/lib/cmocka.h"

#include <string.h>

static size_t put(uint32_t point, char *out)
{
    if (point < 0x80) {
        out[0] = (char)point;
        return 1;
    }
    size_t length = point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
    static const unsigned lead[] = {0, 0, 0xC0, 0xE0, 0xF0};
    for (size_t i = length - 1; i > 0; i--) {
        out[i] = (char)(unsigned char)(0x80 | (point & 0x3F));
        point >>= 6;
    }
    out[0] = (char)(unsigned char)(lead[length] | point);
    return length;
}

static void test_begins(void **state)
{
    static const char marked[] = UTF8_MARK "{";
    assert_true(utf8_begins(marked, 4, UTF8_MARK));
    assert_true(utf8_begins(marked, 3, UTF8_MARK));
    assert_false(utf8_begins(marked, 2, UTF8_MARK)); /* the rest of it is not there */
    assert_false(utf8_begins("{", 1, UTF8_MARK));
    assert_false(utf8_begins("\xef\xbb\xbe{", 4, UTF8_MARK));
    assert_true(utf8_begins("", 0, ""));
}

static void test_every_code_point(void **state)
{
    for (uint32_t point = 0; point < 0x110400; point++) {
        char bytes[4];
        size_t length = put(point, bytes);
        size_t wanted = (point >= 0xD800 && point < 0xE000) || point > 0x10FFFF ? 0 : length;
        if (utf8_next(bytes, length) != wanted)
            fail_msg("U+%04X", point);
        if (wanted > 0 && utf8_next(bytes, length - 1) != 0)
            fail_msg("U+%04X cut", point);
    }
}

/* The bytes of a well-formed character are unique: what utf8_next takes, put() gives back. */
static void test_no_other_bytes(void **state)
{
    uint64_t taken = 0;
    for (uint32_t word = 0; word < 1u << 24; word++) {
        char bytes[3] = {(char)(unsigned char)(word >> 16), (char)(unsigned char)(word >> 8),
                         (char)(unsigned char)word};
        taken += utf8_next(bytes, 3) == 3;
    }
    assert_int_equal(taken, 0x10000 - 0x800 - 0x800); /* U+0800..U+FFFF without surrogates */
}

static void test_valid(void **state)
{
    assert_true(utf8_valid("", 0));
    assert_true(utf8_valid("a\xe2\x82\xacz", 5));
    assert_false(utf8_valid("a\0b", 3));
    assert_false(utf8_valid("\xc0\xaf", 2));
    assert_false(utf8_valid("\xe2\x82", 2));
}

static void test_scrub_and_cut(void **state)
{
    char text[] = "\xff"
                  "a\xe2\x82z\xe2\x82\xac\xf0\x9f";
    utf8_scrub(text);
    assert_string_equal(text, "?a??z\xe2\x82\xac??");
    const char whole[] = "x\xf0\x9f\x98\x80";
    for (size_t length = 0; length < sizeof whole; length++) {
        char part[sizeof whole] = {0};
        memcpy(part, whole, length);
        utf8_cut(part);
        assert_string_equal(part, length == 0 ? "" : length == 5 ? whole : "x");
    }
}

/* Every other character is copied, between others as well. */
static void test_line(void **state)
{
    for (uint32_t point = 1; point < 0x110000; point++) {
        char text[8] = "a", wanted[8] = "a", line[8];
        size_t length = put(point, text + 1);
        bool is_control = point < 0x20 || (point >= 0x7f && point < 0xa0) ||
                          (point >= 0x2028 && point <= 0x202e) ||
                          (point >= 0x2066 && point <= 0x2069) || point == 0xfffe ||
                          point == 0xffff;
        text[1 + length] = 'b';
        memcpy(wanted, text, sizeof wanted);
        if (is_control || (point >= 0xd800 && point < 0xe000))
            memset(wanted + 1, '?', length);
        utf8_line(text, line, sizeof line);
        if (strcmp(line, wanted) != 0)
            fail_msg("U+%04X: \"%s\"", point, line);
    }
    char line[4];
    utf8_line("ab\xe2\x80\xaa", line, sizeof line);
    assert_string_equal(line, "ab");
}

static void test_spaces(void **state)
{
    static const struct {
        const char *text;
        size_t before, after;
    } cases[] = {
        {"", 0, 0},
        {" a\n", 1, 1},
        {"\t\r\n\v\f x", 6, 0},
        {"\xc2\xa0\xe3\x80\x80\xe2\x80\x8a|\xe2\x80\xa9\xc2\x85 ", 8, 6},
        {"   ", 3, 3},
        {"\xef\xbb\xbf", 0, 0},     /* U+FEFF is none */
        {"\xe2\x80\x8b", 0, 0},     /* U+200B neither */
        {"\xe1\xa0\x8e\x1c", 0, 0}, /* nor U+180E, nor U+001C */
        {"\x80\x80\x80", 0, 0},     /* no characters at all */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(utf8_spaces(cases[i].text, strlen(cases[i].text)), cases[i].before);
        assert_int_equal(utf8_spaces_after(cases[i].text, strlen(cases[i].text)), cases[i].after);
    }
    assert_int_equal(utf8_prefix("a\xc3\xa9\0b\xff", 6), 5);
    assert_int_equal(utf8_prefix("\xe2\x82", 2), 0);
    assert_int_equal(utf8_count("a\xc3\xa9\xe2\x82\xac\xf0\x9f\x9a\xa2\n", 11), 5);
    assert_int_equal(utf8_count("", 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_begins),         cmocka_unit_test(test_every_code_point),
        cmocka_unit_test(test_no_other_bytes), cmocka_unit_test(test_valid),
        cmocka_unit_test(test_line),           cmocka_unit_test(test_scrub_and_cut),
        cmocka_unit_test(test_spaces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

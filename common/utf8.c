/* utf8: the lead byte tells the length and the legal range of the second byte (RFC 3629, section
 * 4); all later bytes are 80..BF. */
#include "common/utf8.h"

#include <string.h>

/* Length of a character by its lead byte, and the range of its second byte; 0 for no lead byte. */
static size_t utf8_lead(unsigned char lead, unsigned char *ret_low, unsigned char *ret_high)
{
    *ret_low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    *ret_high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    if (lead < 0x80)
        return 1;
    if (lead < 0xC2 || lead > 0xF4)
        return 0;
    return lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}

bool utf8_begins(const char *bytes, size_t length, const char *text)
{
    return length >= strlen(text) && memcmp(bytes, text, strlen(text)) == 0;
}

size_t utf8_next(const char *bytes, size_t length)
{
    const unsigned char *at = (const unsigned char *)bytes;
    if (length == 0)
        return 0;
    unsigned char low;
    unsigned char high;
    size_t wanted = utf8_lead(at[0], &low, &high);
    if (wanted > length)
        return 0;
    if (wanted > 1 && (at[1] < low || at[1] > high))
        return 0;
    for (size_t i = 2; i < wanted; i++)
        if (at[i] < 0x80 || at[i] > 0xBF)
            return 0;
    return wanted;
}

size_t utf8_prefix(const char *bytes, size_t length)
{
    for (size_t at = 0; at < length;) {
        size_t step = (unsigned char)bytes[at] < 0x80 ? 1 : utf8_next(bytes + at, length - at);
        if (step == 0)
            return at;
        at += step;
    }
    return length;
}

size_t utf8_count(const char *bytes, size_t length)
{
    size_t count = 0;
    for (size_t i = 0; i < length; i++)
        count += ((unsigned char)bytes[i] & 0xC0) != 0x80;
    return count;
}

bool utf8_valid(const char *bytes, size_t length)
{
    return utf8_prefix(bytes, length) == length && memchr(bytes, '\0', length) == NULL;
}

void utf8_scrub(char *text)
{
    size_t length = strlen(text);
    for (size_t at = 0; at < length;) {
        size_t step = utf8_next(text + at, length - at);
        if (step == 0)
            text[at] = '?';
        at += step > 0 ? step : 1;
    }
}

void utf8_cut(char *text)
{
    size_t length = strlen(text);
    for (size_t back = 1; back <= 3 && back <= length; back++) {
        unsigned char low;
        unsigned char high;
        unsigned char byte = (unsigned char)text[length - back];
        if (byte >= 0x80 && byte <= 0xBF)
            continue;
        if (utf8_lead(byte, &low, &high) > back)
            text[length - back] = '\0';
        return;
    }
}

/* Bytes of a control character at the start, or 0: also those that terminals obey (U+0080 to
 * U+009F), break lines (U+2028, U+2029), turn the text around (U+202A to U+202E, U+2066 to U+2069),
 * and those that no document may have (U+FFFE, U+FFFF). */
static size_t utf8_control(const char *text)
{
    static const char *const firsts[] = {"\xc2\x80", "\xe2\x80\xa8", "\xe2\x81\xa6",
                                         "\xef\xbf\xbe"};
    static const char *const lasts[] = {"\xc2\x9f", "\xe2\x80\xae", "\xe2\x81\xa9", "\xef\xbf\xbf"};
    if ((unsigned char)text[0] < 0x20 || text[0] == 0x7f)
        return 1;
    for (size_t i = 0; i < sizeof firsts / sizeof firsts[0]; i++) {
        size_t length = strlen(firsts[i]); /* bytes compare as the characters do */
        if (strncmp(text, firsts[i], length) >= 0 && strncmp(text, lasts[i], length) <= 0)
            return length;
    }
    return 0;
}

void utf8_line(const char *text, char *ret_line, size_t size)
{
    size_t length = strnlen(text, size - 1);
    memcpy(ret_line, text, length);
    ret_line[length] = '\0';
    utf8_cut(ret_line);
    utf8_scrub(ret_line);
    for (char *at = ret_line; *at != '\0'; at++)
        memset(at, '?', utf8_control(at));
}

/* Bytes of the white space character at the start, or 0. */
static size_t utf8_space(const char *bytes, size_t length)
{
    static const char *const others[] = {
        "\xc2\x85",     "\xc2\xa0",     "\xe1\x9a\x80", "\xe2\x80\xa8",
        "\xe2\x80\xa9", "\xe2\x80\xaf", "\xe2\x81\x9f", "\xe3\x80\x80",
    };
    if (length == 0)
        return 0;
    if (bytes[0] == ' ' || (bytes[0] >= '\t' && bytes[0] <= '\r'))
        return 1;
    if (length >= 3 && memcmp(bytes, "\xe2\x80", 2) == 0 && (unsigned char)bytes[2] <= 0x8a)
        return 3; /* U+2000 to U+200A */
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (length >= strlen(others[i]) && memcmp(bytes, others[i], strlen(others[i])) == 0)
            return strlen(others[i]);
    return 0;
}

size_t utf8_spaces(const char *bytes, size_t length)
{
    size_t at = 0;
    for (size_t step; (step = utf8_space(bytes + at, length - at)) > 0; at += step)
        ;
    return at;
}

size_t utf8_spaces_after(const char *bytes, size_t length)
{
    size_t end = length;
    for (;;) {
        size_t step = 1;
        while (step < 3 && step < end && ((unsigned char)bytes[end - step] & 0xc0) == 0x80)
            step++;
        if (step > end || utf8_space(bytes + end - step, step) != step)
            return length - end;
        end -= step;
    }
}

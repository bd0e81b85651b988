/* utf8: well-formedness of UTF-8 (RFC 3629: no overlong forms, no surrogates, up to U+10FFFF).
 *
 * JSON answers and frames must be UTF-8, but sentences about files and rank output may carry any
 * byte, and a sentence cut to a buffer may end inside a character. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#define UTF8_MARK \
    "\xef\xbb\xbf" /* U+FEFF, the byte-order mark: editors of Windows begin files with it */

/* Whether they begin with a text. */
bool utf8_begins(const char *bytes, size_t length, const char *text);
size_t utf8_next(const char *bytes, size_t length); /* bytes of the first character; 0: malformed */
size_t utf8_prefix(const char *bytes, size_t length); /* bytes of whole characters; NUL is one */
size_t utf8_count(const char *bytes, size_t length);  /* characters, of what is well-formed */
bool utf8_valid(const char *bytes, size_t length);    /* all of it, and no NUL */
void utf8_scrub(char *text); /* every byte that is not part of a character becomes '?' */
void utf8_cut(char *text);   /* drops an unfinished character at the end */
/* A copy for the middle of a sentence: cut at a character; the bytes of control characters, of
 * those that break a line or turn it around, and malformed ones become '?'. */
void utf8_line(const char *text, char *ret_line, size_t size);

/* White space at the start, and at the end, in bytes: characters with the property White_Space of
 * the Unicode Character Database. */
size_t utf8_spaces(const char *bytes, size_t length);
size_t utf8_spaces_after(const char *bytes, size_t length);

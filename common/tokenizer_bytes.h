/* tokenizer_bytes: how byte-level BPE spells bytes in tokenizer.json; shared by the reader and the
 * writer of the built-in tokenizer. The 188 bytes that print in Latin-1 stand for themselves, the
 * other 68 for U+0100 onwards in rising order (the table of GPT-2). */
#pragma once
#include <stdbool.h>
#include <stddef.h>

enum { TOKENIZER_BYTE_TEXT = 3 }; /* at most two bytes of UTF-8 and a NUL */
void tokenizer_bytes_spell(int byte, char ret_text[TOKENIZER_BYTE_TEXT]);
/* The bytes that a spelling stands for; at most its length of them. False when it has a character
 * that stands for no byte. */
bool tokenizer_bytes_read(const char *spelling, size_t length, char *ret_bytes, size_t *ret_length);

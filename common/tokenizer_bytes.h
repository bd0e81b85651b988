/* tokenizer_bytes: how byte-level BPE spells a byte in tokenizer.json; shared by the reader and the
 * writer of the built-in tokenizer. */
#pragma once

enum { TOKENIZER_BYTE_TEXT = 3 }; /* at most two bytes of UTF-8 and a NUL */
void tokenizer_byte_text(int byte, char ret_text[TOKENIZER_BYTE_TEXT]);

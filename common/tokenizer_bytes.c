/* tokenizer_bytes: see the header; code points below U+0144 only, so two bytes of UTF-8 at most. */
#include "common/tokenizer_bytes.h"

#include "common/must.h"

/* Code point of a byte. */
static int bytes_code(int byte)
{
    bool itself = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    if (itself)
        return byte;
    return 256 + (byte <= 32 ? byte : byte <= 160 ? 33 + byte - 127 : 67); /* 0-32, 127-160, 173 */
}

void tokenizer_bytes_spell(int byte, char ret_text[TOKENIZER_BYTE_TEXT])
{
    must(byte >= 0 && byte < 256);
    int code = bytes_code(byte);
    if (code < 0x80) {
        ret_text[0] = (char)code;
        ret_text[1] = '\0';
        return;
    }
    ret_text[0] = (char)(0xc0 | (code >> 6));
    ret_text[1] = (char)(0x80 | (code & 0x3f));
    ret_text[2] = '\0';
}

/* Byte of a code point, or -1. */
static int bytes_of_code(int code)
{
    if (code < 256)
        return bytes_code(code) == code ? code : -1;
    int rank = code - 256; /* among the 68 */
    return rank <= 32 ? rank : rank <= 66 ? rank - 33 + 127 : rank == 67 ? 173 : -1;
}

bool tokenizer_bytes_read(const char *spelling, size_t length, char *ret_bytes, size_t *ret_length)
{
    size_t count = 0;
    for (size_t at = 0; at < length; at++) {
        int code = (unsigned char)spelling[at];
        if (code >= 0x80) {
            if ((code & 0xe0) != 0xc0 || at + 1 == length)
                return false;
            code = (code & 0x1f) << 6 | ((unsigned char)spelling[++at] & 0x3f);
        }
        int byte = bytes_of_code(code);
        if (byte < 0)
            return false;
        ret_bytes[count++] = (char)byte;
    }
    *ret_length = count;
    return true;
}

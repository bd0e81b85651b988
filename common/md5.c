/* md5: 64 steps a block, in four rounds of 16 (RFC 1321, 3.4). A step adds a word of the block and
 * a constant to a mix of the state, turns it and moves the state on. Words are little-endian. */
#include "common/md5.h"

#include <stdio.h>
#include <string.h>

enum { MD5_STEPS = 64, MD5_LENGTH_AT = 56 /* in the last block, after the padding */ };

/* The whole part of 2^32 |sin(step + 1)|. */
static const uint32_t md5_constants[MD5_STEPS] = {
    0xd76aa478, 0xe8c7b756, 0x242070db, 0xc1bdceee, 0xf57c0faf, 0x4787c62a, 0xa8304613, 0xfd469501,
    0x698098d8, 0x8b44f7af, 0xffff5bb1, 0x895cd7be, 0x6b901122, 0xfd987193, 0xa679438e, 0x49b40821,
    0xf61e2562, 0xc040b340, 0x265e5a51, 0xe9b6c7aa, 0xd62f105d, 0x02441453, 0xd8a1e681, 0xe7d3fbc8,
    0x21e1cde6, 0xc33707d6, 0xf4d50d87, 0x455a14ed, 0xa9e3e905, 0xfcefa3f8, 0x676f02d9, 0x8d2a4c8a,
    0xfffa3942, 0x8771f681, 0x6d9d6122, 0xfde5380c, 0xa4beea44, 0x4bdecfa9, 0xf6bb4b60, 0xbebfbc70,
    0x289b7ec6, 0xeaa127fa, 0xd4ef3085, 0x04881d05, 0xd9d4d039, 0xe6db99e5, 0x1fa27cf8, 0xc4ac5665,
    0xf4292244, 0x432aff97, 0xab9423a7, 0xfc93a039, 0x655b59c3, 0x8f0ccc92, 0xffeff47d, 0x85845dd1,
    0x6fa87e4f, 0xfe2ce6e0, 0xa3014314, 0x4e0811a1, 0xf7537e82, 0xbd3af235, 0x2ad7d2bb, 0xeb86d391,
};

static const unsigned char md5_turns[4][4] = {
    {7, 12, 17, 22}, {5, 9, 14, 20}, {4, 11, 16, 23}, {6, 10, 15, 21}};

/* The mix of a step, and which word of the block it takes. */
static uint32_t md5_mix(int step, uint32_t b, uint32_t c, uint32_t d, int *ret_word)
{
    switch (step / 16) {
    case 0:
        *ret_word = step;
        return (b & c) | (~b & d);
    case 1:
        *ret_word = (5 * step + 1) % 16;
        return (d & b) | (~d & c);
    case 2:
        *ret_word = (3 * step + 5) % 16;
        return b ^ c ^ d;
    default:
        *ret_word = 7 * step % 16;
        return c ^ (b | ~d);
    }
}

static void md5_block(struct md5 *md5, const unsigned char *bytes)
{
    uint32_t words[16], a = md5->state[0], b = md5->state[1], c = md5->state[2], d = md5->state[3];
    for (int i = 0; i < 16; i++)
        words[i] = (uint32_t)bytes[4 * i] | (uint32_t)bytes[4 * i + 1] << 8 |
                   (uint32_t)bytes[4 * i + 2] << 16 | (uint32_t)bytes[4 * i + 3] << 24;
    for (int step = 0; step < MD5_STEPS; step++) {
        int word = 0;
        uint32_t sum = md5_mix(step, b, c, d, &word) + a + md5_constants[step];
        sum += words[word];
        int turn = md5_turns[step / 16][step % 4];
        a = d;
        d = c;
        c = b;
        b += sum << turn | sum >> (32 - turn);
    }
    md5->state[0] += a;
    md5->state[1] += b;
    md5->state[2] += c;
    md5->state[3] += d;
}

void md5_init(struct md5 *md5)
{
    *md5 = (struct md5){.state = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476}};
}

void md5_add(struct md5 *md5, const void *bytes, size_t length)
{
    const unsigned char *at = bytes;
    size_t held = (size_t)(md5->bytes % MD5_BLOCK_BYTES);
    md5->bytes += length;
    if (held > 0) {
        size_t wanted = MD5_BLOCK_BYTES - held, taken = length < wanted ? length : wanted;
        memcpy(md5->block + held, at, taken);
        at += taken;
        length -= taken;
        if (taken < wanted)
            return;
        md5_block(md5, md5->block);
    }
    for (; length >= MD5_BLOCK_BYTES; length -= MD5_BLOCK_BYTES, at += MD5_BLOCK_BYTES)
        md5_block(md5, at);
    if (length > 0)
        memcpy(md5->block, at, length);
}

void md5_hex(struct md5 *md5, char ret_hex[MD5_HEX_BYTES])
{
    static const unsigned char padding[MD5_BLOCK_BYTES] = {0x80};
    const uint64_t bits = md5->bytes * 8;
    unsigned char length[8];
    size_t held = (size_t)(md5->bytes % MD5_BLOCK_BYTES);
    for (int i = 0; i < 8; i++)
        length[i] = (unsigned char)(bits >> (8 * i));
    md5_add(md5, padding,
            (held < MD5_LENGTH_AT ? MD5_LENGTH_AT : MD5_LENGTH_AT + MD5_BLOCK_BYTES) - held);
    md5_add(md5, length, sizeof length);
    for (int i = 0; i < 16; i++)
        (void)snprintf(ret_hex + 2 * i, 3, "%02x",
                       (unsigned)(md5->state[i / 4] >> (8 * (i % 4)) & 0xff));
}

/* md5: RFC 1321, for the checksum that OpenAI's clients may give with an upload. It tells parts
 * that were lost or mixed up, and is no guard against anybody who means harm.
 *
 *     struct md5 md5;
 *     char hex[MD5_HEX_BYTES];
 *     md5_init(&md5);
 *     md5_add(&md5, bytes, length);    as often as there is more
 *     md5_hex(&md5, hex);              the end: nothing may be added after it */
#pragma once
#include <stddef.h>
#include <stdint.h>

enum { MD5_BLOCK_BYTES = 64, MD5_HEX_BYTES = 33 };

struct md5 {
    uint32_t state[4];
    uint64_t bytes;                       /* added so far */
    unsigned char block[MD5_BLOCK_BYTES]; /* the last ones, bytes % MD5_BLOCK_BYTES */
};

void md5_init(struct md5 *md5);
void md5_add(struct md5 *md5, const void *bytes, size_t length);
void md5_hex(struct md5 *md5, char ret_hex[MD5_HEX_BYTES]); /* lower case */

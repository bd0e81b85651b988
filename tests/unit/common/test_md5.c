/* md5: the examples of RFC 1321, A.5, and every way of cutting a text in two. */
#include "common/md5.h"
#include "tests/lib/cmocka.h"

#include <string.h>

static void test_examples(void **state)
{
    static const char *const examples[][2] = {
        {"", "d41d8cd98f00b204e9800998ecf8427e"},
        {"a", "0cc175b9c0f1b6a831c399e269772661"},
        {"abc", "900150983cd24fb0d6963f7d28e17f72"},
        {"message digest", "f96b697d7cb7938d525a2f31aaf161d0"},
        {"abcdefghijklmnopqrstuvwxyz", "c3fcd3d76192e4007dfb496cca67e13b"},
        {"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789",
         "d174ab98d277d9f5a5611c2c9f419d9f"},
        {"12345678901234567890123456789012345678901234567890123456789012345678901234567890",
         "57edf4a22be3c955ac49da2e2107b67a"}};
    for (size_t i = 0; i < sizeof examples / sizeof examples[0]; i++) {
        struct md5 md5;
        char hex[MD5_HEX_BYTES];
        md5_init(&md5);
        md5_add(&md5, examples[i][0], strlen(examples[i][0]));
        md5_hex(&md5, hex);
        assert_string_equal(hex, examples[i][1]);
    }
}

static void test_any_lengths_in_any_pieces(void **state)
{
    char text[200];
    memset(text, 'x', sizeof text);
    for (size_t length = 0; length <= sizeof text; length++) {
        struct md5 whole;
        char wanted[MD5_HEX_BYTES];
        md5_init(&whole);
        md5_add(&whole, text, length);
        md5_hex(&whole, wanted);
        for (size_t cut = 0; cut <= length; cut++) {
            struct md5 md5;
            char hex[MD5_HEX_BYTES];
            md5_init(&md5);
            md5_add(&md5, text, cut);
            md5_add(&md5, text + cut, length - cut);
            md5_hex(&md5, hex);
            assert_string_equal(hex, wanted);
        }
    }
}

/* Where the padding just fits, and where it takes a block more. */
static void test_around_a_block(void **state)
{
    static const char *const wanted[] = {
        "04364420e25c512fd958a70738aa8f72", "668a72d5ba17f08e62dabcafad6db14b",
        "693037871c4a9d3d8685018905cb530a", "7dc2ca208106a2f703567bdff99d8981",
        "c1bb4f81d892b2d57947682aeb252456", "1bc932052302d074bdec39795fe00cf6",
        "ab347a5f68c8a443cfcddc633f12c24f", "fb98667f98096de92620b64f46e1c5b5",
    };
    static const size_t lengths[] = {55, 56, 57, 63, 64, 65, 119, 120};
    char text[128];
    memset(text, 'x', sizeof text);
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        struct md5 md5;
        char hex[MD5_HEX_BYTES];
        md5_init(&md5);
        md5_add(&md5, text, lengths[i]);
        md5_hex(&md5, hex);
        assert_string_equal(hex, wanted[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_examples),
                                       cmocka_unit_test(test_any_lengths_in_any_pieces),
                                       cmocka_unit_test(test_around_a_block)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* webhook_sign: the example of Standard Webhooks, and one computed with Python's hmac. */
#include "daemon/webhook_sign.h"
#include "tests/lib/cmocka.h"

static void test_published_example(void **state)
{
    /* whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw */
    static const uint8_t key[24] = {0x31, 0xf2, 0x90, 0xf6, 0xbf, 0x06, 0x29, 0x8a,
                                    0xab, 0x4f, 0x08, 0xd4, 0x3c, 0x3f, 0x08, 0x2c,
                                    0xf6, 0x48, 0xa3, 0x62, 0xda, 0x2d, 0xa4, 0xb0};
    char signature[WEBHOOK_SIGNATURE_CHARS + 1];
    webhook_sign(key, sizeof key, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330,
                 "{\"test\": 2432232314}", signature);
    assert_string_equal(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
}

static void test_secret(void **state)
{
    uint8_t key[WEBHOOK_KEY_BYTES];
    char secret[WEBHOOK_SECRET_CHARS + 1], signature[WEBHOOK_SIGNATURE_CHARS + 1];
    for (uint8_t i = 0; i < WEBHOOK_KEY_BYTES; i++)
        key[i] = i;
    webhook_sign_secret(key, secret);
    assert_string_equal(secret, "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=");
    webhook_sign(key, sizeof key, "ftevent-a", 1790000000, "{}", signature);
    assert_string_equal(signature, "v1,UD0/l6eaUdz/8Q3Ld1CuhHV1FYWpr9ekbaQBsA6jAjw=");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_published_example),
        cmocka_unit_test(test_secret),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* webhook_sign: see webhook_sign.h; libsodium computes. */
#include "daemon/webhook_sign.h"

#include <sodium.h>
#include <stdio.h>
#include <string.h>

static void webhook_base64(const uint8_t bytes[32], const char *word, char *ret, size_t ret_bytes)
{
    char text[45]; /* of 32 bytes */
    (void)sodium_bin2base64(text, sizeof text, bytes, 32, sodium_base64_VARIANT_ORIGINAL);
    (void)snprintf(ret, ret_bytes, "%s%s", word, text);
}

void webhook_sign_secret(const uint8_t key[WEBHOOK_KEY_BYTES],
                         char ret_secret[WEBHOOK_SECRET_CHARS + 1])
{
    webhook_base64(key, "whsec_", ret_secret, WEBHOOK_SECRET_CHARS + 1);
}

void webhook_sign(const uint8_t *key, size_t key_bytes, const char *id, int64_t timestamp_s,
                  const char *body, char ret_signature[WEBHOOK_SIGNATURE_CHARS + 1])
{
    crypto_auth_hmacsha256_state state;
    uint8_t mac[crypto_auth_hmacsha256_BYTES];
    char time[32];
    (void)snprintf(time, sizeof time, ".%lld.", (long long)timestamp_s);
    (void)crypto_auth_hmacsha256_init(&state, key, key_bytes); /* these cannot fail */
    (void)crypto_auth_hmacsha256_update(&state, (const uint8_t *)id, strlen(id));
    (void)crypto_auth_hmacsha256_update(&state, (const uint8_t *)time, strlen(time));
    (void)crypto_auth_hmacsha256_update(&state, (const uint8_t *)body, strlen(body));
    (void)crypto_auth_hmacsha256_final(&state, mac);
    webhook_base64(mac, "v1,", ret_signature, WEBHOOK_SIGNATURE_CHARS + 1);
}

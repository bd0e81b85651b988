/* webhook_sign: signatures after Standard Webhooks (standardwebhooks.com): HMAC-SHA256 over
 * "<webhook-id>.<webhook-timestamp>.<body>", sent as "v1,<base64>". A secret is "whsec_" and the
 * base64 of its 32 bytes. */
#pragma once
#include "common/err.h"

#include <stddef.h>
#include <stdint.h>

enum {
    WEBHOOK_KEY_BYTES = 32,
    WEBHOOK_SECRET_CHARS = 50,   /* "whsec_" and 44 of base64 */
    WEBHOOK_SIGNATURE_CHARS = 47 /* "v1," and 44 */
};

void webhook_sign_secret(const uint8_t key[WEBHOOK_KEY_BYTES],
                         char ret_secret[WEBHOOK_SECRET_CHARS + 1]);
void webhook_sign(const uint8_t *key, size_t key_bytes, const char *id, int64_t timestamp_s,
                  const char *body, char ret_signature[WEBHOOK_SIGNATURE_CHARS + 1]);

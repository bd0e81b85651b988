/* tokenizer_nfc: Unicode normalisation form C (Unicode Standard Annex 15) by utf8proc. */
#pragma once
#include "common/buf.h"
#include "common/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tokenizer_nfc {
    int32_t *points; /* code points of the stretch at hand; owned */
    int32_t *sorted; /* scratch of as many; owned */
    size_t capacity;
};
void tokenizer_nfc_done(struct tokenizer_nfc *nfc); /* {0} is a valid start */

/* True when the text is its own form C for sure: it has no character from U+0300 on. */
bool tokenizer_nfc_is_plain(const char *text, size_t length);
/* Appends the form C of valid UTF-8. Linear in the text but for the memory of its longest stretch
 * without a safe seam. */
int tokenizer_nfc_append(struct tokenizer_nfc *nfc, const char *text, size_t length,
                         struct buf *out, struct err *err);

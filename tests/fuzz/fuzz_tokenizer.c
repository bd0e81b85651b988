/* fuzz_tokenizer: tokenizer.json. With a tokenizer that loads, the file itself encodes to ids of
 * its vocabulary and decodes to itself. */
#include "common/limits.h"
#include "common/mem.h"
#include "common/must.h"
#include "common/tokenizer.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

static void tokenizer_round(const struct tokenizer *tokenizer, const uint8_t *data, size_t size)
{
    struct err err;
    struct buf back;
    struct tokens tokens = {0};
    struct tokenizer_text text;
    struct tokenizer_encoder *encoder = NULL;
    int64_t vocab = tokenizer_vocab(tokenizer);
    must(vocab >= 256 && vocab <= LIMIT_VOCAB);
    must(tokenizer_encoder_new(tokenizer, &encoder, &err) == 0);
    tokenizer_text_init(&text);
    tokenizer_text_add(&text, (const char *)data, size, true);
    must(tokenizer_encode(encoder, &text, &tokens, &err) == 0);
    for (int64_t i = 0; i < tokens.count; i++)
        must(tokens.ids[i] >= 0 && tokens.ids[i] < vocab && tokens.trained[i] == 1);
    buf_init(&back, 2 * size + 1);
    must(tokenizer_decode(tokenizer, tokens.ids, tokens.count, &back, &err) == 0);
    /* All of it comes back, unless the file asks for form C or for white space to be taken. */
    if (memmem(data, size, "NFC", 3) == NULL && memmem(data, size, "strip", 5) == NULL &&
        memchr(data, '\\', size) == NULL)
        must(back.length == size && memcmp(buf_str(&back), data, size) == 0);
    buf_done(&back);
    tokens_done(&tokens);
    tokenizer_text_done(&text);
    tokenizer_encoder_free(encoder);
    int32_t special = tokenizer_special(tokenizer, "<|end|>");
    must(special >= -1 && special < vocab);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int64_t live = mem_live();
    struct err err = {.code = ERR_NONE};
    struct tokenizer *tokenizer = NULL;
    fuzz_put("tokenizer.json", data, size);
    int rc = tokenizer_load(fuzz_folder(), &tokenizer, &err);
    if (rc == 0) {
        fuzz_taken++;
        tokenizer_round(tokenizer, data, size);
        tokenizer_free(tokenizer);
    } else {
        fuzz_refused(rc, &err);
        must(rc == -ERR_MODEL && tokenizer == NULL);
    }
    must(mem_live() == live);
    return 0;
}

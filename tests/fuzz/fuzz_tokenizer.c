/* fuzz_tokenizer: tokenizer.json. With a tokenizer that loads, any bytes encode to ids of its
 * vocabulary and decode to themselves. */
#include "common/limits.h"
#include "common/mem.h"
#include "common/must.h"
#include "common/tokenizer.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

static void tokenizer_round(const struct tokenizer *tokenizer, const uint8_t *data, size_t size)
{
    struct err err;
    struct buf text;
    int64_t count = 0;
    int64_t vocab = tokenizer_vocab(tokenizer);
    must(vocab >= 256 && vocab <= LIMIT_VOCAB);
    CLEANUP(mem_free_ptr) int32_t *ids = mem_new(size, sizeof *ids);
    must(ids != NULL);
    must(tokenizer_encode(tokenizer, (const char *)data, size, ids, (int64_t)size, &count, &err) ==
         0);
    for (int64_t i = 0; i < count; i++)
        must(ids[i] >= 0 && ids[i] < vocab);
    buf_init(&text, size + 1);
    must(tokenizer_decode(tokenizer, ids, count, &text, &err) == 0);
    must(text.length == size && memcmp(buf_str(&text), data, size) == 0);
    buf_done(&text);
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

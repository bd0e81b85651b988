/* fuzz_chat_template: tokenizer_config.json, which carries the chat template. Of all templates
 * that are served only the built-in one has its special tokens here. */
#include "common/chat_template.h"
#include "common/mem.h"
#include "common/must.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

static struct tokenizer *template_tokenizer(void)
{
    struct err err;
    struct tokenizer *tokenizer = NULL;
    must(tokenizer_write_builtin(fuzz_folder(), &err) == 0);
    must(tokenizer_load(fuzz_folder(), &tokenizer, &err) == 0);
    return tokenizer;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct tokenizer *tokenizer;
    if (tokenizer == NULL)
        tokenizer = template_tokenizer();
    int64_t live = mem_live();
    struct err err = {.code = ERR_NONE};
    struct chat_template *chat = NULL;
    fuzz_put("tokenizer_config.json", data, size);
    int rc = chat_template_load(fuzz_folder(), tokenizer, JOB_chat_AUTO, &chat, &err);
    if (rc == 0) {
        fuzz_taken++;
        must(strcmp(chat_template_name(chat), "tiny") == 0);
        must(chat_template_stop(chat) == tokenizer_special(tokenizer, "<|end|>"));
        chat_template_free(chat);
    } else {
        fuzz_refused(rc, &err);
        must(rc == -ERR_MODEL && chat == NULL);
    }
    must(mem_live() == live);
    return 0;
}

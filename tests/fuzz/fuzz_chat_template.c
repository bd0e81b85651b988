/* fuzz_chat_template: tokenizer_config.json, which carries the chat template. Only the template
 * that is built in is taken. */
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
    int rc = chat_template_load(fuzz_folder(), tokenizer, &chat, &err);
    if (rc == 0) {
        fuzz_taken++;
        CLEANUP(json_unref) json_t *json = NULL;
        must(json_parse((const char *)data, size, "config", &json, &err) == 0);
        const char *text = json_string_value(json_object_get(json, "chat_template"));
        must(text != NULL && strcmp(text, chat_template_builtin_text()) == 0);
        must(chat_template_stop(chat) == tokenizer_special(tokenizer, "<|end|>"));
        chat_template_free(chat);
    } else {
        fuzz_refused(rc, &err);
        must(rc == -ERR_MODEL && chat == NULL);
    }
    must(mem_live() == live);
    return 0;
}

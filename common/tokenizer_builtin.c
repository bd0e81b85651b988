/* tokenizer, the built-in one: bytes and eight special tokens, written as the two files that
 * transformers and tokenizers read. tokenizer_config.json carries the chat template. */
#include "common/chat_template.h"
#include "common/io.h"
#include "common/json.h"
#include "common/mem.h"
#include "common/tokenizer.h"
#include "common/tokenizer_bytes.h"

#include <string.h>

static const char *const tokenizer_builtin_specials[] = {
    "<|begin|>", "<|user|>", "<|assistant|>", "<|system|>",
    "<|end|>",   "<|pad|>",  "<|reserved0|>", "<|reserved1|>",
};
enum { BUILTIN_SPECIALS = sizeof tokenizer_builtin_specials / sizeof(char *) };

static json_t *tokenizer_builtin_special(int i)
{
    return json_pack("{s:i, s:s, s:b, s:b, s:b, s:b, s:b}", "id", 256 + i, "content",
                     tokenizer_builtin_specials[i], "single_word", 0, "lstrip", 0, "rstrip", 0,
                     "normalized", 0, "special", 1);
}

/* tokenizer.json; NULL when memory ran out. */
static json_t *tokenizer_builtin_json(void)
{
    json_t *added = json_array();
    json_t *vocab = json_object();
    int lost = 0;
    for (int i = 0; i < BUILTIN_SPECIALS; i++)
        lost |= json_array_append_new(added, tokenizer_builtin_special(i));
    for (int byte = 0; byte < 256; byte++) {
        char text[TOKENIZER_BYTE_TEXT];
        tokenizer_bytes_spell(byte, text);
        lost |= json_object_set_new(vocab, text, json_integer(byte));
    }
    json_t *level = json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", 0,
                              "trim_offsets", 1, "use_regex", 0);
    json_t *model =
        json_pack("{s:s, s:n, s:n, s:n, s:n, s:b, s:b, s:b, s:o, s:[]}", "type", "BPE", "dropout",
                  "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", 0,
                  "byte_fallback", 0, "ignore_merges", 0, "vocab", vocab, "merges");
    json_t *json =
        json_pack("{s:s, s:n, s:n, s:o, s:n, s:O, s:n, s:o, s:o}", "version", "1.0", "truncation",
                  "padding", "added_tokens", added, "normalizer", "pre_tokenizer", level,
                  "post_processor", "decoder", level, "model", model);
    if (lost == 0)
        return json;
    json_decref(json);
    return NULL;
}

static json_t *tokenizer_builtin_config(void)
{
    json_t *decoder = json_object();
    int lost = 0;
    for (int i = 0; i < BUILTIN_SPECIALS; i++) {
        char key[8];
        json_t *row = tokenizer_builtin_special(i);
        lost |= json_object_del(row, "id");
        key[0] = '2';
        key[1] = (char)('0' + (56 + i) / 10);
        key[2] = (char)('0' + (56 + i) % 10);
        key[3] = '\0';
        lost |= json_object_set_new(decoder, key, row);
    }
    json_t *json = json_pack("{s:s, s:s, s:s, s:s, s:b, s:i, s:s, s:o}", "tokenizer_class",
                             "PreTrainedTokenizerFast", "bos_token", "<|begin|>", "eos_token",
                             "<|end|>", "pad_token", "<|pad|>", "clean_up_tokenization_spaces", 0,
                             "model_max_length", 8192, "chat_template",
                             chat_template_builtin_text(), "added_tokens_decoder", decoder);
    if (lost == 0)
        return json;
    json_decref(json);
    return NULL;
}

static int tokenizer_builtin_put(const char *model_dir, const char *name, json_t *json,
                                 struct err *err)
{
    CLEANUP(json_unref) json_t *held = json;
    CLEANUP(mem_free_ptr) char *path = io_join(model_dir, name);
    if (held == NULL || path == NULL)
        return mem_fail(err, 1 << 16, name);
    return json_write_file(path, held, 0644, err);
}

int tokenizer_write_builtin(const char *model_dir, struct err *err)
{
    TRY(tokenizer_builtin_put(model_dir, "tokenizer.json", tokenizer_builtin_json(), err));
    return tokenizer_builtin_put(model_dir, "tokenizer_config.json", tokenizer_builtin_config(),
                                 err);
}

/* document: the tokens that begin and end a text are known by their texts. */
#include "common/document.h"

static int32_t document_special(const struct tokenizer *tokenizer, const char *const *texts,
                                size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (tokenizer_special(tokenizer, texts[i]) >= 0)
            return tokenizer_special(tokenizer, texts[i]);
    return -1;
}

int document_render(const struct tokenizer *tokenizer, const char *text, size_t length,
                    struct chat_writer *writer, struct err *err)
{
    static const char *const begins[] = {"<|begin_of_text|>", "<|begin|>"};
    static const char *const ends[] = {"<|end_of_text|>", "<|endoftext|>", "<|end|>"};
    int32_t begin = document_special(tokenizer, begins, sizeof begins / sizeof begins[0]);
    int32_t end = document_special(tokenizer, ends, sizeof ends / sizeof ends[0]);
    TRY(chat_writer_start(writer, tokenizer, err));
    if (begin >= 0)
        TRY(tokens_push(&writer->tokens, begin, false, err));
    tokenizer_text_add(&writer->text, text, length, true);
    TRY(tokenizer_encode(writer->encoder, &writer->text, &writer->tokens, err));
    if (end >= 0)
        TRY(tokens_push(&writer->tokens, end, true, err));
    if (writer->tokens.count > 0)
        writer->tokens.trained[0] = 0;
    return 0;
}

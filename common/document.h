/* document: plain text as token ids: what begins a text, where the tokenizer has such a token
 * (Llama's <|begin_of_text|>), the text, and what ends one (<|end_of_text|>, <|endoftext|>). All of
 * it is trained but the first token, which nothing predicts. */
#pragma once
#include "common/chat_template.h"

int document_render(const struct tokenizer *tokenizer, const char *text, size_t length,
                    struct chat_writer *writer, struct err *err);

/* tokenizer: text <-> token ids, loaded from a model folder's tokenizer.json (Hugging Face format).
 *
 * Served now: byte-level BPE without merges, which is a byte tokenizer with special tokens
 * (tiny-llama). A tokenizer.json with merges is refused by name until BPE is here. Text is bytes:
 * every byte string encodes and decodes back to itself. Special-token text inside content stays
 * text: special ids come only from tokenizer_special(). Thread-safe after load. */
#pragma once
#include "common/buf.h"
#include "common/err.h"

#include <stdint.h>

struct tokenizer;

int tokenizer_load(const char *model_dir, struct tokenizer **ret, struct err *err);
void tokenizer_free(struct tokenizer *tokenizer);
int64_t tokenizer_vocab(const struct tokenizer *tokenizer); /* ids are below this */

/* Appends the ids of the text to ids[*count..]; grows nothing: capacity is checked, ERR_TOO_LARGE.
 * A byte tokenizer makes one id a byte. */
int tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t length,
                     int32_t *ids, int64_t capacity, int64_t *count, struct err *err);
/* Bytes of the ids; special tokens are skipped. */
int tokenizer_decode(const struct tokenizer *tokenizer, const int32_t *ids, int64_t count,
                     struct buf *out, struct err *err);
/* Id of a special token by its text ("<|end|>"), or -1. */
int32_t tokenizer_special(const struct tokenizer *tokenizer, const char *text);

/* Writes tokenizer.json and tokenizer_config.json (with the chat template) of the built-in byte
 * tokenizer: ids 0-255 bytes, 256 <|begin|>, 257 <|user|>, 258 <|assistant|>, 259 <|system|>, 260
 * <|end|>, 261 <|pad|>, 262 and 263 reserved. Files load in transformers. */
int tokenizer_write_builtin(const char *model_dir, struct err *err);

/* tokenizer: text <-> token ids, loaded from a model folder's tokenizer.json (Hugging Face format).
 *
 * Served: byte-level BPE as Llama 3, Qwen2.5, Qwen3 and GPT-2 have it, and the built-in byte
 * tokenizer. In tokenizer.json that is: model BPE (merges as "a b" or ["a","b"], ignore_merges),
 * normalizer null or NFC, the pre-split patterns of these families (tokenizer_split.h), added
 * tokens with lstrip, rstrip and normalized. Anything else that would change an id is refused by
 * name (ERR_MODEL). Post-processors only add special tokens around a text; the chat template does
 * that here.
 *
 * Text of special tokens inside a text stays text: special ids come only from tokenizer_special().
 * Added tokens that are not special (Qwen3's <think>, <tool_call>) are vocabulary like any other
 * and are found in text, as the reference encoders do.
 *
 * A tokenizer is read-only once loaded and shared by threads; each thread encodes through a
 * tokenizer_encoder of its own. */
#pragma once
#include "common/buf.h"
#include "common/err.h"
#include "common/tokens.h"

#include <stdint.h>

struct tokenizer;

int tokenizer_load(const char *model_dir, struct tokenizer **ret, struct err *err);
void tokenizer_free(struct tokenizer *tokenizer);
int64_t tokenizer_vocab(const struct tokenizer *tokenizer); /* ids are below this */
/* Id of an added token by its text ("<|end|>"), special or not, or -1. */
int32_t tokenizer_special(const struct tokenizer *tokenizer, const char *text);

/* Bytes of the ids, appended; special tokens are skipped. */
int tokenizer_decode(const struct tokenizer *tokenizer, const int32_t *ids, int64_t count,
                     struct buf *out, struct err *err);

/* The same for one token, and also of special ones. */
int tokenizer_spell(const struct tokenizer *tokenizer, int32_t id, struct buf *out,
                    struct err *err);

/* A text that is encoded as one, in pieces that have a loss or not. A token that reaches over a
 * seam counts to the piece it begins in.
 *
 *     struct tokenizer_text text;
 *     tokenizer_text_init(&text);
 *     tokenizer_text_add(&text, "assistant\n", 10, false);
 *     tokenizer_text_add(&text, answer, length, true);
 *     TRY(tokenizer_encode(encoder, &text, &tokens, err));
 *     tokenizer_text_done(&text); */
struct tokenizer_piece {
    size_t end; /* of the piece, in bytes of the text */
    bool trained;
};
struct tokenizer_text {
    struct buf bytes;
    struct tokenizer_piece *pieces; /* (count), neighbours differ in `trained`; owned */
    size_t count;
    size_t capacity;
};
void tokenizer_text_init(struct tokenizer_text *text);
void tokenizer_text_done(struct tokenizer_text *text);
void tokenizer_text_clear(struct tokenizer_text *text); /* empties; keeps the memory */
/* A failure sticks in text->bytes, as in a buf, and is reported by tokenizer_encode(). */
void tokenizer_text_add(struct tokenizer_text *text, const char *bytes, size_t length,
                        bool trained);

struct tokenizer_encoder; /* one thread's scratch memory and its cache of words */
int tokenizer_encoder_new(const struct tokenizer *tokenizer, struct tokenizer_encoder **ret,
                          struct err *err);
void tokenizer_encoder_free(struct tokenizer_encoder *encoder);
/* Appends the tokens of the text. ERR_DATA when it is not UTF-8 (the built-in byte tokenizer takes
 * any bytes) or holds a word beyond LIMIT_WORD_BYTES. Time grows as n log n with the longest word
 * and linearly with the text. */
int tokenizer_encode(struct tokenizer_encoder *encoder, const struct tokenizer_text *text,
                     struct tokens *tokens, struct err *err);

/* Writes tokenizer.json and tokenizer_config.json (with the chat template) of the built-in byte
 * tokenizer: ids 0-255 bytes, 256 <|begin|>, 257 <|user|>, 258 <|assistant|>, 259 <|system|>, 260
 * <|end|>, 261 <|pad|>, 262 and 263 reserved. Files load in transformers. */
int tokenizer_write_builtin(const char *model_dir, struct err *err);

/* tokenizer_split: the words into which a text is cut before BPE, by the pre_tokenizer of a
 * tokenizer.json. Recognised, and run by PCRE2 with Unicode properties:
 *
 *   ByteLevel, use_regex true (GPT-2)
 *   ByteLevel, use_regex false: the whole text is one word
 *   Sequence of Split (Regex, Isolated) and ByteLevel with use_regex false, the Regex being one of
 *     Llama 3's (digits by threes) and Qwen2's (digits one by one)
 *
 * \s is White_Space of the Unicode Character Database, as in the reference encoders' engine
 * (Oniguruma): with U+0085, without U+180E, which PCRE2's own \s has. */
#pragma once
#include "common/err.h"
#include "common/json.h"

#include <stddef.h>

struct tokenizer_split; /* a compiled pattern, read-only, shared by threads */
/* *ret is NULL when the whole text is one word. ERR_MODEL for a pre_tokenizer not served. */
int tokenizer_split_new(const json_t *pre_tokenizer, struct tokenizer_split **ret, struct err *err);
void tokenizer_split_free(struct tokenizer_split *split);

struct tokenizer_split_match; /* one thread's */
int tokenizer_split_match_new(const struct tokenizer_split *split,
                              struct tokenizer_split_match **ret, struct err *err);
void tokenizer_split_match_free(struct tokenizer_split_match *match);

/* End of the word that begins at `start` < length of valid UTF-8. */
int tokenizer_split_next(const struct tokenizer_split *split, struct tokenizer_split_match *match,
                         const char *text, size_t length, size_t start, size_t *ret_end,
                         struct err *err);

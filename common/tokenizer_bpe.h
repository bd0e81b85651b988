/* tokenizer_bpe: a byte-pair vocabulary and the merging of one word (Sennrich, Haddow and Birch,
 * "Neural Machine Translation of Rare Words with Subword Units", ACL 2016, section 3.2; on bytes as
 * GPT-2 does it).
 *
 * Of all neighbouring pairs of a word that have a merge the one of the lowest rank is joined,
 * leftmost first, until none is left. */
#pragma once
#include "common/err.h"
#include "common/tokens.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct bpe_token {
    uint32_t start;  /* of its bytes in `bytes` */
    uint32_t length; /* 0: no token has this id */
};
struct bpe_merge {
    uint64_t pair; /* left id * 2^32 + right id */
    int32_t rank;
    int32_t id; /* what the pair becomes; -1: an empty slot */
};

struct tokenizer_bpe {
    struct bpe_token *tokens; /* (vocab) by id; owned */
    int64_t vocab;            /* highest id + 1 */
    char *bytes;              /* of all tokens; owned */
    size_t bytes_used;
    size_t bytes_max;
    int32_t *words; /* (words_mask + 1) open hash over the bytes: id, or -1; owned */
    size_t words_mask;
    struct bpe_merge *merges; /* (merges_mask + 1) open hash over the pair; owned */
    size_t merges_mask;
    int32_t byte_ids[256];
};

/* Room for tokens with ids below `vocab`, of `bytes_max` bytes together, and for merges. */
int tokenizer_bpe_init(struct tokenizer_bpe *bpe, int64_t vocab, size_t bytes_max,
                       size_t merge_count, struct err *err);
void tokenizer_bpe_done(struct tokenizer_bpe *bpe);
/* Adds a token. `reachable`: text can become it (then its bytes must be new). False when the id or
 * the bytes are taken. */
bool tokenizer_bpe_add(struct tokenizer_bpe *bpe, int32_t id, const char *bytes, size_t length,
                       bool reachable);
int32_t tokenizer_bpe_find(const struct tokenizer_bpe *bpe, const char *bytes,
                           size_t length); /* -1: none */
/* A later merge of the same pair replaces the earlier one. */
void tokenizer_bpe_add_merge(struct tokenizer_bpe *bpe, int32_t left, int32_t right, int32_t rank,
                             int32_t id);

/* Scratch of one thread; {0} is a valid start. */
struct bpe_scratch {
    void *block; /* nodes and heap of a long word; owned */
    size_t bytes;
};
void tokenizer_bpe_scratch_done(struct bpe_scratch *scratch);
/* Appends the tokens of one word of at most LIMIT_WORD_BYTES, all with the flag 0; byte_ids must be
 * set. Their lengths add up to the word's. */
int tokenizer_bpe_word(const struct tokenizer_bpe *bpe, struct bpe_scratch *scratch,
                       const char *word, size_t length, struct tokens *tokens, struct err *err);

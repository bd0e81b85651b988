/* tokenizer_private: what tokenizer.json becomes; for the reader and the encoder. */
#pragma once
#include "common/json.h"
#include "common/tokenizer.h"
#include "common/tokenizer_bpe.h"
#include "common/tokenizer_split.h"

struct tokenizer_added {
    char *text;    /* as it stands in text (normalised where `normalized`); owned */
    size_t length; /* of text */
    int32_t id;
    bool special;    /* never found in text */
    bool lstrip;     /* takes the white space before it */
    bool rstrip;     /* takes the white space after it */
    bool normalized; /* looked for after normalising, else before */
};

struct tokenizer {
    struct tokenizer_bpe bpe;
    struct tokenizer_added *added; /* (added_count), longer ones first; owned */
    size_t added_count;
    bool added_first[2][256];      /* [normalized][byte]: one that is not special begins so */
    uint8_t *special;              /* (vocab) 1: a decoder skips this id; owned */
    struct tokenizer_split *split; /* NULL: the whole text is one word; owned */
    bool nfc;
    bool ignore_merges; /* a word that is a token is that token, whatever the merges say */
    bool bytes_only;    /* no merges: a byte is a token */
    bool any_bytes;     /* no pattern and no normaliser: text need not be UTF-8 */
};

int tokenizer_read(struct tokenizer *tokenizer, const json_t *json, struct err *err);

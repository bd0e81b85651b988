/* tokenizer: a text passes these stages, each taking the stretches that the one before left:
 *
 *   added tokens looked for before normalising (special ones never: their text stays text)
 *   normalising (tokenizer_nfc), piece by piece, so that seams between pieces are known after it
 *   added tokens looked for after normalising
 *   words (tokenizer_split)
 *   tokens: the cache of words seen, the vocabulary itself (ignore_merges), merges (tokenizer_bpe)
 *
 * The cache holds short words in slots by their hash, the newest winning; usual text is some
 * thousand different words. */
#include "common/tokenizer.h"

#include "common/io.h"
#include "common/limits.h"
#include "common/mem.h"
#include "common/must.h"
#include "common/tokenizer_nfc.h"
#include "common/tokenizer_private.h"
#include "common/utf8.h"

#include <string.h>

enum {
    CACHE_SLOTS = 1 << 15,
    CACHE_WORD_BYTES = 26,
    CACHE_WORD_TOKENS = 8,
    CACHE_LINE_BYTES = 64, /* of the processor; a word is one */
};

struct tokenizer_word {
    uint32_t hash;
    uint8_t length; /* 0: an empty slot */
    uint8_t count;
    char bytes[CACHE_WORD_BYTES];
    int32_t ids[CACHE_WORD_TOKENS];
};
_Static_assert(sizeof(struct tokenizer_word) == CACHE_LINE_BYTES, "a word is a cache line");

struct tokenizer_encoder {
    const struct tokenizer *tokenizer;   /* borrowed */
    struct tokenizer_split_match *match; /* NULL without a pattern */
    struct tokenizer_nfc nfc;
    struct tokenizer_text normal; /* the stretch at hand, normalised */
    struct bpe_scratch scratch;
    struct tokenizer_word *cache; /* (CACHE_SLOTS) */
};

/* A stretch of a text on its way, and where its pieces are. */
struct tokenizer_stretch {
    const struct tokenizer_text *text;
    size_t start, end; /* bytes of it */
    size_t piece;      /* the one that `start` is in, or an earlier one */
};

/* ---- loading ---- */

void tokenizer_free(struct tokenizer *tokenizer)
{
    if (tokenizer == NULL)
        return;
    for (size_t i = 0; i < tokenizer->added_count; i++)
        mem_free(tokenizer->added[i].text);
    mem_free(tokenizer->added);
    mem_free(tokenizer->special);
    tokenizer_split_free(tokenizer->split);
    tokenizer_bpe_done(&tokenizer->bpe);
    mem_free(tokenizer);
}

static void tokenizer_unref(struct tokenizer **tokenizer)
{
    tokenizer_free(*tokenizer);
}

int tokenizer_load(const char *model_dir, struct tokenizer **ret, struct err *err)
{
    CLEANUP(mem_free_ptr) char *path = io_join(model_dir, "tokenizer.json");
    CLEANUP(tokenizer_unref) struct tokenizer *tokenizer = mem_new(1, sizeof *tokenizer);
    if (path == NULL || tokenizer == NULL)
        return mem_fail(err, sizeof *tokenizer, "a tokenizer");
    CLEANUP(json_unref) json_t *json = NULL;
    int rc = json_parse_file(path, LIMIT_TOKENIZER_BYTES, &json, err);
    if (rc == -ERR_BAD_JSON || rc == -ERR_TOO_LARGE) {
        err->code = ERR_MODEL; /* the sentence stands; it is the model that is wrong */
        return -ERR_MODEL;
    }
    if (rc == -ERR_NOT_FOUND)
        return err_set(err, ERR_MODEL,
                       "%s: there is no tokenizer.json; download it too (a tokenizer.model is not "
                       "read)",
                       model_dir);
    TRY(rc);
    rc = tokenizer_read(tokenizer, json, err);
    if (rc != 0)
        return err_wrap(err, rc, "%s: ", path);
    *ret = tokenizer;
    tokenizer = NULL;
    return 0;
}

int64_t tokenizer_vocab(const struct tokenizer *tokenizer)
{
    return tokenizer->bpe.vocab;
}

int32_t tokenizer_special(const struct tokenizer *tokenizer, const char *text)
{
    for (size_t i = 0; i < tokenizer->added_count; i++)
        if (strcmp(tokenizer->added[i].text, text) == 0)
            return tokenizer->added[i].id;
    return -1;
}

int tokenizer_spell(const struct tokenizer *tokenizer, int32_t id, struct buf *out, struct err *err)
{
    if (id < 0 || id >= tokenizer->bpe.vocab)
        return err_set(err, ERR_DATA, "token id %d is not below the vocabulary's %lld", id,
                       (long long)tokenizer->bpe.vocab);
    const struct bpe_token *token = &tokenizer->bpe.tokens[id];
    buf_append(out, tokenizer->bpe.bytes + token->start, token->length);
    return buf_error(out, err);
}

int tokenizer_decode(const struct tokenizer *tokenizer, const int32_t *ids, int64_t count,
                     struct buf *out, struct err *err)
{
    for (int64_t i = 0; i < count; i++)
        if (ids[i] < 0 || ids[i] >= tokenizer->bpe.vocab || !tokenizer->special[ids[i]])
            TRY(tokenizer_spell(tokenizer, ids[i], out, err));
    return buf_error(out, err);
}

/* ---- texts ---- */

void tokenizer_text_init(struct tokenizer_text *text)
{
    *text = (struct tokenizer_text){.count = 0};
    buf_init(&text->bytes, (size_t)2 * LIMIT_LINE_BYTES); /* what a template adds is far less */
}

void tokenizer_text_done(struct tokenizer_text *text)
{
    buf_done(&text->bytes);
    mem_free(text->pieces);
    *text = (struct tokenizer_text){.count = 0};
}

void tokenizer_text_clear(struct tokenizer_text *text)
{
    buf_clear(&text->bytes);
    text->count = 0;
}

/* What was appended to the bytes since the last piece is `trained`. */
static void tokenizer_text_mark(struct tokenizer_text *text, bool trained)
{
    size_t end = text->bytes.length;
    if (text->count > 0 && text->pieces[text->count - 1].trained == trained) {
        text->pieces[text->count - 1].end = end;
        return;
    }
    if (text->count == text->capacity) {
        size_t capacity = 2 * text->capacity + 4;
        struct tokenizer_piece *pieces = mem_grow(text->pieces, capacity, sizeof *pieces);
        if (pieces == NULL) {
            text->bytes.bad = ERR_NOMEM;
            return;
        }
        text->pieces = pieces;
        text->capacity = capacity;
    }
    text->pieces[text->count++] = (struct tokenizer_piece){.end = end, .trained = trained};
}

void tokenizer_text_add(struct tokenizer_text *text, const char *bytes, size_t length, bool trained)
{
    if (length == 0)
        return;
    buf_append(&text->bytes, bytes, length);
    tokenizer_text_mark(text, trained);
}

/* ---- encoding ---- */

void tokenizer_encoder_free(struct tokenizer_encoder *encoder)
{
    if (encoder == NULL)
        return;
    tokenizer_split_match_free(encoder->match);
    tokenizer_nfc_done(&encoder->nfc);
    tokenizer_text_done(&encoder->normal);
    tokenizer_bpe_scratch_done(&encoder->scratch);
    mem_free(encoder->cache);
    mem_free(encoder);
}

int tokenizer_encoder_new(const struct tokenizer *tokenizer, struct tokenizer_encoder **ret,
                          struct err *err)
{
    struct tokenizer_encoder *encoder = mem_new(1, sizeof *encoder);
    if (encoder == NULL)
        return mem_fail(err, sizeof *encoder, "an encoder");
    encoder->tokenizer = tokenizer;
    tokenizer_text_init(&encoder->normal);
    encoder->cache = mem_aligned(CACHE_LINE_BYTES, CACHE_SLOTS * sizeof *encoder->cache);
    int rc = encoder->cache == NULL
                 ? mem_fail(err, CACHE_SLOTS * sizeof *encoder->cache, "an encoder")
             : tokenizer->split != NULL
                 ? tokenizer_split_match_new(tokenizer->split, &encoder->match, err)
                 : 0;
    if (rc != 0) {
        tokenizer_encoder_free(encoder);
        return rc;
    }
    *ret = encoder;
    return 0;
}

/* Flag of the piece that a byte is in; moves the stretch's cursor on. */
static bool tokenizer_flag(struct tokenizer_stretch *stretch, size_t at)
{
    while (stretch->text->pieces[stretch->piece].end <= at)
        stretch->piece++;
    must(stretch->piece < stretch->text->count);
    return stretch->text->pieces[stretch->piece].trained;
}

/* The tokens of a word, unflagged. */
static int tokenizer_encode_word(struct tokenizer_encoder *encoder, const char *word, size_t length,
                                 struct tokens *tokens, struct err *err)
{
    const struct tokenizer *tokenizer = encoder->tokenizer;
    if (length > LIMIT_WORD_BYTES)
        return err_set(err, ERR_DATA,
                       "a run of %zu bytes without anything to split it at; %d can be tokenised",
                       length, LIMIT_WORD_BYTES);
    int64_t before = tokens->count;
    struct tokenizer_word *cached = NULL;
    uint32_t hash = 0;
    if (length <= CACHE_WORD_BYTES) {
        hash = (uint32_t)io_hash64(word, length);
        cached = &encoder->cache[hash % CACHE_SLOTS];
        if (cached->hash == hash && cached->length == length &&
            memcmp(cached->bytes, word, length) == 0) {
            TRY(tokens_reserve(tokens, cached->count, err));
            memcpy(tokens->ids + before, cached->ids, cached->count * sizeof *cached->ids);
            tokens->count += cached->count;
            return 0;
        }
    }
    int32_t id = tokenizer->ignore_merges ? tokenizer_bpe_find(&tokenizer->bpe, word, length) : -1;
    if (id >= 0)
        TRY(tokens_push(tokens, id, false, err));
    else
        TRY(tokenizer_bpe_word(&tokenizer->bpe, &encoder->scratch, word, length, tokens, err));
    int64_t count = tokens->count - before;
    if (cached != NULL && count <= CACHE_WORD_TOKENS) {
        *cached = (struct tokenizer_word){
            .hash = hash, .length = (uint8_t)length, .count = (uint8_t)count};
        memcpy(cached->bytes, word, length);
        memcpy(cached->ids, tokens->ids + before, (size_t)count * sizeof *cached->ids);
    }
    return 0;
}

static int tokenizer_encode_words(struct tokenizer_encoder *encoder,
                                  struct tokenizer_stretch *stretch, struct tokens *tokens,
                                  struct err *err)
{
    const struct tokenizer *tokenizer = encoder->tokenizer;
    const char *bytes = buf_str(&stretch->text->bytes);
    for (size_t at = stretch->start; at < stretch->end;) {
        size_t end = stretch->end;
        if (tokenizer->bytes_only) {
            TRY(tokens_push(tokens, tokenizer->bpe.byte_ids[(unsigned char)bytes[at]],
                            tokenizer_flag(stretch, at), err));
            at++;
            continue;
        }
        if (tokenizer->split != NULL)
            TRY(tokenizer_split_next(tokenizer->split, encoder->match, bytes, stretch->end, at,
                                     &end, err));
        int64_t first = tokens->count;
        bool trained = tokenizer_flag(stretch, at);
        TRY(tokenizer_encode_word(encoder, bytes + at, end - at, tokens, err));
        if (end <= stretch->text->pieces[stretch->piece].end) { /* nearly every word */
            memset(tokens->trained + first, trained, (size_t)(tokens->count - first));
            at = end;
            continue;
        }
        for (int64_t t = first; t < tokens->count; t++) {
            tokens->trained[t] = tokenizer_flag(stretch, at);
            at += tokenizer->bpe.tokens[tokens->ids[t]].length;
        }
        must(at == end);
    }
    return 0;
}

/* The longest added token that stands at a byte, or NULL. */
static const struct tokenizer_added *tokenizer_find_added(const struct tokenizer *tokenizer,
                                                          bool normalized, const char *bytes,
                                                          size_t length)
{
    if (!tokenizer->added_first[normalized][(unsigned char)bytes[0]])
        return NULL;
    for (size_t i = 0; i < tokenizer->added_count; i++) { /* longer ones first */
        const struct tokenizer_added *added = &tokenizer->added[i];
        if (!added->special && added->normalized == normalized && added->length <= length &&
            memcmp(added->text, bytes, added->length) == 0)
            return added;
    }
    return NULL;
}

static int tokenizer_encode_stretch(struct tokenizer_encoder *encoder,
                                    struct tokenizer_stretch *stretch, bool normalized,
                                    struct tokens *tokens, struct err *err);

/* Normalises a stretch and looks for the added tokens that stand in normalised text. */
static int tokenizer_encode_raw(struct tokenizer_encoder *encoder,
                                struct tokenizer_stretch *stretch, struct tokens *tokens,
                                struct err *err)
{
    const char *bytes = buf_str(&stretch->text->bytes);
    if (!encoder->tokenizer->nfc ||
        tokenizer_nfc_is_plain(bytes + stretch->start, stretch->end - stretch->start))
        return tokenizer_encode_stretch(encoder, stretch, true, tokens, err);
    struct tokenizer_text *normal = &encoder->normal;
    tokenizer_text_clear(normal);
    for (size_t at = stretch->start; at < stretch->end;) {
        bool trained = tokenizer_flag(stretch, at);
        size_t end = stretch->text->pieces[stretch->piece].end;
        end = end < stretch->end ? end : stretch->end;
        TRY(tokenizer_nfc_append(&encoder->nfc, bytes + at, end - at, &normal->bytes, err));
        tokenizer_text_mark(normal, trained);
        at = end;
    }
    TRY(buf_error(&normal->bytes, err));
    struct tokenizer_stretch whole = {.text = normal, .end = normal->bytes.length};
    return tokenizer_encode_stretch(encoder, &whole, true, tokens, err);
}

static int tokenizer_encode_between(struct tokenizer_encoder *encoder,
                                    struct tokenizer_stretch *stretch, size_t start, size_t end,
                                    bool normalized, struct tokens *tokens, struct err *err)
{
    if (start >= end)
        return 0;
    struct tokenizer_stretch part = {
        .text = stretch->text, .start = start, .end = end, .piece = stretch->piece};
    return normalized ? tokenizer_encode_words(encoder, &part, tokens, err)
                      : tokenizer_encode_raw(encoder, &part, tokens, err);
}

/* Added tokens of one kind, and what stands between them. */
static int tokenizer_encode_stretch(struct tokenizer_encoder *encoder,
                                    struct tokenizer_stretch *stretch, bool normalized,
                                    struct tokens *tokens, struct err *err)
{
    const char *bytes = buf_str(&stretch->text->bytes);
    size_t start = stretch->start;
    for (size_t at = start; at < stretch->end;) {
        const struct tokenizer_added *added =
            tokenizer_find_added(encoder->tokenizer, normalized, bytes + at, stretch->end - at);
        if (added == NULL) {
            at++;
            continue;
        }
        size_t spaces = added->lstrip ? utf8_spaces_after(bytes + start, at - start) : 0;
        TRY(tokenizer_encode_between(encoder, stretch, start, at - spaces, normalized, tokens,
                                     err));
        TRY(tokens_push(tokens, added->id, tokenizer_flag(stretch, at), err));
        at += added->length;
        if (added->rstrip)
            at += utf8_spaces(bytes + at, stretch->end - at);
        start = at;
    }
    return tokenizer_encode_between(encoder, stretch, start, stretch->end, normalized, tokens, err);
}

int tokenizer_encode(struct tokenizer_encoder *encoder, const struct tokenizer_text *text,
                     struct tokens *tokens, struct err *err)
{
    TRY(buf_error(&text->bytes, err));
    struct tokenizer_stretch whole = {.text = text, .end = text->bytes.length};
    if (!encoder->tokenizer->any_bytes) {
        size_t good = utf8_prefix(buf_str(&text->bytes), text->bytes.length);
        if (good < text->bytes.length)
            return err_set(err, ERR_DATA, "byte %zu is not UTF-8", good + 1);
    }
    return tokenizer_encode_stretch(encoder, &whole, false, tokens, err);
}

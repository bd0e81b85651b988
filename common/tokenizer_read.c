/* tokenizer_read: tokenizer.json, top down. What would change an id and is not served is refused by
 * name. A token's spelling is turned into its bytes here, once; merges are kept as pairs of ids. */
#include "common/limits.h"
#include "common/mem.h"
#include "common/must.h"
#include "common/tokenizer_bytes.h"
#include "common/tokenizer_nfc.h"
#include "common/tokenizer_private.h"

#include <stdlib.h>
#include <string.h>

static bool read_is_null(const json_t *value)
{
    return value == NULL || json_is_null(value);
}

/* A part's "type", for messages. */
static const char *read_type(const json_t *value)
{
    const char *type = json_string_value(json_object_get(value, "type"));
    return type != NULL ? type : "(without a type)";
}

static int read_check_model(const json_t *model, struct err *err)
{
    if (strcmp(read_type(model), "BPE") != 0)
        return err_set(err, ERR_MODEL, "model type \"%s\" is not served; served: BPE",
                       read_type(model));
    if (json_is_true(json_object_get(model, "byte_fallback")))
        return err_set(
            err, ERR_MODEL,
            "model.byte_fallback is not served: this is SentencePiece's kind of tokenizer "
            "(Llama 2, Mistral); served: byte-level BPE (Llama 3, Qwen, GPT-2)");
    static const char *const empty[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    for (size_t i = 0; i < sizeof empty / sizeof empty[0]; i++) {
        const json_t *value = json_object_get(model, empty[i]);
        if (!read_is_null(value) && json_string_length(value) > 0)
            return err_set(err, ERR_MODEL, "model.%s is not served", empty[i]);
    }
    if (json_number_value(json_object_get(model, "dropout")) != 0)
        return err_set(err, ERR_MODEL, "model.dropout is not served");
    return 0;
}

static int read_normalizer(const json_t *normalizer, bool *ret_nfc, struct err *err)
{
    *ret_nfc = false;
    if (read_is_null(normalizer))
        return 0;
    const json_t *parts = json_object_get(normalizer, "normalizers");
    if (strcmp(read_type(normalizer), "Sequence") == 0 && json_array_size(parts) == 1)
        normalizer = json_array_get(parts, 0);
    if (strcmp(read_type(normalizer), "NFC") != 0)
        return err_set(err, ERR_MODEL, "normalizer \"%s\" is not served; served: null and NFC",
                       read_type(normalizer));
    *ret_nfc = true;
    return 0;
}

static int read_id(const json_t *id, const char *token, int32_t *ret_id, struct err *err)
{
    if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) >= LIMIT_VOCAB)
        return err_set(err, ERR_MODEL, "token \"%.64s\": its id must be 0 to %d", token,
                       LIMIT_VOCAB - 1);
    *ret_id = (int32_t)json_integer_value(id);
    return 0;
}

/* ---- added tokens ---- */

/* The text to look for. */
static int read_added_text(const struct tokenizer *tokenizer, const char *content,
                           struct tokenizer_added *added, struct err *err)
{
    CLEANUP(buf_done) struct buf text;
    buf_init(&text, LIMIT_JSON_BODY_BYTES);
    if (tokenizer->nfc && added->normalized) {
        CLEANUP(tokenizer_nfc_done) struct tokenizer_nfc nfc = {0};
        TRY(tokenizer_nfc_append(&nfc, content, strlen(content), &text, err));
    } else {
        buf_text(&text, content);
    }
    added->length = text.length;
    added->text = buf_steal(&text);
    return added->text != NULL ? 0 : mem_fail(err, strlen(content), "an added token");
}

static int read_added_row(struct tokenizer *tokenizer, const json_t *row, const json_t *vocab,
                          struct tokenizer_added *ret_added, struct err *err)
{
    const char *content = NULL;
    TRY(json_get_string(row, "content", ERR_MODEL, &content, err));
    if (content[0] == '\0')
        return err_set(err, ERR_MODEL, "\"added_tokens\" has one without text");
    struct tokenizer_added added = {.special = json_is_true(json_object_get(row, "special")),
                                    .lstrip = json_is_true(json_object_get(row, "lstrip")),
                                    .rstrip = json_is_true(json_object_get(row, "rstrip")),
                                    .normalized = json_is_true(json_object_get(row, "normalized"))};
    TRY(read_id(json_object_get(row, "id"), content, &added.id, err));
    const json_t *other = json_object_get(vocab, content); /* it may stand there too */
    if (other != NULL && json_integer_value(other) != added.id)
        return err_set(err, ERR_MODEL, "token \"%.64s\" has two ids", content);
    if (!added.special && json_is_true(json_object_get(row, "single_word")))
        return err_set(err, ERR_MODEL, "added token \"%.64s\": single_word is not served", content);
    TRY(read_added_text(tokenizer, content, &added, err));
    *ret_added = added;
    return 0;
}

static int read_longer_first(const void *a, const void *b)
{
    const struct tokenizer_added *left = a;
    const struct tokenizer_added *right = b;
    if (left->length != right->length)
        return left->length > right->length ? -1 : 1;
    return left->id < right->id ? -1 : 1;
}

static int read_added(struct tokenizer *tokenizer, const json_t *rows, const json_t *vocab,
                      struct err *err)
{
    if (!read_is_null(rows) && !json_is_array(rows))
        return err_set(err, ERR_MODEL, "\"added_tokens\" must be an array");
    size_t count = json_array_size(rows);
    tokenizer->added = mem_new(count, sizeof *tokenizer->added);
    if (tokenizer->added == NULL)
        return mem_fail(err, count * sizeof *tokenizer->added, "added tokens");
    for (size_t i = 0; i < count; i++) {
        TRY(read_added_row(tokenizer, json_array_get(rows, i), vocab, &tokenizer->added[i], err));
        tokenizer->added_count++;
        if (!tokenizer->added[i].special)
            tokenizer->added_first[tokenizer->added[i].normalized]
                                  [(unsigned char)tokenizer->added[i].text[0]] = true;
    }
    qsort(tokenizer->added, count, sizeof *tokenizer->added, read_longer_first);
    return 0;
}

/* ---- vocabulary ---- */

/* Sizes the tables: highest id, bytes of all tokens. */
static int read_measure(struct tokenizer *tokenizer, const json_t *vocab, size_t merges,
                        struct err *err)
{
    int32_t highest = -1;
    size_t bytes = 0;
    const char *key;
    const json_t *value;
    if (!json_is_object(vocab))
        return err_set(err, ERR_MODEL, "\"model.vocab\" must be an object");
    json_object_foreach((json_t *)vocab, key, value) /* reads only; it wants non-const */
    {
        int32_t id = -1;
        TRY(read_id(value, key, &id, err));
        highest = id > highest ? id : highest;
        bytes += strlen(key);
    }
    for (size_t i = 0; i < tokenizer->added_count; i++) {
        highest = tokenizer->added[i].id > highest ? tokenizer->added[i].id : highest;
        bytes += tokenizer->added[i].length;
    }
    if (highest < 0)
        return err_set(err, ERR_MODEL, "there is no token");
    return tokenizer_bpe_init(&tokenizer->bpe, (int64_t)highest + 1, bytes, merges, err);
}

/* Added tokens are told by their id; a decoder gives back their text as it is. */
static int read_add_added(struct tokenizer *tokenizer, struct err *err)
{
    tokenizer->special = mem_new((size_t)tokenizer->bpe.vocab, 1);
    if (tokenizer->special == NULL)
        return mem_fail(err, (size_t)tokenizer->bpe.vocab, "special tokens");
    for (size_t i = 0; i < tokenizer->added_count; i++) {
        const struct tokenizer_added *added = &tokenizer->added[i];
        tokenizer->special[added->id] = added->special;
        if (!tokenizer_bpe_add(&tokenizer->bpe, added->id, added->text, added->length, false))
            return err_set(err, ERR_MODEL, "two tokens have the id %d", added->id);
    }
    return 0;
}

static int read_add_vocab(struct tokenizer *tokenizer, const json_t *vocab, struct err *err)
{
    CLEANUP(mem_free_ptr) char *bytes = mem_new(tokenizer->bpe.bytes_max, 1);
    if (bytes == NULL)
        return mem_fail(err, tokenizer->bpe.bytes_max, "a vocabulary");
    const char *key;
    const json_t *value;
    json_object_foreach((json_t *)vocab, key, value)
    {
        int32_t id = (int32_t)json_integer_value(value);
        size_t length = strlen(key);
        bool taken = tokenizer->bpe.tokens[id].length > 0; /* by an added token, or another */
        if (taken && tokenizer_special(tokenizer, key) == id)
            continue;
        if (length == 0)
            return err_set(err, ERR_MODEL, "model.vocab has a token without text");
        bool reachable = tokenizer_bytes_read(key, length, bytes, &length);
        if (!tokenizer_bpe_add(&tokenizer->bpe, id, reachable ? bytes : key, length, reachable))
            return err_set(err, ERR_MODEL, "two tokens have the id %d", id);
    }
    for (int byte = 0; byte < 256; byte++) {
        char one = (char)byte;
        tokenizer->bpe.byte_ids[byte] = tokenizer_bpe_find(&tokenizer->bpe, &one, 1);
        if (tokenizer->bpe.byte_ids[byte] >= 0)
            continue;
        char text[TOKENIZER_BYTE_TEXT];
        tokenizer_bytes_spell(byte, text);
        return err_set(err, ERR_MODEL, "model.vocab has no token \"%s\" for byte %d", text, byte);
    }
    return 0;
}

/* ---- merges ---- */

/* The two spellings of a merge: "a b" or ["a", "b"]. */
static bool read_merge_halves(const json_t *merge, const char *halves[2], size_t lengths[2])
{
    const char *text = json_string_value(merge);
    if (text != NULL) {
        const char *space = strchr(text, ' ');
        if (space == NULL || strchr(space + 1, ' ') != NULL)
            return false;
        halves[0] = text;
        lengths[0] = (size_t)(space - text);
        halves[1] = space + 1;
        lengths[1] = strlen(space + 1);
        return true;
    }
    if (json_array_size(merge) != 2)
        return false;
    for (size_t i = 0; i < 2; i++) {
        halves[i] = json_string_value(json_array_get(merge, i));
        if (halves[i] == NULL)
            return false;
        lengths[i] = strlen(halves[i]);
    }
    return true;
}

/* Ids of the halves and of what they become; -1 for what is no token. */
static void read_merge_ids(const struct tokenizer_bpe *bpe, const char *const halves[2],
                           const size_t lengths[2], char *scratch, int32_t ret_ids[3])
{
    size_t first = 0, second = 0;
    ret_ids[0] = ret_ids[1] = ret_ids[2] = -1;
    if (lengths[0] >= bpe->bytes_max || lengths[1] >= bpe->bytes_max ||
        !tokenizer_bytes_read(halves[0], lengths[0], scratch, &first) ||
        !tokenizer_bytes_read(halves[1], lengths[1], scratch + first, &second))
        return;
    ret_ids[0] = tokenizer_bpe_find(bpe, scratch, first);
    ret_ids[1] = tokenizer_bpe_find(bpe, scratch + first, second);
    ret_ids[2] = tokenizer_bpe_find(bpe, scratch, first + second);
}

static int read_merges(struct tokenizer *tokenizer, const json_t *merges, struct err *err)
{
    struct tokenizer_bpe *bpe = &tokenizer->bpe;
    CLEANUP(mem_free_ptr) char *scratch = mem_new(bpe->bytes_max, 2);
    if (scratch == NULL)
        return mem_fail(err, bpe->bytes_max, "merges");
    size_t rank;
    const json_t *merge;
    json_array_foreach((json_t *)merges, rank, merge)
    {
        const char *halves[2];
        size_t lengths[2];
        int32_t ids[3];
        if (!read_merge_halves(merge, halves, lengths))
            return err_set(err, ERR_MODEL, "model.merges[%zu] must be \"a b\" or [\"a\", \"b\"]",
                           rank);
        read_merge_ids(bpe, halves, lengths, scratch, ids);
        if (ids[0] < 0 || ids[1] < 0 || ids[2] < 0)
            return err_set(err, ERR_MODEL,
                           "model.merges[%zu]: \"%.*s\" and \"%.*s\" must be tokens, and joined "
                           "one",
                           rank, (int)(lengths[0] < 64 ? lengths[0] : 64), halves[0],
                           (int)(lengths[1] < 64 ? lengths[1] : 64), halves[1]);
        tokenizer_bpe_add_merge(bpe, ids[0], ids[1], (int32_t)rank, ids[2]);
    }
    return 0;
}

int tokenizer_read(struct tokenizer *tokenizer, const json_t *json, struct err *err)
{
    if (!json_is_object(json))
        return err_set(err, ERR_MODEL, "not a JSON object");
    const json_t *model = json_object_get(json, "model");
    const json_t *vocab = json_object_get(model, "vocab");
    const json_t *merges = json_object_get(model, "merges");
    TRY(read_check_model(model, err));
    if (!read_is_null(merges) && !json_is_array(merges))
        return err_set(err, ERR_MODEL, "\"model.merges\" must be an array");
    TRY(read_normalizer(json_object_get(json, "normalizer"), &tokenizer->nfc, err));
    TRY(tokenizer_split_new(json_object_get(json, "pre_tokenizer"), &tokenizer->split, err));
    tokenizer->any_bytes = !tokenizer->nfc && tokenizer->split == NULL;
    tokenizer->ignore_merges = json_is_true(json_object_get(model, "ignore_merges"));
    tokenizer->bytes_only = json_array_size(merges) == 0 && !tokenizer->ignore_merges;
    TRY(read_added(tokenizer, json_object_get(json, "added_tokens"), vocab, err));
    TRY(read_measure(tokenizer, vocab, json_array_size(merges), err));
    TRY(read_add_added(tokenizer, err));
    TRY(read_add_vocab(tokenizer, vocab, err));
    return read_merges(tokenizer, merges, err);
}

/* tokenizer: reads tokenizer.json. Byte-level BPE spells bytes as printable characters: the 188
 * bytes that print in Latin-1 stand for themselves, the other 68 for U+0100 onwards in rising
 * order (the table of GPT-2). Without merges every token is one byte, so encoding is a table
 * lookup, and no pre-tokeniser can change its result.
 *
 * What would change the result (a normaliser, a space put in front, merges, another model type) is
 * refused by name. Post-processors only add special tokens around a text; the chat template does
 * that here. */
#include "common/tokenizer.h"

#include "common/io.h"
#include "common/json.h"
#include "common/limits.h"
#include "common/mem.h"
#include "common/must.h"
#include "common/tokenizer_bytes.h"

#include <string.h>

enum { TOKENIZER_NONE = -1 };

struct tokenizer_special_row {
    char *text;
    int32_t id;
};

struct tokenizer {
    int32_t byte_ids[256];                  /* id of each byte */
    int16_t *id_bytes;                      /* (vocab) byte of an id; -1: special or unused */
    struct tokenizer_special_row *specials; /* (special_count) */
    size_t special_count;
    int64_t vocab; /* highest id + 1 */
};

void tokenizer_byte_text(int byte, char ret_text[TOKENIZER_BYTE_TEXT])
{
    must(byte >= 0 && byte < 256);
    int code = byte;
    bool itself = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    if (!itself) { /* 0-32, 127-160, 173, in this order */
        code = 256 + (byte <= 32 ? byte : byte <= 160 ? 33 + byte - 127 : 67);
    }
    if (code < 0x80) {
        ret_text[0] = (char)code;
        ret_text[1] = '\0';
        return;
    }
    ret_text[0] = (char)(0xc0 | (code >> 6));
    ret_text[1] = (char)(0x80 | (code & 0x3f));
    ret_text[2] = '\0';
}

void tokenizer_free(struct tokenizer *tokenizer)
{
    if (tokenizer == NULL)
        return;
    for (size_t i = 0; i < tokenizer->special_count; i++)
        mem_free(tokenizer->specials[i].text);
    mem_free(tokenizer->specials);
    mem_free(tokenizer->id_bytes);
    mem_free(tokenizer);
}

static void tokenizer_unref(struct tokenizer **tokenizer)
{
    tokenizer_free(*tokenizer);
}

static bool tokenizer_type_is(const json_t *value, const char *type)
{
    const json_t *found = json_object_get(value, "type");
    return json_is_string(found) && strcmp(json_string_value(found), type) == 0;
}

/* A part's "type", for messages. */
static const char *tokenizer_type_name(const json_t *value)
{
    const char *type = json_string_value(json_object_get(value, "type"));
    return type != NULL ? type : "(without a type)";
}

static bool tokenizer_is_null(const json_t *value)
{
    return value == NULL || json_is_null(value);
}

/* Refuses everything that would not be one byte, one token. */
static int tokenizer_check_kind(const json_t *json, struct err *err)
{
    const json_t *model = json_object_get(json, "model");
    if (!tokenizer_type_is(model, "BPE"))
        return err_set(err, ERR_MODEL, "model type \"%s\" is not served; served: BPE",
                       tokenizer_type_name(model));
    const json_t *merges = json_object_get(model, "merges");
    if (merges != NULL && (!json_is_array(merges) || json_array_size(merges) > 0))
        return err_set(err, ERR_MODEL,
                       "BPE with merges (%zu of them) is not served yet; served: a byte "
                       "tokenizer, BPE without merges",
                       json_array_size(merges));
    if (json_is_true(json_object_get(model, "byte_fallback")))
        return err_set(err, ERR_MODEL, "model.byte_fallback is not served");
    const json_t *normalizer = json_object_get(json, "normalizer");
    if (!tokenizer_is_null(normalizer))
        return err_set(err, ERR_MODEL, "normalizer \"%s\" is not served; served: null",
                       tokenizer_type_name(normalizer));
    const json_t *split = json_object_get(json, "pre_tokenizer");
    if (!tokenizer_type_is(split, "ByteLevel"))
        return err_set(err, ERR_MODEL, "pre_tokenizer \"%s\" is not served; served: ByteLevel",
                       tokenizer_type_name(split));
    if (!json_is_false(json_object_get(split, "add_prefix_space")))
        return err_set(err, ERR_MODEL, "pre_tokenizer.add_prefix_space must be false");
    return 0;
}

static int tokenizer_check_id(const json_t *id, const char *token, struct err *err)
{
    if (json_is_integer(id) && json_integer_value(id) >= 0 && json_integer_value(id) < LIMIT_VOCAB)
        return 0;
    return err_set(err, ERR_MODEL, "token \"%.64s\": its id must be 0 to %d", token,
                   LIMIT_VOCAB - 1);
}

static int tokenizer_read_specials(struct tokenizer *tokenizer, const json_t *added,
                                   struct err *err)
{
    if (!tokenizer_is_null(added) && !json_is_array(added))
        return err_set(err, ERR_MODEL, "\"added_tokens\" must be an array");
    size_t count = json_array_size(added);
    tokenizer->specials = mem_new(count, sizeof *tokenizer->specials);
    if (tokenizer->specials == NULL)
        return mem_fail(err, count * sizeof *tokenizer->specials, "special tokens");
    for (size_t i = 0; i < count; i++) {
        const json_t *row = json_array_get(added, i);
        const char *text = NULL;
        TRY(json_get_string(row, "content", ERR_MODEL, &text, err));
        const json_t *id = json_object_get(row, "id");
        TRY(tokenizer_check_id(id, text, err));
        struct tokenizer_special_row *special = &tokenizer->specials[i];
        special->id = (int32_t)json_integer_value(id);
        special->text = mem_strdup(text);
        if (special->text == NULL)
            return mem_fail(err, strlen(text), "a special token");
        tokenizer->special_count++;
        if (special->id >= tokenizer->vocab)
            tokenizer->vocab = special->id + 1;
    }
    return 0;
}

static int tokenizer_read_bytes(struct tokenizer *tokenizer, const json_t *vocab, struct err *err)
{
    if (!json_is_object(vocab))
        return err_set(err, ERR_MODEL, "\"model.vocab\" must be an object");
    for (int byte = 0; byte < 256; byte++) {
        char text[TOKENIZER_BYTE_TEXT];
        tokenizer_byte_text(byte, text);
        const json_t *id = json_object_get(vocab, text);
        if (id == NULL)
            return err_set(err, ERR_MODEL, "model.vocab has no token \"%s\" for byte %d", text,
                           byte);
        TRY(tokenizer_check_id(id, text, err));
        tokenizer->byte_ids[byte] = (int32_t)json_integer_value(id);
        if (tokenizer->byte_ids[byte] >= tokenizer->vocab)
            tokenizer->vocab = tokenizer->byte_ids[byte] + 1;
    }
    size_t others = json_object_size(vocab) - 256; /* special tokens may stand here too */
    for (size_t i = 0; i < tokenizer->special_count; i++) {
        const json_t *id = json_object_get(vocab, tokenizer->specials[i].text);
        if (id == NULL)
            continue;
        others--;
        if (json_integer_value(id) != tokenizer->specials[i].id)
            return err_set(err, ERR_MODEL, "token \"%.64s\" has two ids",
                           tokenizer->specials[i].text);
    }
    if (others != 0)
        return err_set(err, ERR_MODEL,
                       "model.vocab has %zu tokens that are neither a byte nor in added_tokens; "
                       "without merges they are never used",
                       others);
    return 0;
}

/* id -> byte; also where two tokens with one id show. */
static int tokenizer_index(struct tokenizer *tokenizer, struct err *err)
{
    size_t count = (size_t)tokenizer->vocab;
    tokenizer->id_bytes = mem_new(count, sizeof *tokenizer->id_bytes);
    CLEANUP(mem_free_ptr) uint8_t *used = mem_new(count, 1);
    if (tokenizer->id_bytes == NULL || used == NULL)
        return mem_fail(err, count * 3, "a vocabulary");
    for (size_t id = 0; id < count; id++)
        tokenizer->id_bytes[id] = TOKENIZER_NONE;
    for (size_t i = 0; i < 256 + tokenizer->special_count; i++) {
        int32_t id = i < 256 ? tokenizer->byte_ids[i] : tokenizer->specials[i - 256].id;
        if (used[id]++ != 0)
            return err_set(err, ERR_MODEL, "two tokens have the id %d", id);
        if (i < 256)
            tokenizer->id_bytes[id] = (int16_t)i;
    }
    return 0;
}

static int tokenizer_read(struct tokenizer *tokenizer, const json_t *json, struct err *err)
{
    if (!json_is_object(json))
        return err_set(err, ERR_MODEL, "not a JSON object");
    TRY(tokenizer_check_kind(json, err));
    TRY(tokenizer_read_specials(tokenizer, json_object_get(json, "added_tokens"), err));
    const json_t *model = json_object_get(json, "model");
    TRY(tokenizer_read_bytes(tokenizer, json_object_get(model, "vocab"), err));
    return tokenizer_index(tokenizer, err);
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
    return tokenizer->vocab;
}

int tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t length,
                     int32_t *ids, int64_t capacity, int64_t *count, struct err *err)
{
    must(*count >= 0 && *count <= capacity);
    if ((uint64_t)(capacity - *count) < length)
        return err_set(err, ERR_TOO_LARGE, "a text of %zu bytes does not fit in %lld tokens",
                       length, (long long)(capacity - *count));
    for (size_t i = 0; i < length; i++)
        ids[*count + (int64_t)i] = tokenizer->byte_ids[(unsigned char)text[i]];
    *count += (int64_t)length;
    return 0;
}

int tokenizer_decode(const struct tokenizer *tokenizer, const int32_t *ids, int64_t count,
                     struct buf *out, struct err *err)
{
    for (int64_t i = 0; i < count; i++) {
        if (ids[i] < 0 || ids[i] >= tokenizer->vocab)
            return err_set(err, ERR_DATA, "token id %d is not below the vocabulary's %lld", ids[i],
                           (long long)tokenizer->vocab);
        int16_t byte = tokenizer->id_bytes[ids[i]];
        if (byte != TOKENIZER_NONE)
            buf_char(out, (char)byte);
    }
    return buf_error(out, err);
}

int32_t tokenizer_special(const struct tokenizer *tokenizer, const char *text)
{
    for (size_t i = 0; i < tokenizer->special_count; i++)
        if (strcmp(tokenizer->specials[i].text, text) == 0)
            return tokenizer->specials[i].id;
    return TOKENIZER_NONE;
}

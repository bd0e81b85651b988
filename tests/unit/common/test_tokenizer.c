/* tokenizer: the built-in files, every byte there and back, refusals by name. */
#include "common/tokenizer.h"

#include "common/io.h"
#include "common/json.h"
#include "common/limits.h"
#include "common/mem.h"
#include "tests/lib/folder.h"

#include <string.h>

static char *path;
static json_t *good; /* the built-in tokenizer.json */

static int setup(void **state)
{
    struct err err;
    if (folder_open(state) != 0 || tokenizer_write_builtin(folder, &err) != 0)
        return -1;
    path = io_join(folder, "tokenizer.json");
    return json_parse_file(path, LIMIT_TOKENIZER_BYTES, &good, &err);
}

static int teardown(void **state)
{
    mem_free(path);
    json_decref(good);
    return folder_close(state);
}

/* Encodes bytes as one piece; the list is the caller's. */
static int encode(const struct tokenizer *tokenizer, const char *bytes, size_t length,
                  struct tokens *tokens, struct err *err)
{
    struct tokenizer_encoder *encoder = NULL;
    struct tokenizer_text text;
    tokenizer_text_init(&text);
    tokenizer_text_add(&text, bytes, length, true);
    int rc = tokenizer_encoder_new(tokenizer, &encoder, err);
    if (rc == 0)
        rc = tokenizer_encode(encoder, &text, tokens, err);
    tokenizer_encoder_free(encoder);
    tokenizer_text_done(&text);
    return rc;
}

static void test_builtin(void **state)
{
    struct err err;
    struct tokenizer *tokenizer = NULL;
    assert_int_equal(tokenizer_load(folder, &tokenizer, &err), 0);
    assert_int_equal(tokenizer_vocab(tokenizer), 264);
    assert_int_equal(tokenizer_special(tokenizer, "<|begin|>"), 256);
    assert_int_equal(tokenizer_special(tokenizer, "<|user|>"), 257);
    assert_int_equal(tokenizer_special(tokenizer, "<|assistant|>"), 258);
    assert_int_equal(tokenizer_special(tokenizer, "<|system|>"), 259);
    assert_int_equal(tokenizer_special(tokenizer, "<|end|>"), 260);
    assert_int_equal(tokenizer_special(tokenizer, "<|pad|>"), 261);
    assert_int_equal(tokenizer_special(tokenizer, "<|other|>"), -1);
    char bytes[256];
    struct tokens tokens = {0};
    for (int i = 0; i < 256; i++)
        bytes[i] = (char)i;
    assert_int_equal(encode(tokenizer, bytes, 256, &tokens, &err), 0);
    assert_int_equal(tokens.count, 256);
    for (int i = 0; i < 256; i++) {
        assert_int_equal(tokens.ids[i], i);
        assert_int_equal(tokens.trained[i], 1);
    }
    for (int i = 256; i < 264; i++) /* special tokens are skipped */
        assert_int_equal(tokens_push(&tokens, i, false, &err), 0);
    int32_t *ids = tokens.ids;
    struct buf out;
    buf_init(&out, 1000);
    assert_int_equal(tokenizer_decode(tokenizer, ids, tokens.count, &out, &err), 0);
    assert_int_equal(out.length, 256);
    assert_memory_equal(buf_str(&out), bytes, 256);
    ids[0] = 264;
    assert_int_equal(tokenizer_decode(tokenizer, ids, 1, &out, &err), -ERR_DATA);
    ids[0] = -1;
    assert_int_equal(tokenizer_decode(tokenizer, ids, 1, &out, &err), -ERR_DATA);
    buf_done(&out);
    tokens_done(&tokens);
    tokenizer_free(tokenizer);
}

static void test_special_text_stays_text(void **state)
{
    struct err err;
    struct tokenizer *tokenizer = NULL;
    assert_int_equal(tokenizer_load(folder, &tokenizer, &err), 0);
    struct tokens tokens = {0};
    assert_int_equal(encode(tokenizer, "<|end|>", 7, &tokens, &err), 0);
    assert_int_equal(tokens.count, 7);
    assert_int_equal(tokens.ids[0], '<');
    tokens_done(&tokens);
    tokenizer_free(tokenizer);
}

/* What the writer of byte-level vocabularies agrees on. */
static void test_spelling(void **state)
{
    const json_t *vocab = json_object_get(json_object_get(good, "model"), "vocab");
    assert_int_equal(json_object_size(vocab), 256);
    static const struct {
        const char *text;
        int byte;
    } known[] = {
        {"!", 33},         {"A", 65},         {"~", 126},        {"\xc4\xa0", 32}, /* U+0120 */
        {"\xc4\x8a", 10},                                                          /* U+010A */
        {"\xc4\x80", 0},   {"\xc4\xa1", 127}, {"\xc2\xa1", 161}, {"\xc2\xae", 174},
        {"\xc3\xbf", 255}, {"\xc5\x83", 173}, /* U+0143 */
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        assert_int_equal(json_integer_value(json_object_get(vocab, known[i].text)), known[i].byte);
}

/* Sets `value` at a dotted path of a copy of the good file, writes it and loads it. */
static int load_patched(const char *dotted, const char *value, struct err *err)
{
    json_t *copy = json_deep_copy(good);
    json_t *at = copy;
    char key[64];
    for (;;) {
        size_t length = strcspn(dotted, ".");
        memcpy(key, dotted, length);
        key[length] = '\0';
        if (dotted[length] == '\0')
            break;
        at = json_object_get(at, key);
        dotted += length + 1;
    }
    json_t *parsed = NULL;
    assert_int_equal(json_parse(value, strlen(value), "value", &parsed, err), 0);
    assert_int_equal(json_object_set_new(at, key, parsed), 0);
    assert_int_equal(json_write_file(path, copy, 0644, err), 0);
    json_decref(copy);
    struct tokenizer *tokenizer = NULL;
    *err = (struct err){0};
    int rc = tokenizer_load(folder, &tokenizer, err);
    tokenizer_free(tokenizer);
    return rc;
}

#define SPLIT(regex, behavior, use_regex)                                                   \
    "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":" \
    "\"" regex "\"},\"behavior\":\"" behavior                                               \
    "\",\"invert\":false},{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_"        \
    "regex\":" use_regex "}]}"

static void test_refusals(void **state)
{
    static const struct {
        const char *at;
        const char *value;
        const char *word;
    } cases[] = {
        {"model.merges", "[\"a b\"]", "merges[0]"}, /* ab is no token */
        {"model.merges", "[[\"a\",\"b\"]]", "merges[0]"},
        {"model.merges", "[\"ab\"]", "merges[0]"},
        {"model.merges", "[\"a b c\"]", "merges[0]"},
        {"model.merges", "[[\"a\"]]", "merges[0]"},
        {"model.merges", "[[\"a\",1]]", "merges[0]"},
        {"model.merges", "{}", "merges"},
        {"model.dropout", "0.1", "dropout"},
        {"model.end_of_word_suffix", "\"</w>\"", "end_of_word_suffix"},
        {"model.type", "\"Unigram\"", "Unigram"},
        {"model.byte_fallback", "true", "byte_fallback"},
        {"normalizer", "{\"type\":\"NFKC\"}", "NFKC"},
        {"normalizer", "{\"type\":\"Sequence\",\"normalizers\":[]}", "Sequence"},
        {"pre_tokenizer", "{\"type\":\"Metaspace\"}", "Metaspace"},
        {"pre_tokenizer", "{\"type\":\"Sequence\"}", "Sequence"},
        {"pre_tokenizer", SPLIT("\\\\w+", "Isolated", "false"), "\\w+"},
        {"pre_tokenizer", SPLIT("x", "Removed", "false"), "Isolated"},
        {"pre_tokenizer", SPLIT("x", "Isolated", "true"), "use_regex"},
        {"pre_tokenizer", "null", "ByteLevel"},
        {"pre_tokenizer.add_prefix_space", "true", "add_prefix_space"},
        {"added_tokens", "{}", "added_tokens"},
        {"added_tokens", "[{\"id\":1}]", "content"},
        {"added_tokens", "[{\"id\":-1,\"content\":\"x\"}]", "id"},
        {"added_tokens", "[{\"id\":99999999,\"content\":\"x\"}]", "id"},
        {"added_tokens", "[{\"id\":65,\"content\":\"<x>\"}]", "65"},
        {"added_tokens", "[{\"id\":300,\"content\":\"\"}]", "without text"},
        {"added_tokens", "[{\"id\":300,\"content\":\"<x>\",\"single_word\":true}]", "single_word"},
        {"model.vocab", "[]", "vocab"},
        {"model.vocab", "{\"!\":1}", "byte 0"},
        {"model.vocab.A", "66", "two tokens"},
        {"model.vocab.A", "\"66\"", "id"},
        {"model", "[]", "model"},
    };
    struct err err;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (load_patched(cases[i].at, cases[i].value, &err) != -ERR_MODEL)
            fail_msg("accepted: %s = %s", cases[i].at, cases[i].value);
        if (strstr(err.text, cases[i].word) == NULL || strstr(err.text, path) == NULL)
            fail_msg("%s: \"%s\" lacks %s", cases[i].at, err.text, cases[i].word);
    }
    assert_int_equal(load_patched("model.vocab.<|pad|>", "261", &err), 0); /* in both places */
    assert_int_equal(load_patched("post_processor", "{\"type\":\"TemplateProcessing\"}", &err), 0);
    assert_int_equal(io_write_file(path, "{", 1, 0644, &err), 0);
    struct tokenizer *tokenizer = NULL;
    assert_int_equal(tokenizer_load(folder, &tokenizer, &err), -ERR_MODEL);
    assert_int_equal(json_write_file(path, good, 0644, &err), 0);
}

/* A small vocabulary of our own: "ab" (300) before "bc" (301), "abc" (302) of ab and c; an added
 * token that takes the spaces about it, one in normalised text. */
static int load_small(struct tokenizer **ret, bool ignore_merges, struct err *err)
{
    json_t *copy = json_deep_copy(good);
    json_t *model = json_object_get(copy, "model");
    json_t *vocab = json_object_get(model, "vocab");
    static const char *const words[] = {"ab", "bc", "abc", "xyz"};
    for (int i = 0; i < 4; i++)
        assert_int_equal(json_object_set_new(vocab, words[i], json_integer(300 + i)), 0);
    static const char *const merges[] = {"a b", "b c", "ab c"};
    for (int i = 0; i < 3; i++)
        assert_int_equal(
            json_array_append_new(json_object_get(model, "merges"), json_string(merges[i])), 0);
    assert_int_equal(json_object_set_new(model, "ignore_merges", json_boolean(ignore_merges)), 0);
    json_t *added = json_object_get(copy, "added_tokens");
    static const struct {
        int id, strip, normalized;
        const char *content;
    } rows[] = {{310, 1, 0, "<s>"}, {311, 0, 0, "<st>"}, {312, 0, 1, "cafe\u0301"}};
    for (int i = 0; i < 3; i++)
        assert_int_equal(
            json_array_append_new(added, json_pack("{s:i, s:s, s:b, s:b, s:b}", "id", rows[i].id,
                                                   "content", rows[i].content, "lstrip",
                                                   rows[i].strip, "rstrip", rows[i].strip,
                                                   "normalized", rows[i].normalized)),
            0);
    assert_int_equal(json_object_set_new(copy, "normalizer", json_pack("{s:s}", "type", "NFC")), 0);
    assert_int_equal(
        json_object_set_new(copy, "pre_tokenizer",
                            json_pack("{s:s, s:b}", "type", "ByteLevel", "add_prefix_space", 0)),
        0);
    assert_int_equal(json_write_file(path, copy, 0644, err), 0);
    json_decref(copy);
    int rc = tokenizer_load(folder, ret, err);
    struct err ignored;
    assert_int_equal(json_write_file(path, good, 0644, &ignored), 0);
    return rc;
}

static void expect(const struct tokenizer *tokenizer, const char *text, const int32_t *ids,
                   int64_t count)
{
    struct err err;
    struct tokens tokens = {0};
    MUST_WORK(encode(tokenizer, text, strlen(text), &tokens, &err), &err);
    assert_int_equal(tokens.count, count);
    assert_memory_equal(tokens.ids, ids, (size_t)count * sizeof *ids);
    tokens_done(&tokens);
}
#define EXPECT(tokenizer, text, ...)                        \
    expect(tokenizer, text, (const int32_t[]){__VA_ARGS__}, \
           (int64_t)(sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t)))

static void test_merges(void **state)
{
    struct err err = {0};
    struct tokenizer *tokenizer = NULL;
    MUST_WORK(load_small(&tokenizer, false, &err), &err);
    EXPECT(tokenizer, "abc", 302);
    EXPECT(tokenizer, "bcab", 301, 300);
    EXPECT(tokenizer, "aabcc", 'a', 302, 'c');
    EXPECT(tokenizer, "xyz", 'x', 'y', 'z'); /* a token that no merge makes */
    EXPECT(tokenizer, "ab ab", 300, ' ', 300);
    char long_word[201]; /* beyond the array of short words */
    int32_t want[100];
    for (int i = 0; i < 100; i++) {
        memcpy(long_word + 2 * i, "ab", 3);
        want[i] = 300;
    }
    expect(tokenizer, long_word, want, 100);
    tokenizer_free(tokenizer);
    assert_int_equal(load_small(&tokenizer, true, &err), 0);
    EXPECT(tokenizer, "xyz", 303);
    EXPECT(tokenizer, "xyzx", 'x', 'y', 'z', 'x');
    tokenizer_free(tokenizer);
}

static void test_added_tokens(void **state)
{
    struct err err = {0};
    struct tokenizer *tokenizer = NULL;
    assert_int_equal(load_small(&tokenizer, false, &err), 0);
    EXPECT(tokenizer, "a \xc2\xa0<s>\n b", 'a', 310, 'b'); /* with the white space about it */
    EXPECT(tokenizer, "<s><s>", 310, 310);
    EXPECT(tokenizer, "  <s>  ", 310);
    EXPECT(tokenizer, "<st>", 311); /* the longest */
    EXPECT(tokenizer, " <st> ", ' ', 311, ' ');
    EXPECT(tokenizer, "<s", '<', 's');
    EXPECT(tokenizer, "caf\xc3\xa9", 312); /* both spellings, once normalised */
    EXPECT(tokenizer, "cafe\xcc\x81", 312);
    EXPECT(tokenizer, "<|end|>", '<', '|', 'e', 'n', 'd', '|', '>');
    const int32_t ids[] = {302, 311, 260, 312};
    struct buf out;
    buf_init(&out, 100);
    assert_int_equal(tokenizer_decode(tokenizer, ids, 4, &out, &err), 0);
    assert_string_equal(buf_str(&out), "abc<st>caf\xc3\xa9"); /* 260 is special */
    buf_done(&out);
    tokenizer_free(tokenizer);
}

/* Pieces keep their flags through normalising and merging. */
static void test_pieces(void **state)
{
    struct err err = {0};
    struct tokenizer *tokenizer = NULL;
    struct tokenizer_encoder *encoder = NULL;
    struct tokenizer_text text;
    struct tokens tokens = {0};
    assert_int_equal(load_small(&tokenizer, false, &err), 0);
    assert_int_equal(tokenizer_encoder_new(tokenizer, &encoder, &err), 0);
    tokenizer_text_init(&text);
    tokenizer_text_add(&text, "e\xcc\x81 a", 5, false);
    tokenizer_text_add(&text, "", 0, true);
    tokenizer_text_add(&text, "b", 1, true); /* "ab" begins in the piece before */
    tokenizer_text_add(&text, " ", 1, true);
    tokenizer_text_add(&text, "x", 1, false);
    assert_int_equal(text.count, 3);
    assert_int_equal(tokenizer_encode(encoder, &text, &tokens, &err), 0);
    static const int32_t ids[] = {0xc3, 0xa9, ' ', 300, ' ', 'x'};
    static const uint8_t trained[] = {0, 0, 0, 0, 1, 0};
    assert_int_equal(tokens.count, 6);
    assert_memory_equal(tokens.ids, ids, sizeof ids);
    assert_memory_equal(tokens.trained, trained, sizeof trained);
    tokenizer_text_clear(&text);
    assert_int_equal(tokenizer_encode(encoder, &text, &tokens, &err), 0); /* nothing is added */
    assert_int_equal(tokens.count, 6);
    tokenizer_text_done(&text);
    tokens_done(&tokens);
    tokenizer_encoder_free(encoder);
    tokenizer_free(tokenizer);
}

static void test_allocation_failures(void **state)
{
    int64_t before = mem_live();
    for (int n = 1;; n++) {
        struct tokenizer *tokenizer = NULL;
        struct err err = {0};
        struct tokens tokens = {0};
        mem_fault_after(n);
        int rc = tokenizer_load(folder, &tokenizer, &err);
        if (rc == 0)
            rc = encode(tokenizer, "text", 4, &tokens, &err);
        assert_int_equal(mem_fault_after(0), rc != 0);
        tokens_done(&tokens);
        tokenizer_free(tokenizer);
        assert_int_equal(mem_live(), before);
        if (rc == 0)
            break;
        assert_int_equal(rc, -ERR_NOMEM);
        assert_true(n < 100);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_builtin),      cmocka_unit_test(test_special_text_stays_text),
        cmocka_unit_test(test_spelling),     cmocka_unit_test(test_merges),
        cmocka_unit_test(test_added_tokens), cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_refusals),     cmocka_unit_test(test_allocation_failures),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

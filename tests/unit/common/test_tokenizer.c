/* tokenizer: the built-in files, every byte there and back, refusals by name. */
#include "common/tokenizer.h"

#include "common/io.h"
#include "common/json.h"
#include "common/limits.h"
#include "common/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char folder[64];
static char *path;
static json_t *good; /* the built-in tokenizer.json */

static int setup(void **state)
{
    (void)state;
    struct err err;
    (void)snprintf(folder, sizeof folder, "/tmp/test_tokenizer.XXXXXX");
    if (mkdtemp(folder) == NULL || tokenizer_write_builtin(folder, &err) != 0)
        return -1;
    path = io_join(folder, "tokenizer.json");
    return json_parse_file(path, LIMIT_TOKENIZER_BYTES, &good, &err);
}

static int teardown(void **state)
{
    (void)state;
    struct err err;
    mem_free(path);
    json_decref(good);
    return io_remove_tree(folder, &err);
}

static void test_builtin(void **state)
{
    (void)state;
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
    int32_t ids[264];
    int64_t count = 0;
    for (int i = 0; i < 256; i++)
        bytes[i] = (char)i;
    assert_int_equal(tokenizer_encode(tokenizer, bytes, 256, ids, 264, &count, &err), 0);
    assert_int_equal(count, 256);
    for (int i = 0; i < 256; i++)
        assert_int_equal(ids[i], i);
    for (int i = 256; i < 264; i++)
        ids[count++] = i; /* special tokens are skipped */
    struct buf out;
    buf_init(&out, 1000);
    assert_int_equal(tokenizer_decode(tokenizer, ids, count, &out, &err), 0);
    assert_int_equal(out.length, 256);
    assert_memory_equal(buf_str(&out), bytes, 256);
    ids[0] = 264;
    assert_int_equal(tokenizer_decode(tokenizer, ids, 1, &out, &err), -ERR_DATA);
    ids[0] = -1;
    assert_int_equal(tokenizer_decode(tokenizer, ids, 1, &out, &err), -ERR_DATA);
    buf_done(&out);
    tokenizer_free(tokenizer);
}

static void test_special_text_stays_text(void **state)
{
    (void)state;
    struct err err;
    struct tokenizer *tokenizer = NULL;
    assert_int_equal(tokenizer_load(folder, &tokenizer, &err), 0);
    int32_t ids[8];
    int64_t count = 1;
    assert_int_equal(tokenizer_encode(tokenizer, "<|end|>", 7, ids, 8, &count, &err), 0);
    assert_int_equal(count, 8);
    assert_int_equal(ids[1], '<');
    count = 2;
    assert_int_equal(tokenizer_encode(tokenizer, "<|end|>", 7, ids, 8, &count, &err),
                     -ERR_TOO_LARGE);
    assert_int_equal(count, 2);
    tokenizer_free(tokenizer);
}

/* What the writer of byte-level vocabularies agrees on. */
static void test_spelling(void **state)
{
    (void)state;
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

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *at;
        const char *value;
        const char *word;
    } cases[] = {
        {"model.merges", "[\"a b\"]", "merges"},
        {"model.merges", "[[\"a\",\"b\"]]", "merges"},
        {"model.type", "\"Unigram\"", "Unigram"},
        {"model.byte_fallback", "true", "byte_fallback"},
        {"normalizer", "{\"type\":\"NFC\"}", "NFC"},
        {"pre_tokenizer", "{\"type\":\"Sequence\"}", "Sequence"},
        {"pre_tokenizer", "null", "ByteLevel"},
        {"pre_tokenizer.add_prefix_space", "true", "add_prefix_space"},
        {"added_tokens", "{}", "added_tokens"},
        {"added_tokens", "[{\"id\":1}]", "content"},
        {"added_tokens", "[{\"id\":-1,\"content\":\"x\"}]", "id"},
        {"added_tokens", "[{\"id\":99999999,\"content\":\"x\"}]", "id"},
        {"added_tokens", "[{\"id\":65,\"content\":\"<x>\"}]", "65"},
        {"model.vocab", "[]", "vocab"},
        {"model.vocab", "{\"!\":1}", "byte 0"},
        {"model.vocab.A", "66", "two tokens"},
        {"model.vocab.A", "\"66\"", "id"},
        {"model.vocab.AB", "300", "neither"},
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

static void test_allocation_failures(void **state)
{
    (void)state;
    int64_t before = mem_live();
    for (int n = 1;; n++) {
        struct tokenizer *tokenizer = NULL;
        struct err err = {0};
        mem_fault_after(n);
        int rc = tokenizer_load(folder, &tokenizer, &err);
        mem_fault_after(0);
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
        cmocka_unit_test(test_builtin),
        cmocka_unit_test(test_special_text_stays_text),
        cmocka_unit_test(test_spelling),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_allocation_failures),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

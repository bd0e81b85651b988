/* tokenizer_bpe: words of three letters under random merges, against byte-pair encoding by its
 * definition: as long as there is one, the pair of the lowest rank is joined, the leftmost first.
 * Words are short and long, for these go different ways. */
#include "common/io.h"
#include "common/json.h"
#include "common/mem.h"
#include "common/rng.h"
#include "common/tokenizer.h"
#include "common/tokens.h"
#include "tests/lib/cmocka.h"
#include "tests/lib/testing.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LETTERS = 3, MERGES = 80, TOKENS = LETTERS + MERGES, LONGEST = 24, WORD = 400, BYTES = 256 };

struct vocabulary {
    char words[TOKENS][LONGEST + 1];
    int32_t ids[TOKENS];
    int count;
    int left[MERGES], right[MERGES], made[MERGES]; /* by rank; places in `words` */
};

static char folder[64];

static int setup(void **state)
{
    (void)snprintf(folder, sizeof folder, "/tmp/test_tokenizer_bpe.XXXXXX");
    return mkdtemp(folder) == NULL ? -1 : 0;
}

static int teardown(void **state)
{
    struct err err;
    return io_remove_tree(folder, &err);
}

static int find(const struct vocabulary *v, const char *word)
{
    int i = 0;
    while (i < v->count && strcmp(v->words[i], word) != 0)
        i++;
    return i;
}

/* The merge of a pair, or MERGES. */
static int rank_of(const struct vocabulary *v, int merges, int left, int right)
{
    int rank = 0;
    while (rank < merges && (v->left[rank] != left || v->right[rank] != right))
        rank++;
    return rank < merges ? rank : MERGES;
}

/* Letters, and merges of what is there; some make a word that another has made. */
static void draw(uint64_t round, struct vocabulary *ret)
{
    memset(ret, 0, sizeof *ret);
    for (ret->count = 0; ret->count < LETTERS; ret->count++)
        ret->words[ret->count][0] = (char)('a' + ret->count);
    uint64_t drawn = round * 100000;
    for (int rank = 0; rank < MERGES;) {
        int left = (int)rng_below(testing_seed(), RNG_STREAM_TEST, drawn++, (uint64_t)ret->count);
        int right = (int)rng_below(testing_seed(), RNG_STREAM_TEST, drawn++, (uint64_t)ret->count);
        char word[2 * LONGEST + 1];
        (void)snprintf(word, sizeof word, "%s%s", ret->words[left], ret->words[right]);
        if (strlen(word) > LONGEST || rank_of(ret, rank, left, right) < MERGES)
            continue;
        int made = find(ret, word);
        if (made == ret->count) {
            memcpy(ret->words[made], word, strlen(word) + 1);
            ret->ids[made] = BYTES + made - LETTERS;
            ret->count++;
        }
        ret->left[rank] = left;
        ret->right[rank] = right;
        ret->made[rank++] = made;
    }
}

/* A byte-level tokenizer.json with these merges; all of a text is one word. */
static struct tokenizer *load(struct vocabulary *v)
{
    struct err err;
    struct tokenizer *tokenizer = NULL;
    json_t *json = NULL;
    CLEANUP(mem_free_ptr)
    char *base = mem_printf("%s/tests/fixtures/qwen3/tokenizer.json", getenv("ITHACA_SOURCE_DIR"));
    CLEANUP(mem_free_ptr) char *path = io_join(folder, "tokenizer.json");
    assert_int_equal(json_parse_own_file(base, 1 << 20, &json, &err), 0);
    json_t *model = json_object_get(json, "model"), *vocab = json_object_get(model, "vocab");
    json_t *merges = json_array();
    const char *word;
    json_t *id;
    void *next;
    json_object_foreach_safe(vocab, next, word, id)
    {
        if (json_integer_value(id) >= BYTES)
            (void)json_object_del(vocab, word);
    }
    for (int i = 0; i < v->count; i++) {
        if (i < LETTERS)
            v->ids[i] = (int32_t)json_integer_value(json_object_get(vocab, v->words[i]));
        else
            (void)json_object_set_new(vocab, v->words[i], json_integer(v->ids[i]));
    }
    for (int rank = 0; rank < MERGES; rank++)
        (void)json_array_append_new(
            merges, json_pack("[s,s]", v->words[v->left[rank]], v->words[v->right[rank]]));
    (void)json_object_set_new(model, "merges", merges);
    (void)json_object_set_new(json, "added_tokens", json_array());
    (void)json_object_set_new(json, "normalizer", json_null());
    (void)json_object_set_new(json, "pre_tokenizer",
                              json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel",
                                        "add_prefix_space", 0, "trim_offsets", 0, "use_regex", 0));
    assert_int_equal(json_write_file(path, json, 0600, &err), 0);
    if (tokenizer_load(folder, &tokenizer, &err) != 0)
        fail_msg("%s", err.text);
    json_decref(json);
    return tokenizer;
}

/* By the definition; returns how many tokens. */
static int reference(const struct vocabulary *v, const char *text, int length, int *ret)
{
    int count = length;
    for (int i = 0; i < length; i++)
        ret[i] = text[i] - 'a';
    for (;;) {
        int best = MERGES, at = 0;
        for (int i = 0; i + 1 < count; i++) {
            int rank = rank_of(v, MERGES, ret[i], ret[i + 1]);
            if (rank < best) {
                best = rank;
                at = i;
            }
        }
        if (best == MERGES)
            return count;
        ret[at] = v->made[best];
        memmove(ret + at + 1, ret + at + 2, (size_t)(count - at - 2) * sizeof *ret);
        count--;
    }
}

static void check(const struct vocabulary *v, struct tokenizer_encoder *encoder, const char *text,
                  int length)
{
    struct err err;
    struct tokens tokens = {0};
    struct tokenizer_text piece;
    int want[WORD];
    tokenizer_text_init(&piece);
    tokenizer_text_add(&piece, text, (size_t)length, true);
    assert_int_equal(tokenizer_encode(encoder, &piece, &tokens, &err), 0);
    int count = reference(v, text, length, want);
    bool same = tokens.count == count;
    for (int i = 0; same && i < count; i++)
        same = tokens.ids[i] == v->ids[want[i]];
    if (!same)
        fail_msg("%.*s: other tokens, ITHACA_TEST_SEED=%" PRIu64, length, text, testing_seed());
    tokenizer_text_done(&piece);
    tokens_done(&tokens);
}

static void test_random_merges(void **state)
{
    enum { ROUNDS = 10, WORDS = 60 };
    struct err err;
    for (uint64_t round = 0; round < ROUNDS; round++) {
        struct vocabulary v;
        struct tokenizer_encoder *encoder = NULL;
        draw(round, &v);
        struct tokenizer *tokenizer = load(&v);
        assert_int_equal(tokenizer_encoder_new(tokenizer, &encoder, &err), 0);
        for (uint64_t w = 0; w < WORDS; w++) {
            char text[WORD];
            int length = w < WORDS / 2 ? 1 + (int)w * 2 : 1 + (int)w * (WORD / WORDS);
            for (int i = 0; i < length; i++)
                text[i] =
                    (char)('a' + rng_below(testing_seed(), RNG_STREAM_TEST + 1,
                                           (round * WORDS + w) * WORD + (uint64_t)i, LETTERS));
            check(&v, encoder, text, length);
        }
        for (int i = 0; i < v.count; i++) /* each word of the vocabulary by itself */
            check(&v, encoder, v.words[i], (int)strlen(v.words[i]));
        tokenizer_encoder_free(encoder);
        tokenizer_free(tokenizer);
    }
    assert_int_equal(mem_live(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_merges)};
    return cmocka_run_group_tests(tests, setup, teardown);
}

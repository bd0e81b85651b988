/* dataset_prepare, what becomes of rows longer than seq_len: of every token of every row it is
 * known where it is, or that it was counted as not used. Held against the rows as they are whole,
 * for random rows and lengths. */
#include "tests/lib/dataset_scene.h"

#include "common/rng.h"

enum { ROUNDS = 120, ROWS_MAX = 12, BYTES_MAX = 90, WHOLE = 1 << 20 };
static const uint64_t seed = 2026;
static uint64_t drawn;

static int64_t draw(int64_t below)
{
    return (int64_t)rng_below(seed, RNG_STREAM_TEST, drawn++, (uint64_t)below);
}

static void put_word(struct buf *text)
{
    for (int64_t i = 1 + draw(BYTES_MAX); i > 0; i--)
        buf_char(text, (char)('a' + draw(26)));
}

/* A document, or a conversation of which some answers are trained: the last one is. */
static void put_row(struct buf *text)
{
    if (draw(2) == 0) {
        buf_text(text, "{\"text\":\"");
        put_word(text);
        buf_text(text, "\"}\n");
        return;
    }
    buf_text(text, "{\"messages\":[");
    for (int64_t turns = draw(4); turns > 0; turns--) {
        buf_text(text, "{\"role\":\"user\",\"content\":\"");
        put_word(text);
        buf_printf(text, "\"},{\"role\":\"assistant\",\"weight\":%d,\"content\":\"", (int)draw(2));
        put_word(text);
        buf_text(text, "\"},");
    }
    buf_text(text, "{\"role\":\"assistant\",\"content\":\"");
    put_word(text);
    buf_text(text, "\"}]}\n");
}

/* The rows as they are, copied out of the shard. */
struct whole {
    struct tokens tokens;
    int64_t ends[ROWS_MAX]; /* of the rows, in tokens */
    int64_t rows;
};

static void take_whole(struct whole *whole)
{
    struct err err = {0};
    *whole = (struct whole){.rows = dataset.examples};
    for (int64_t t = 0; t < dataset.tokens; t++)
        MUST_WORK(tokens_push(&whole->tokens, dataset.ids[t], dataset.trained[t] != 0, &err), &err);
    memcpy(whole->ends, dataset.offsets + 1, (size_t)dataset.examples * sizeof *whole->ends);
}

/* What a piece of a row becomes: the next example, its first token untrained, or nothing, where it
 * has no token to train on. */
static bool expect_piece(const struct whole *whole, int64_t start, int64_t count, int64_t example)
{
    int64_t trained = 0;
    for (int64_t t = 1; t < count; t++)
        trained += whole->tokens.trained[start + t];
    if (trained == 0)
        return false;
    assert_true(example < dataset.examples);
    int64_t at = dataset.offsets[example];
    assert_int_equal(dataset.offsets[example + 1] - at, count);
    assert_memory_equal(dataset.ids + at, whole->tokens.ids + start, (size_t)count * 4);
    assert_int_equal(dataset.trained[at], 0);
    assert_memory_equal(dataset.trained + at + 1, whole->tokens.trained + start + 1,
                        (size_t)count - 1);
    return true;
}

static void expect_pieces(const struct whole *whole)
{
    int64_t example = 0, start = 0, cut = 0, kept = 0;
    for (int64_t row = 0; row < whole->rows; start = whole->ends[row++]) {
        int64_t before = example;
        for (int64_t at = start; at < whole->ends[row]; at += request.seq_len) {
            int64_t left = whole->ends[row] - at;
            bool dropped = at > start && request.overlength == JOB_overlength_CUT;
            if (!dropped && left > request.seq_len)
                left = request.seq_len;
            if (!dropped && expect_piece(whole, at, left, example))
                example++;
            else
                cut += left;
            if (dropped)
                break;
        }
        kept += example > before;
    }
    assert_int_equal(example, dataset.examples);
    assert_int_equal(field("kept"), kept);
    assert_int_equal(field("tokens_cut"), cut);
    assert_int_equal(field("tokens") + cut, whole->tokens.count); /* none is lost, none twice */
}

static void test_no_token_is_lost(void **state)
{
    print_message("seed %llu\n", (unsigned long long)seed);
    for (int round = 0; round < ROUNDS; round++) {
        CLEANUP(buf_done) struct buf text;
        buf_init(&text, 1 << 20);
        for (int64_t rows = 1 + draw(ROWS_MAX); rows > 0; rows--)
            put_row(&text);
        request.seq_len = WHOLE;
        prepare(buf_str(&text), text.length);
        struct whole whole;
        take_whole(&whole);
        assert_int_equal(field("tokens_cut"), 0);
        int64_t longest = field("longest");
        /* any length, and those beside the longest row's */
        request.seq_len = round % 4 == 0 ? longest - 1 + draw(3) : 2 + draw(longest);
        for (int i = 0; i < 2; i++) {
            request.overlength = i == 0 ? JOB_overlength_CHUNK : JOB_overlength_CUT;
            prepare(buf_str(&text), text.length);
            expect_pieces(&whole);
            assert_int_equal(field("overlength") > 0, request.seq_len < longest);
            assert_int_equal(field("longest"), longest);
        }
        tokens_done(&whole.tokens);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(test_no_token_is_lost)};
    return cmocka_run_group_tests(tests, setup, teardown);
}

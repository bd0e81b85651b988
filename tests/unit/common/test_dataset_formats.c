/* dataset_prepare: chunks, plain text, token ids, compression, models without a template, threads.
 */
#include "tests/lib/dataset_scene.h"

static void test_chunks(void **state)
{
    request.overlength = JOB_overlength_CHUNK;
    request.seq_len = 8;
    prepare_text("{\"text\":\"0123456789abcdef\"}\n"); /* begin, 16 bytes, end: 8 + 8 + 2 */
    expect_counts(1, 0, 0);
    assert_int_equal(dataset.examples, 3);
    assert_int_equal(dataset.tokens, 18);
    assert_int_equal(dataset.trained_tokens, 15); /* not the first of each */
    assert_int_equal(dataset.ids[0], BEGIN);
    assert_int_equal(dataset.ids[17], END);
    assert_int_equal(field("tokens_cut"), 0);
    /* begin, user, 9 bytes, end, assistant, a, end: the first chunk has nothing to train */
    prepare_text(LINE(USER_SAYS("123456789") "," ASSISTANT_SAYS("a")) "\n");
    expect_counts(1, 0, 0);
    assert_int_equal(dataset.examples, 1);
    assert_int_equal(dataset.tokens, 7);
    assert_int_equal(field("tokens_cut"), 8);
    request.overlength = JOB_overlength_CUT;
    prepare_text("{\"text\":\"0123456789abcdef\"}\n");
    assert_int_equal(dataset.tokens, 8);
    assert_int_equal(field("tokens_cut"), 10);
}

static void test_text_file(void **state)
{
    request.name = "Book.TXT";
    prepare_text("\xef\xbb\xbfone {\n\ntwo");
    expect_counts(1, 0, 0);
    assert_int_equal(dataset.tokens, 12);
    assert_int_equal(dataset.ids[1], 'o');
    request.line_bytes_max = 4; /* rows of a text end at line feeds */
    prepare_text("ab\ncd\n");
    expect_counts(2, 0, 0);
    request.name = "a.jsonl";
    request.line_bytes_max = 0;
    prepare_text("{\"text\":\"x\"}");
    expect_counts(1, 0, 0);
    assert_int_equal(dataset.tokens, 3);
}

/* The tokenizer splits texts into words as GPT-2's does, and takes UTF-8 alone. */
static void use_words(bool words)
{
    struct err err = {0};
    CLEANUP(mem_free_ptr) char *path = io_join(folder, "tokenizer.json");
    CLEANUP(json_unref) json_t *json = NULL;
    assert_int_equal(tokenizer_write_builtin(folder, &err), 0);
    if (!words)
        return;
    assert_int_equal(json_parse_file(path, 1 << 20, &json, &err), 0);
    json_object_set_new(json_object_get(json, "pre_tokenizer"), "use_regex", json_true());
    assert_int_equal(json_write_file(path, json, 0644, &err), 0);
}

static void expect_text_place(void)
{
    static const char text[] = "first\nsecond \xe4\n";
    for (int lines = 0; lines < 3000; lines += 1499) {
        struct buf book;
        buf_init(&book, 1 << 20);
        for (int i = 0; i < lines; i++)
            buf_text(&book, "a line\n");
        buf_text(&book, text);
        request.line_bytes_max = lines == 0 ? 0 : 1000; /* rows of many lines */
        prepare(buf_str(&book), book.length);
        buf_done(&book);
        const json_t *fault = expect_fault(0, lines + 2, "invalid_utf8", "0xe4");
        assert_int_equal(json_integer_value(json_object_get(fault, "column")), 8);
    }
    assert_int_equal(field("bad"), 1);
}

/* A byte of a text that is not UTF-8 is told by its place in the file, however large a row is, by
 * tokenizers too that take any bytes. */
static void test_text_place(void **state)
{
    request.name = "book.txt";
    use_words(true);
    expect_text_place();
    use_words(false);
    expect_text_place();
}

static void test_token_ids(void **state) /* R14 */
{
    prepare_text("{\"input_ids\":[65,66,67],\"labels\":[-100,66,-100]}\n"
                 "{\"input_ids\":[65,264]}\n{\"input_ids\":[256,263,65]}\n");
    expect_counts(2, 1, 1);
    expect_fault(0, 2, "unserved_ids", "input_ids[1] is 264");
    assert_int_equal(dataset.tokens, 6);
    assert_int_equal(dataset.trained_tokens, 1 + 2);
    request.vocab = 300; /* a model with rows to spare */
    prepare_text("{\"input_ids\":[65,299]}\n");
    expect_counts(1, 0, 0);
    assert_int_equal(dataset.vocab, 300);
    /* A shard is data, too. */
    struct err err = {0};
    CLEANUP(buf_done) struct buf shard;
    buf_init(&shard, 1 << 20);
    assert_int_equal(io_read_file(out_path, 1 << 20, &shard, &err), 0);
    prepare(buf_str(&shard), shard.length);
    expect_counts(1, 0, 0);
    assert_int_equal(dataset.ids[1], 299);
    request.vocab = 0;
    prepare(buf_str(&shard), shard.length);
    expect_counts(0, 1, 1);
    expect_fault(0, 1, "unserved_ids", "token id 299");
    shard.data[shard.length - 1] ^= 1;
    prepare(buf_str(&shard), shard.length);
    expect_counts(0, 1, 1);
    expect_fault(0, 1, "broken_file", "hash");
    request.vocab = 263;
    assert_int_equal(dataset_prepare(&request, &err), -ERR_MODEL);
    assert_non_null(strstr(err.text, "vocab_size is 263"));
}

/* A model without a template that is served: conversations fail by its reason, text does not. */
static void test_no_template(void **state)
{
    struct err err = {0};
    CLEANUP(mem_free_ptr) char *jinja = io_join(folder, "chat_template.jinja");
    assert_int_equal(io_write_file(jinja, "{{ x }}", 7, 0644, &err), 0);
    prepare_text("{\"text\":\"x\"}");
    expect_counts(1, 0, 0);
    assert_int_equal(io_write_file(in_path, GOOD, sizeof GOOD - 1, 0644, &err), 0);
    assert_int_equal(dataset_prepare(&request, &err), -ERR_MODEL);
    assert_non_null(strstr(err.text, "chat template"));
    assert_non_null(strstr(err.text, "line 1"));
    request.chat_template = JOB_chat_TINY;
    prepare_text(GOOD);
    expect_counts(1, 0, 0);
    assert_string_equal(json_string_value(json_object_get(report, "template")), "tiny");
    assert_int_equal(unlink(jinja), 0);
}

/* Any number of threads gives the same bytes and the same report. */
static void test_threads(void **state)
{
    struct buf text;
    buf_init(&text, 64 << 20);
    for (int i = 0; i < 30000; i++)
        buf_printf(&text, i % 1000 == 7 ? "{bad %d}\n" : "{\"text\":\"row %d of many\"}\n", i);
    request.threads = 1;
    prepare(buf_str(&text), text.length);
    expect_counts(29970, 30, 30);
    struct err err;
    CLEANUP(buf_done) struct buf shard;
    buf_init(&shard, 64 << 20);
    assert_int_equal(io_read_file(out_path, 64 << 20, &shard, &err), 0);
    CLEANUP(json_unref) json_t *first = json_incref(report);
    for (request.threads = 2; request.threads < 8; request.threads += 3) {
        prepare(buf_str(&text), text.length);
        assert_int_equal(shard.length, dataset.map_bytes);
        assert_memory_equal(shard.data, dataset.map, shard.length);
        assert_true(json_equal(report, first));
    }
    buf_done(&text);
}

/* Line feed and all: {"messages":[{"role":"assistant","content":"a"}]} */
static const unsigned char gzip_line[] = {
    0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x03, 0xab, 0x56, 0xca, 0x4d,
    0x2d, 0x2e, 0x4e, 0x4c, 0x4f, 0x2d, 0x56, 0xb2, 0x8a, 0xae, 0x56, 0x2a, 0xca, 0xcf,
    0x49, 0x55, 0xb2, 0x52, 0x4a, 0x2c, 0x2e, 0xce, 0x2c, 0x2e, 0x49, 0xcc, 0x2b, 0x51,
    0xd2, 0x51, 0x4a, 0xce, 0xcf, 0x2b, 0x49, 0x05, 0xb2, 0x80, 0xa2, 0x4a, 0xb5, 0xb1,
    0xb5, 0x5c, 0x00, 0x03, 0x8b, 0x76, 0x3b, 0x32, 0x00, 0x00, 0x00};
static const unsigned char zstd_line[] = {
    0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x58, 0x91, 0x01, 0x00, 0x7b, 0x22, 0x6d, 0x65, 0x73, 0x73,
    0x61, 0x67, 0x65, 0x73, 0x22, 0x3a, 0x5b, 0x7b, 0x22, 0x72, 0x6f, 0x6c, 0x65, 0x22, 0x3a,
    0x22, 0x61, 0x73, 0x73, 0x69, 0x73, 0x74, 0x61, 0x6e, 0x74, 0x22, 0x2c, 0x22, 0x63, 0x6f,
    0x6e, 0x74, 0x65, 0x6e, 0x74, 0x22, 0x3a, 0x22, 0x61, 0x22, 0x7d, 0x5d, 0x7d, 0x0a};

static void test_compressed(void **state)
{
    const struct {
        const unsigned char *bytes;
        size_t length;
        const char *name;
    } kinds[] = {{gzip_line, sizeof gzip_line, "gzip"}, {zstd_line, sizeof zstd_line, "zstd"}};
    for (size_t i = 0; i < 2; i++) {
        char twice[2 * sizeof gzip_line + 2 * sizeof zstd_line];
        size_t length = kinds[i].length;
        memcpy(twice, kinds[i].bytes, length);
        memcpy(twice + length, kinds[i].bytes, length);
        prepare(twice, length);
        expect_counts(1, 0, 0);
        assert_int_equal(dataset.tokens, 4);
        prepare(twice, 2 * length); /* members, frames, one after the other */
        expect_counts(2, 0, 0);
        for (size_t cut = 8; cut < length; cut += 5) { /* cut short */
            prepare(twice, cut);
            assert_int_equal(field("bad"), 1);
            expect_fault((size_t)field("dropped") - 1, field("lines"), "broken_file",
                         kinds[i].name);
        }
        twice[length] = 'x';
        prepare(twice, length + 1); /* something else behind it */
        expect_counts(1, 1, 1);
        expect_fault(0, 2, "broken_file", "bytes of another kind follow");
        memcpy(twice + length, kinds[i].bytes, length);
        twice[length + 5] ^= 0x55; /* the second one is damaged, or says something else */
        prepare(twice, 2 * length);
        assert_true(field("kept") >= 1);
    }
}

/* Zero bytes behind a gzip's end are padding, more than are read at once too; else they are not. */
static void test_padding(void **state)
{
    enum { PADDING = 300000 };
    char *bytes = mem_new(sizeof gzip_line + PADDING, 1);
    assert_non_null(bytes);
    memcpy(bytes, gzip_line, sizeof gzip_line);
    for (size_t zeros = 1; zeros <= PADDING; zeros += PADDING - 1) {
        prepare(bytes, sizeof gzip_line + zeros);
        expect_counts(1, 0, 0);
    }
    bytes[sizeof gzip_line + PADDING - 1] = 'x';
    prepare(bytes, sizeof gzip_line + PADDING);
    expect_counts(1, 1, 1);
    expect_fault(0, 2, "broken_file", "bytes of another kind follow");
    mem_free(bytes);
}

/* What pzstd writes: a frame of its own in front, which readers pass over. A file that was
 * compressed twice is told. */
static void test_frames(void **state)
{
    char bytes[12 + sizeof zstd_line] = "\x5a\x2a\x4d\x18\x04\x00\x00\x00wxyz";
    memcpy(bytes + 12, zstd_line, sizeof zstd_line);
    prepare(bytes, sizeof bytes);
    expect_counts(1, 0, 0);
    /* A raw block of one byte less, of a gzip file's first bytes. */
    static const char inner[] = "\x28\xb5\x2f\xfd\x20\x04\x21\x00\x00\x1f\x8b\x08\x00";
    prepare(inner, sizeof inner - 1);
    expect_counts(0, 1, 1);
    expect_fault(0, 1, "unserved_format", "a gzip file within a compressed one");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_chunks),      TEST(test_text_file), TEST(test_token_ids),
        TEST(test_no_template), TEST(test_padding),   TEST(test_compressed),
        TEST(test_threads),     TEST(test_frames),    TEST(test_text_place),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

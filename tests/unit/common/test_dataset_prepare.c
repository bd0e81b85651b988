/* dataset_prepare: files as people have them, each with the report it must get and the shard it
 * must make. */
#include "tests/lib/dataset_scene.h"

#include "common/rng.h"

#include <dirent.h>

static void test_windows_file(void **state) /* R01 */
{
    prepare_text(GOOD "\n" LINE(ASSISTANT_SAYS("\xef\xbb\xbfx")) "\n");
    assert_int_equal(field("bad"), 0);
    int64_t tokens = dataset.tokens;
    CLEANUP(mem_free_ptr) int32_t *ids = mem_new((size_t)tokens, sizeof *ids);
    memcpy(ids, dataset.ids, (size_t)tokens * sizeof *ids);
    prepare_text("\xef\xbb\xbf" GOOD "\r\n" LINE(ASSISTANT_SAYS("\xef\xbb\xbfx")) "\r\n");
    expect_counts(2, 0, 0);
    assert_int_equal(dataset.tokens, tokens);
    assert_memory_equal(dataset.ids, ids, (size_t)tokens * sizeof *ids);
    assert_int_equal(dataset.ids[dataset.offsets[1] + 2], 0xef); /* inside a string: content */
}

static void test_utf16(void **state) /* R01 */
{
    for (int mark = 0; mark < 2; mark++) {
        char bytes[2 * sizeof GOOD + 2] = "\xff\xfe";
        size_t length = mark ? 2 : 0;
        for (const char *c = GOOD; *c != '\0'; c++) {
            bytes[length++] = *c;
            bytes[length++] = '\0';
        }
        prepare(bytes, length);
        expect_counts(0, 1, 1);
        expect_fault(0, 1, "not_utf8", "UTF-16");
    }
}

static void test_long_line(void **state) /* R02 */
{
    enum { LONG = 24 << 20 };
    struct buf text;
    buf_init(&text, LONG + 1000);
    buf_text(&text, GOOD "\n{\"messages\":[{\"role\":\"assistant\",\"content\":\"");
    size_t before = text.length;
    for (int i = 0; i < LONG / 16; i++)
        buf_text(&text, "0123456789abcdef");
    buf_text(&text, "\"}]}\n" GOOD "\n");
    request.seq_len = 1 << 20;
    prepare(buf_str(&text), text.length);
    expect_counts(3, 0, 0);
    assert_int_equal(field("longest"), LONG + 3);
    assert_int_equal(field("overlength"), 1);
    assert_int_equal(dataset.offsets[2] - dataset.offsets[1], 1 << 20); /* cut */
    request.line_bytes_max = 1 << 20;
    prepare(buf_str(&text), text.length);
    expect_counts(2, 1, 1);
    char length[32];
    (void)snprintf(length, sizeof length, "%zu bytes",
                   LONG + before + 4 - sizeof GOOD); /* GOOD and its line feed are line 1 */
    expect_fault(0, 2, "line_too_long", length);
    expect_fault(0, 2, "line_too_long", "1048576");
    buf_done(&text);
}

static void test_not_jsonl(void **state) /* R03 */
{
    prepare_text("[\n" GOOD ",\n" GOOD "\n]\n"); /* an array is taken as it is */
    expect_counts(2, 0, 0);
    prepare_text("[" GOOD ", {\n\"messages\":\n7}, " GOOD "]");
    expect_counts(2, 1, 1);
    expect_fault(0, 1, "missing_messages_list", "array");
    prepare_text("[" GOOD ",\n{\n\"messages\":\n[7,]}]");
    expect_counts(1, 1, 1);
    expect_fault(0, 4, "invalid_json", "]"); /* the line in the file */
    prepare_text("[" GOOD ",\n" GOOD "\n");
    expect_counts(2, 1, 1);
    expect_fault(0, 3, "broken_file", "\"]\" is missing");
    prepare_text("\n{\n  \"messages\": [\n    " USER_SAYS("q") "\n  ]\n}\n");
    expect_counts(0, 2, 1);
    expect_fault(0, 2, "not_jsonl", "pretty-printed");
    prepare_text("\"{\\\"messages\\\": []}\"\n" GOOD "\n");
    expect_counts(1, 1, 1);
    expect_fault(0, 1, "data_type", "encoded twice");
    prepare_text(GOOD "\n[\n" GOOD "\n"); /* not the whole file: only its line */
    expect_counts(2, 1, 1);
    expect_fault(0, 2, "invalid_json", "whole on one line");
    prepare("\x1f\x8b\x08\x00 \n\n\n", 8);
    expect_counts(0, 1, 1);
    expect_fault(0, 1, "broken_file", "gzip");
}

static void test_foreign_files(void **state)
{
    char tar[300] = "train.jsonl"; /* a header's 512 bytes have no line feed */
    memcpy(tar + 257, "ustar", 5);
    const struct {
        const char *bytes;
        size_t length;
        const char *word;
    } cases[] = {
        {"PK\x03\x04 \n\n\n", 8, "a zip file or an Office document"},
        {"PAR1\x15\n\n", 7, "a Parquet file"},
        {"ARROW1\0\0\n", 9, "an Arrow file"},
        {"SQLite format 3\0\n", 17, "an SQLite database"},
        {"BZh91AY\n", 8, "a bzip2 file"},
        {"\x04\x22\x4d\x18\n", 5, "an lz4 file"},
        {"7z\xbc\xaf\x27\x1c\n", 7, "a 7z archive"},
        {"\x89HDF\r\n\x1a\n", 8, "an HDF5 file"},
        {"%PDF-1.7\n", 9, "a PDF file"},
        {tar, sizeof tar, "a tar archive"},
        {"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", 63,
         "run git lfs pull"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        prepare(cases[i].bytes, cases[i].length);
        expect_counts(0, 1, 1); /* the rest of the file is not read */
        expect_fault(0, 1, "unserved_format", cases[i].word);
    }
    request.name = "book.txt"; /* which would be text, were it not for its first bytes */
    prepare_text("{\\rtf1\\ansi A long story.}");
    expect_counts(0, 1, 1);
    expect_fault(0, 1, "unserved_format", "an RTF file");
    request.name = NULL;
    prepare_text(GOOD "\n%PDF-1.7\n{\n" GOOD); /* of its first rows alone */
    expect_counts(2, 2, 2);
    expect_fault(0, 2, "invalid_json", "not valid JSON");
    expect_fault(1, 3, "invalid_json", "whole on one line");
    prepare_text("prompt,completion\n" GOOD);
    expect_counts(1, 1, 1);
    expect_fault(0, 1, "invalid_json", "CSV and the like must be converted");
    prepare_text("{'messages': []}\n");
    expect_fault(0, 1, "invalid_json", "json.dumps");
    prepare_text(GOOD GOOD "\n" GOOD ",\n");
    expect_counts(0, 2, 2);
    expect_fault(0, 1, "invalid_json", "with nothing after it");
    expect_fault(1, 2, "invalid_json", "with nothing after it");
}

static void test_broken_lines(void **state) /* R04 */
{
    struct buf text;
    buf_init(&text, 1 << 20);
    for (int line = 1; line <= 100; line++)
        buf_text(&text, line == 57   ? "{\"prompt\": \"a\", completion: b}\n"
                        : line == 80 ? LINE(ASSISTANT_SAYS("say \"hi\"")) "\n"
                        : line == 90 ? "{\"messages\":[" ASSISTANT_SAYS("a") "],}\n"
                                     : GOOD "\n");
    prepare(buf_str(&text), text.length);
    buf_done(&text);
    expect_counts(97, 3, 3);
    static const json_int_t lines[] = {57, 80, 90};
    for (size_t i = 0; i < 3; i++) {
        const json_t *fault = expect_fault(i, lines[i], "invalid_json", "");
        assert_true(json_integer_value(json_object_get(fault, "column")) > 1);
    }
    assert_int_equal(
        json_integer_value(json_object_get(json_object_get(report, "codes"), "invalid_json")), 3);
}

static void test_tool_calls(void **state) /* R05 */
{
    prepare_text(LINE(USER_SAYS("q") ",{\"role\":\"assistant\",\"content\":null,\"tool_calls\":"
                                     "[{\"function\":{\"name\":\"f\"}}]}," ASSISTANT_SAYS("ok")));
    expect_counts(0, 1, 1);
    expect_fault(0, 1, "unserved_message", "messages[1]: the template tiny has no tools");
    prepare_text(LINE(USER_SAYS("q") "," ASSISTANT_SAYS("a") "," ASSISTANT_SAYS("b")));
    expect_counts(1, 0, 0); /* two turns in a row are fine */
}

static void test_nothing_to_train(void **state) /* R07 */
{
    prepare_text("{\"messages\":[]}\n \t\n{\"messages\":null}\n");
    expect_counts(0, 3, 0);
    expect_fault(0, 1, "empty_messages", "empty");
    expect_fault(1, 2, "blank_line", "blank");
    expect_fault(2, 3, "empty_messages", "empty");
    prepare_text("{\"messages\":[]}\n\n{\"messages\":null}\n" GOOD "\n");
    expect_counts(1, 3, 0);
    prepare_text("");
    expect_counts(0, 0, 0);
}

static void test_masks(void **state) /* R08, R13 */
{
    prepare_text(LINE("{\"role\":\"system\",\"content\":\"s\"}," ASSISTANT_SAYS("ok")));
    expect_counts(1, 0, 0);
    const int32_t ids[] = {BEGIN, SYSTEM, 's', END, ASSISTANT, 'o', 'k', END};
    const uint8_t trained[] = {0, 0, 0, 0, 0, 1, 1, 1};
    assert_int_equal(dataset.tokens, 8);
    assert_memory_equal(dataset.ids, ids, sizeof ids);
    assert_memory_equal(dataset.trained, trained, sizeof trained);
    assert_int_equal(dataset.vocab, 264);
    request.train_on = JOB_train_on_LAST;
    prepare_text(LINE(ASSISTANT_SAYS("a") "," USER_SAYS("q") "," ASSISTANT_SAYS("bc")));
    assert_int_equal(dataset.trained_tokens, 3);
}

static void test_two_formats(void **state) /* R09 */
{
    prepare_text(GOOD "\n" GOOD "\n{\"text\":\"a\",\"messages\":[" ASSISTANT_SAYS(
        "x") "]}\n"
             "{\"prompt\":\"a\",\"completion\":\"b\"}\n");
    expect_counts(3, 1, 1); /* lines may differ in their formats, one line may not */
    expect_fault(0, 3, "duplicate_format", "both text and messages");
}

static void test_overlength(void **state) /* R10 */
{
    struct buf text;
    buf_init(&text, 1 << 20);
    buf_text(&text, "{\"messages\":[{\"role\":\"user\",\"content\":\"");
    for (int i = 0; i < 20000; i++)
        buf_char(&text, 'x');
    buf_text(&text, "\"}," ASSISTANT_SAYS("0123456789") "]}\n");
    request.seq_len = 8192;
    prepare(buf_str(&text), text.length);
    expect_counts(0, 1, 0);
    expect_fault(0, 1, "no_trained_tokens", "0 trained tokens after truncation to 8192");
    request.overlength = JOB_overlength_REFUSE;
    prepare(buf_str(&text), text.length);
    expect_counts(0, 1, 1);
    expect_fault(0, 1, "overlength", "seq_len is 8192");
    assert_int_equal(field("overlength"), 1);
    request.overlength = JOB_overlength_CUT;
    request.seq_len = 20004 + 4; /* begin, user, end, assistant; then 4 bytes of the answer */
    prepare(buf_str(&text), text.length);
    expect_counts(1, 0, 0);
    assert_int_equal(dataset.trained_tokens, 4);
    buf_done(&text);
    prepare_text(LINE("{\"role\":\"assistant\",\"content\":\"x\",\"weight\":0}"));
    expect_counts(0, 1, 0);
    expect_fault(0, 1, "no_trained_tokens", "weight 0");
}

static void test_faults_are_bounded(void **state)
{
    struct buf text;
    buf_init(&text, 1 << 20);
    buf_text(&text, GOOD "\n");
    for (int i = 0; i < 1000; i++)
        buf_text(&text, "{\"messages\":[{\"role\":\"user\",\"content\":\"\xe4\"}]}\n");
    prepare(buf_str(&text), text.length);
    buf_done(&text);
    expect_counts(1, 1000, 1000);
    assert_int_equal(json_array_size(json_object_get(report, "faults")), DATASET_FAULTS_MAX);
    const json_t *fault = expect_fault(99, 101, "invalid_utf8", "0xe4");
    assert_int_equal(json_integer_value(json_object_get(fault, "column")), 40);
}

static bool hopeless(void)
{
    return json_is_true(json_object_get(report, "hopeless"));
}

/* A file that this job cannot use may be good for another; the daemon keeps the verdict otherwise.
 */
static void test_hopeless(void **state)
{
    prepare_text(GOOD "\n\n");
    assert_false(hopeless());
    prepare_text(GOOD "\n{bad\n");
    assert_true(hopeless());
    prepare_text("\n{\"messages\":[]}\n");
    assert_true(hopeless());
    prepare_text("");
    assert_true(hopeless());
    prepare_text(LINE(
        "{\"role\":\"tool\",\"content\":\"x\"}," ASSISTANT_SAYS("y")) "\n"); /* by this template */
    expect_fault(0, 1, "unserved_message", "no tools");
    assert_false(hopeless());
    prepare_text("\n{\"input_ids\":[1,264]}\n"); /* by this vocabulary */
    expect_fault(0, 2, "unserved_ids", "264");
    assert_false(hopeless());
    request.seq_len = 4;
    prepare_text(GOOD "\n"); /* by this length */
    expect_counts(0, 1, 0);
    assert_false(hopeless());
    request.overlength = JOB_overlength_REFUSE;
    prepare_text(GOOD "\n");
    expect_counts(0, 1, 1);
    assert_false(hopeless());
    prepare_text(GOOD "\n{bad\n");
    expect_counts(0, 2, 2);
    assert_true(hopeless());
}

/* Rows without anything to train on never hide one that is a mistake. */
static void test_mistakes_come_first(void **state)
{
    struct buf text;
    buf_init(&text, 1 << 20);
    for (int i = 0; i < 150; i++)
        buf_text(&text, GOOD "\n\n");
    buf_text(&text, "{bad\n");
    prepare(buf_str(&text), text.length);
    buf_done(&text);
    expect_counts(150, 151, 1);
    expect_fault(0, 301, "invalid_json", "");
    expect_fault(1, 2, "blank_line", "blank");
    assert_int_equal(json_array_size(json_object_get(report, "faults")), DATASET_FAULTS_MAX);
}

static void test_histogram(void **state)
{
    request.seq_len = 16;
    /* 3 + n tokens each: begin, role, n bytes, end */
    prepare_text(LINE(ASSISTANT_SAYS("a")) "\n" LINE(ASSISTANT_SAYS("ab")) "\n" LINE(
        ASSISTANT_SAYS("0123456789012345678901234567")) "\n");
    json_t *wanted = json_pack("[[i,i],[i,i],[i,i]]", 4, 1, 8, 1, 32, 1);
    assert_true(json_equal(json_object_get(report, "histogram"), wanted));
    json_decref(wanted);
    assert_int_equal(field("longest"), 31);
    assert_int_equal(field("overlength"), 1);
}

/* Files of the folder. */
static int entries(void)
{
    DIR *list = opendir(folder);
    int count = 0;
    assert_non_null(list);
    while (readdir(list) != NULL)
        count++;
    (void)closedir(list);
    return count;
}

static void test_failures(void **state)
{
    struct err err;
    assert_int_equal(io_write_file(in_path, GOOD "\n", sizeof GOOD, 0644, &err), 0);
    request.path = "/nonexistent-folder/x";
    assert_int_equal(dataset_prepare(&request, &err), -ERR_NOT_FOUND);
    request.path = in_path;
    request.model_dir = "/nonexistent-folder";
    assert_int_equal(dataset_prepare(&request, &err), -ERR_MODEL);
    assert_non_null(strstr(err.text, "there is no tokenizer.json"));
    request.model_dir = folder;
    int64_t before = mem_live();
    for (int n = 1;; n++) {
        mem_fault_after(n);
        int rc = dataset_prepare(&request, &err);
        assert_int_equal(mem_fault_after(0), rc != 0);
        assert_int_equal(mem_live(), before);
        if (rc == 0)
            break;
        assert_int_equal(rc, -ERR_NOMEM);
        assert_true(n < 1000);
    }
}

/* R54: a disk that is full at any write leaves no temporary file, and no shard that is torn. */
static void test_full_disk(void **state)
{
    struct err err;
    static const char two[] = GOOD "\n" GOOD;
    int failed = 0;
    assert_int_equal(io_write_file(in_path, two, strlen(two), 0644, &err), 0);
    for (;; failed++) {
        (void)unlink(out_path);
        (void)unlink(report_path);
        int before = entries();
        io_fault_after(failed + 1);
        int rc = dataset_prepare(&request, &err);
        io_fault_after(0);
        bool whole = io_exists(out_path);
        if (whole) {
            assert_int_equal(dataset_open(out_path, &dataset, &err), 0);
            assert_int_equal(dataset.examples, 2);
            dataset_close(&dataset);
        }
        assert_int_equal(entries(), before + whole + io_exists(report_path));
        if (rc == 0)
            break;
        assert_int_equal(rc, -ERR_NO_SPACE);
        assert_null(strstr(err.text, in_path)); /* it is not the training file that is written */
    }
    assert_true(failed > 8);
}

struct told {
    int64_t calls, bad, line, rows; /* of the last call but for `line`, the first that was told */
};

static void tell(void *context, const struct dataset_progress *at)
{
    struct told *told = context;
    told->calls++;
    assert_true(at->rows >= told->rows && at->bad >= told->bad && (at->bad > 0) == !!at->fault);
    told->bad = at->bad;
    told->rows = at->rows;
    if (told->line == 0 && at->fault != NULL)
        told->line = json_integer_value(json_object_get(at->fault, "line"));
}

/* A row that is wrong is told while the rest is still read. */
static void test_progress(void **state)
{
    enum { ROWS = 9000, BAD = 100 };
    struct told told = {0};
    struct buf text;
    buf_init(&text, 1 << 20);
    for (int line = 1; line <= ROWS; line++)
        buf_text(&text, line == BAD || line == ROWS ? "{bad\n" : GOOD "\n");
    request.threads = 1;
    request.progress = tell;
    request.progress_context = &told;
    prepare(buf_str(&text), text.length);
    buf_done(&text);
    assert_int_equal(told.line, BAD);
    assert_int_equal(told.bad, 2);
    assert_int_equal(told.rows, ROWS);
    assert_true(told.calls > 3);
}

/* A shard that is not finished has no name that a child which is killed could leave behind. */
static void test_unfinished_shard(void **state)
{
    struct err err = {0};
    struct dataset_writer *writer = NULL;
    const int32_t ids[] = {1, 2, 3};
    const uint8_t trained[] = {0, 1, 1};
    (void)unlink(out_path);
    int before = entries();
    assert_int_equal(dataset_writer_new(out_path, 10, &writer, &err), 0);
    assert_int_equal(dataset_writer_add(writer, ids, trained, 3, &err), 0);
    assert_int_equal(entries(), before);
    assert_int_equal(dataset_writer_commit(writer, &err), 0);
    dataset_writer_free(writer);
    assert_int_equal(entries(), before + 1);
    assert_int_equal(dataset_open(out_path, &dataset, &err), 0);
    assert_int_equal(dataset.tokens, 3);
}

/* Any bytes get a report and a shard that opens. */
static void test_mutations(void **state)
{
    const uint64_t seed = 31337;
    print_message("mutation seed %llu\n", (unsigned long long)seed);
    static const char good[] = GOOD "\n" LINE(ASSISTANT_SAYS("x")) "\r\n\n" GOOD "\n" GOOD;
    enum { LENGTH = sizeof good - 1 };
    for (uint64_t round = 0; round < 300; round++) {
        char bytes[LENGTH];
        memcpy(bytes, good, LENGTH);
        for (uint64_t e = 0; e < 1 + round % 6; e++) {
            uint64_t at = rng_below(seed, RNG_STREAM_TEST + 1, round * 8 + e, LENGTH);
            bytes[at] = (char)rng_below(seed, RNG_STREAM_TEST + 2, round * 8 + e, 256);
        }
        prepare(bytes, LENGTH);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_windows_file),
        TEST(test_utf16),
        TEST(test_long_line),
        TEST(test_not_jsonl),
        TEST(test_broken_lines),
        TEST(test_tool_calls),
        TEST(test_nothing_to_train),
        TEST(test_masks),
        TEST(test_two_formats),
        TEST(test_overlength),
        TEST(test_faults_are_bounded),
        TEST(test_histogram),
        TEST(test_failures),
        TEST(test_mutations),
        TEST(test_full_disk),
        TEST(test_unfinished_shard),
        TEST(test_progress),
        TEST(test_foreign_files),
        TEST(test_mistakes_come_first),
        TEST(test_hopeless),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

/* dataset_preview: runs of the loss mask, cuts, rows that are not used. */
#include "common/dataset_preview.h"

#include "tests/lib/dataset_scene.h"

static json_t *preview(const char *text, int64_t rows)
{
    struct err err = {0};
    json_t *json = NULL;
    assert_int_equal(io_write_file(in_path, text, strlen(text), 0644, &err), 0);
    MUST_WORK(dataset_preview(&request, rows, &json, &err), &err);
    return json;
}

static json_t *row(const json_t *preview, size_t i)
{
    return json_array_get(json_object_get(preview, "rows"), i);
}

static void test_rows(void **state)
{
    request.seq_len = 6;
    CLEANUP(json_unref) json_t *json = preview(GOOD "\n{}\n" GOOD "\n" GOOD "\n", 3);
    CLEANUP(json_unref)
    json_t *first = json_literal(
        "{'line':1,'kept':true,'tokens':7,'trained_tokens':1,'used_tokens':6,'sequences':1,"
        "'roles':['user','assistant'],'runs':[{'trained':false,'tokens':5,'text':"
        "'<|begin|><|user|>q<|end|><|assistant|>'},{'trained':true,'tokens':2,'text':'a<|end|>'}],"
        "'ids':[256,257,113,260,258,97,260]}");
    assert_true(json_equal(row(json, 0), first));
    assert_int_equal(json_array_size(json_object_get(json, "rows")), 3);
    assert_string_equal(json_string_value(json_object_get(row(json, 1), "code")),
                        "missing_messages_list");
    assert_int_equal(json_integer_value(json_object_get(row(json, 2), "line")), 3);
    assert_true(json_is_true(json_object_get(json, "more")));
    assert_string_equal(json_string_value(json_object_get(json, "template")), "tiny");
    CLEANUP(json_unref) json_t *all = preview(GOOD, 1);
    assert_true(json_is_false(json_object_get(all, "more")));
}

static void test_overlength(void **state)
{
    request.seq_len = 4;
    request.overlength = JOB_overlength_REFUSE;
    CLEANUP(json_unref) json_t *refused = preview(GOOD, 1);
    assert_string_equal(json_string_value(json_object_get(row(refused, 0), "code")), "overlength");
    request.overlength = JOB_overlength_CHUNK;
    CLEANUP(json_unref) json_t *chunked = preview("{\"text\":\"0123456789\"}", 1);
    const json_t *chunks = row(chunked, 0);
    assert_int_equal(json_integer_value(json_object_get(chunks, "sequences")), 3);
    assert_int_equal(json_integer_value(json_object_get(chunks, "used_tokens")), 12);
    assert_int_equal(json_integer_value(json_object_get(chunks, "trained_tokens")), 9);
    request.overlength = JOB_overlength_CUT;
    CLEANUP(json_unref) json_t *cut = preview(GOOD, 1);
    assert_true(json_is_false(json_object_get(row(cut, 0), "kept"))); /* nothing left to train */
}

/* A file that is none is told as it is when a job checks it, and nothing more of it is shown. */
static void test_files(void **state)
{
    static const struct {
        const char *text, *code, *word;
    } cases[] = {
        {"PAR1\n" GOOD "\n", "unserved_format", "a Parquet file"},
        {"{\n\"messages\": []\n}\n", "not_jsonl", "pretty-printed"},
        {"[\n", "broken_file", "]"},
        {"\x1f\x8b\x08", "broken_file", "ends early"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        CLEANUP(json_unref) json_t *json = preview(cases[i].text, 3);
        assert_int_equal(json_array_size(json_object_get(json, "rows")), 1);
        assert_true(json_is_false(json_object_get(json, "more")));
        assert_string_equal(json_string_value(json_object_get(row(json, 0), "code")),
                            cases[i].code);
        assert_non_null(
            strstr(json_string_value(json_object_get(row(json, 0), "message")), cases[i].word));
    }
    CLEANUP(json_unref) json_t *json = preview("[" GOOD ",\n" GOOD "\n", 5); /* no ] */
    assert_int_equal(json_array_size(json_object_get(json, "rows")), 3);
    assert_int_equal(json_integer_value(json_object_get(row(json, 2), "line")), 3);
}

/* Long rows and odd bytes stay short and UTF-8. */
static void test_bounds(void **state)
{
    CLEANUP(buf_done) struct buf text;
    buf_init(&text, 1 << 20);
    buf_text(&text, "{\"text\":\"\\u0000");
    for (int i = 0; i < 3000; i++)
        buf_text(&text, "\xc3\xa9");
    buf_text(&text, "\"}");
    request.seq_len = 1 << 20;
    CLEANUP(json_unref) json_t *json = preview(buf_str(&text), 1);
    const json_t *long_row = row(json, 0);
    const json_t *run = json_array_get(json_object_get(long_row, "runs"), 1);
    assert_int_equal(json_integer_value(json_object_get(long_row, "tokens")), 6003);
    assert_true(json_string_length(json_object_get(run, "text")) <= DATASET_PREVIEW_TEXT);
    assert_int_equal(json_string_value(json_object_get(run, "text"))[0], '?');
    assert_int_equal(json_array_size(json_object_get(long_row, "ids")), DATASET_PREVIEW_IDS);
    int64_t before = mem_live();
    for (int n = 1;; n++) {
        struct err err = {0};
        json_t *ret = NULL;
        mem_fault_after(n);
        int rc = dataset_preview(&request, 1, &ret, &err);
        assert_int_equal(mem_fault_after(0), rc != 0);
        json_decref(ret);
        assert_int_equal(mem_live(), before);
        if (rc == 0)
            break;
        assert_int_equal(rc, -ERR_NOMEM);
        assert_true(n < 1000);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(test_rows), TEST(test_overlength), TEST(test_files),
                                       TEST(test_bounds)};
    return cmocka_run_group_tests(tests, setup, teardown);
}

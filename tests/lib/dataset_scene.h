/* dataset_scene: a folder with the built-in tokenizer, a file to prepare, its report and its shard;
 * for the tests of dataset_prepare(). */
#pragma once
#include "common/dataset.h"
#include "common/io.h"
#include "common/json.h"
#include "common/limits.h"
#include "common/mem.h"
#include "common/tokenizer.h"
#include "tests/lib/cmocka.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BEGIN = 256, USER = 257, ASSISTANT = 258, SYSTEM = 259, END = 260 };

#define USER_SAYS(text) "{\"role\":\"user\",\"content\":\"" text "\"}"
#define ASSISTANT_SAYS(text) "{\"role\":\"assistant\",\"content\":\"" text "\"}"
#define LINE(messages) "{\"messages\":[" messages "]}"
#define GOOD LINE(USER_SAYS("q") "," ASSISTANT_SAYS("a"))

static char folder[64];
static char *in_path;
static char *out_path;
static char *report_path;
static struct dataset_request request;
static json_t *report; /* of the last run */
static struct dataset dataset;

static int setup(void **state)
{
    struct err err;
    /* thousands of committed files: in memory, where there is such a place */
    const char *root = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    (void)snprintf(folder, sizeof folder, "%s/test_dataset_prepare.XXXXXX", root);
    if (mkdtemp(folder) == NULL)
        return -1;
    in_path = io_join(folder, "in.jsonl");
    out_path = io_join(folder, "out.tok");
    report_path = io_join(folder, "report.json");
    return tokenizer_write_builtin(folder, &err);
}

static void forget(void)
{
    json_decref(report);
    report = NULL;
    dataset_close(&dataset);
}

static int teardown(void **state)
{
    struct err err;
    forget();
    mem_free(in_path);
    mem_free(out_path);
    mem_free(report_path);
    return io_remove_tree(folder, &err) != 0 || mem_live() != 0;
}

static inline int fresh(void **state)
{
    forget();
    request = (struct dataset_request){.path = in_path,
                                       .model_dir = folder,
                                       .out_path = out_path,
                                       .report_path = report_path,
                                       .seq_len = 64,
                                       .overlength = JOB_overlength_CUT,
                                       .train_on = JOB_train_on_ASSISTANT};
    return 0;
}

static json_int_t field(const char *name)
{
    const json_t *value = json_object_get(report, name);
    assert_true(json_is_integer(value));
    return json_integer_value(value);
}

/* Prepares the bytes and opens report and shard, which must agree. */
static void prepare(const char *bytes, size_t length)
{
    struct err err = {0};
    forget();
    assert_int_equal(io_write_file(in_path, bytes, length, 0644, &err), 0);
    MUST_WORK(dataset_prepare(&request, &err), &err);
    assert_int_equal(json_parse_file(report_path, 1 << 20, &report, &err), 0);
    MUST_WORK(dataset_open(out_path, &dataset, &err), &err);
    assert_int_equal(field("examples"), dataset.examples);
    if (request.overlength != JOB_overlength_CHUNK)
        assert_int_equal(field("kept"), dataset.examples);
    assert_int_equal(field("tokens"), dataset.tokens);
    assert_int_equal(field("trained_tokens"), dataset.trained_tokens);
    assert_int_equal(field("lines"), field("kept") + field("dropped"));
    assert_true(field("bad") <= field("dropped"));
    json_int_t coded = 0;
    const char *code;
    json_t *count;
    json_object_foreach(json_object_get(report, "codes"), code, count) coded +=
        json_integer_value(count);
    assert_int_equal(coded, field("dropped"));
}

static inline void prepare_text(const char *text)
{
    prepare(text, strlen(text));
}

static inline void expect_counts(json_int_t kept, json_int_t dropped, json_int_t bad)
{
    assert_int_equal(field("kept"), kept);
    assert_int_equal(field("dropped"), dropped);
    assert_int_equal(field("bad"), bad);
}

/* Fault number i of the report. */
static inline const json_t *expect_fault(size_t i, json_int_t line, const char *code,
                                         const char *word)
{
    const json_t *fault = json_array_get(json_object_get(report, "faults"), i);
    assert_non_null(fault);
    assert_int_equal(json_integer_value(json_object_get(fault, "line")), line);
    assert_string_equal(json_string_value(json_object_get(fault, "code")), code);
    const char *text = json_string_value(json_object_get(fault, "message"));
    if (text == NULL || strstr(text, word) == NULL)
        fail_msg("fault %zu: \"%s\" lacks \"%s\"", i, text != NULL ? text : "", word);
    return fault;
}

#define TEST(name) cmocka_unit_test_setup(name, fresh)

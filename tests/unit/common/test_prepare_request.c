/* prepare_request: the round trip, every key that may be missing or odd, and errors of the child
 * there and back. */
#include "common/prepare_request.h"

#include "common/io.h"
#include "common/json.h"
#include "common/mem.h"
#include "tests/lib/folder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static char path[96];
static struct err err;

static int setup(void **state)
{
    if (folder_open(state) != 0)
        return -1;
    (void)snprintf(path, sizeof path, "%s/request.json", folder);
    return 0;
}

#define SPEC "{\"model\":\"m\",\"training_file\":\"file-a\",\"ithaca\":{\"seq_len\":77}}"
#define FILE_ "{\"path\":\"/a\",\"name\":\"n\",\"out_path\":\"/b\",\"report_path\":\"/c\"}"

static int read_text(const char *text, struct prepare_request *ret)
{
    assert_int_equal(io_write_file(path, text, strlen(text), 0600, &err), 0);
    return prepare_request_read(path, ret, &err);
}

static void test_round_trip(void **state)
{
    struct prepare_request request, again;
    struct stat info;
    if (read_text("{\"model_dir\":\"/m\",\"error_path\":\"/e "
                  "\\u00e4\",\"progress_path\":\"/p\",\"cache_dir\":\"/c\",\"spec\":" SPEC
                  ",\"checkpoint_dir\":\"/k\",\"source_dir\":\"/s\",\"files\":[" FILE_
                  ",{\"path\":\"/d\",\"name\":\"n\",\"out_path\":\"/f\",\"report_path\":"
                  "\"/g\"}]}",
                  &request) != 0)
        fail_msg("%s", err.text);
    assert_int_equal(request.file_count, 2);
    assert_int_equal(prepare_request_write(path, &request, &err), 0);
    prepare_request_done(&request);
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
    assert_int_equal(prepare_request_read(path, &again, &err), 0);
    assert_string_equal(again.model_dir, "/m");
    assert_string_equal(again.checkpoint_dir, "/k");
    assert_string_equal(again.source_dir, "/s");
    assert_string_equal(again.error_path, "/e \xc3\xa4");
    assert_int_equal(again.spec.seq_len, 77);
    assert_string_equal(again.files[0].path, "/a");
    assert_string_equal(again.files[0].out_path, "/b");
    assert_string_equal(again.files[0].report_path, "/c");
    assert_string_equal(again.files[1].report_path, "/g");
    prepare_request_done(&again);
    prepare_request_done(&again); /* of a zeroed one */
}

/* Without files there is a path for random tokens; without both it is no request. */
static void test_random(void **state)
{
#define HEAD                                                                                     \
    "{\"model_dir\":\"/m\",\"error_path\":\"/e\",\"progress_path\":\"/p\",\"cache_dir\":\"/c\"," \
    "\"files\":[],\"spec\":{\"model\":\"m\",\"ithaca\":{\"measure\":true}}"
    struct prepare_request request, again;
    assert_int_equal(read_text(HEAD "}", &request), -ERR_CORRUPT);
    assert_int_equal(read_text(HEAD ",\"random_path\":\"/r\"}", &request), 0);
    assert_int_equal(prepare_request_write(path, &request, &err), 0);
    prepare_request_done(&request);
    assert_int_equal(prepare_request_read(path, &again, &err), 0);
    assert_int_equal(again.file_count, 0);
    assert_string_equal(again.random_path, "/r");
    prepare_request_done(&again);
#undef HEAD
}

static void test_odd_files(void **state)
{
    static const struct {
        const char *text, *says;
    } odd[] = {
        {"", "line 1"}, /* ERR_CORRUPT, as all but the spec's own faults */
        {"[]", "model_dir"},
        {"{\"model_dir\":7}", "model_dir"},
        {"{\"model_dir\":\"/m\"}", "error_path"},
        {"{\"model_dir\":\"/m\",\"error_path\":\"/e\",\"progress_path\":\"/p\",\"cache_dir\":\"/"
         "c\",\"spec\":" SPEC "}",
         "files"},
        {"{\"model_dir\":\"/m\",\"error_path\":\"/e\",\"progress_path\":\"/p\",\"cache_dir\":\"/"
         "c\",\"spec\":" SPEC ",\"files\":[]}",
         "files"},
        {"{\"model_dir\":\"/m\",\"error_path\":\"/e\",\"progress_path\":\"/p\",\"cache_dir\":\"/"
         "c\",\"spec\":" SPEC ",\"files\":[" FILE_ "," FILE_ "," FILE_ "]}",
         "1 or 2"},
        {"{\"model_dir\":\"/m\",\"error_path\":\"/e\",\"progress_path\":\"/p\",\"cache_dir\":\"/"
         "c\",\"spec\":" SPEC ",\"files\":[{\"path\":\"/a\",\"name\":\"n\",\"out_path\":\"/b\"}]}",
         "report_path"},
        {"{\"model_dir\":\"/m\",\"error_path\":\"/e\",\"progress_path\":\"/p\",\"cache_dir\":\"/"
         "c\",\"spec\":" SPEC ",\"files\":[7]}",
         "path"},
        {"{\"model_dir\":\"/m\",\"error_path\":\"/e\",\"progress_path\":\"/p\",\"cache_dir\":\"/"
         "c\",\"files\":[" FILE_ "]}",
         ""},
        {"{\"model_dir\":\"/m\",\"error_path\":\"/e\",\"progress_path\":\"/p\",\"cache_dir\":\"/"
         "c\",\"spec\":{\"model\":7},\"files\":[" FILE_ "]}",
         ""},
    };
    struct prepare_request request;
    memset(&request, 0x5a, sizeof request);
    struct prepare_request before = request;
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
        int rc = read_text(odd[i].text, &request);
        if (rc == 0 || strstr(err.text, odd[i].says) == NULL || strstr(err.text, path) == NULL)
            fail_msg("%zu: %d %s", i, rc, err.text);
        assert_memory_equal(&request, &before, sizeof request); /* written only on success */
    }
    char absent[128];
    (void)snprintf(absent, sizeof absent, "%s/absent", folder);
    assert_int_equal(prepare_request_read(absent, &request, &err), -ERR_NOT_FOUND);
}

static void test_errors(void **state)
{
    struct err failure = {.code = ERR_NONE}, told;
    (void)err_set(&failure, ERR_MODEL, "no \"tokenizer\" in /m");
    assert_int_equal(prepare_error_read(path, &told, &err), -ERR_NOT_FOUND);
    assert_int_equal(prepare_error_write(path, &failure, &err), 0);
    assert_int_equal(prepare_error_read(path, &told, &err), 0);
    assert_int_equal(told.code, ERR_MODEL);
    assert_string_equal(told.text, failure.text);
    static const char newer[] = "{\"code\":\"of a newer worker\",\"message\":\"m %s %n\"}";
    assert_int_equal(io_write_file(path, newer, sizeof newer - 1, 0600, &err), 0);
    assert_int_equal(prepare_error_read(path, &told, &err), 0);
    assert_int_equal(told.code, ERR_INTERNAL);
    assert_string_equal(told.text, "m %s %n"); /* text, not a format */
    static const char *const odd[] = {"{}", "{\"code\":\"io\"}", "{\"message\":\"m\"}", "[]", "{",
                                      ""};
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
        assert_int_equal(io_write_file(path, odd[i], strlen(odd[i]), 0600, &err), 0);
        assert_int_equal(prepare_error_read(path, &told, &err), -ERR_CORRUPT);
    }
}

static void test_allocation_failures(void **state)
{
    struct prepare_request request;
    static const char text[] =
        "{\"model_dir\":\"/m\",\"error_path\":\"/e\",\"progress_path\":\"/p\",\"cache_dir\":\"/"
        "c\",\"spec\":" SPEC ",\"files\":[" FILE_ "," FILE_ "]}";
    assert_int_equal(io_write_file(path, text, sizeof text - 1, 0600, &err), 0);
    int rc = -ERR_NOMEM;
    for (int64_t n = 1; rc == -ERR_NOMEM; n++) {
        mem_fault_after(n);
        rc = prepare_request_read(path, &request, &err);
        assert_int_equal(mem_fault_after(0), rc != 0);
        if (rc == 0)
            prepare_request_done(&request);
        assert_int_equal(mem_live(), 0);
        assert_true(n < 100);
    }
    assert_int_equal(rc, 0);
}

#define REQUEST_TEST(function) cmocka_unit_test_setup_teardown(function, setup, folder_close)

int main(void)
{
    const struct CMUnitTest tests[] = {
        REQUEST_TEST(test_round_trip),          REQUEST_TEST(test_random),
        REQUEST_TEST(test_odd_files),           REQUEST_TEST(test_errors),
        REQUEST_TEST(test_allocation_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

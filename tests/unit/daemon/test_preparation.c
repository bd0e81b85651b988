/* preparation: what the prepare child is asked, and the verdict on every kind of report that it may
 * leave, or on none. */
#include "daemon/preparation.h"

#include "common/io.h"
#include "common/json.h"
#include "common/mem.h"
#include "tests/lib/fake_host.h"
#include "tests/lib/folder.h"

#include <unistd.h>

static struct fake_host fake;
static struct err err;

#define TOKENS "%s/job/tokens/"
#define GOOD                                                                                  \
    "{\"lines\":12,\"kept\":10,\"dropped\":2,\"bad\":0,\"tokens\":500,\"trained_tokens\":30," \
    "\"overlength\":4,\"tokens_cut\":70,"                                                     \
    "\"faults\":[]}"

static int setup(void **state)
{
    fake_host_init(&fake);
    return folder_open(state);
}

static void put(const char *name, const char *text)
{
    CLEANUP(mem_free_ptr) char *path = mem_printf(TOKENS "%s", folder, name);
    assert_int_equal(io_write_file(path, text, strlen(text), 0600, &err), 0);
}

static int start(bool validation, struct preparation **ret)
{
    CLEANUP(mem_free_ptr) char *job_dir = mem_printf("%s/job", folder);
    CLEANUP(mem_free_ptr)
    char *text = mem_printf("{\"model\":\"m\",\"training_file\":\"file-a\"%s}",
                            validation ? ",\"validation_file\":\"file-b\"" : "");
    CLEANUP(json_unref) json_t *json = NULL;
    CLEANUP(job_spec_done) struct job_spec spec = {.metadata = NULL};
    if (job_dir == NULL || text == NULL)
        return -ERR_NOMEM;
    fake.now_ms++; /* a next one comes later */
    TRY(json_parse(text, strlen(text), "spec", &json, &err));
    TRY(job_spec_parse(json, &spec, &err));
    const struct preparation_job job = {.worker_program = "/w",
                                        .data_dir = folder,
                                        .job_dir = job_dir,
                                        .model_dir = "/models/m",
                                        .spec = &spec,
                                        .names = {"a.jsonl", "b.txt"}};
    return preparation_start(&fake.host, &job, ret, &err);
}

/* A child that has ended; reports may be NULL. */
static struct preparation *ended(const char *training, const char *validation, int status,
                                 int signal_number)
{
    struct preparation *preparation = NULL;
    assert_int_equal(start(validation != NULL, &preparation), 0);
    if (training != NULL)
        put("report.json", training);
    if (validation != NULL)
        put("valid-report.json", validation);
    assert_false(preparation_is_over(preparation));
    fake_host_end(fake_host_find(&fake, "--prepare"), status, signal_number);
    assert_true(preparation_is_over(preparation));
    return preparation;
}

/* What the verdict says; the code comes back. */
static int verdict(struct preparation *preparation, struct preparation_verdict *ret)
{
    err = (struct err){.code = ERR_NONE};
    int rc = preparation_verdict(preparation, ret, &err);
    preparation_free(preparation);
    return rc;
}

static void test_request(void **state)
{
    struct preparation *preparation = NULL;
    struct prepare_request request;
    CLEANUP(mem_free_ptr) char *wanted = NULL;
    assert_int_equal(start(false, &preparation), 0);
    preparation_free(preparation);
    put("report.json", "an old one");
    assert_int_equal(start(true, &preparation), 0);
    struct host_process *child = fake_host_find(&fake, "--prepare");
    assert_int_equal(prepare_request_read(child->argument, &request, &err), 0);
    assert_int_equal(request.file_count, 2);
    assert_string_equal(request.model_dir, "/models/m");
    assert_string_equal(request.spec.training_file, "file-a");
    wanted = mem_printf("%s/files/file-b", folder);
    assert_string_equal(request.files[1].path, wanted);
    assert_false(io_exists(request.files[0].report_path)); /* nothing old is taken for new */
    assert_string_not_equal(request.files[0].out_path, request.files[1].out_path);
    assert_string_not_equal(request.files[0].report_path, request.files[1].report_path);
    prepare_request_done(&request);
    preparation_kill(preparation);
    assert_int_equal(child->last_signal, SIGKILL);
    child->last_signal = 0;
    fake_host_end(child, 0, SIGKILL);
    preparation_kill(preparation); /* it is over: nothing to end */
    assert_int_equal(child->last_signal, 0);
    preparation_free(preparation);
    assert_true(child->forgotten);
    preparation_free(NULL);
}

/* What a killed child leaves, which may be large, is not removed here: it goes to the trash. So
 * does what a daemon that ended left. */
static void test_killed(void **state)
{
    CLEANUP(mem_free_ptr) char *tokens = mem_printf("%s/job/tokens", folder);
    CLEANUP(mem_free_ptr) char *trash = NULL;
    struct preparation *preparation = NULL;
    assert_int_equal(start(false, &preparation), 0);
    put("train.tok.tmp-1-2", "half a shard");
    preparation_kill(preparation);
    assert_true(io_exists(tokens)); /* the child may still write there */
    fake_host_end(fake_host_find(&fake, "--prepare"), 0, SIGKILL);
    preparation_free(preparation);
    assert_false(io_exists(tokens));
    trash = mem_printf("%s/trash/job-tokens-%lld/train.tok.tmp-1-2", folder,
                       (long long)fake.host.ops->wall_ms(&fake.host));
    assert_true(io_exists(trash));
    assert_int_equal(unlink(trash), 0);
    assert_int_equal(io_make_dirs(tokens, 0700, &err), 0);
    put("train.tok.tmp-1-2", "half a shard");
    assert_int_equal(start(false, &preparation), 0);
    preparation_free(preparation);
    mem_free(trash);
    trash = mem_printf("%s/trash/job-tokens-%lld/train.tok.tmp-1-2", folder,
                       (long long)fake.host.ops->wall_ms(&fake.host));
    assert_true(io_exists(trash));
}

static void test_good(void **state)
{
    struct preparation_verdict said;
    assert_int_equal(verdict(ended(GOOD, NULL, 0, 0), &said), 0);
    assert_int_equal(said.file_count, 1);
    assert_false(said.files[0].bad);
    assert_null(said.files[0].details);
    assert_int_equal(said.files[0].lines, 12);
    assert_int_equal(said.files[0].kept, 10);
    assert_int_equal(said.files[0].dropped, 2);
    assert_int_equal(said.files[0].tokens, 500);
    assert_int_equal(said.files[0].trained_tokens, 30);
    assert_int_equal(said.files[0].overlength, 4);
    assert_int_equal(said.files[0].tokens_cut, 70);
    preparation_verdict_done(&said);
}

static void test_bad_lines(void **state)
{
    static const char bad[] =
        "{\"lines\":9,\"kept\":7,\"dropped\":0,\"bad\":2,\"tokens\":1,\"trained_tokens\":1,"
        "\"overlength\":4,\"tokens_cut\":70,"
        "\"faults\":[{\"line\":3,\"column\":14,\"code\":\"invalid_json\",\"message\":\"odd\"},"
        "{\"line\":8,\"column\":0,\"code\":\"no_answer\",\"message\":\"none\"}]}";
    struct preparation_verdict said;
    assert_int_equal(verdict(ended(bad, NULL, 0, 0), &said), -ERR_DATA);
    assert_string_equal(err.field, "training_file");
    assert_string_equal(err.text,
                        "training_file file-a cannot be used (7 of 9 lines kept): line 3 column "
                        "14: invalid_json: odd; line 8: no_answer: none");
    assert_string_equal(said.files[0].details,
                        "line 3 column 14: invalid_json: odd\nline 8: no_answer: none");
    preparation_verdict_done(&said);
    assert_int_equal(verdict(ended(GOOD, bad, 0, 0), &said), -ERR_DATA);
    assert_string_equal(err.field, "validation_file");
    assert_non_null(strstr(err.text, "validation_file file-b cannot be used"));
    assert_int_equal(said.file_count, 2); /* the good one is told too */
    assert_int_equal(said.files[0].kept, 10);
    assert_true(said.files[1].bad);
    preparation_verdict_done(&said);
}

static void test_nothing_to_train_on(void **state)
{
    struct preparation_verdict said;
    static const char none[] =
        "{\"lines\":3,\"kept\":0,\"dropped\":3,\"bad\":0,\"tokens\":0,"
        "\"trained_tokens\":0,\"overlength\":4,\"tokens_cut\":70,\"faults\":[]}";
    assert_int_equal(verdict(ended(none, NULL, 0, 0), &said), -ERR_DATA);
    assert_non_null(strstr(err.text, "it holds no example to train on"));
    assert_string_equal(said.files[0].details, "");
    preparation_verdict_done(&said);
}

/* Far more faults than a sentence or the details hold. */
static void test_many_faults(void **state)
{
    struct preparation_verdict said;
    CLEANUP(buf_done) struct buf text;
    buf_init(&text, 4 << 20);
    buf_text(&text, "{\"lines\":3000,\"kept\":0,\"dropped\":0,\"bad\":3000,\"tokens\":0,"
                    "\"trained_tokens\":0,\"overlength\":4,\"tokens_cut\":70,\"faults\":[");
    for (int i = 1; i <= 3000; i++)
        buf_printf(&text, "%s{\"line\":%d,\"column\":1,\"code\":\"x\",\"message\":\"%s\"}",
                   i > 1 ? "," : "", i, "wörter wörter wörter wörter");
    buf_text(&text, "]}");
    assert_int_equal(verdict(ended(buf_str(&text), NULL, 0, 0), &said), -ERR_DATA);
    assert_true(strlen(err.text) > 900 && strlen(err.text) < ERR_TEXT_MAX);
    assert_non_null(strstr(err.text, "line 1 column 1: x: w"));
    assert_true(strlen(said.files[0].details) > 60000);
    assert_true(strlen(said.files[0].details) <= 64 << 10);
    preparation_verdict_done(&said);
}

static void test_odd_reports(void **state)
{
    static const char *const odd[] = {
        "",
        "[]",
        "{}",
        "{\"lines\":\"12\"}",
        "{\"lines\":12,\"kept\":10,\"dropped\":2,\"bad\":0,\"tokens\":500}",
        "{\"lines\":9,\"kept\":7,\"dropped\":0,\"bad\":2,\"tokens\":1,\"trained_tokens\":1,"
        "\"overlength\":4,\"tokens_cut\":70,"
        "\"faults\":[{\"line\":3}]}"};
    struct preparation_verdict said;
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
        int rc = verdict(ended(odd[i], NULL, 0, 0), &said);
        if (rc != -ERR_CORRUPT)
            fail_msg("report %zu: %d", i, rc);
        preparation_verdict_done(&said);
    }
    assert_int_equal(verdict(ended(NULL, NULL, 0, 0), &said), -ERR_NOT_FOUND);
    preparation_verdict_done(&said);
    assert_int_not_equal(verdict(ended(GOOD, "", 0, 0), &said), 0);
    assert_int_equal(said.file_count, 1); /* the one that could be read */
    preparation_verdict_done(&said);
}

static void test_child_fails(void **state)
{
    struct preparation_verdict said;
    struct preparation *preparation = NULL;
    assert_int_equal(start(false, &preparation), 0);
    put("report.json", GOOD); /* not looked at */
    put("error.json", "{\"code\":\"invalid_model\",\"message\":\"no tokenizer\"}");
    fake_host_end(fake_host_find(&fake, "--prepare"), 65, 0);
    assert_int_equal(verdict(preparation, &said), -ERR_MODEL);
    assert_string_equal(err.text, "no tokenizer");
    assert_int_equal(said.file_count, 0);
    assert_int_equal(verdict(ended(GOOD, NULL, 70, 0), &said), -ERR_INTERNAL);
    assert_non_null(strstr(err.text, "exit status 70"));
    assert_int_equal(verdict(ended(GOOD, NULL, 0, SIGKILL), &said), -ERR_INTERNAL);
    assert_non_null(strstr(err.text, "signal 9"));
    fake.spawn_fails = true;
    assert_int_equal(start(false, &preparation), -ERR_IO);
}

static void test_allocation_failures(void **state)
{
    int rc = -ERR_NOMEM;
    for (int64_t n = 1; rc == -ERR_NOMEM; n++) {
        struct preparation *preparation = NULL;
        fake.count = 0;
        mem_fault_after(n);
        rc = start(true, &preparation);
        assert_int_equal(mem_fault_after(0), rc != 0);
        preparation_free(preparation);
        assert_int_equal(mem_live(), 0);
        assert_true(n < 500);
    }
    assert_int_equal(rc, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_request, setup, folder_close),
        cmocka_unit_test_setup_teardown(test_killed, setup, folder_close),
        cmocka_unit_test_setup_teardown(test_good, setup, folder_close),
        cmocka_unit_test_setup_teardown(test_bad_lines, setup, folder_close),
        cmocka_unit_test_setup_teardown(test_nothing_to_train_on, setup, folder_close),
        cmocka_unit_test_setup_teardown(test_many_faults, setup, folder_close),
        cmocka_unit_test_setup_teardown(test_odd_reports, setup, folder_close),
        cmocka_unit_test_setup_teardown(test_child_fails, setup, folder_close),
        cmocka_unit_test_setup_teardown(test_allocation_failures, setup, folder_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

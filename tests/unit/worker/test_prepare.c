/* prepare: a request becomes shards and reports; what goes wrong is in error.json and in the code;
 * bad lines are no failure. */
#include "worker/prepare.h"

#include "common/clock.h"
#include "common/dataset.h"
#include "common/prepare_request.h"
#include "tests/lib/model_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define GOOD                                                                                    \
    "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":" \
    "\"b\"}]}\n"

static struct model_folder folder;
static char *request_path;

static char *in_folder(const char *name)
{
    return io_join(folder.dir, name);
}

static void put(const char *name, const char *text)
{
    CLEANUP(mem_free_ptr) char *path = in_folder(name);
    OK(&folder, io_write_file(path, text, strlen(text), 0600, &folder.err));
}

/* Writes the request for one or two files. */
static void request(size_t files)
{
    static const char text[] =
        "{\"model\":\"m\",\"training_file\":\"file-a\",\"ithaca\":{\"seq_len\":64}}";
    CLEANUP(json_unref) json_t *json = NULL;
    struct prepare_request asked = {.file_count = files,
                                    .model_dir = mem_strdup(folder.dir),
                                    .error_path = in_folder("error.json"),
                                    .progress_path = in_folder("progress.json"),
                                    .cache_dir = in_folder("cache")};
    OK(&folder, json_parse(text, strlen(text), "spec", &json, &folder.err));
    OK(&folder, job_spec_parse(json, &asked.spec, &folder.err));
    for (size_t i = 0; i < files; i++)
        asked.files[i] =
            (struct prepare_file){.path = in_folder(i == 0 ? "a.jsonl" : "b.jsonl"),
                                  .name = mem_strdup("data.jsonl"),
                                  .out_path = in_folder(i == 0 ? "a.tok" : "b.tok"),
                                  .report_path = in_folder(i == 0 ? "a.json" : "b.json")};
    OK(&folder, prepare_request_write(request_path, &asked, &folder.err));
    prepare_request_done(&asked);
}

static int setup(void **state)
{
    model_folder_open(&folder, &model_folder_config, NULL);
    request_path = in_folder("request.json");
    return 0;
}

static int teardown(void **state)
{
    mem_free(request_path);
    model_folder_close(&folder);
    assert_int_equal(mem_live(), 0);
    return 0;
}

static int64_t reported(const char *name, const char *key)
{
    CLEANUP(mem_free_ptr) char *path = in_folder(name);
    CLEANUP(json_unref) json_t *report = NULL;
    OK(&folder, json_parse_file(path, 1 << 20, &report, &folder.err));
    return json_integer_value(json_object_get(report, key));
}

static bool there(const char *name)
{
    CLEANUP(mem_free_ptr) char *path = in_folder(name);
    return io_exists(path);
}

static void expect_whole_shard(int64_t examples)
{
    struct dataset data;
    CLEANUP(mem_free_ptr) char *shard = in_folder("a.tok");
    OK(&folder, dataset_open(shard, &data, &folder.err));
    assert_int_equal(data.examples, examples);
    dataset_close(&data);
}

static void test_two_files(void **state)
{
    put("a.jsonl", GOOD GOOD "\n");
    put("b.jsonl", GOOD);
    request(2);
    OK(&folder, prepare_main(request_path, &folder.err));
    assert_int_equal(reported("a.json", "kept"), 2);
    assert_int_equal(reported("a.json", "dropped"), 1);
    assert_int_equal(reported("b.json", "kept"), 1);
    assert_false(there("error.json"));
    expect_whole_shard(2);
}

static void *prepare(void *unused)
{
    struct err err;
    return prepare_main(request_path, &err) == 0 ? request_path : NULL;
}

static void rename_in_folder(const char *from, const char *to)
{
    CLEANUP(mem_free_ptr) char *old = in_folder(from);
    CLEANUP(mem_free_ptr) char *new = in_folder(to);
    assert_int_equal(rename(old, new), 0);
}

static ino_t inode(const char *name)
{
    CLEANUP(mem_free_ptr) char *path = in_folder(name);
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    return info.st_ino;
}

/* While another job makes the tokens its progress says so, then they are taken; tokens that are
 * there wait for none. */
static void test_wait_for_another(void **state)
{
    CLEANUP(mem_free_ptr) char *path = in_folder("cache.lock");
    CLEANUP(mem_free_ptr) char *progress = in_folder("progress.json");
    struct flock all = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    pthread_t thread;
    void *done = NULL;
    put("a.jsonl", GOOD);
    request(1);
    OK(&folder, prepare_main(request_path, &folder.err));
    rename_in_folder("a.tok", "others.tok");
    rename_in_folder("cache", "later");
    assert_int_equal(unlink(progress), 0);
    int other = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(other >= 0 && fcntl(other, F_OFD_SETLK, &all) == 0);
    assert_int_equal(pthread_create(&thread, NULL, prepare, NULL), 0);
    for (int i = 0; i < 10000 && !io_exists(progress); i++)
        clock_sleep_ms(1);
    CLEANUP(json_unref) json_t *told = NULL;
    OK(&folder, json_parse_file(progress, 1 << 20, &told, &folder.err));
    assert_true(json_is_true(json_object_get(told, "waiting")));
    assert_int_equal(json_integer_value(json_object_get(told, "file")), 1);
    assert_false(there("a.tok"));
    rename_in_folder("later", "cache");
    all.l_type = F_UNLCK;
    assert_int_equal(fcntl(other, F_OFD_SETLK, &all), 0);
    assert_int_equal(pthread_join(thread, &done), 0);
    assert_non_null(done);
    assert_true(inode("a.tok") == inode("others.tok"));
    all.l_type = F_WRLCK;
    assert_int_equal(fcntl(other, F_OFD_SETLK, &all), 0);
    assert_int_equal(unlink(progress), 0);
    OK(&folder, prepare_main(request_path, &folder.err));
    assert_false(io_exists(progress));
    (void)close(other);
}

static void test_bad_lines_are_reported(void **state)
{
    put("a.jsonl", GOOD "{\n");
    request(1);
    OK(&folder, prepare_main(request_path, &folder.err));
    assert_int_equal(reported("a.json", "bad"), 1);
    assert_false(there("error.json"));
}

static void expect_error(enum err_code code, const char *says)
{
    CLEANUP(mem_free_ptr) char *path = in_folder("error.json");
    struct err told;
    assert_int_equal(prepare_main(request_path, &folder.err), -(int)code);
    OK(&folder, prepare_error_read(path, &told, &folder.err));
    assert_int_equal(told.code, code);
    if (strstr(told.text, says) == NULL)
        fail_msg("%s", told.text);
    assert_int_equal(unlink(path), 0);
}

static void test_failures(void **state)
{
    CLEANUP(mem_free_ptr) char *tokenizer = in_folder("tokenizer.json");
    request(1);
    expect_error(ERR_NOT_FOUND, "a.jsonl"); /* no file */
    put("a.jsonl", GOOD);
    put("tokenizer.json", "{}");
    expect_error(ERR_MODEL, "tokenizer.json");
    assert_int_equal(unlink(tokenizer), 0);
    assert_int_not_equal(prepare_main(request_path, &folder.err), 0);
    assert_true(there("error.json"));
}

static void test_unreadable_requests(void **state)
{
    assert_int_equal(prepare_main(request_path, &folder.err), -ERR_NOT_FOUND);
    put("request.json", "{\"files\":[]}");
    assert_int_equal(prepare_main(request_path, &folder.err), -ERR_CORRUPT);
    assert_non_null(strstr(folder.err.text, "request.json"));
    assert_false(there("error.json")); /* nobody said where it goes */
}

/* Nothing but what has its proper name. */
static void expect_no_leftovers(void)
{
    static const char *const names[] = {"a.jsonl",
                                        "a.tok",
                                        "a.json",
                                        "error.json",
                                        "request.json",
                                        "cache.lock",
                                        "config.json",
                                        "model.safetensors",
                                        "tokenizer.json",
                                        "tokenizer_config.json",
                                        ".",
                                        ".."};
    DIR *stream = opendir(folder.dir);
    assert_non_null(stream);
    for (const struct dirent *entry; (entry = readdir(stream)) != NULL;) {
        bool known = false;
        for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
            known = known || strcmp(entry->d_name, names[i]) == 0;
        if (!known)
            fail_msg("%s is left", entry->d_name);
    }
    (void)closedir(stream);
}

/* A full disk, at any moment: a shard is whole or absent, the reason is told. */
static void test_full_disk(void **state)
{
    put("a.jsonl", GOOD);
    request(1);
    int rc = -1;
    for (int64_t n = 1; rc != 0; n++) {
        io_fault_after(n);
        rc = prepare_main(request_path, &folder.err);
        io_fault_after(0);
        if (rc == 0)
            break;
        assert_int_equal(rc, -ERR_NO_SPACE);
        assert_true(n < 100);
        if (there("a.tok"))
            expect_whole_shard(1);
        expect_no_leftovers();
        assert_true(there("error.json")); /* a fault comes once: the reason is written */
    }
    assert_int_equal(reported("a.json", "kept"), 1);
}

#define PREPARE_TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        PREPARE_TEST(test_two_files),           PREPARE_TEST(test_bad_lines_are_reported),
        PREPARE_TEST(test_wait_for_another),    PREPARE_TEST(test_failures),
        PREPARE_TEST(test_unreadable_requests), PREPARE_TEST(test_full_disk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

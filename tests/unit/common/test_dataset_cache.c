/* dataset_cache: what is made once is found again, and what no job holds goes. */
#include "common/dataset_cache.h"

#include "tests/lib/dataset_scene.h"

#include <sys/stat.h>

static char *cache_dir(void)
{
    return io_join(folder, "cache");
}

static void key_of(char ret_key[IO_HASH_BYTES])
{
    struct err err;
    MUST_WORK(dataset_cache_key(&request, ret_key, &err), &err);
}

static void test_key(void **state)
{
    char first[IO_HASH_BYTES], other[IO_HASH_BYTES];
    struct err err;
    prepare_text(GOOD);
    key_of(first);
    key_of(other);
    assert_string_equal(first, other);
    request.seq_len++;
    key_of(other);
    assert_string_not_equal(first, other);
    request.seq_len--;
    request.name = "x.txt";
    key_of(other);
    assert_string_not_equal(first, other);
    request.name = "y.jsonl";
    key_of(other);
    assert_string_equal(first, other); /* text or not counts, not the name */
    request.train_on = JOB_train_on_ALL;
    key_of(other);
    assert_string_not_equal(first, other);
    request.train_on = JOB_train_on_ASSISTANT;
    prepare_text(GOOD "\n");
    key_of(other);
    assert_string_not_equal(first, other);
    CLEANUP(mem_free_ptr) char *jinja = io_join(folder, "chat_template.jinja");
    prepare_text(GOOD);
    assert_int_equal(io_write_file(jinja, "x", 1, 0644, &err), 0);
    key_of(other);
    assert_string_not_equal(first, other);
    assert_int_equal(unlink(jinja), 0);
    request.path = "/nonexistent-folder/x";
    key_of(other); /* preparing says what is missing */
}

static void test_take(void **state)
{
    CLEANUP(mem_free_ptr) char *cache = cache_dir();
    char key[IO_HASH_BYTES];
    bool hit = true;
    struct err err;
    struct stat info;
    prepare_text(GOOD);
    key_of(key);
    assert_int_equal(dataset_cache_sweep(cache, &err), 0); /* no folder yet */
    assert_int_equal(dataset_cache_take(cache, key, &request, &hit, &err), 0);
    assert_false(hit);
    prepare_text(GOOD); /* a miss takes the output away */
    assert_int_equal(dataset_cache_keep(cache, key, &request, &err), 0);
    assert_int_equal(dataset_cache_keep(cache, key, &request, &err), 0); /* twice is fine */
    assert_int_equal(stat(out_path, &info), 0);
    assert_int_equal(info.st_nlink, 2);
    assert_int_equal(dataset_cache_sweep(cache, &err), 0); /* a job holds it */
    assert_int_equal(unlink(report_path), 0);
    assert_int_equal(dataset_cache_take(cache, key, &request, &hit, &err), 0);
    assert_true(hit);
    assert_true(io_exists(report_path));
    struct dataset again;
    assert_int_equal(dataset_open(out_path, &again, &err), 0);
    assert_int_equal(again.examples, 1);
    dataset_close(&again);
    assert_int_equal(unlink(out_path), 0);
    assert_int_equal(unlink(report_path), 0);
    assert_int_equal(dataset_cache_sweep(cache, &err), 0);
    assert_int_equal(dataset_cache_take(cache, key, &request, &hit, &err), 0);
    assert_false(hit);
}

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(test_key), TEST(test_take)};
    return cmocka_run_group_tests(tests, setup, teardown);
}

/* dataset_cache: what is made once is found again, and what no job holds goes. */
#include "common/dataset_cache.h"

#include "tests/lib/dataset_scene.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/stat.h>

static char *cache_dir(void)
{
    return io_join(folder, "cache");
}

static void keys_of(struct dataset_cache_keys *keys)
{
    struct err err;
    MUST_WORK(dataset_cache_keys(&request, keys, &err), &err);
}

/* Both are others, or neither is. */
static void expect_other(const struct dataset_cache_keys *first, bool other)
{
    struct dataset_cache_keys now;
    keys_of(&now);
    assert_int_equal(strcmp(now.exact, first->exact) != 0, other);
    assert_int_equal(strcmp(now.whole, first->whole) != 0, other);
}

static void test_keys(void **state)
{
    struct dataset_cache_keys first, other;
    struct err err;
    prepare_text(GOOD);
    keys_of(&first);
    expect_other(&first, false);
    assert_string_not_equal(first.exact, first.whole);
    for (int change = 0; change < 2; change++) { /* a shard of whole rows is that of both */
        request.seq_len += change == 0;
        request.overlength = change == 0 ? JOB_overlength_CUT : JOB_overlength_CHUNK;
        keys_of(&other);
        assert_string_not_equal(first.exact, other.exact);
        assert_string_equal(first.whole, other.whole);
        request.seq_len -= change == 0;
    }
    request.overlength = JOB_overlength_CUT;
    request.name = "x.txt";
    expect_other(&first, true);
    request.name = "y.jsonl";
    expect_other(&first, false); /* text or not counts, not the name */
    request.train_on = JOB_train_on_ALL;
    expect_other(&first, true);
    request.train_on = JOB_train_on_ASSISTANT;
    prepare_text(GOOD "\n");
    expect_other(&first, true);
    CLEANUP(mem_free_ptr) char *jinja = io_join(folder, "chat_template.jinja");
    prepare_text(GOOD);
    assert_int_equal(io_write_file(jinja, "x", 1, 0644, &err), 0);
    expect_other(&first, true);
    assert_int_equal(unlink(jinja), 0);
    request.path = "/nonexistent-folder/x";
    keys_of(&other); /* preparing says what is missing */
}

static void test_take(void **state)
{
    CLEANUP(mem_free_ptr) char *cache = cache_dir();
    struct dataset_cache_keys keys;
    bool hit = true;
    struct err err;
    struct stat info;
    prepare_text(GOOD);
    keys_of(&keys);
    assert_int_equal(dataset_cache_sweep(cache, &err), 0); /* no folder yet */
    assert_int_equal(dataset_cache_take(cache, &keys, &request, &hit, &err), 0);
    assert_false(hit);
    prepare_text(GOOD); /* a miss takes the output away */
    assert_int_equal(dataset_cache_keep(cache, &keys, &request, &err), 0);
    assert_int_equal(dataset_cache_keep(cache, &keys, &request, &err), 0); /* twice is fine */
    assert_int_equal(stat(out_path, &info), 0);
    assert_int_equal(info.st_nlink, 2);
    assert_int_equal(dataset_cache_sweep(cache, &err), 0); /* a job holds it */
    assert_int_equal(unlink(report_path), 0);
    assert_int_equal(dataset_cache_take(cache, &keys, &request, &hit, &err), 0);
    assert_true(hit);
    assert_true(io_exists(report_path));
    struct dataset again;
    assert_int_equal(dataset_open(out_path, &again, &err), 0);
    assert_int_equal(again.examples, 1);
    dataset_close(&again);
    assert_int_equal(unlink(out_path), 0);
    assert_int_equal(unlink(report_path), 0);
    assert_int_equal(dataset_cache_sweep(cache, &err), 0);
    assert_int_equal(dataset_cache_take(cache, &keys, &request, &hit, &err), 0);
    assert_false(hit);
}

static bool found(const char *cache)
{
    struct dataset_cache_keys keys;
    struct err err;
    bool hit = false;
    keys_of(&keys);
    assert_int_equal(dataset_cache_take(cache, &keys, &request, &hit, &err), 0);
    return hit;
}

/* GOOD is 7 tokens. A shard of whole rows is found by every seq_len that they fit in, one of rows
 * that were cut by its own alone. */
static void test_other_lengths(void **state)
{
    CLEANUP(mem_free_ptr) char *cache = cache_dir();
    struct dataset_cache_keys keys;
    struct err err;
    prepare_text(GOOD);
    keys_of(&keys);
    assert_int_equal(dataset_cache_keep(cache, &keys, &request, &err), 0);
    for (request.seq_len = 5; request.seq_len < 10; request.seq_len++) {
        request.overlength = request.seq_len % 2 ? JOB_overlength_CHUNK : JOB_overlength_REFUSE;
        assert_int_equal(found(cache), request.seq_len >= 7);
        prepare_text(GOOD); /* what is found is what would be made; else the output is not there */
    }
    assert_int_equal(io_remove_tree(cache, &err), 0);
    request.seq_len = 7; /* the longest row, no token more */
    prepare_text(GOOD);
    keys_of(&keys);
    assert_int_equal(dataset_cache_keep(cache, &keys, &request, &err), 0);
    request.seq_len = 8;
    assert_true(found(cache));
    request.seq_len = 6;
    request.overlength = JOB_overlength_CUT;
    prepare_text(GOOD);
    keys_of(&keys);
    assert_int_equal(dataset_cache_keep(cache, &keys, &request, &err), 0);
    for (request.seq_len = 5; request.seq_len < 9; request.seq_len++)
        assert_int_equal(found(cache), request.seq_len != 5);
    request.seq_len = 6;
    assert_true(found(cache)); /* the cut one, though there is one of whole rows */
    assert_int_equal(dataset_open(out_path, &dataset, &err), 0);
    assert_int_equal(dataset.tokens, 6);
    assert_int_equal(io_remove_tree(cache, &err), 0);
}

struct waiting {
    const char *cache;
    struct dataset_cache_keys keys;
    atomic_bool locked;
};

static void *wait_for_lock(void *context)
{
    struct waiting *waiting = context;
    struct err err;
    int fd = -1;
    if (dataset_cache_lock(waiting->cache, &waiting->keys, true, &fd, &err) == 0) {
        atomic_store(&waiting->locked, true);
        (void)close(fd);
    }
    return NULL;
}

/* One makes a shard, who wants the same waits; who wants another does not. */
static void test_lock(void **state)
{
    CLEANUP(mem_free_ptr) char *cache = cache_dir();
    struct waiting waiting = {.cache = cache};
    struct dataset_cache_keys other, same;
    struct err err;
    int first = -1, second = -1;
    pthread_t thread;
    prepare_text(GOOD);
    keys_of(&waiting.keys);
    request.seq_len++; /* the same shard, where all rows fit */
    keys_of(&same);
    request.train_on = JOB_train_on_ALL;
    keys_of(&other);
    assert_int_equal(dataset_cache_lock(cache, &waiting.keys, false, &first, &err), 0);
    assert_true(first >= 0);
    assert_int_equal(pthread_create(&thread, NULL, wait_for_lock, &waiting), 0);
    assert_int_equal(dataset_cache_lock(cache, &same, false, &second, &err), 0);
    assert_int_equal(second, -1);
    assert_int_equal(dataset_cache_lock(cache, &other, true, &second, &err), 0);
    (void)close(second);
    for (int i = 0; i < 1000; i++) { /* a lock that does not hold is seen; one that does, always */
        (void)sched_yield();
        assert_false(atomic_load(&waiting.locked));
    }
    (void)close(first);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(atomic_load(&waiting.locked));
}

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(test_keys), TEST(test_take), TEST(test_other_lengths),
                                       TEST(test_lock)};
    return cmocka_run_group_tests(tests, setup, teardown);
}

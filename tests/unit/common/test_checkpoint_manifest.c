/* checkpoint_manifest: the round trip, every flipped bit of the file, every file that is not as
 * said, and the list. */
#include "common/checkpoint_manifest.h"
#include "common/mem.h"
#include "tests/lib/cmocka.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char job_dir[64];

static int make_job_dir(void **state)
{
    (void)snprintf(job_dir, sizeof job_dir, "/dev/shm/ithaca-manifest-XXXXXX");
    return mkdtemp(job_dir) != NULL ? 0 : -1;
}

static int remove_job_dir(void **state)
{
    struct err err;
    return io_remove_tree(job_dir, &err);
}

static void put(const char *path, const void *bytes, size_t length) /* without any fsync */
{
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, length, file), length);
    assert_int_equal(fclose(file), 0);
}

static struct checkpoint_manifest example(void)
{
    struct checkpoint_manifest manifest = {.job_id = "ftjob-a",
                                           .attempt = 2,
                                           .world = 3,
                                           .created_ms = 1790000000000,
                                           .position = 80,
                                           .progress = {.step = 10,
                                                        .updates = 9,
                                                        .trained_tokens = 12345,
                                                        .loss = 0.1 + 0.2,
                                                        .valid_loss = (double)NAN,
                                                        .best_valid_loss = 2.0,
                                                        .best_step = 5,
                                                        .stale = 1},
                                           .file_count = 3};
    io_hash("m", 1, manifest.model_digest);
    io_hash("d", 1, manifest.data_digest);
    for (uint32_t i = 0; i < 3; i++) {
        manifest.files[i].bytes = 100 + i;
        io_hash(&i, sizeof i, manifest.files[i].hash);
    }
    return manifest;
}

/* A folder with rank files of the sizes said; mem_free() it. */
static char *make_checkpoint(int64_t step)
{
    struct err err;
    struct checkpoint_manifest manifest = example();
    manifest.progress.step = step;
    char *dir = checkpoint_dir(job_dir, step);
    char bytes[200] = {0};
    assert_int_equal(io_make_dirs(dir, 0700, &err), 0);
    for (uint32_t i = 0; i < manifest.file_count; i++) {
        char *path = checkpoint_file_path(dir, i);
        put(path, bytes, (size_t)manifest.files[i].bytes);
        mem_free(path);
    }
    if (checkpoint_manifest_write(dir, &manifest, &err) != 0)
        fail_msg("%s", err.text);
    return dir;
}

static void refused(const char *dir, const char *what)
{
    struct err err = {0};
    struct checkpoint_manifest manifest;
    memset(&manifest, 0xee, sizeof manifest);
    struct checkpoint_manifest untouched = manifest;
    int rc = checkpoint_manifest_read(dir, &manifest, &err);
    if (rc != -ERR_CORRUPT && rc != -ERR_NOT_FOUND)
        fail_msg("%s: rc %d: %s", what, rc, err.text);
    assert_int_equal(rc, -(int)err.code);
    assert_true(strstr(err.text, dir) != NULL);
    assert_memory_equal(&manifest, &untouched, sizeof manifest);
}

static void test_round_trip(void **state)
{
    struct err err;
    struct checkpoint_manifest read;
    const struct checkpoint_manifest wrote = example();
    char *dir = make_checkpoint(10);
    if (checkpoint_manifest_read(dir, &read, &err) != 0)
        fail_msg("%s", err.text);
    assert_true(isnan(read.progress.valid_loss));
    read.progress.valid_loss = wrote.progress.valid_loss;
    assert_memory_equal(&read, &wrote, sizeof read);
    assert_int_equal(checkpoint_manifest_bytes(&read), 303);
    mem_free(dir);
    assert_int_equal(mem_live(), 0);
}

static void test_adapters(void **state)
{
    struct err err;
    char *dir = make_checkpoint(10);
    struct checkpoint_manifest wrote = example(), read;
    wrote.adapters = (struct job_spec){.model = "org/base",
                                       .lora = true,
                                       .lora_r = 8,
                                       .lora_alpha = 24,
                                       .lora_dropout = 0.05,
                                       .lora_modules = 5,
                                       .lora_export = JOB_lora_export_MERGED};
    assert_int_equal(checkpoint_manifest_write(dir, &wrote, &err), 0);
    if (checkpoint_manifest_read(dir, &read, &err) != 0)
        fail_msg("%s", err.text);
    read.progress.valid_loss = wrote.progress.valid_loss; /* NaN */
    assert_memory_equal(&read, &wrote, sizeof read);
    mem_free(dir);
    assert_int_equal(mem_live(), 0);
}

static void test_every_flipped_bit_shows(void **state)
{
    struct err err;
    char *dir = make_checkpoint(10);
    char *path = io_join(dir, "manifest.json");
    struct buf text;
    buf_init(&text, 1 << 16);
    assert_int_equal(io_read_file(path, 1 << 16, &text, &err), 0);
    struct checkpoint_manifest wrote, read;
    assert_int_equal(checkpoint_manifest_read(dir, &wrote, &err), 0);
    int same = 0; /* the last digit of a real may not matter: 0.30000000000000005 */
    for (size_t bit = 0; bit < 8 * text.length; bit++) {
        text.data[bit / 8] = (char)(text.data[bit / 8] ^ 1 << bit % 8);
        put(path, text.data, text.length);
        read = (struct checkpoint_manifest){0};
        if (checkpoint_manifest_read(dir, &read, &err) != 0)
            refused(dir, "a flipped bit");
        else if (memcmp(&read, &wrote, sizeof read) != 0 || ++same > 4)
            fail_msg("bit %zu went unseen", bit);
        text.data[bit / 8] = (char)(text.data[bit / 8] ^ 1 << bit % 8);
    }
    for (size_t length = 0; length + 2 < text.length; length += 7) {
        put(path, text.data, length);
        refused(dir, "a cut manifest");
    }
    buf_done(&text);
    mem_free(path);
    mem_free(dir);
    assert_int_equal(mem_live(), 0);
}

static void test_files_and_names(void **state)
{
    struct err err;
    char *dir = make_checkpoint(10), *other = checkpoint_dir(job_dir, 11);
    char *file = checkpoint_file_path(dir, 1);
    assert_int_equal(truncate(file, 100), 0);
    refused(dir, "a short file");
    assert_int_equal(unlink(file), 0);
    refused(dir, "a missing file");
    put(file, job_dir, 1);
    assert_int_equal(truncate(file, 101), 0);
    struct checkpoint_manifest manifest;
    assert_int_equal(checkpoint_manifest_read(dir, &manifest, &err), 0);
    assert_int_equal(rename(dir, other), 0);
    refused(other, "another step's folder");
    assert_int_equal(rename(other, dir), 0);
    char *path = io_join(dir, "manifest.json");
    assert_int_equal(unlink(path), 0);
    refused(dir, "no manifest");
    mem_free(path);
    mem_free(file);
    mem_free(other);
    mem_free(dir);
    assert_int_equal(mem_live(), 0);
}

static void test_list(void **state)
{
    struct err err;
    int64_t *steps = NULL;
    size_t count = 7;
    assert_int_equal(checkpoint_list("/nonexistent/job", &steps, &count, &err), 0);
    assert_int_equal(count, 0);
    static const char *const names[] = {"step-9",
                                        "step-100",
                                        "step-20",
                                        "step-0",
                                        "step-010",
                                        "step-",
                                        "step-5x",
                                        "step-30.tmp",
                                        "other",
                                        "step--1",
                                        "step-99999999999999999999"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[160];
        (void)snprintf(path, sizeof path, "%s/checkpoints/%s", job_dir, names[i]);
        assert_int_equal(io_make_dirs(path, 0700, &err), 0);
    }
    assert_int_equal(checkpoint_list(job_dir, &steps, &count, &err), 0);
    assert_int_equal(count, 4);
    const int64_t want[] = {100, 20, 9, 0};
    assert_memory_equal(steps, want, sizeof want);
    mem_free(steps);
    assert_int_equal(checkpoint_step_of("/a/b/step-12"), 12);
    assert_int_equal(checkpoint_step_of("/a/step-12/b"), -1);
    assert_int_equal(mem_live(), 0);
}

static void test_out_of_memory(void **state)
{
    struct err err;
    char *dir = make_checkpoint(10);
    for (int64_t n = 1;; n++) {
        struct checkpoint_manifest manifest = example();
        mem_fault_after(n);
        int rc = checkpoint_manifest_write(dir, &manifest, &err);
        if (rc == 0)
            rc = checkpoint_manifest_read(dir, &manifest, &err);
        mem_fault_after(0);
        if (rc == 0)
            break;
        assert_int_equal(err.code, ERR_NOMEM);
        assert_true(n < 1000);
    }
    mem_free(dir);
    assert_int_equal(mem_live(), 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_job_dir, remove_job_dir)
    const struct CMUnitTest tests[] = {
        TEST(test_round_trip),      TEST(test_adapters), TEST(test_every_flipped_bit_shows),
        TEST(test_files_and_names), TEST(test_list),     TEST(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

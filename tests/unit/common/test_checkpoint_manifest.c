/* checkpoint_manifest: the round trip, every flipped bit of the file, every file that is not as
 * said, and the list. */
#include "common/checkpoint_manifest.h"
#include "common/json.h"
#include "common/mem.h"
#include "tests/lib/folder.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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
    char *dir = checkpoint_dir(folder, step);
    char bytes[200] = {0};
    assert_int_equal(io_make_dirs(dir, 0700, &err), 0);
    for (uint32_t i = 0; i < manifest.file_count; i++) {
        char *path = checkpoint_file_path(dir, i);
        put(path, bytes, (size_t)manifest.files[i].bytes);
        mem_free(path);
    }
    MUST_WORK(checkpoint_manifest_write(dir, &manifest, &err), &err);
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
    MUST_WORK(checkpoint_manifest_read(dir, &read, &err), &err);
    assert_true(isnan(read.progress.valid_loss));
    read.progress.valid_loss = wrote.progress.valid_loss; /* NaN */
    assert_memory_equal(&read, &wrote, sizeof read);
    assert_int_equal(checkpoint_manifest_bytes(&read), 303);
    mem_free(dir);
    assert_int_equal(mem_live(), 0);
}

static const struct job_spec adapters = {.model = "org/base",
                                         .lora = true,
                                         .lora_r = 8,
                                         .lora_alpha = 24,
                                         .lora_dropout = 0.05,
                                         .lora_modules = 5,
                                         .lora_export = JOB_lora_export_MERGED};

static void test_adapters(void **state)
{
    struct err err;
    char *dir = make_checkpoint(10);
    struct checkpoint_manifest wrote = example(), read;
    wrote.adapters = adapters;
    assert_int_equal(checkpoint_manifest_write(dir, &wrote, &err), 0);
    MUST_WORK(checkpoint_manifest_read(dir, &read, &err), &err);
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

/* ---- one value changed, with the hash put right ---- */

static void change(const char *dir, const char *path, const char *value)
{
    struct err err;
    char *file = io_join(dir, "manifest.json"), hash[IO_HASH_BYTES];
    struct buf text;
    json_t *object = NULL;
    buf_init(&text, 1 << 16);
    assert_int_equal(json_parse_own_file(file, 1 << 16, &object, &err), 0);
    assert_int_equal(
        json_set_path(object, path, json_loads(value, JSON_DECODE_ANY, NULL), ERR_CORRUPT, &err),
        0);
    if (strcmp(path, "hash") != 0) {
        assert_int_equal(json_object_del(object, "hash"), 0);
        assert_int_equal(json_print(object, &text, &err), 0);
        io_hash(buf_str(&text), text.length, hash);
        assert_int_equal(json_object_set_new(object, "hash", json_string(hash)), 0);
    }
    buf_clear(&text);
    assert_int_equal(json_print(object, &text, &err), 0);
    put(file, text.data, text.length);
    json_decref(object);
    buf_done(&text);
    mem_free(file);
}

/* says: words of the refusal, NULL: it is read. */
static void changed(const char *path, const char *value, const char *says)
{
    struct err err = {0};
    struct checkpoint_manifest manifest = example(), read;
    manifest.adapters = adapters;
    char *dir = make_checkpoint(10);
    assert_int_equal(checkpoint_manifest_write(dir, &manifest, &err), 0);
    change(dir, path, value);
    int rc = checkpoint_manifest_read(dir, &read, &err);
    if (says == NULL ? rc != 0 : rc != -ERR_CORRUPT || strstr(err.text, says) == NULL)
        fail_msg("%s = %s: rc %d: %s", path, value, rc, err.text);
    mem_free(dir);
}

static void test_numbers_out_of_range(void **state)
{
    static const struct {
        const char *path;
        long long min, max;
    } counts[] = {
        {"version", 1, 1},
        {"attempt", 1, INT32_MAX},
        {"world", 3, LIMIT_RANKS}, /* there are three files */
        {"created_ms", 0, INT64_MAX},
        {"loader.position", 0, INT64_MAX},
        {"step", 10, 10},   /* the folder's */
        {"updates", 0, 10}, /* no more than steps */
        {"trained_tokens", 0, INT64_MAX},
        {"metrics.best_step", 0, 10},
        {"metrics.stale", 0, 10},
        {"lora.r", 1, 1024},
    };
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        const char *dot = strrchr(counts[i].path, '.');
        const char *key = dot != NULL ? dot + 1 : counts[i].path;
        const char *where = strcmp(key, "world") == 0  ? "\"files\" has 3"
                            : strcmp(key, "step") == 0 ? "step"
                                                       : key;
        char value[32];
        for (int top = 0; top < 2; top++) {
            long long last = top ? counts[i].max : counts[i].min;
            (void)snprintf(value, sizeof value, "%lld", last);
            changed(counts[i].path, value, NULL);
            if (last == INT64_MAX)
                continue;
            (void)snprintf(value, sizeof value, "%lld", top ? last + 1 : last - 1);
            changed(counts[i].path, value, top && where[0] == '"' ? "\"world\"" : where);
        }
        changed(counts[i].path, "\"1\"", key);
        changed(counts[i].path, "null", key);
    }
    changed("world", "0", "\"world\" is 0");
    changed("step", "-1", "\"step\" is -1");
    assert_int_equal(mem_live(), 0);
}

static void test_other_values(void **state)
{
#define HASH "\"0123456789abcdef0123456789abcdef\""
#define FILE_OF(name, bytes) "{\"name\":\"" name "\",\"bytes\":" bytes ",\"hash\":" HASH "}"
#define TWO_FILES FILE_OF("rank-0.ckpt", "100") "," FILE_OF("rank-1.ckpt", "101") ","
#define LONG "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef" /* 64 */
    static const struct {
        const char *path, *value, *says;
    } cases[] = {
        {"hash", HASH, "hash does not match"},
        {"hash", "1", "hash"},
        {"model_digest", HASH, NULL},
        {"model_digest", "\"0123456789abcdef0123456789abcde\"", "\"model_digest\" is not a hash"},
        {"model_digest", "1", "model_digest"},
        {"data_digest", "\"0123456789abcdef0123456789abcdef0\"", "\"data_digest\" is not a hash"},
        {"data_digest", "1", "data_digest"},
        {"job_id", "\"" LONG "\"", NULL},
        {"job_id", "\"" LONG "0\"", "\"job_id\" is too long"},
        {"job_id", "1", "job_id"},
        {"metrics.loss", "null", NULL},
        {"metrics.loss", "\"1\"", "loss"},
        {"metrics.valid_loss", "\"1\"", "valid_loss"},
        {"metrics.best_valid_loss", "\"1\"", "best_valid_loss"},
        {"files", "[" TWO_FILES FILE_OF("rank-2.ckpt", "102") "]", NULL},
        {"files", "[" FILE_OF("rank-0.ckpt", "100") "]", NULL}, /* every rank holds all */
        {"files", "[]", "\"files\" has 0"},
        {"files", "[" TWO_FILES TWO_FILES "1]", "\"files\" has 5"},
        {"files", "[" TWO_FILES FILE_OF("rank-2.ckpt", "0") "]", "\"bytes\" is 0"},
        {"files", "[" TWO_FILES FILE_OF("rank-2.ckpt", "\"1\"") "]", "bytes"},
        {"files", "[" TWO_FILES FILE_OF("rank-2.ckpt", "103") "]", "the manifest says 103"},
        {"files", "[" TWO_FILES FILE_OF("rank-3.ckpt", "102") "]", "unknown keys or file names"},
        {"files", "[" TWO_FILES "{\"bytes\":1,\"hash\":\"\"}]", "\"hash\" is not a hash"},
        {"metrics.other", "1", "unknown keys"},
        {"lora.model", "1", "model"},
        {"lora.model", "\"" LONG LONG "\"", NULL},
        {"lora.model", "\"" LONG LONG "0\"", "\"model\" is too long"},
        {"lora.export", "\"all\"", "\"lora.export\" is missing or wrong"},
        {"lora", "null", "model"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        changed(cases[i].path, cases[i].value, cases[i].says);
    assert_int_equal(mem_live(), 0);
}

static void test_files_and_names(void **state)
{
    struct err err;
    char *dir = make_checkpoint(10), *other = checkpoint_dir(folder, 11);
    char *file = checkpoint_file_path(dir, 1);
    assert_int_equal(truncate(file, 100), 0);
    refused(dir, "a short file");
    assert_int_equal(unlink(file), 0);
    refused(dir, "a missing file");
    put(file, folder, 1);
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

static void make_dirs(const char *const *names, size_t count)
{
    struct err err;
    for (size_t i = 0; i < count; i++) {
        char path[160];
        (void)snprintf(path, sizeof path, "%s/checkpoints/%s", folder, names[i]);
        assert_int_equal(io_make_dirs(path, 0700, &err), 0);
    }
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
                                        "stop-7",
                                        "step-999999999999999999",
                                        "step-1000000000000000000",
                                        "step-99999999999999999999"};
    make_dirs(names, sizeof names / sizeof names[0]);
    assert_int_equal(checkpoint_list(folder, &steps, &count, &err), 0);
    assert_int_equal(count, 5);
    const int64_t want[] = {999999999999999999, 100, 20, 9, 0};
    assert_memory_equal(steps, want, sizeof want);
    mem_free(steps);
    assert_int_equal(checkpoint_step_of("/a/b/step-12"), 12);
    assert_int_equal(checkpoint_step_of("/a/step-12/b"), -1);
    assert_int_equal(mem_live(), 0);
}

/* More than are there at first room for. */
static void test_list_of_many(void **state)
{
    enum { MANY = 50 };
    struct err err;
    int64_t *steps = NULL;
    size_t count = 0;
    for (int i = 0; i < MANY; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "step-%d", i * 7 % MANY);
        make_dirs(&(const char *){name}, 1);
    }
    assert_int_equal(checkpoint_list(folder, &steps, &count, &err), 0);
    assert_int_equal(count, MANY);
    for (int i = 0; i < MANY; i++)
        assert_int_equal(steps[i], MANY - 1 - i);
    mem_free(steps);
    assert_int_equal(mem_live(), 0);
}

static void test_discard(void **state)
{
    struct err err;
    int64_t *steps = NULL;
    size_t count = 0;
    static const char *const names[] = {"step-5", "step-9", "step-12", "step-12.tmp/old"};
    make_dirs(names, sizeof names / sizeof names[0]);
    assert_int_equal(checkpoint_discard_after(folder, 9, &err), 0);
    assert_int_equal(checkpoint_list(folder, &steps, &count, &err), 0);
    assert_int_equal(count, 2);
    assert_int_equal(steps[0], 9);
    char *gone = io_join(folder, "checkpoints/step-12.tmp"), *old = io_join(gone, "old");
    assert_true(io_exists(gone));
    assert_false(io_exists(old)); /* what was there before made room */
    mem_free(steps);
    assert_int_equal(checkpoint_discard_after(folder, -1, &err), 0);
    assert_int_equal(checkpoint_list(folder, &steps, &count, &err), 0);
    assert_int_equal(count, 0);
    assert_int_equal(checkpoint_discard_after(folder, -1, &err), 0); /* nothing is left to do */
    mem_free(old);
    mem_free(gone);
    mem_free(steps);
    assert_int_equal(mem_live(), 0);
}

static void test_write(void **state)
{
    struct err err;
    struct stat info;
    struct checkpoint_manifest manifest = example();
    char *dir = make_checkpoint(10), *path = io_join(dir, "manifest.json");
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 07777, 0600);
    io_fault_after(1);
    assert_int_equal(checkpoint_manifest_write(dir, &manifest, &err), -ERR_NO_SPACE);
    io_fault_after(0);
    mem_free(path);
    mem_free(dir);
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
        assert_int_equal(mem_fault_after(0), rc != 0);
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
    const struct CMUnitTest tests[] = {
        FOLDER_TEST(test_round_trip),
        FOLDER_TEST(test_adapters),
        FOLDER_TEST(test_every_flipped_bit_shows),
        FOLDER_TEST(test_numbers_out_of_range),
        FOLDER_TEST(test_other_values),
        FOLDER_TEST(test_files_and_names),
        FOLDER_TEST(test_list),
        FOLDER_TEST(test_list_of_many),
        FOLDER_TEST(test_discard),
        FOLDER_TEST(test_write),
        FOLDER_TEST(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

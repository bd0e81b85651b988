/* safetensors: round trips, hostile headers (each refused naming file and tensor), sharded folders,
 * seeded mutations of a good file. */
#include "common/safetensors.h"

#include "common/io.h"
#include "common/mem.h"
#include "common/rng.h"
#include "tests/lib/folder.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char *in_folder(const char *name)
{
    char *path = io_join(folder, name);
    assert_non_null(path);
    return path;
}

/* A file of header length (claimed), header and data_bytes bytes of data. */
static void craft(const char *path, uint64_t claimed, const char *header, size_t data_bytes)
{
    struct err err;
    struct buf bytes;
    buf_init(&bytes, 1 << 20);
    buf_append(&bytes, &claimed, sizeof claimed);
    buf_text(&bytes, header);
    for (size_t i = 0; i < data_bytes; i++)
        buf_char(&bytes, (char)i);
    assert_int_equal(io_write_file(path, buf_str(&bytes), bytes.length, 0644, &err), 0);
    buf_done(&bytes);
}

static void test_round_trip(void **state)
{
    struct err err;
    const char *given = getenv("ITHACA_SAFETENSORS_OUT"); /* tests/golden reads the file too */
    CLEANUP(mem_free_ptr)
    char *path = given != NULL ? mem_strdup(given) : in_folder("round.safetensors");
    struct safetensors_writer *writer = NULL;
    assert_int_equal(safetensors_writer_new(path, &writer, &err), 0);
    const int64_t big[] = {100, 500};
    const int64_t odd[] = {3};
    const int64_t none[] = {0, 7};
    static const enum dtype dtypes[] = {DTYPE_BF16, DTYPE_F32, DTYPE_F16};
    static const char *const names[] = {"c.bf16", "a.f32", "b.f16"};
    assert_int_equal(safetensors_writer_declare(writer, "odd", DTYPE_F16, 1, odd, &err), 0);
    assert_int_equal(safetensors_writer_declare(writer, "empty", DTYPE_F32, 2, none, &err), 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(safetensors_writer_declare(writer, names[i], dtypes[i], 2, big, &err), 0);
    assert_int_equal(safetensors_writer_declare(writer, "scalar", DTYPE_F32, 0, NULL, &err), 0);
    CLEANUP(mem_free_ptr) float *values = mem_new(50000, sizeof *values);
    for (int i = 0; i < 50000; i++)
        values[i] = 0.25f * (float)(i % 256 - 128); /* exact in all three */
    assert_int_equal(safetensors_writer_put_f32(writer, values, 3, &err), 0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(safetensors_writer_put_f32(writer, values, 1, &err), 0);
        assert_int_equal(safetensors_writer_put_f32(writer, values + 1, 49999, &err), 0);
    }
    assert_int_equal(safetensors_writer_put_f32(writer, values + 5, 1, &err), 0);
    assert_false(io_exists(path));
    assert_int_equal(safetensors_writer_commit(writer, &err), 0);
    safetensors_writer_free(writer);

    struct safetensors *st = NULL;
    assert_int_equal(safetensors_open(path, &st, &err), 0);
    assert_int_equal(safetensors_count(st), 6);
    for (int64_t i = 1; i < 6; i++)
        assert_true(strcmp(safetensors_at(st, i - 1)->name, safetensors_at(st, i)->name) < 0);
    CLEANUP(mem_free_ptr) float *back = mem_new(50000, sizeof *back);
    for (int i = 0; i < 3; i++) {
        const struct safetensors_entry *entry = safetensors_find(st, names[i]);
        assert_true(entry->dtype == dtypes[i] && entry->dims == 2 && entry->shape[1] == 500);
        assert_int_equal(safetensors_read_f32(st, entry, 0, 50000, back, &err), 0);
        assert_memory_equal(back, values, 50000 * sizeof *back);
        assert_int_equal(safetensors_read_f32(st, entry, 12345, 2, back, &err), 0);
        assert_memory_equal(back, values + 12345, 2 * sizeof *back);
    }
    assert_int_equal(safetensors_find(st, "empty")->elements, 0);
    const struct safetensors_entry *scalar = safetensors_find(st, "scalar");
    assert_int_equal(scalar->elements, 1);
    assert_int_equal(safetensors_read_f32(st, scalar, 0, 1, back, &err), 0);
    assert_true(back[0] == values[5]);
    assert_null(safetensors_find(st, "a.f3"));
    safetensors_free(st);
}

/* `count` tensors t0, t1, ... of 0, 1, 2, 0, ... values, of two types: the fault that came, or 0.
 */
static int write_many(const char *path, int count, struct err *err)
{
    static const float values[] = {0.5f, -2};
    struct safetensors_writer *writer = NULL;
    int rc = safetensors_writer_new(path, &writer, err);
    for (int i = 0; i < count && rc == 0; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "t%d", i);
        rc = safetensors_writer_declare(writer, name, i % 2 ? DTYPE_F32 : DTYPE_BF16, 1,
                                        (int64_t[]){i % 3}, err);
    }
    for (int i = 0; i < count && rc == 0; i++)
        if (i % 3 > 0)
            rc = safetensors_writer_put_f32(writer, values, i % 3, err);
    if (rc == 0 && count > 2) /* else commit writes the header */
        rc = safetensors_writer_put_f32(writer, values, 0, err);
    if (rc == 0)
        rc = safetensors_writer_commit(writer, err);
    safetensors_writer_free(writer);
    return rc;
}

/* None at all, only empty ones, the first empty, more than there is at first room for. */
static void test_writer_counts(void **state)
{
    CLEANUP(mem_free_ptr) char *path = in_folder("many.safetensors");
    static const int counts[] = {0, 1, 2, 3, 4, 5, 6, 7, 64, 65, 300};
    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
        struct err err;
        struct safetensors *st = NULL;
        assert_int_equal(write_many(path, counts[c], &err), 0);
        CLEANUP(buf_done) struct buf bytes;
        buf_init(&bytes, 1 << 20);
        assert_int_equal(io_read_file(path, 1 << 20, &bytes, &err), 0);
        assert_int_equal(bytes.data[0] % 8, 0); /* so that what is mapped is aligned */
        assert_int_equal(safetensors_open(path, &st, &err), 0);
        assert_int_equal(safetensors_count(st), counts[c]);
        for (int i = 0; i < counts[c]; i++) {
            char name[16];
            float back[2] = {0.5f, -2};
            (void)snprintf(name, sizeof name, "t%d", i);
            const struct safetensors_entry *entry = safetensors_find(st, name);
            assert_int_equal(entry->elements, i % 3);
            assert_int_equal(safetensors_read_f32(st, entry, 0, i % 3, back, &err), 0);
            assert_true(back[0] == 0.5f && back[1] == -2);
        }
        safetensors_free(st);
    }
}

/* Memory or the disk is full at every call: an error, nothing left behind, no half of a file. */
static void test_writer_faults(void **state)
{
    CLEANUP(mem_free_ptr) char *path = in_folder("writer-faults.safetensors");
    int64_t before = mem_live();
    for (int disk = 0; disk < 2; disk++) {
        struct err err = {0};
        int faults_after_rename = 0;
        for (int n = 1;; n++) {
            (disk ? io_fault_after : mem_fault_after)(n);
            int rc = write_many(path, 70, &err);
            (disk ? io_fault_after : mem_fault_after)(0);
            assert_int_equal(mem_live(), before);
            if (rc == 0) {
                assert_true(n > 4);
                break;
            }
            assert_int_equal(rc, disk ? -ERR_NO_SPACE : -ERR_NOMEM);
            assert_int_equal(rc, -(int)err.code);
            if (unlink(path) == 0) /* only the sync of its folder comes after it has appeared */
                faults_after_rename++;
        }
        assert_int_equal(unlink(path), 0);
        assert_int_equal(faults_after_rename, 1);
    }
}

static void test_writer_aborts(void **state)
{
    struct err err;
    CLEANUP(mem_free_ptr) char *path = in_folder("aborted.safetensors");
    struct safetensors_writer *writer = NULL;
    assert_int_equal(safetensors_writer_new(path, &writer, &err), 0);
    safetensors_writer_free(writer);
    assert_false(io_exists(path));
    assert_int_equal(safetensors_writer_new("/nonexistent-folder/x", &writer, &err),
                     -ERR_NOT_FOUND);
}

#define ONE(offsets) "{\"w\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":" offsets "}}"

static void test_hostile_headers(void **state)
{
    static const struct {
        const char *header;
        size_t data;
        uint64_t claimed; /* 0: the header's true length */
        const char *word; /* must stand in the sentence */
    } cases[] = {
        {ONE("[0,16]"), 16, (uint64_t)1 << 63, "header"},
        {ONE("[0,16]"), 16, 4096, "header"},
        {ONE("[0,16]"), 16, 5, "JSON"},
        {ONE("[0,16]"), 15, 0, "tensor w"},
        {ONE("[0,16]"), 17, 0, "follow"},
        {ONE("[0,12]"), 12, 0, "tensor w"},
        {ONE("[0,20]"), 20, 0, "tensor w"},
        {ONE("[4,20]"), 20, 0, "hole"},
        {ONE("[-4,12]"), 16, 0, "tensor w"},
        {ONE("[16,0]"), 16, 0, "tensor w"},
        {ONE("[9223372036854775800,9223372036854775807]"), 16, 0, "tensor w"},
        {ONE("[0,99999999999999999999]"), 16, 0, "JSON"},
        {ONE("[0]"), 16, 0, "data_offsets"},
        {ONE("\"x\""), 16, 0, "data_offsets"},
        {"{\"w\":{\"dtype\":\"F8_E4M3\",\"shape\":[4],\"data_offsets\":[0,4]}}", 4, 0, "F8_E4M3"},
        {"{\"w\":{\"dtype\":\"F32\",\"shape\":[-4],\"data_offsets\":[0,4]}}", 4, 0, "tensor w"},
        {"{\"w\":{\"dtype\":\"F32\",\"shape\":[1.0],\"data_offsets\":[0,4]}}", 4, 0, "tensor w"},
        {"{\"w\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}}", 0,
         0, "tensor w"},
        {"{\"w\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904],\"data_offsets\":[0,0]}}", 0, 0,
         "tensor w"},
        {"{\"w\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]}}", 4, 0,
         "shape"},
        {"{\"w\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
         "\"v\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[2,6]}}",
         6, 0, "overlaps"},
        {"{\"w\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
         "\"w\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[4,8]}}",
         8, 0, "duplicate"},
        {"{\"w\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}", 4, 0, "JSON"},
        {"[]", 0, 0, "object"},
        {"{\"w\":7}", 0, 0, "tensor w"},
        {"", 0, 0, "JSON"},
    };
    CLEANUP(mem_free_ptr) char *path = in_folder("hostile.safetensors");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint64_t length = cases[i].claimed > 0 ? cases[i].claimed : strlen(cases[i].header);
        craft(path, length, cases[i].header, cases[i].data);
        struct safetensors *st = NULL;
        struct err err = {0};
        if (safetensors_open(path, &st, &err) != -ERR_MODEL || err.code != ERR_MODEL)
            fail_msg("case %zu: accepted or wrong class: %s", i, err.text);
        if (strstr(err.text, cases[i].word) == NULL || strstr(err.text, path) == NULL)
            fail_msg("case %zu: \"%s\" lacks \"%s\" or the file", i, err.text, cases[i].word);
    }
    struct safetensors *st = NULL;
    struct err err;
    assert_int_equal(io_write_file(path, "1234567", 7, 0644, &err), 0);
    assert_int_equal(safetensors_open(path, &st, &err), -ERR_MODEL);
    static const char pointer[] = "version https://git-lfs.github.com/spec/v1\noid sha256:0\n";
    assert_int_equal(io_write_file(path, pointer, sizeof pointer - 1, 0644, &err), 0);
    assert_int_equal(safetensors_open(path, &st, &err), -ERR_MODEL);
    assert_non_null(strstr(err.text, "run git lfs pull"));
    assert_int_equal(mem_live(), 1); /* path */
}

static void test_integers_are_no_weights(void **state)
{
    struct err err;
    struct safetensors *st = NULL;
    CLEANUP(mem_free_ptr) char *path = in_folder("ints.safetensors");
    static const char header[] = "{\"n\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[0,8]}}";
    craft(path, strlen(header), header, 8);
    assert_int_equal(safetensors_open(path, &st, &err), 0);
    float value = 0;
    assert_int_equal(safetensors_read_f32(st, safetensors_at(st, 0), 0, 1, &value, &err),
                     -ERR_MODEL);
    safetensors_free(st);
}

static void write_index(const char *dir, const char *text)
{
    struct err err;
    CLEANUP(mem_free_ptr) char *path = io_join(dir, "model.safetensors.index.json");
    assert_int_equal(io_write_file(path, text, strlen(text), 0644, &err), 0);
}

static void write_shard(const char *dir, const char *name, const char *header, size_t data)
{
    CLEANUP(mem_free_ptr) char *path = io_join(dir, name);
    craft(path, strlen(header), header, data);
}

static void test_sharded(void **state)
{
    struct err err;
    struct safetensors *st = NULL;
    CLEANUP(mem_free_ptr) char *dir = in_folder("sharded");
    assert_int_equal(io_make_dirs(dir, 0755, &err), 0);
    assert_int_equal(safetensors_open_dir(dir, &st, &err), -ERR_MODEL);
    assert_non_null(strstr(err.text, "model.safetensors"));
    static const char a[] = "{\"x\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
                            "\"old\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}";
    static const char b[] = "{\"y\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}";
    write_shard(dir, "s1.safetensors", a, 8);
    write_index(dir, "{\"weight_map\":{\"x\":\"s1.safetensors\",\"y\":\"s2.safetensors\"}}");
    assert_int_equal(safetensors_open_dir(dir, &st, &err), -ERR_MODEL);
    assert_non_null(strstr(err.text, "s2.safetensors"));
    write_shard(dir, "s2.safetensors", b, 8);
    write_shard(dir, "s3.safetensors", "garbage", 3); /* stale: the index does not name it */
    assert_int_equal(safetensors_open_dir(dir, &st, &err), 0);
    assert_int_equal(safetensors_count(st), 2);
    assert_non_null(safetensors_find(st, "x"));
    assert_int_equal(safetensors_find(st, "y")->elements, 2);
    assert_null(safetensors_find(st, "old"));
    safetensors_free(st);
    static const char *const bad[] = {
        "{\"weight_map\":{\"x\":\"s2.safetensors\"}}",
        "{\"weight_map\":{\"z\":\"s1.safetensors\"}}",
        "{\"weight_map\":{\"x\":\"../sharded/s1.safetensors\"}}",
        "{\"weight_map\":{\"x\":7}}",
        "{\"weight_map\":[]}",
        "{",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        write_index(dir, bad[i]);
        assert_int_equal(safetensors_open_dir(dir, &st, &err), -ERR_MODEL);
        assert_int_equal(err.code, ERR_MODEL);
        assert_non_null(strstr(err.text, "index.json"));
    }
    write_shard(dir, "model.safetensors", b, 8); /* the single file is preferred */
    assert_int_equal(safetensors_open_dir(dir, &st, &err), 0);
    assert_int_equal(safetensors_count(st), 1);
    safetensors_free(st);
}

/* Any mutation is refused as ERR_MODEL or gives entries that can be read. */
static void test_mutations(void **state)
{
    const uint64_t seed = 20261129;
    print_message("mutation seed %llu\n", (unsigned long long)seed);
    static const char good[] =
        "{\"__metadata__\":{\"format\":\"pt\"},"
        "\"b.weight\":{\"dtype\":\"BF16\",\"shape\":[3,2],\"data_offsets\":[0,12]},"
        "\"a.weight\":{\"dtype\":\"F32\",\"shape\":[5],\"data_offsets\":[12,32]}}";
    enum { HEADER = sizeof good - 1, TOTAL = 8 + HEADER + 32, ROUNDS = 3000 };
    CLEANUP(mem_free_ptr) char *path = in_folder("mutated.safetensors");
    int accepted = 0;
    for (uint64_t round = 0; round < ROUNDS; round++) {
        char bytes[TOTAL] = {0};
        uint64_t length = HEADER;
        memcpy(bytes, &length, sizeof length);
        memcpy(bytes + 8, good, HEADER);
        uint64_t edits = 1 + rng_below(seed, RNG_STREAM_TEST, round, 3);
        for (uint64_t e = 0; e < edits; e++) {
            uint64_t at = rng_below(seed, RNG_STREAM_TEST + 1, round * 8 + e, 8 + HEADER);
            static const char alphabet[] = "0123456789{}[]\",:-.eE \\\0\xff";
            uint64_t pick =
                rng_below(seed, RNG_STREAM_TEST + 2, round * 8 + e, sizeof alphabet - 1);
            bytes[at] = alphabet[pick];
        }
        size_t cut = rng_below(seed, RNG_STREAM_TEST + 3, round, 10) == 0
                         ? (size_t)rng_below(seed, RNG_STREAM_TEST + 4, round, TOTAL)
                         : TOTAL;
        (void)unlink(path); /* truncating would wait for the disk */
        int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
        struct err err = {0};
        assert_int_equal(io_write_full(fd, bytes, cut, &err), 0);
        (void)close(fd);
        struct safetensors *st = NULL;
        int rc = safetensors_open(path, &st, &err);
        if (rc != 0) {
            assert_int_equal(rc, -ERR_MODEL);
            continue;
        }
        accepted++;
        for (int64_t i = 0; i < safetensors_count(st); i++) {
            float values[16];
            const struct safetensors_entry *entry = safetensors_at(st, i);
            assert_true(entry->elements <= 32);
            if (entry->dtype == DTYPE_F32 || entry->dtype == DTYPE_BF16)
                assert_int_equal(safetensors_read_f32(st, entry, 0, entry->elements, values, &err),
                                 0);
        }
        safetensors_free(st);
    }
    assert_true(accepted > 0 && accepted < ROUNDS);
}

static void test_allocation_failures(void **state)
{
    CLEANUP(mem_free_ptr) char *path = in_folder("faults.safetensors");
    craft(path, sizeof ONE("[0,16]") - 1, ONE("[0,16]"), 16);
    int64_t before = mem_live();
    for (int n = 1;; n++) {
        struct safetensors *st = NULL;
        struct err err = {0};
        mem_fault_after(n);
        int rc = safetensors_open(path, &st, &err);
        assert_int_equal(mem_fault_after(0), rc != 0);
        if (rc == 0) {
            assert_true(n > 4);
            safetensors_free(st);
            break;
        }
        assert_int_equal(rc, -ERR_NOMEM);
        assert_int_equal(mem_live(), before);
    }
    assert_int_equal(mem_live(), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_writer_counts),
        cmocka_unit_test(test_writer_faults),
        cmocka_unit_test(test_writer_aborts),
        cmocka_unit_test(test_hostile_headers),
        cmocka_unit_test(test_integers_are_no_weights),
        cmocka_unit_test(test_sharded),
        cmocka_unit_test(test_mutations),
        cmocka_unit_test(test_allocation_failures),
    };
    if (getenv("ITHACA_SAFETENSORS_OUT") != NULL)
        cmocka_set_test_filter("test_round_trip"); /* only the file is wanted */
    return cmocka_run_group_tests(tests, folder_open, folder_close);
}

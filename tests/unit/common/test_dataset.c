/* dataset: shards written and read back, every kind of damage refused, seeded mutations. */
#include "common/dataset.h"

#include "common/dataset_random.h"
#include "common/io.h"
#include "common/mem.h"
#include "common/rng.h"
#include "tests/lib/folder.h"

#include <dirent.h>
#include <string.h>
#include <unistd.h>

static char *path;

static int setup(void **state)
{
    int rc = folder_open(state);
    path = io_join(folder, "a.tok");
    return rc;
}

static int teardown(void **state)
{
    mem_free(path);
    return folder_close(state);
}

static const int32_t ids[] = {3, 1, 4, 1, 5, 9, 2, 6, 5};
static const uint8_t trained[] = {0, 1, 1, 0, 0, 1, 0, 0, 1};

/* Examples of 4, 1 and 4 tokens. */
static int write_good(struct err *err)
{
    struct dataset_writer *writer = NULL;
    int rc = dataset_writer_new(path, 10, &writer, err);
    if (rc == 0)
        rc = dataset_writer_add(writer, ids, trained, 4, err);
    if (rc == 0)
        rc = dataset_writer_add(writer, ids + 4, trained + 4, 1, err);
    if (rc == 0)
        rc = dataset_writer_add(writer, ids + 5, trained + 5, 4, err);
    if (rc == 0)
        rc = dataset_writer_commit(writer, err);
    dataset_writer_free(writer);
    return rc;
}

static int files_in_folder(void)
{
    DIR *dir = opendir(folder);
    int count = 0;
    while (readdir(dir) != NULL)
        count++;
    (void)closedir(dir);
    return count - 2; /* . and .. */
}

static void test_round_trip(void **state)
{
    struct err err;
    struct dataset dataset;
    assert_int_equal(write_good(&err), 0);
    assert_int_equal(files_in_folder(), 1); /* no temporary is left */
    int64_t bytes = 0;
    assert_int_equal(io_file_size(path, &bytes, &err), 0);
    assert_int_equal(bytes, 64 + 4 * 8 + 9 * 4 + 9 + 8);
    assert_int_equal(dataset_open(path, &dataset, &err), 0);
    assert_int_equal(dataset.examples, 3);
    assert_int_equal(dataset.tokens, 9);
    assert_int_equal(dataset.trained_tokens, 4);
    assert_int_equal(dataset.vocab, 10);
    const int64_t offsets[] = {0, 4, 5, 9};
    assert_memory_equal(dataset.offsets, offsets, sizeof offsets);
    assert_memory_equal(dataset.ids, ids, sizeof ids);
    assert_memory_equal(dataset.trained, trained, sizeof trained);
    dataset_close(&dataset);
    dataset_close(&dataset); /* harmless */
}

static void test_empty(void **state)
{
    struct err err;
    struct dataset dataset;
    struct dataset_writer *writer = NULL;
    assert_int_equal(dataset_writer_new(path, 10, &writer, &err), 0);
    assert_int_equal(dataset_writer_commit(writer, &err), 0);
    dataset_writer_free(writer);
    assert_int_equal(dataset_open(path, &dataset, &err), 0);
    assert_int_equal(dataset.examples, 0);
    dataset_close(&dataset);
    assert_int_equal(dataset_writer_new("/nonexistent-folder/x", 10, &writer, &err),
                     -ERR_NOT_FOUND);
    assert_int_equal(dataset_open("/nonexistent-folder/x", &dataset, &err), -ERR_NOT_FOUND);
}

static void read_all(struct buf *bytes)
{
    struct err err;
    buf_clear(bytes);
    assert_int_equal(io_read_file(path, 1 << 20, bytes, &err), 0);
}

/* Writes the bytes with a hash that fits them, so that the checks behind it are reached. */
static void write_hashed(struct buf *bytes)
{
    struct err err;
    uint64_t hash = io_hash64(bytes->data, bytes->length - 8);
    memcpy(bytes->data + bytes->length - 8, &hash, sizeof hash);
    assert_int_equal(io_write_file(path, bytes->data, bytes->length, 0644, &err), 0);
}

static void test_damage(void **state)
{
    struct err err;
    struct dataset dataset;
    static const struct {
        size_t offset;
        int64_t value;
        int size;
        const char *word;
    } cases[] = {
        {0, 'X', 1, "not a token shard"},
        {8, 4, 8, "header"}, /* examples */
        {8, -1, 8, "header"},
        {8, INT64_MAX, 8, "header"},
        {16, INT64_MAX / 5, 8, "header"}, /* tokens */
        {24, 5, 8, "trained tokens"},
        {32, 9, 8, "id 9"}, /* vocabulary */
        {32, 0, 8, "id 3"},
        {45, 1, 1, "reserved"},
        {64, 1, 8, "offsets"},
        {72, 5, 8, "no tokens"},
        {72, -4, 8, "no tokens"},
        {88, 8, 8, "offsets"},
        {96, -1, 4, "id -1"},
        {96 + 36, 2, 1, "flag"},
        {96 + 36, 1, 1, "trained tokens"},
    };
    CLEANUP(buf_done) struct buf bytes;
    buf_init(&bytes, 1 << 20);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(write_good(&err), 0);
        read_all(&bytes);
        memcpy(bytes.data + cases[i].offset, &cases[i].value, (size_t)cases[i].size);
        write_hashed(&bytes);
        if (dataset_open(path, &dataset, &err) != -ERR_CORRUPT)
            fail_msg("case %zu accepted", i);
        if (strstr(err.text, cases[i].word) == NULL || strstr(err.text, path) == NULL)
            fail_msg("case %zu: \"%s\" lacks \"%s\"", i, err.text, cases[i].word);
    }
    assert_int_equal(write_good(&err), 0);
    read_all(&bytes);
    for (size_t length = 0; length < bytes.length; length++) { /* truncated anywhere */
        assert_int_equal(io_write_file(path, bytes.data, length, 0644, &err), 0);
        assert_int_equal(dataset_open(path, &dataset, &err), -ERR_CORRUPT);
    }
    for (size_t at = 0; at < bytes.length; at++) { /* one bit anywhere */
        bytes.data[at] ^= 4;
        assert_int_equal(io_write_file(path, bytes.data, bytes.length, 0644, &err), 0);
        assert_int_equal(dataset_open(path, &dataset, &err), -ERR_CORRUPT);
        bytes.data[at] ^= 4;
    }
}

/* Counts that no shard has, though the bytes that they come to are those of the file. */
static void test_damaged_counts(void **state)
{
    static const int64_t counts[][2] = {{-2, 17}, {13, -7}}; /* examples, tokens */
    struct err err;
    struct dataset dataset;
    struct dataset_writer *writer = NULL;
    CLEANUP(buf_done) struct buf bytes;
    buf_init(&bytes, 1 << 20);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(8 * (counts[i][0] + 1) + 5 * counts[i][1], 8 * 4 + 5 * 9);
        assert_int_equal(write_good(&err), 0);
        read_all(&bytes);
        memcpy(bytes.data + 8, counts[i], 16);
        write_hashed(&bytes);
        assert_int_equal(dataset_open(path, &dataset, &err), -ERR_CORRUPT);
        assert_non_null(strstr(err.text, "not what its header says"));
    }
    assert_int_equal(dataset_writer_new(path, 1, &writer, &err), 0);
    assert_int_equal(dataset_writer_commit(writer, &err), 0);
    dataset_writer_free(writer);
    assert_int_equal(dataset_open(path, &dataset, &err), 0); /* no tokens, and one that could be */
    dataset_close(&dataset);
    read_all(&bytes);
    bytes.data[32] = 0;
    write_hashed(&bytes);
    assert_int_equal(dataset_open(path, &dataset, &err), -ERR_CORRUPT);
    assert_non_null(strstr(err.text, "a vocabulary of 0"));
}

/* Mutated shards whose hash fits: refused, or every field can be used. */
static void test_mutations(void **state)
{
    const uint64_t seed = 4242;
    print_message("mutation seed %llu\n", (unsigned long long)seed);
    struct err err;
    CLEANUP(buf_done) struct buf bytes;
    buf_init(&bytes, 1 << 20);
    assert_int_equal(write_good(&err), 0);
    read_all(&bytes);
    CLEANUP(mem_free_ptr) char *good = mem_strndup(bytes.data, bytes.length);
    int accepted = 0;
    for (uint64_t round = 0; round < 2000; round++) {
        memcpy(bytes.data, good, bytes.length);
        uint64_t edits = 1 + rng_below(seed, RNG_STREAM_TEST, round, 2);
        for (uint64_t e = 0; e < edits; e++) {
            uint64_t at = rng_below(seed, RNG_STREAM_TEST + 1, round * 4 + e, bytes.length - 8);
            bytes.data[at] = (char)rng_below(seed, RNG_STREAM_TEST + 2, round * 4 + e, 12);
        }
        write_hashed(&bytes);
        struct dataset dataset;
        int rc = dataset_open(path, &dataset, &err);
        if (rc != 0) {
            assert_int_equal(rc, -ERR_CORRUPT);
            continue;
        }
        accepted++;
        for (int64_t t = 0; t < dataset.offsets[dataset.examples]; t++)
            assert_true(dataset.ids[t] < dataset.vocab && dataset.trained[t] <= 1);
        dataset_close(&dataset);
    }
    assert_true(accepted > 0);
}

/* Memory or the disk is full at every call: an error, nothing left behind, no half of a shard. */
static void test_faults(void **state)
{
    int64_t before = mem_live();
    for (int disk = 0; disk < 2; disk++) {
        (void)unlink(path);
        int faults_after_rename =
            0; /* only the sync of the folder comes after the shard is there */
        for (int n = 1;; n++) {
            struct err err = {0};
            (disk ? io_fault_after : mem_fault_after)(n);
            int rc = write_good(&err);
            (disk ? io_fault_after : mem_fault_after)(0);
            assert_int_equal(mem_live(), before);
            if (rc == 0)
                break;
            assert_int_equal(rc, disk ? -ERR_NO_SPACE : -ERR_NOMEM);
            assert_true(n < 100);
            faults_after_rename += unlink(path) == 0;
            assert_int_equal(files_in_folder(), 0);
        }
        assert_int_equal(faults_after_rename, 1);
        assert_int_equal(files_in_folder(), 1);
    }
}

/* Parts that are larger than what is given back at once: of what was not copied nothing goes. A
 * disk that is full before the commit names how much was written. */
static void test_large(void **state)
{
    enum { TOKENS = 9 << 20, VOCAB = 1009 };
    struct err err;
    struct dataset dataset;
    struct dataset_writer *writer = NULL;
    int32_t *many = mem_new(TOKENS, sizeof *many);
    uint8_t *flags = mem_new(TOKENS, 1);
    assert_true(many != NULL && flags != NULL);
    for (int64_t t = 0; t < TOKENS; t++) {
        many[t] = (int32_t)(t % VOCAB);
        flags[t] = t % 3 == 0;
    }
    assert_int_equal(dataset_writer_new(path, VOCAB, &writer, &err), 0);
    assert_int_equal(dataset_writer_add(writer, many, flags, TOKENS, &err), 0);
    assert_int_equal(dataset_writer_commit(writer, &err), 0);
    dataset_writer_free(writer);
    assert_int_equal(dataset_open(path, &dataset, &err), 0);
    assert_int_equal(dataset.tokens, TOKENS);
    assert_memory_equal(dataset.ids, many, TOKENS * sizeof *many);
    assert_memory_equal(dataset.trained, flags, TOKENS);
    dataset_close(&dataset);
    assert_int_equal(dataset_writer_new(path, VOCAB, &writer, &err), 0);
    io_fault_after(1);
    assert_int_equal(dataset_writer_add(writer, many, flags, 100000, &err), -ERR_NO_SPACE);
    assert_non_null(strstr(err.text, path));
    assert_non_null(strstr(err.text, "after 100000 tokens: "));
    dataset_writer_free(writer);
    mem_free(many);
    mem_free(flags);
}

static void test_random(void **state)
{
    enum { DOCUMENTS = 3, LENGTH = 200, VOCAB = 7 };
    struct err err;
    struct dataset dataset;
    assert_int_equal(dataset_random_write(path, DOCUMENTS, LENGTH, VOCAB, &err), 0);
    assert_int_equal(dataset_open(path, &dataset, &err), 0);
    assert_int_equal(dataset.examples, DOCUMENTS);
    assert_int_equal(dataset.tokens, DOCUMENTS * LENGTH);
    assert_int_equal(dataset.trained_tokens, dataset.tokens);
    assert_int_equal(dataset.vocab, VOCAB);
    int seen[VOCAB] = {0};
    for (int64_t t = 0; t < LENGTH; t++) {
        seen[dataset.ids[t]]++;
        for (int64_t d = 0; d < DOCUMENTS; d++)
            assert_int_equal(dataset.ids[d * LENGTH + t], dataset.ids[t]);
    }
    for (int id = 0; id < VOCAB; id++)
        assert_in_range(seen[id], 1, LENGTH / 2);
    dataset_close(&dataset);
    io_fault_after(2);
    assert_int_equal(dataset_random_write(path, DOCUMENTS, LENGTH, VOCAB, &err), -ERR_NO_SPACE);
    io_fault_after(0);
    assert_int_equal(dataset_random_write("/nonexistent-folder/x", 1, 1, 1, &err), -ERR_NOT_FOUND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),     cmocka_unit_test(test_empty),
        cmocka_unit_test(test_damage),         cmocka_unit_test(test_mutations),
        cmocka_unit_test(test_damaged_counts), cmocka_unit_test(test_faults),
        cmocka_unit_test(test_large),          cmocka_unit_test(test_random),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

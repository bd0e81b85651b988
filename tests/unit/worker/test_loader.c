/* loader: every sequence once an epoch whatever the ranks and micro-steps; batches that do not
 * divide; runs that end inside a batch; targets shifted inside documents. */
#include "worker/loader.h"

#include "common/mem_layout.h"

#include "common/dataset_random.h"
#include "common/mem.h"
#include "common/rng.h"
#include "tests/lib/cmocka.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { EXAMPLES = 23, SEQ_LEN = 10 };

static char path[64];

/* Example e: (e % 4) + 3 tokens e, e+100, e+200, ...; the last two are trained. */
static int setup(void **state)
{
    struct err err = {0};
    struct dataset_writer *writer = NULL;
    (void)snprintf(path, sizeof path, "/tmp/ithaca-loader-%d.tok", (int)getpid());
    int rc = dataset_writer_new(path, 1000, &writer, &err);
    for (int e = 0; rc == 0 && e < EXAMPLES; e++) {
        int32_t ids[SEQ_LEN];
        uint8_t trained[SEQ_LEN];
        int count = e % 4 + 3;
        for (int t = 0; t < count; t++) {
            ids[t] = e + 100 * t;
            trained[t] = t >= count - 2;
        }
        rc = dataset_writer_add(writer, ids, trained, count, &err);
    }
    if (rc == 0)
        rc = dataset_writer_commit(writer, &err);
    dataset_writer_free(writer);
    return rc;
}

static int teardown(void **state)
{
    return unlink(path);
}

struct plan {
    int64_t sequences, grad_accum;
    int world;
    bool packing;
    double epochs; /* 0: endless */
};

/* Runs one step on all ranks; how often each example came, and the counts the ranks announced. */
static void run_step(const struct plan *plan, int64_t step, int seen[EXAMPLES], int64_t *steps)
{
    struct err err = {0};
    for (int rank = 0; rank < plan->world; rank++) {
        struct loader_options options = {
            .path = path,
            .seq_len = SEQ_LEN,
            .packing = plan->packing,
            .shuffle = true,
            .seed = 4,
            .batch = plan->sequences,
            .slots = mem_layout_slots(plan->sequences, plan->grad_accum, plan->world),
            .rank = rank,
            .world = plan->world};
        struct loader loader;
        struct device *device = NULL;
        struct arena arena;
        struct batch batch;
        assert_int_equal(loader_init(&loader, &options, &err), 0);
        *steps = plan->epochs > 0 ? loader_set_epochs(&loader, plan->epochs) : 0;
        assert_int_equal(device_cpu_open(1, &device, &err), 0);
        arena_init(&arena, device, NULL);
        assert_int_equal(batch_init(&batch, &(struct mesh){1, 1, 1, 1}, (struct mesh_place){0},
                                    options.slots * SEQ_LEN, &arena, &err),
                         0);
        int64_t counts[LOADER_COUNTS], filled[LOADER_COUNTS] = {0};
        loader_count(&loader, step, counts);
        for (int64_t micro = 0; micro < loader.micro_steps; micro++) {
            loader_fill(&loader, step, micro, &batch);
            filled[LOADER_TOKENS] += batch.tokens;
            filled[LOADER_TRAINED] += batch.trained;
            for (int64_t d = 0; d < batch.documents; d++) {
                seen[batch.host_ids[batch.doc_rows[d]]]++;
                for (int64_t keys = 1; keys <= batch.doc_rows[d + 1] - batch.doc_rows[d]; keys++)
                    filled[LOADER_PAIRS] += keys; /* a query sees itself and what is before it */
            }
        }
        assert_memory_equal(counts, filled, sizeof filled);
        batch_done(&batch);
        arena_done(&arena);
        device->dev->close(device);
        loader_done(&loader);
    }
}

static void test_same_for_all_ranks(void **state)
{
    static const struct plan plans[] = {
        {.sequences = 12, .world = 2},  {.sequences = 12, .world = 3, .grad_accum = 2},
        {.sequences = 12, .world = 5},  {.sequences = 12, .world = 4, .grad_accum = 1},
        {.sequences = 12, .world = 16},
    };
    struct plan one = {.sequences = 12, .world = 1};
    for (int64_t step = 1; step <= 4; step++) {
        int want[EXAMPLES] = {0};
        int64_t steps;
        run_step(&one, step, want, &steps);
        for (size_t i = 0; i < sizeof plans / sizeof plans[0]; i++) {
            int got[EXAMPLES] = {0};
            run_step(&plans[i], step, got, &steps);
            assert_memory_equal(got, want, sizeof want);
        }
    }
}

static void test_epochs(void **state)
{
    static const struct plan plans[] = {
        {.sequences = 5, .world = 2, .epochs = 2},
        {.sequences = 7, .world = 3, .epochs = 2, .packing = true},
        {.sequences = 100, .world = 3, .epochs = 2}, /* one batch holds both epochs */
    };
    for (size_t i = 0; i < sizeof plans / sizeof plans[0]; i++) {
        int seen[EXAMPLES] = {0};
        int64_t steps = 1;
        for (int64_t step = 1; step <= steps; step++)
            run_step(&plans[i], step, seen, &steps);
        for (int e = 0; e < EXAMPLES; e++)
            assert_int_equal(seen[e], 2); /* the last batch ends where the epochs end */
    }
}

static void test_targets(void **state)
{
    struct err err = {0};
    struct device *device = NULL;
    struct arena arena;
    struct batch batch;
    assert_int_equal(device_cpu_open(1, &device, &err), 0);
    arena_init(&arena, device, NULL);
    assert_int_equal(
        batch_init(&batch, &(struct mesh){1, 1, 1, 1}, (struct mesh_place){0}, 9, &arena, &err), 0);
    batch_clear(&batch);
    batch_append(&batch, (const int32_t[]){5, 6, 7, 8}, (const uint8_t[]){1, 0, 1, 1}, 4);
    batch_append(&batch, (const int32_t[]){9}, (const uint8_t[]){1}, 1);
    batch_append(&batch, (const int32_t[]){3, 4}, (const uint8_t[]){1, 1}, 2);
    static const int32_t targets[] = {-1, 7, 8, -1, -1, 4, -1};
    static const int32_t positions[] = {0, 1, 2, 3, 0, 0, 1};
    static const int64_t rows[] = {0, 4, 5, 7};
    assert_memory_equal(batch.host_targets, targets, sizeof targets);
    assert_memory_equal(batch.host_positions, positions, sizeof positions);
    assert_memory_equal(batch.doc_rows, rows, sizeof rows);
    assert_int_equal(batch.trained, 3);
    assert_int_equal(batch.documents, 3);
    batch_done(&batch);
    arena_done(&arena);
    device->dev->close(device);
}

static void test_refusals(void **state)
{
    struct err err = {0};
    struct loader loader;
    struct loader_options options = {
        .path = path, .seq_len = 6, .batch = 1, .slots = 1, .world = 1};
    assert_int_equal(loader_init(&loader, &options, &err), 0); /* the longest has six */
    loader_done(&loader);
    options.seq_len = 5;
    assert_int_equal(loader_init(&loader, &options, &err), -ERR_CORRUPT);
    assert_non_null(strstr(err.text, "example 3 has 6 tokens, seq_len is 5"));
    options.path = "/nonexistent";
    assert_int_equal(loader_init(&loader, &options, &err), -ERR_NOT_FOUND);
    char empty[80];
    struct dataset_writer *writer = NULL;
    (void)snprintf(empty, sizeof empty, "%s.empty", path);
    assert_int_equal(dataset_writer_new(empty, 1000, &writer, &err), 0);
    assert_int_equal(dataset_writer_commit(writer, &err), 0);
    dataset_writer_free(writer);
    options.path = empty;
    assert_int_equal(loader_init(&loader, &options, &err), -ERR_DATA);
    assert_non_null(strstr(err.text, "no example can be trained on"));
    assert_int_equal(unlink(empty), 0);
    assert_int_equal(mem_live(), 0);
}

/* A position means the same in two runs when their digests are the same. */
static void test_digest(void **state)
{
    struct err err = {0};
    struct loader loader;
    struct loader_options options = {
        .path = path, .seq_len = SEQ_LEN, .batch = 1, .slots = 1, .world = 1};
    static const struct job_spec specs[] = {
        {.seq_len = 10, .seed = 1, .sequences = 4},
        {.seq_len = 11, .seed = 1, .sequences = 4},
        {.seq_len = 10, .seed = 2, .sequences = 4},
        {.seq_len = 10, .seed = 1, .sequences = 5},
        {.seq_len = 10, .seed = 1, .sequences = 4, .packing = true},
    };
    enum { SPECS = sizeof specs / sizeof specs[0] };
    char digests[SPECS + 1][IO_HASH_BYTES], again[IO_HASH_BYTES];
    assert_int_equal(loader_init(&loader, &options, &err), 0);
    for (int i = 0; i < SPECS; i++)
        loader_digest(&loader, &specs[i], digests[i]);
    loader_digest(&loader, &specs[0], again);
    assert_string_equal(again, digests[0]);
    loader_done(&loader);
    char other[80]; /* a shard with other tokens */
    (void)snprintf(other, sizeof other, "%s.other", path);
    assert_int_equal(dataset_random_write(other, 3, 5, 7, &err), 0);
    options.path = other;
    assert_int_equal(loader_init(&loader, &options, &err), 0);
    loader_digest(&loader, &specs[0], digests[SPECS]);
    loader_done(&loader);
    assert_int_equal(unlink(other), 0);
    for (int i = 0; i <= SPECS; i++)
        for (int j = 0; j < i; j++)
            assert_string_not_equal(digests[i], digests[j]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_for_all_ranks),
        cmocka_unit_test(test_epochs),
        cmocka_unit_test(test_targets),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_digest),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

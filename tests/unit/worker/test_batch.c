/* batch: shifted before it is cut, padded, and cut by common/mesh: whatever the layout, the shards
 * of all ranks put together are the sequence. */
#include "tests/lib/cmocka.h"

#include "common/rng.h"
#include "tests/lib/testing.h"
#include "worker/batch.h"

enum { TOKENS_MAX = 100 };

struct scene {
    struct device *device;
    struct arena arena;
    struct batch batch;
};

static void open_scene(struct scene *scene, const struct mesh *mesh, int rank)
{
    struct err err = {0};
    assert_int_equal(device_cpu_open(1, &scene->device, &err), 0);
    arena_init(&scene->arena, scene->device, NULL);
    assert_int_equal(
        batch_init(&scene->batch, mesh, mesh_place(mesh, rank), TOKENS_MAX, &scene->arena, &err),
        0);
    assert_int_equal(arena_commit(&scene->arena, &err), 0);
    batch_clear(&scene->batch);
}

static void close_scene(struct scene *scene)
{
    batch_done(&scene->batch);
    arena_done(&scene->arena);
    scene->device->dev->close(scene->device);
}

static void upload(struct scene *scene)
{
    struct err err = {0};
    assert_int_equal(batch_upload(&scene->batch, scene->device, NULL, &err), 0);
}

/* R27: eight tokens on two ranks: seven targets, the first shard's last is the second's first. */
static void test_targets_at_the_cut(void **state)
{
    static const int32_t ids[8] = {10, 11, 12, 13, 14, 15, 16, 17};
    static const uint8_t all[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    struct mesh mesh = mesh_make(2, 1, 2);
    for (int rank = 0; rank < 2; rank++) {
        struct scene scene;
        open_scene(&scene, &mesh, rank);
        batch_append(&scene.batch, ids, all, 8);
        upload(&scene);
        assert_int_equal(scene.batch.rows, 4);
        assert_int_equal(scene.batch.trained, 7);
        for (int t = 0; t < 4; t++) {
            assert_int_equal(scene.batch.ids[t], 10 + 4 * rank + t);
            assert_int_equal(scene.batch.targets[t], rank == 1 && t == 3 ? -1 : 11 + 4 * rank + t);
            assert_int_equal(scene.batch.positions[t], 4 * rank + t);
        }
        close_scene(&scene);
    }
}

static void fill(struct batch *batch, int64_t round)
{
    int32_t ids[TOKENS_MAX];
    uint8_t trained[TOKENS_MAX];
    int64_t left = (int64_t)rng_below(testing_seed(), RNG_STREAM_TEST, (uint64_t)round, TOKENS_MAX);
    for (int64_t number = 0; left > 0; number++) {
        uint64_t at = (uint64_t)(round * 1000 + number);
        int64_t count =
            1 + (int64_t)rng_below(testing_seed(), RNG_STREAM_TEST + 1, at, (uint64_t)left);
        for (int64_t t = 0; t < count; t++) {
            ids[t] = (int32_t)rng_below(testing_seed(), RNG_STREAM_TEST + 2,
                                        at * 1000 + (uint64_t)t, 50) +
                     1;
            trained[t] = t % 3 != 0;
        }
        batch_append(batch, ids, trained, count);
        left -= count;
    }
}

/* A rank's rows are those of the sequence; a row's document is where the ring's rows say it is. */
static void check_rank(struct scene *scene, const struct mesh *mesh, int rank, bool *seen)
{
    const struct batch *b = &scene->batch;
    struct mesh_place place = mesh_place(mesh, rank);
    for (int64_t t = 0; t < b->rows; t++) {
        int64_t ring_row = place.ulysses * b->rows + t;
        int64_t at = mesh_seq_position(&b->seq, place.ring, ring_row), first, end;
        assert_false(seen[at]);
        seen[at] = true;
        assert_int_equal(b->ids[t], at < b->tokens ? b->host_ids[at] : 0);
        assert_int_equal(b->targets[t], at < b->tokens ? b->host_targets[at] : -1);
        batch_document(b, at, &first, &end);
        assert_true(first <= at && at < end);
        assert_int_equal(b->positions[t], at - first);
        int64_t s = 0;
        while (b->ring_doc_rows[s + 1] <= ring_row)
            s++;
        assert_int_equal(b->doc_rows[s], first);
    }
}

static void test_shards_make_the_sequence(void **state)
{
    static const int shapes[][2] = {{1, 1}, {1, 4}, {3, 1}, {2, 2}, {4, 2}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (int64_t round = 0; round < 20; round++) {
            struct mesh mesh = mesh_make(shapes[i][0] * shapes[i][1], shapes[i][0], shapes[i][1]);
            bool seen[2 * TOKENS_MAX] = {false};
            int64_t padded = 0, total = 0;
            for (int rank = 0; rank < mesh.world; rank++) {
                struct scene scene;
                open_scene(&scene, &mesh, rank);
                fill(&scene.batch, round);
                upload(&scene);
                check_rank(&scene, &mesh, rank, seen);
                padded = scene.batch.seq.padded;
                total += scene.batch.rows;
                upload(&scene); /* again: the same */
                assert_int_equal(scene.batch.seq.padded, padded);
                close_scene(&scene);
            }
            assert_int_equal(total, padded);
        }
}

static void test_empty(void **state)
{
    struct mesh mesh = mesh_make(4, 2, 2);
    struct scene scene;
    open_scene(&scene, &mesh, 3);
    upload(&scene);
    assert_int_equal(scene.batch.rows, 0);
    assert_int_equal(scene.batch.ring_documents, 0);
    close_scene(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_targets_at_the_cut),
        cmocka_unit_test(test_shards_make_the_sequence),
        cmocka_unit_test(test_empty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

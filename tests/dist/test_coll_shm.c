/* coll_shm: every collective against straight computation, for 1 to 8 ranks and the counts around
 * the sizes of pieces. */
#include "tests/dist/scene.h"

#include "common/mem.h"
#include "worker/coll.h"

#include <sched.h>
#include <string.h>

enum { COUNT_MAX = 20000 };

static void *memory(size_t bytes)
{
    void *block = mem_new(1, bytes);
    if (block == NULL)
        _exit(4);
    return block;
}

static double value(int call, int rank, int64_t i)
{
    uint64_t bits = (uint64_t)call * 1000003u + (uint64_t)rank * 8191u + (uint64_t)i;
    bits = (bits ^ (bits >> 13)) * 0x9e3779b97f4a7c15u;
    return (double)(int64_t)(bits >> 12) * 0x1p-45 - 40.0; /* sums depend on their order */
}

static void fill(enum dtype dtype, void *out, int call, int rank, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        double x = value(call, rank, i);
        if (dtype == DTYPE_F32)
            ((float *)out)[i] = (float)x;
        else if (dtype == DTYPE_F64)
            ((double *)out)[i] = x;
        else if (dtype == DTYPE_I64)
            ((int64_t *)out)[i] = (int64_t)(x * 1e6);
        else if (dtype == DTYPE_BF16)
            ((uint16_t *)out)[i] = dtype_f32_to_bf16((float)x);
        else
            ((uint8_t *)out)[i] = (uint8_t)(int64_t)x;
    }
}

/* out = sum over ranks of what fill gives them, from element `first`. */
static void fill_sum(enum dtype dtype, void *out, int call, int world, int64_t first, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        for (int rank = 0; rank < world; rank++) {
            double x = value(call, rank, first + i);
            if (dtype == DTYPE_F32)
                ((float *)out)[i] = rank == 0 ? (float)x : ((float *)out)[i] + (float)x;
            else if (dtype == DTYPE_F64)
                ((double *)out)[i] = rank == 0 ? x : ((double *)out)[i] + x;
            else
                ((int64_t *)out)[i] = (rank == 0 ? 0 : ((int64_t *)out)[i]) + (int64_t)(x * 1e6);
        }
    }
}

struct bench {
    char *send, *recv, *want; /* WORLD_MAX * count elements and guard bytes */
    size_t bytes;             /* of each */
};

static bool guarded(const char *data, size_t used)
{
    for (size_t i = 0; i < 64; i++)
        if (data[used + i] != 0x5a)
            return false;
    return true;
}

static int check_gather(struct coll *coll, struct bench *b, int call, int64_t count,
                        enum dtype dtype)
{
    struct err err = {0};
    size_t part = (size_t)count * dtype_bytes(dtype), all = part * (size_t)coll->world;
    for (int rank = 0; rank < coll->world; rank++)
        fill(dtype, b->want + (size_t)rank * part, call, rank, count);
    for (int in_place = 0; in_place < 2; in_place++) {
        memset(b->recv, 0x5a, all + 64);
        char *send = in_place ? b->recv + (size_t)coll->rank * part : b->send;
        fill(dtype, send, call, coll->rank, count);
        EXPECT(coll_all_gather(coll, NULL, send, b->recv, count, dtype, &err) == 0);
        EXPECT(memcmp(b->recv, b->want, all) == 0);
        EXPECT(guarded(b->recv, all));
    }
    return 0;
}

static int check_scatter(struct coll *coll, struct bench *b, int call, int64_t count,
                         enum dtype dtype)
{
    struct err err = {0};
    size_t part = (size_t)count * dtype_bytes(dtype);
    fill_sum(dtype, b->want, call, coll->world, coll->rank * count, count);
    for (int in_place = 0; in_place < 2; in_place++) {
        memset(b->send, 0x5a, part * (size_t)coll->world + 64);
        memset(b->recv, 0x5a, part + 64);
        fill(dtype, b->send, call, coll->rank, count * coll->world);
        char *recv = in_place ? b->send + (size_t)coll->rank * part : b->recv;
        EXPECT(coll_reduce_scatter(coll, NULL, b->send, recv, count, dtype, &err) == 0);
        EXPECT(memcmp(recv, b->want, part) == 0);
        EXPECT(guarded(b->send, part * (size_t)coll->world));
        EXPECT(in_place || guarded(b->recv, part));
    }
    return 0;
}

static int check_reduce(struct coll *coll, struct bench *b, int call, int64_t count,
                        enum dtype dtype)
{
    struct err err = {0};
    size_t part = (size_t)count * dtype_bytes(dtype);
    fill_sum(dtype, b->want, call, coll->world, 0, count);
    memset(b->recv, 0x5a, part + 64);
    fill(dtype, b->recv, call, coll->rank, count);
    EXPECT(coll_all_reduce(coll, NULL, b->recv, count, dtype, &err) == 0);
    EXPECT(memcmp(b->recv, b->want, part) == 0);
    EXPECT(guarded(b->recv, part));
    return 0;
}

static int check_all_to_all(struct coll *coll, struct bench *b, int call, int64_t count, int copies,
                            enum dtype dtype)
{
    struct err err = {0};
    size_t part = (size_t)count * dtype_bytes(dtype), all = part * (size_t)coll->world;
    fill(dtype, b->send, call, coll->rank, count * coll->world);
    char *theirs = memory(all + 1);
    for (int rank = 0; rank < coll->world; rank++) {
        fill(dtype, theirs, call, rank, count * coll->world);
        memcpy(b->want + (size_t)rank * part, theirs + (size_t)(coll->rank / copies) * part, part);
    }
    mem_free(theirs);
    memset(b->recv, 0x5a, all + 64);
    struct coll_parts parts = {
        .blocks = 1, .copies = copies, .send_part = count, .recv_part = count};
    EXPECT(coll_all_to_all(coll, NULL, b->send, b->recv, count, &parts, dtype, &err) == 0);
    EXPECT(memcmp(b->recv, b->want, all) == 0);
    EXPECT(guarded(b->recv, all));
    return 0;
}

/* Heads and tokens: parts of three blocks each; they arrive the other way round, and one place is
 * left between them. And back again. */
static int check_blocks(struct coll *coll, struct bench *b, int call, int64_t count, int copies,
                        enum dtype dtype)
{
    enum { BLOCKS = 3 };
    struct err err = {0};
    int64_t size = (int64_t)dtype_bytes(dtype), world = coll->world, row = world + 1;
    int64_t part = BLOCKS * count * size, all = BLOCKS * row * count * size;
    struct coll_parts out = {BLOCKS, copies, BLOCKS * count, count, count, row * count};
    struct coll_parts home = {BLOCKS, 1, count, row * count, BLOCKS * count, count};
    char *theirs = memory((size_t)(part * world + 1));
    memset(b->want, 0x5a, (size_t)all + 64);
    for (int rank = 0; rank < world; rank++) {
        fill(dtype, theirs, call, rank, BLOCKS * count * world);
        for (int64_t block = 0; block < BLOCKS; block++)
            memcpy(b->want + (block * row + rank) * count * size,
                   theirs + coll->rank / copies * part + block * count * size,
                   (size_t)(count * size));
    }
    fill(dtype, b->send, call, coll->rank, BLOCKS * count * world);
    memset(b->recv, 0x5a, (size_t)all + 64);
    EXPECT(coll_all_to_all(coll, NULL, b->send, b->recv, count, &out, dtype, &err) == 0);
    EXPECT(memcmp(b->recv, b->want, (size_t)all + 64) == 0);
    memset(b->send, 0x5a, (size_t)(part * world) + 64);
    EXPECT(coll_all_to_all(coll, NULL, b->recv, b->send, count, &home, dtype, &err) == 0);
    fill(dtype, theirs, call, coll->rank, BLOCKS * count * world);
    for (int rank = 0; rank < world; rank++)
        EXPECT(memcmp(b->send + rank * part, theirs + rank / copies * part, (size_t)part) == 0);
    EXPECT(guarded(b->send, (size_t)(part * world)));
    mem_free(theirs);
    return 0;
}

/* Two calls started before either is waited for: the first is done by then, as is the second after
 * the wait. Ranks are late in turns. */
static int check_started(struct coll *coll, struct bench *b, int call, int64_t count)
{
    struct err err = {0};
    size_t part = (size_t)count * sizeof(float), all = part * (size_t)coll->world;
    struct coll_call gather = {.kind = COLL_all_gather,
                               .dtype = DTYPE_F32,
                               .count = count,
                               .send = b->send,
                               .recv = b->recv};
    char *sums = memory(part + 64);
    struct coll_call reduce = {
        .kind = COLL_all_reduce, .dtype = DTYPE_F32, .count = count, .send = sums, .recv = sums};
    memset(b->recv, 0x5a, all + 64);
    fill(DTYPE_F32, b->send, call, coll->rank, count);
    EXPECT(coll->ops->start(coll, NULL, &gather, &err) == 0);
    if (call % coll->world == coll->rank)
        (void)sched_yield();
    memset(sums, 0x5a, part + 64);
    fill(DTYPE_F32, sums, call, coll->rank, count);
    EXPECT(coll->ops->start(coll, NULL, &reduce, &err) == 0);
    for (int rank = 0; rank < coll->world; rank++)
        fill(DTYPE_F32, b->want + (size_t)rank * part, call, rank, count);
    EXPECT(coll->ops->wait(coll, NULL, &err) == 0);
    EXPECT(memcmp(b->recv, b->want, all) == 0);
    EXPECT(guarded(b->recv, all));
    fill_sum(DTYPE_F32, b->want, call, coll->world, 0, count);
    EXPECT(memcmp(sums, b->want, part) == 0);
    EXPECT(guarded(sums, part));
    EXPECT(coll->ops->wait(coll, NULL, &err) == 0);
    mem_free(sums);
    return 0;
}

static int check_ring(struct coll *coll, struct bench *b, int call, int64_t count, enum dtype dtype)
{
    struct err err = {0};
    size_t part = (size_t)count * dtype_bytes(dtype);
    int world = coll->world, from = (coll->rank + world - 1) % world, to = (coll->rank + 1) % world;
    fill(dtype, b->send, call, coll->rank, count);
    fill(dtype, b->want, call, from, count);
    memset(b->recv, 0x5a, part + 64);
    EXPECT(coll_send_recv(coll, NULL, b->send, to, b->recv, from, count, dtype, &err) == 0);
    EXPECT(memcmp(b->recv, b->want, part) == 0);
    EXPECT(guarded(b->recv, part));
    /* An open chain: the first receives from nobody, the last sends to nobody. */
    memset(b->recv, 0x5a, part + 64);
    to = coll->rank + 1 < world ? to : -1;
    from = coll->rank > 0 ? from : -1;
    EXPECT(coll_send_recv(coll, NULL, b->send, to, b->recv, from, count, dtype, &err) == 0);
    EXPECT(from < 0 ? guarded(b->recv, 0) : memcmp(b->recv, b->want, part) == 0);
    EXPECT(guarded(b->recv, from < 0 ? 0 : part));
    return 0;
}

static int play_everything(const struct scene *scene, struct coll *coll)
{
    struct err err = {0};
    static const enum dtype moves[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F64, DTYPE_I64, DTYPE_U8};
    struct bench b = {.bytes = (size_t)WORLD_MAX * COUNT_MAX * 8 + 64};
    b.send = memory(b.bytes);
    b.recv = memory(b.bytes);
    b.want = memory(b.bytes);
    int call = 0, rc = 0;
    for (size_t type = 0; type < 5 && rc == 0; type++) {
        int64_t half = SLOT / 2 / (int64_t)dtype_bytes(moves[type]), share = half / scene->world;
        int64_t counts[] = {0,        1,    7,        share - 1, share,       share + 1,
                            half - 1, half, half + 1, 2 * half,  2 * half + 3};
        for (size_t c = 0; c < sizeof counts / sizeof counts[0] && rc == 0; c++, call++) {
            rc |= check_gather(coll, &b, call, counts[c], moves[type]);
            for (int copies = 1; copies <= scene->world && rc == 0; copies++)
                if (scene->world % copies == 0) {
                    rc |= check_all_to_all(coll, &b, call, counts[c], copies, moves[type]);
                    rc |= check_blocks(coll, &b, call, counts[c] / 3, copies, moves[type]);
                }
            rc |= check_ring(coll, &b, call, counts[c], moves[type]);
            rc |= check_started(coll, &b, call, counts[c] / 2);
            if (moves[type] == DTYPE_BF16 || moves[type] == DTYPE_U8)
                continue;
            rc |= check_scatter(coll, &b, call, counts[c], moves[type]);
            rc |= check_reduce(coll, &b, call, counts[c], moves[type]);
        }
    }
    mem_free(b.send);
    mem_free(b.recv);
    mem_free(b.want);
    if (rc == 0)
        EXPECT(coll_barrier(coll, &err) == 0);
    return rc;
}

static void test_every_collective(void **state)
{
    static const int worlds[] = {1, 2, 3, 4, 8};
    for (size_t w = 0; w < sizeof worlds / sizeof worlds[0]; w++)
        scene_play(&(struct scene){
            .world = worlds[w], .timeout_ms = 20000, .victim = -1, .play = play_everything});
}

/* A long random mixture, the same on all ranks; ranks dawdle at random. */
static int play_mixture(const struct scene *scene, struct coll *coll)
{
    struct bench b = {.bytes = (size_t)WORLD_MAX * COUNT_MAX * 8 + 64};
    b.send = memory(b.bytes);
    b.recv = memory(b.bytes);
    b.want = memory(b.bytes);
    uint32_t seed = 12345;
    int rc = 0;
    for (int call = 0; call < 400 && rc == 0; call++) {
        seed = seed * 1664525u + 1013904223u;
        int64_t count = (seed >> 8) % ((seed >> 28) == 0 ? 9000u : 300u);
        enum dtype dtype = (seed & 64) != 0 ? DTYPE_F32 : DTYPE_F64;
        if (((seed >> 3) + (uint32_t)coll->rank * 7u) % 23u == 0)
            (void)sched_yield();
        switch ((seed >> 24) % 6) {
        case 0:
            rc = check_gather(coll, &b, call, count, dtype);
            break;
        case 1:
            rc = check_scatter(coll, &b, call, count, dtype);
            break;
        case 2:
            rc = check_reduce(coll, &b, call, count, dtype);
            break;
        case 3:
            rc = check_all_to_all(coll, &b, call, count, 1, dtype);
            break;
        case 4:
            rc = check_started(coll, &b, call, count);
            break;
        default:
            rc = check_ring(coll, &b, call, count, dtype);
            break;
        }
    }
    mem_free(b.send);
    mem_free(b.recv);
    mem_free(b.want);
    return rc;
}

/* Groups of their own: neighbours, then every other rank, used in turns with the whole. */
static int play_split(const struct scene *scene, struct coll *coll)
{
    struct err err = {0};
    struct bench b = {.bytes = (size_t)WORLD_MAX * COUNT_MAX * 8 + 64};
    struct coll *pairs = NULL, *strided = NULL;
    EXPECT(coll->ops->split(coll, coll->rank / 2, &pairs, &err) == 0);
    EXPECT(coll->ops->split(coll, coll->rank % 2, &strided, &err) == 0);
    EXPECT(pairs->world == 2 && pairs->rank == coll->rank % 2);
    EXPECT(strided->world == scene->world / 2 && strided->rank == coll->rank / 2);
    b.send = memory(b.bytes);
    b.recv = memory(b.bytes);
    b.want = memory(b.bytes);
    int rc = 0;
    uint64_t before = coll->seq;
    for (int call = 0; call < 20 && rc == 0; call++) {
        rc |= check_gather(strided, &b, call, 100 + call, DTYPE_F32);
        rc |= check_all_to_all(pairs, &b, call, 3000 + call, 1 + call % 2, DTYPE_F32);
        rc |= check_ring(strided, &b, call, 50, DTYPE_F64);
        rc |= check_reduce(coll, &b, call, 9, DTYPE_I64);
    }
    EXPECT(coll->seq >= before + 80);
    mem_free(b.send);
    mem_free(b.recv);
    mem_free(b.want);
    if (rc != 0)
        return rc;
    /* One rank gives up: those that wait in a group of it are let go, and told who it was. */
    if (coll->rank == 3) {
        coll->ops->abort(coll);
        return 0;
    }
    int64_t one = 1;
    if (coll->rank == 2)
        EXPECT(coll_all_reduce(pairs, NULL, &one, 1, DTYPE_I64, &err) == -ERR_COLL_ABORTED);
    EXPECT(coll->rank != 2 || strstr(err.text, "aborted by rank 3") != NULL);
    return 0;
}

static void test_split(void **state)
{
    scene_play(&(struct scene){.world = 4, .timeout_ms = 20000, .victim = -1, .play = play_split});
}

static void test_mixture(void **state)
{
    for (int world = 2; world <= 5; world += 3)
        scene_play(&(struct scene){
            .world = world, .timeout_ms = 20000, .victim = -1, .play = play_mixture});
}

static int play_unsupported(const struct scene *scene, struct coll *coll)
{
    struct err err = {0};
    uint16_t data[4] = {0};
    EXPECT(coll_all_reduce(coll, NULL, data, 4, DTYPE_BF16, &err) == -ERR_UNSUPPORTED);
    EXPECT(coll->seq == 0);
    EXPECT(coll_barrier(coll, &err) == 0);
    EXPECT(coll->seq == 1);
    return 0;
}

static void test_sum_of_bf16_is_refused(void **state)
{
    scene_play(
        &(struct scene){.world = 2, .timeout_ms = 20000, .victim = -1, .play = play_unsupported});
}

static int play_disagree(const struct scene *scene, struct coll *coll)
{
    struct err err = {0};
    float data[16] = {0};
    int rc = coll_all_reduce(coll, NULL, data, coll->rank == 1 ? 8 : 7, DTYPE_F32, &err);
    EXPECT(rc == -ERR_INTERNAL || rc == -ERR_COLL_ABORTED);
    EXPECT(rc != -ERR_INTERNAL || strstr(err.text, "all_reduce of 8 F32") != NULL);
    EXPECT(coll_barrier(coll, &err) == -ERR_COLL_ABORTED);
    return 0;
}

static void test_ranks_that_disagree_find_out(void **state)
{
    scene_play(
        &(struct scene){.world = 3, .timeout_ms = 20000, .victim = -1, .play = play_disagree});
}

int main(void)
{
    (void)snprintf(scene_name, sizeof scene_name, "/ithaca-test-coll-%ld", (long)getpid());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_collective),
        cmocka_unit_test(test_mixture),
        cmocka_unit_test(test_split),
        cmocka_unit_test(test_sum_of_bf16_is_refused),
        cmocka_unit_test(test_ranks_that_disagree_find_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

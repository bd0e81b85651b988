/* coll_shm: every collective against straight computation, for 1 to 8 ranks and the counts around
 * the sizes of pieces; what happens when a rank dies, stops, aborts, disagrees or never comes.
 * Ranks are forked processes; a rank's verdict is its exit status, its complaint goes to stderr. */
#include "common/clock.h"
#include "common/mem.h"
#include "worker/coll.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { WORLD_MAX = 8, SLOT = 16384, COUNT_MAX = 20000 };

struct scene {
    int world;
    int64_t timeout_ms;
    int victim; /* rank of which the others must hear, or -1 */
    int (*play)(const struct scene *scene, struct coll *coll); /* 0: as it should be */
};

static char shm_name[64];

static void *memory(size_t bytes)
{
    void *block = mem_new(1, bytes);
    if (block == NULL)
        _exit(4);
    return block;
}

#define EXPECT(condition)                                                                     \
    do {                                                                                      \
        if (!(condition)) {                                                                   \
            (void)fprintf(stderr, "rank %d: %s:%d: %s: %s\n", coll->rank, __FILE__, __LINE__, \
                          #condition, err.text);                                              \
            return 1;                                                                         \
        }                                                                                     \
    } while (0)

static int rank_main(const struct scene *scene, int rank)
{
    struct err err = {0};
    struct coll *coll = NULL;
    const struct coll_shm_config config = {.name = shm_name,
                                           .rank = rank,
                                           .world = scene->world,
                                           .timeout_ms = scene->timeout_ms,
                                           .slot_bytes = SLOT};
    if (coll_shm_open(&config, &coll, &err) != 0) {
        (void)fprintf(stderr, "rank %d: %s\n", rank, err.text);
        return 2;
    }
    int rc = scene->play(scene, coll);
    coll->ops->close(coll);
    if (mem_live() != 0) {
        (void)fprintf(stderr, "rank %d: %lld blocks leaked\n", rank, (long long)mem_live());
        return 3;
    }
    return rc;
}

static bool name_is_gone(void)
{
    char path[128];
    (void)snprintf(path, sizeof path, "/dev/shm%s", shm_name);
    return access(path, F_OK) != 0;
}

static void fork_ranks(const struct scene *scene, pid_t *pids)
{
    (void)fflush(NULL);
    for (int rank = 0; rank < scene->world; rank++) {
        pids[rank] = fork();
        if (pids[rank] == 0)
            _exit(rank_main(scene, rank));
        assert_true(pids[rank] > 0);
    }
}

/* The others must end with 0; the victim is put out of its misery. */
static void wait_ranks(const struct scene *scene, const pid_t *pids)
{
    bool good = true;
    for (int rank = 0; rank < scene->world; rank++) {
        int status = 0;
        if (rank == scene->victim)
            continue;
        assert_int_equal(waitpid(pids[rank], &status, 0), pids[rank]);
        if (status != 0)
            (void)fprintf(stderr, "world %d: rank %d: status %#x\n", scene->world, rank, status);
        good = good && status == 0;
    }
    if (scene->victim >= 0) {
        (void)kill(pids[scene->victim], SIGKILL);
        assert_int_equal(waitpid(pids[scene->victim], NULL, 0), pids[scene->victim]);
    }
    assert_true(name_is_gone());
    assert_true(good);
}

static void play(const struct scene *scene)
{
    pid_t pids[WORLD_MAX];
    fork_ranks(scene, pids);
    wait_ranks(scene, pids);
}

/* ---- the arithmetic ---- */

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
        EXPECT(coll->ops->all_gather(coll, NULL, send, b->recv, count, dtype, &err) == 0);
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
        EXPECT(coll->ops->reduce_scatter(coll, NULL, b->send, recv, count, dtype, &err) == 0);
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
    EXPECT(coll->ops->all_reduce(coll, NULL, b->recv, count, dtype, &err) == 0);
    EXPECT(memcmp(b->recv, b->want, part) == 0);
    EXPECT(guarded(b->recv, part));
    return 0;
}

static int check_all_to_all(struct coll *coll, struct bench *b, int call, int64_t count,
                            enum dtype dtype)
{
    struct err err = {0};
    size_t part = (size_t)count * dtype_bytes(dtype), all = part * (size_t)coll->world;
    fill(dtype, b->send, call, coll->rank, count * coll->world);
    char *theirs = memory(all + 1);
    for (int rank = 0; rank < coll->world; rank++) {
        fill(dtype, theirs, call, rank, count * coll->world);
        memcpy(b->want + (size_t)rank * part, theirs + (size_t)coll->rank * part, part);
    }
    mem_free(theirs);
    memset(b->recv, 0x5a, all + 64);
    EXPECT(coll->ops->all_to_all(coll, NULL, b->send, b->recv, count, dtype, &err) == 0);
    EXPECT(memcmp(b->recv, b->want, all) == 0);
    EXPECT(guarded(b->recv, all));
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
    EXPECT(coll->ops->send_recv(coll, NULL, b->send, to, b->recv, from, count, dtype, &err) == 0);
    EXPECT(memcmp(b->recv, b->want, part) == 0);
    EXPECT(guarded(b->recv, part));
    /* An open chain: the first receives from nobody, the last sends to nobody. */
    memset(b->recv, 0x5a, part + 64);
    to = coll->rank + 1 < world ? to : -1;
    from = coll->rank > 0 ? from : -1;
    EXPECT(coll->ops->send_recv(coll, NULL, b->send, to, b->recv, from, count, dtype, &err) == 0);
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
            rc |= check_all_to_all(coll, &b, call, counts[c], moves[type]);
            rc |= check_ring(coll, &b, call, counts[c], moves[type]);
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
        EXPECT(coll->ops->barrier(coll, &err) == 0);
    return rc;
}

static void test_every_collective(void **state)
{
    (void)state;
    static const int worlds[] = {1, 2, 3, 4, 8};
    for (size_t w = 0; w < sizeof worlds / sizeof worlds[0]; w++)
        play(&(struct scene){
            .world = worlds[w], .timeout_ms = 20000, .victim = -1, .play = play_everything});
}

/* A long random mixture, the same on all ranks; ranks dawdle at random. */
static int play_mixture(const struct scene *scene, struct coll *coll)
{
    (void)scene;
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
        switch ((seed >> 24) % 5) {
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
            rc = check_all_to_all(coll, &b, call, count, dtype);
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

static void test_mixture(void **state)
{
    (void)state;
    for (int world = 2; world <= 5; world += 3)
        play(&(struct scene){
            .world = world, .timeout_ms = 20000, .victim = -1, .play = play_mixture});
}

static int play_unsupported(const struct scene *scene, struct coll *coll)
{
    (void)scene;
    struct err err = {0};
    uint16_t data[4] = {0};
    EXPECT(coll->ops->all_reduce(coll, NULL, data, 4, DTYPE_BF16, &err) == -ERR_UNSUPPORTED);
    EXPECT(coll->seq == 0);
    EXPECT(coll->ops->barrier(coll, &err) == 0);
    EXPECT(coll->seq == 1);
    return 0;
}

static void test_sum_of_bf16_is_refused(void **state)
{
    (void)state;
    play(&(struct scene){.world = 2, .timeout_ms = 20000, .victim = -1, .play = play_unsupported});
}

/* ---- trouble ---- */

static int expect_timeout(struct coll *coll, int victim)
{
    struct err err = {0};
    char named[32], alive[32];
    (void)snprintf(named, sizeof named, " rank %d (pid ", victim);
    (void)snprintf(alive, sizeof alive, " rank %d (pid ", coll->rank);
    int64_t start = clock_monotonic_ms();
    float data[3] = {0};
    EXPECT(coll->ops->all_reduce(coll, NULL, data, 3, DTYPE_F32, &err) == -ERR_COLL_TIMEOUT);
    EXPECT(strstr(err.text, named) != NULL);
    EXPECT(strstr(err.text, alive) == NULL);
    EXPECT(strstr(err.text, "all_reduce of 3 F32") != NULL);
    EXPECT(clock_monotonic_ms() - start >= 390);
    EXPECT(clock_monotonic_ms() - start < 5000);
    EXPECT(coll->ops->barrier(coll, &err) == -ERR_COLL_ABORTED); /* of no more use */
    return 0;
}

static int play_killed(const struct scene *scene, struct coll *coll)
{
    struct err err = {0};
    EXPECT(coll->ops->barrier(coll, &err) == 0);
    if (coll->rank == scene->victim)
        (void)raise(SIGKILL);
    return expect_timeout(coll, scene->victim);
}

static int play_stopped(const struct scene *scene, struct coll *coll)
{
    struct err err = {0};
    EXPECT(coll->ops->barrier(coll, &err) == 0);
    if (coll->rank == scene->victim)
        (void)raise(SIGSTOP);
    return expect_timeout(coll, scene->victim);
}

static void test_dead_and_stopped_ranks_are_named(void **state)
{
    (void)state;
    for (int victim = 0; victim < 3; victim++) {
        play(&(struct scene){.world = 3, .timeout_ms = 400, .victim = victim, .play = play_killed});
        play(
            &(struct scene){.world = 3, .timeout_ms = 400, .victim = victim, .play = play_stopped});
    }
}

static void *abort_soon(void *argument)
{
    struct coll *coll = argument;
    clock_sleep_ms(100);
    coll->ops->abort(coll);
    return NULL;
}

static int play_abort(const struct scene *scene, struct coll *coll)
{
    (void)scene;
    struct err err = {0};
    int64_t start = clock_monotonic_ms();
    pthread_t thread;
    if (coll->rank == 1) { /* waits itself: the abort comes from another thread */
        EXPECT(pthread_create(&thread, NULL, abort_soon, coll) == 0);
        int rc = coll->ops->send_recv(coll, NULL, NULL, -1, NULL, -1, 0, DTYPE_F32, &err);
        EXPECT(pthread_join(thread, NULL) == 0);
        EXPECT(rc == -ERR_COLL_ABORTED);
    } else if (coll->rank == 2) { /* comes late: fails at once */
        clock_sleep_ms(300);
        EXPECT(coll->ops->barrier(coll, &err) == -ERR_COLL_ABORTED);
    } else {
        float data = 0;
        EXPECT(coll->ops->all_reduce(coll, NULL, &data, 1, DTYPE_F32, &err) == -ERR_COLL_ABORTED);
    }
    EXPECT(strstr(err.text, "aborted by rank 1") != NULL);
    EXPECT(clock_monotonic_ms() - start < 5000);
    return 0;
}

static void test_abort_releases_all(void **state)
{
    (void)state;
    play(&(struct scene){.world = 4, .timeout_ms = 30000, .victim = -1, .play = play_abort});
}

static int play_disagree(const struct scene *scene, struct coll *coll)
{
    (void)scene;
    struct err err = {0};
    float data[16] = {0};
    int rc = coll->ops->all_reduce(coll, NULL, data, coll->rank == 1 ? 8 : 7, DTYPE_F32, &err);
    EXPECT(rc == -ERR_INTERNAL || rc == -ERR_COLL_ABORTED);
    EXPECT(rc != -ERR_INTERNAL || strstr(err.text, "all_reduce of 8 F32") != NULL);
    EXPECT(coll->ops->barrier(coll, &err) == -ERR_COLL_ABORTED);
    return 0;
}

static void test_ranks_that_disagree_find_out(void **state)
{
    (void)state;
    play(&(struct scene){.world = 3, .timeout_ms = 20000, .victim = -1, .play = play_disagree});
}

/* ---- joining ---- */

static int join(int rank, int world, int64_t timeout_ms, int64_t slot_bytes, struct err *err)
{
    struct coll *coll = NULL;
    const struct coll_shm_config config = {.name = shm_name,
                                           .rank = rank,
                                           .world = world,
                                           .timeout_ms = timeout_ms,
                                           .slot_bytes = slot_bytes};
    int rc = coll_shm_open(&config, &coll, err);
    if (rc == 0)
        coll->ops->close(coll);
    if (mem_live() != 0)
        return 1;
    return rc;
}

/* Ranks 0..world-1 except `absent` join; each must hear of the absent one. */
static void join_without(int world, int absent)
{
    pid_t pids[WORLD_MAX];
    char named[32];
    (void)snprintf(named, sizeof named, " rank %d", absent);
    for (int rank = 0; rank < world; rank++) {
        pids[rank] = fork();
        if (pids[rank] != 0)
            continue;
        struct err err = {0};
        if (rank == absent)
            _exit(0); /* dies before joining */
        int rc = join(rank, world, 400, SLOT, &err);
        bool good = rc == -ERR_COLL_TIMEOUT && strstr(err.text, named) != NULL;
        if (!good)
            (void)fprintf(stderr, "rank %d without %d: %d %s\n", rank, absent, rc, err.text);
        _exit(good ? 0 : 1);
    }
    for (int rank = 0; rank < world; rank++) {
        int status = 1;
        assert_int_equal(waitpid(pids[rank], &status, 0), pids[rank]);
        assert_int_equal(status, 0);
    }
    assert_true(name_is_gone());
}

static void test_absent_rank_is_named(void **state)
{
    (void)state;
    for (int absent = 0; absent < 3; absent++)
        join_without(3, absent);
}

/* Rank 0 is killed while the others wait in its object: they leave and remove the name. */
static void test_creator_killed_while_joining(void **state)
{
    (void)state;
    struct err err = {0};
    pid_t creator = fork();
    if (creator == 0)
        _exit(join(0, 3, 20000, SLOT, &err) == 0);
    pid_t other = fork();
    if (other == 0) {
        int rc = join(1, 3, 1000, SLOT, &err);
        _exit(rc == -ERR_COLL_TIMEOUT && strstr(err.text, "rank 0") != NULL ? 0 : 1);
    }
    clock_sleep_ms(300);
    assert_int_equal(kill(creator, SIGKILL), 0);
    int status = 1;
    assert_int_equal(waitpid(creator, NULL, 0), creator);
    assert_int_equal(waitpid(other, &status, 0), other);
    assert_int_equal(status, 0);
    assert_true(name_is_gone());
}

static int play_barrier(const struct scene *scene, struct coll *coll)
{
    (void)scene;
    struct err err = {0};
    EXPECT(coll->ops->barrier(coll, &err) == 0);
    return 0;
}

/* An object of that name from a dead run, empty, with garbage, or half made, is no obstacle. */
static void test_stale_object_is_replaced(void **state)
{
    (void)state;
    for (int size = 0; size <= 65536; size += 32768) {
        int fd = shm_open(shm_name, O_CREAT | O_EXCL | O_RDWR, 0600);
        assert_true(fd >= 0);
        assert_int_equal(ftruncate(fd, size), 0);
        char garbage[4096];
        memset(garbage, 0xa5, sizeof garbage);
        if (size > 0)
            assert_int_equal(pwrite(fd, garbage, sizeof garbage, 0), sizeof garbage);
        (void)close(fd);
        play(&(struct scene){.world = 3, .timeout_ms = 20000, .victim = -1, .play = play_barrier});
    }
}

static void test_living_object_is_refused(void **state)
{
    (void)state;
    struct err err = {0};
    pid_t creator = fork();
    if (creator == 0)
        _exit(join(0, 2, 20000, SLOT, &err) == 0);
    while (name_is_gone())
        clock_sleep_ms(1);
    clock_sleep_ms(100);
    assert_int_equal(join(0, 2, 1000, SLOT, &err), -ERR_IN_USE);
    assert_non_null(strstr(err.text, shm_name));
    assert_int_equal(join(1, 3, 1000, SLOT, &err), -ERR_INTERNAL); /* another world */
    assert_int_equal(join(1, 2, 1000, 4 * SLOT, &err), -ERR_INTERNAL);
    assert_false(name_is_gone()); /* none of them has removed it */
    assert_int_equal(kill(creator, SIGKILL), 0);
    assert_int_equal(waitpid(creator, NULL, 0), creator);
    assert_int_equal(join(1, 2, 50, SLOT, &err), -ERR_COLL_TIMEOUT);
    assert_true(name_is_gone());
}

static bool put(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool good = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    return close(fd) == 0 && good;
}

static bool private_mounts(void)
{
    if (unshare(CLONE_NEWNS) != 0) {
        char users[32], groups[32];
        (void)snprintf(users, sizeof users, "0 %d 1", (int)getuid());
        (void)snprintf(groups, sizeof groups, "0 %d 1", (int)getgid());
        if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0 || !put("/proc/self/uid_map", users) ||
            !put("/proc/self/setgroups", "deny") || !put("/proc/self/gid_map", groups))
            return false;
    }
    return mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
}

/* Field case R42. */
static void test_full_shm_says_sizes(void **state)
{
    (void)state;
    struct err err = {0};
    assert_int_equal(join(0, 2, 1000, INT64_C(1) << 45, &err), -ERR_NO_SPACE);
    assert_non_null(strstr(err.text, "/dev/shm is too small"));
    assert_non_null(strstr(err.text, "are free"));
    assert_true(name_is_gone());

    pid_t child = fork();
    if (child == 0) { /* 1 MiB, where making mount namespaces is allowed */
        if (!private_mounts() || mount("small", "/dev/shm", "tmpfs", 0, "size=1m") != 0)
            _exit(77);
        bool good = join(0, 2, 1000, 0, &err) == -ERR_NO_SPACE &&
                    strstr(err.text, " 1048576 of 1048576 are free") != NULL && name_is_gone();
        if (!good)
            (void)fprintf(stderr, "%s\n", err.text);
        _exit(good ? 0 : 1);
    }
    int status = 1;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        print_message("small /dev/shm: not tested, no mount namespaces here\n");
    else
        assert_int_equal(status, 0);
}

static void test_allocation_failures(void **state)
{
    (void)state;
    struct err err = {0};
    int walked = 0;
    for (;; walked++) {
        mem_fault_after(walked + 1);
        int rc = join(0, 1, 1000, SLOT, &err);
        mem_fault_after(0);
        assert_true(name_is_gone());
        assert_int_equal(mem_live(), 0);
        if (rc == 0)
            break;
        assert_int_equal(rc, -ERR_NOMEM);
    }
    assert_true(walked >= 1);
}

/* Ranks that wait must not burn the machine: 2 s of waiting costs less than 0.2 s of CPU. */
static int play_idle(const struct scene *scene, struct coll *coll)
{
    (void)scene;
    struct err err = {0};
    if (coll->rank == 0)
        clock_sleep_ms(1000);
    EXPECT(coll->ops->barrier(coll, &err) == 0);
    struct rusage usage;
    EXPECT(getrusage(RUSAGE_SELF, &usage) == 0);
    EXPECT(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec == 0);
    EXPECT(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec < 200000);
    return 0;
}

static void test_waiting_is_cheap(void **state)
{
    (void)state;
    play(&(struct scene){.world = 2, .timeout_ms = 20000, .victim = -1, .play = play_idle});
}

int main(void)
{
    (void)snprintf(shm_name, sizeof shm_name, "/ithaca-test-%ld", (long)getpid());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_collective),
        cmocka_unit_test(test_mixture),
        cmocka_unit_test(test_sum_of_bf16_is_refused),
        cmocka_unit_test(test_dead_and_stopped_ranks_are_named),
        cmocka_unit_test(test_abort_releases_all),
        cmocka_unit_test(test_ranks_that_disagree_find_out),
        cmocka_unit_test(test_absent_rank_is_named),
        cmocka_unit_test(test_creator_killed_while_joining),
        cmocka_unit_test(test_stale_object_is_replaced),
        cmocka_unit_test(test_living_object_is_refused),
        cmocka_unit_test(test_full_shm_says_sizes),
        cmocka_unit_test(test_allocation_failures),
        cmocka_unit_test(test_waiting_is_cheap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

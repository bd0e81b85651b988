/* shm_room: joining and its mishaps; what ranks hear when one dies, stops, aborts or never comes;
 * what waiting costs; that nothing is ever left in /dev/shm. */
#include "tests/dist/scene.h"

#include "common/clock.h"
#include "common/mem.h"
#include "worker/coll.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>

/* A busy machine may keep a rank waiting for longer than a short deadline lasts. What is to end by
 * one is tried under longer ones too before it counts as failed: a fault fails under all. */
#define UNDER_A_DEADLINE(milliseconds, is_good)                                \
    for (int64_t deadline_ms = (milliseconds); !(is_good); deadline_ms *= 6) { \
        print_message("not within a deadline of %d ms\n", (int)deadline_ms);   \
        assert_true(deadline_ms < 6000);                                       \
    }

static int expect_timeout(const struct scene *scene, struct coll *coll)
{
    struct err err = {0};
    char named[32], alive[32];
    (void)snprintf(named, sizeof named, " rank %d (pid ", scene->victim);
    (void)snprintf(alive, sizeof alive, " rank %d (pid ", coll->rank);
    int64_t start = clock_monotonic_ms();
    float data[3] = {0};
    EXPECT(coll_all_reduce(coll, NULL, data, 3, DTYPE_F32, &err) == -ERR_COLL_TIMEOUT);
    EXPECT(strstr(err.text, named) != NULL);
    EXPECT(strstr(err.text, alive) == NULL);
    EXPECT(strstr(err.text, "all_reduce of 3 F32") != NULL);
    EXPECT(clock_monotonic_ms() - start >= scene->timeout_ms - 10);
    EXPECT(clock_monotonic_ms() - start < 5 * scene->timeout_ms);
    EXPECT(coll_barrier(coll, &err) == -ERR_COLL_ABORTED); /* of no more use */
    return 0;
}

static int play_killed(const struct scene *scene, struct coll *coll)
{
    struct err err = {0};
    EXPECT(coll_barrier(coll, &err) == 0);
    if (coll->rank == scene->victim)
        (void)raise(SIGKILL);
    return expect_timeout(scene, coll);
}

static int play_stopped(const struct scene *scene, struct coll *coll)
{
    struct err err = {0};
    EXPECT(coll_barrier(coll, &err) == 0);
    if (coll->rank == scene->victim)
        (void)raise(SIGSTOP);
    return expect_timeout(scene, coll);
}

/* A call that was started does not wait; the wait for it has the deadline, and says the same. */
static int play_stopped_between(const struct scene *scene, struct coll *coll)
{
    struct err err = {0};
    char named[32];
    float one = 1, all[3] = {0};
    struct coll_call call = {
        .kind = COLL_all_gather, .dtype = DTYPE_F32, .count = 1, .send = &one, .recv = all};
    (void)snprintf(named, sizeof named, " rank %d (pid ", scene->victim);
    EXPECT(coll_barrier(coll, &err) == 0);
    if (coll->rank == scene->victim)
        (void)raise(SIGSTOP);
    int64_t start = clock_monotonic_ms();
    EXPECT(coll->ops->start(coll, NULL, &call, &err) == 0);
    EXPECT(clock_monotonic_ms() - start < scene->timeout_ms);
    EXPECT(coll->ops->wait(coll, NULL, &err) == -ERR_COLL_TIMEOUT);
    EXPECT(strstr(err.text, named) != NULL && strstr(err.text, "all_gather of 1 F32") != NULL);
    EXPECT(coll->ops->start(coll, NULL, &call, &err) == -ERR_COLL_ABORTED);
    EXPECT(coll->ops->wait(coll, NULL, &err) == 0); /* nothing is under way */
    return 0;
}

static bool hears(int victim, int64_t timeout_ms,
                  int (*play)(const struct scene *scene, struct coll *coll))
{
    return scene_is_good(
        &(struct scene){.world = 3, .timeout_ms = timeout_ms, .victim = victim, .play = play});
}

static void test_dead_and_stopped_ranks_are_named(void **state)
{
    for (int victim = 0; victim < 3; victim++) {
        UNDER_A_DEADLINE(1000, hears(victim, deadline_ms, play_killed));
        UNDER_A_DEADLINE(1000, hears(victim, deadline_ms, play_stopped));
    }
    UNDER_A_DEADLINE(400, hears(1, deadline_ms, play_stopped_between));
}

/* A rank that has been reaped is noticed long before the deadline. */
static int play_ended(const struct scene *scene, struct coll *coll)
{
    struct err err = {0};
    char named[32];
    (void)snprintf(named, sizeof named, "rank %d has ended", scene->victim);
    EXPECT(coll_barrier(coll, &err) == 0);
    if (coll->rank == scene->victim)
        (void)raise(SIGKILL);
    float data = 0;
    EXPECT(coll_all_reduce(coll, NULL, &data, 1, DTYPE_F32, &err) == -ERR_COLL_ABORTED);
    EXPECT(strstr(err.text, named) != NULL);
    return 0;
}

static void test_ended_rank_is_noticed(void **state)
{
    for (int victim = 0; victim < 3; victim++) {
        pid_t pids[WORLD_MAX];
        struct scene scene = {
            .world = 3, .timeout_ms = 600000, .victim = victim, .play = play_ended};
        scene_fork(&scene, pids);
        for (int rank = 0; rank < 3; rank++) { /* the victim is the first to end */
            int status = 0;
            pid_t pid = waitpid(-1, &status, 0);
            assert_int_equal(status, rank == 0 ? SIGKILL : 0);
            assert_int_equal(pid == pids[victim], rank == 0);
        }
        assert_true(scene_name_is_gone());
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
    struct err err = {0};
    int64_t start = clock_monotonic_ms();
    pthread_t thread;
    if (coll->rank == 1) { /* waits itself: the abort comes from another thread */
        EXPECT(pthread_create(&thread, NULL, abort_soon, coll) == 0);
        int rc = coll_send_recv(coll, NULL, NULL, -1, NULL, -1, 0, DTYPE_F32, &err);
        EXPECT(pthread_join(thread, NULL) == 0);
        EXPECT(rc == -ERR_COLL_ABORTED);
    } else if (coll->rank == 2) { /* comes late: fails at once */
        clock_sleep_ms(300);
        EXPECT(coll_barrier(coll, &err) == -ERR_COLL_ABORTED);
    } else {
        float data = 0;
        EXPECT(coll_all_reduce(coll, NULL, &data, 1, DTYPE_F32, &err) == -ERR_COLL_ABORTED);
    }
    EXPECT(strstr(err.text, "aborted by rank 1") != NULL);
    EXPECT(clock_monotonic_ms() - start < 5000);
    return 0;
}

static void test_abort_releases_all(void **state)
{
    scene_play(&(struct scene){.world = 4, .timeout_ms = 30000, .victim = -1, .play = play_abort});
}

static int join(int rank, int world, int64_t timeout_ms, int64_t slot_bytes, struct err *err)
{
    struct coll *coll = NULL;
    const struct coll_shm_config config = {.name = scene_name,
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
static bool join_without(int world, int absent, int64_t timeout_ms)
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
        int rc = join(rank, world, timeout_ms, SLOT, &err);
        bool good = rc == -ERR_COLL_TIMEOUT && strstr(err.text, named) != NULL;
        if (!good)
            (void)fprintf(stderr, "rank %d without %d: %d %s\n", rank, absent, rc, err.text);
        _exit(good ? 0 : 1);
    }
    bool good = true;
    for (int rank = 0; rank < world; rank++) {
        int status = 1;
        assert_int_equal(waitpid(pids[rank], &status, 0), pids[rank]);
        good = good && status == 0;
    }
    assert_true(scene_name_is_gone());
    return good;
}

static void test_absent_rank_is_named(void **state)
{
    for (int absent = 0; absent < 3; absent++)
        UNDER_A_DEADLINE(1000, join_without(3, absent, deadline_ms));
}

/* Rank 0 is killed while another waits in its object: that one leaves and removes the name. */
static bool join_with_killed_creator(int64_t timeout_ms)
{
    struct err err = {0};
    pid_t creator = fork();
    if (creator == 0)
        _exit(join(0, 3, 60000, SLOT, &err) == 0);
    pid_t other = fork();
    if (other == 0) {
        int rc = join(1, 3, timeout_ms, SLOT, &err);
        _exit(rc == -ERR_COLL_TIMEOUT && strstr(err.text, "rank 0") != NULL ? 0 : 1);
    }
    clock_sleep_ms(timeout_ms / 3);
    assert_int_equal(kill(creator, SIGKILL), 0);
    int status = 1;
    assert_int_equal(waitpid(creator, NULL, 0), creator);
    assert_int_equal(waitpid(other, &status, 0), other);
    return status == 0 && scene_name_is_gone();
}

static void test_creator_killed_while_joining(void **state)
{
    UNDER_A_DEADLINE(1000, join_with_killed_creator(deadline_ms));
}

static int play_barrier(const struct scene *scene, struct coll *coll)
{
    struct err err = {0};
    EXPECT(coll_barrier(coll, &err) == 0);
    return 0;
}

/* An object of that name from a dead run, empty, with garbage, or half made, is no obstacle. */
static void test_stale_object_is_replaced(void **state)
{
    for (int size = 0; size <= 65536; size += 32768) {
        int fd = shm_open(scene_name, O_CREAT | O_EXCL | O_RDWR, 0600);
        assert_true(fd >= 0);
        assert_int_equal(ftruncate(fd, size), 0);
        char garbage[4096];
        memset(garbage, 0xa5, sizeof garbage);
        if (size > 0)
            assert_int_equal(pwrite(fd, garbage, sizeof garbage, 0), sizeof garbage);
        (void)close(fd);
        scene_play(
            &(struct scene){.world = 3, .timeout_ms = 20000, .victim = -1, .play = play_barrier});
    }
}

static void test_living_object_is_refused(void **state)
{
    struct err err = {0};
    pid_t creator = fork();
    if (creator == 0)
        _exit(join(0, 2, 60000, SLOT, &err) == 0);
    while (scene_name_is_gone())
        clock_sleep_ms(1);
    clock_sleep_ms(100);
    assert_int_equal(join(0, 2, 20000, SLOT, &err), -ERR_IN_USE);
    assert_non_null(strstr(err.text, scene_name));
    assert_int_equal(join(1, 3, 20000, SLOT, &err), -ERR_INTERNAL); /* another world */
    assert_int_equal(join(1, 2, 20000, 4 * SLOT, &err), -ERR_INTERNAL);
    assert_false(scene_name_is_gone()); /* none of them has removed it */
    assert_int_equal(kill(creator, SIGKILL), 0);
    assert_int_equal(waitpid(creator, NULL, 0), creator);
    UNDER_A_DEADLINE(50, join(1, 2, deadline_ms, SLOT, &err) == -ERR_COLL_TIMEOUT &&
                             scene_name_is_gone());
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
    struct err err = {0};
    assert_int_equal(join(0, 2, 1000, INT64_C(1) << 45, &err), -ERR_NO_SPACE);
    assert_non_null(strstr(err.text, "/dev/shm is too small"));
    assert_non_null(strstr(err.text, "are free"));
    assert_true(scene_name_is_gone());

    pid_t child = fork();
    if (child == 0) { /* 1 MiB, where making mount namespaces is allowed */
        if (!private_mounts() || mount("small", "/dev/shm", "tmpfs", 0, "size=1m") != 0)
            _exit(77);
        bool good = join(0, 2, 1000, 0, &err) == -ERR_NO_SPACE &&
                    strstr(err.text, " 1048576 of 1048576 are free") != NULL &&
                    scene_name_is_gone();
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
    struct err err = {0};
    int walked = 0;
    for (;; walked++) {
        mem_fault_after(walked + 1);
        int rc = join(0, 1, 1000, SLOT, &err);
        mem_fault_after(0);
        assert_true(scene_name_is_gone());
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
    struct err err = {0};
    if (coll->rank == 0)
        clock_sleep_ms(1000);
    EXPECT(coll_barrier(coll, &err) == 0);
    struct rusage usage;
    EXPECT(getrusage(RUSAGE_SELF, &usage) == 0);
    EXPECT(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec == 0);
    EXPECT(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec < 200000);
    return 0;
}

static void test_waiting_is_cheap(void **state)
{
    scene_play(&(struct scene){.world = 2, .timeout_ms = 20000, .victim = -1, .play = play_idle});
}

int main(void)
{
    (void)snprintf(scene_name, sizeof scene_name, "/ithaca-test-room-%ld", (long)getpid());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dead_and_stopped_ranks_are_named),
        cmocka_unit_test(test_ended_rank_is_noticed),
        cmocka_unit_test(test_abort_releases_all),
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

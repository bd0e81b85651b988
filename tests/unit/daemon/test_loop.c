/* loop: timers that are set, stopped and freed at every moment, watches that change, hooks that
 * bound a sleep, and nothing left of a loop. Removal of a watch within a
 * batch, signals: tests/unit/daemon/test_host_posix.c. */
#include "daemon/loop.h"

#include "common/clock.h"
#include "common/mem.h"
#include "tests/lib/cmocka.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

static struct loop *loop;
static struct err err;

static int descriptors(void)
{
    int count = 0;
    DIR *stream = opendir("/proc/self/fd");
    assert_non_null(stream);
    while (readdir(stream) != NULL)
        count++;
    (void)closedir(stream);
    return count;
}

static int setup(void **state)
{
    return loop_new(&loop, &err);
}

static int teardown(void **state)
{
    loop_free(loop);
    assert_int_equal(mem_live(), 0);
    return 0;
}

static void turn(int64_t max_ms)
{
    assert_int_equal(loop_turn(loop, max_ms, &err), 0);
}

/* ---- timers ---- */

struct clockwork {
    struct loop_timer *timer;
    int calls;
    struct clockwork *stops; /* when called */
    struct clockwork *frees; /* when called; itself too */
};

static void tick(void *context)
{
    struct clockwork *work = context;
    work->calls++;
    if (work->stops != NULL)
        loop_timer_stop(work->stops->timer);
    if (work->frees != NULL) {
        struct clockwork *victim = work->frees;
        work->frees = NULL;
        loop_timer_free(victim->timer);
        victim->timer = NULL;
    }
}

static void work_open(struct clockwork *work)
{
    *work = (struct clockwork){.calls = 0};
    assert_int_equal(loop_timer_new(loop, tick, work, &work->timer, &err), 0);
}

static void await(const struct clockwork *work, int calls)
{
    int64_t end_ms = clock_monotonic_ms() + 10000;
    while (work->calls < calls && clock_monotonic_ms() < end_ms)
        turn(100);
    assert_int_equal(work->calls, calls);
}

static void test_timers(void **state)
{
    struct clockwork once, idle, replaced;
    work_open(&once);
    work_open(&idle);
    work_open(&replaced);
    loop_timer_set(once.timer, 1, 0);
    loop_timer_set(replaced.timer, 3600000, 0);
    loop_timer_set(replaced.timer, 2, 0); /* the later word counts */
    await(&replaced, 1);
    await(&once, 1);
    loop_timer_set(idle.timer, 1, 1);
    loop_timer_stop(idle.timer);
    loop_timer_stop(idle.timer); /* again is fine */
    for (int i = 0; i < 5; i++)
        turn(2);
    assert_int_equal(once.calls, 1);  /* once */
    assert_int_equal(idle.calls, 0);  /* never */
    loop_timer_set(once.timer, 0, 0); /* may be set again; 0 is soon, not never */
    await(&once, 2);
    loop_timer_free(once.timer);
    loop_timer_free(NULL);
} /* the others are the loop's to free */

/* Two timers are due in one batch: whichever is called first stops or frees the other. */
static void test_timers_of_one_batch(void **state)
{
    for (int frees = 0; frees < 2; frees++) {
        struct clockwork a, b;
        work_open(&a);
        work_open(&b);
        *(frees ? &a.frees : &a.stops) = &b;
        *(frees ? &b.frees : &b.stops) = &a;
        loop_timer_set(a.timer, 0, 0);
        loop_timer_set(b.timer, 0, 0);
        clock_sleep_ms(3); /* both are due */
        turn(1000);
        turn(0);
        assert_int_equal(a.calls + b.calls, 1);
        loop_timer_free(a.timer);
        loop_timer_free(b.timer);
    }
    struct clockwork own;
    work_open(&own);
    own.frees = &own; /* itself, from its own call */
    loop_timer_set(own.timer, 0, 1);
    await(&own, 1);
    turn(3);
    assert_int_equal(own.calls, 1);
}

/* ---- watches ---- */

struct ear {
    uint32_t events; /* of the last call */
    int calls;
    int adds_fd; /* watched from within the first call; -1: none */
    struct ear *added;
    struct loop_watch *watch;
};

static void hear(void *context, uint32_t events)
{
    struct ear *ear = context;
    ear->events = events;
    if (ear->calls++ == 0 && ear->added != NULL)
        assert_int_equal(
            loop_watch_fd(loop, ear->adds_fd, EPOLLIN, hear, ear->added, &ear->added->watch, &err),
            0);
}

static void test_watches(void **state)
{
    int pair[2];
    struct ear ear = {.calls = 0}, other = {.calls = 0};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    assert_int_equal(loop_watch_fd(loop, pair[0], EPOLLIN, hear, &ear, &ear.watch, &err), 0);
    turn(0);
    assert_int_equal(ear.calls, 0);
    assert_int_equal(write(pair[1], "x", 1), 1);
    turn(1000);
    turn(0); /* level-triggered: as long as it is not read */
    assert_int_equal(ear.calls, 2);
    assert_int_equal(ear.events, EPOLLIN);
    assert_int_equal(loop_watch_events(ear.watch, 0, &err), 0);
    turn(0);
    assert_int_equal(ear.calls, 2);
    assert_int_equal(loop_watch_events(ear.watch, EPOLLOUT, &err), 0);
    turn(1000);
    assert_int_equal(ear.events, EPOLLOUT);
    assert_int_equal(loop_watch_fd(loop, pair[0], EPOLLIN, hear, &other, &other.watch, &err),
                     -ERR_IO); /* one watch a descriptor */
    assert_null(other.watch);
    loop_unwatch(ear.watch);
    loop_unwatch(NULL);
    int calls = ear.calls;
    turn(0);
    assert_int_equal(ear.calls, calls);
    assert_int_equal(loop_watch_fd(loop, pair[0], EPOLLIN, hear, &ear, &ear.watch, &err), 0);
    (void)close(pair[1]); /* the other end leaves */
    turn(1000);
    assert_true((ear.events & EPOLLHUP) != 0);
    loop_unwatch(ear.watch);
    (void)close(pair[0]);
}

static void test_watch_added_by_a_callback(void **state)
{
    int first[2], second[2];
    struct ear added = {.calls = 0}, ear = {.added = &added};
    assert_int_equal(pipe(first), 0);
    assert_int_equal(pipe(second), 0);
    ear.adds_fd = second[0];
    assert_int_equal(write(first[1], "x", 1), 1);
    assert_int_equal(write(second[1], "x", 1), 1);
    assert_int_equal(loop_watch_fd(loop, first[0], EPOLLIN, hear, &ear, &ear.watch, &err), 0);
    turn(1000);
    assert_int_equal(added.calls, 0); /* the next batch's */
    turn(1000);
    assert_int_equal(added.calls, 1);
    loop_unwatch(ear.watch);
    loop_unwatch(added.watch);
    for (int i = 0; i < 2; i++) {
        (void)close(first[i]);
        (void)close(second[i]);
    }
}

/* ---- sleeping ---- */

struct hook {
    int64_t says; /* how long the sleep may last */
    bool stops;   /* the loop */
    int calls;
};

static int64_t hook_call(void *context)
{
    struct hook *hook = context;
    hook->calls++;
    if (hook->stops)
        loop_stop(loop);
    return hook->says;
}

static void test_hooks(void **state)
{
    struct hook none = {.says = -1}, longest = {.says = INT64_MAX}, least = {.says = 1};
    loop_on_prepare(loop, hook_call, &none);
    turn(0); /* no limit of its own: the caller's */
    loop_on_prepare(loop, hook_call, &longest);
    turn(0);
    loop_on_prepare(loop, hook_call, &least);
    turn(-1); /* for ever, but for the hook */
    turn(3600000);
    assert_int_equal(none.calls, 4);
    assert_int_equal(longest.calls, 3);
    assert_int_equal(least.calls, 2);
    least = (struct hook){.says = -1, .stops = true};
    longest.says = -1;
    assert_int_equal(loop_run(loop, &err), 0); /* stopped before it sleeps */
    assert_int_equal(least.calls, 1);
}

static void count(void *context)
{
    ++*(int *)context;
}

static void test_nothing_is_left(void **state)
{
    int before = descriptors();
    for (int64_t n = 1;; n++) {
        struct loop *other = NULL;
        struct loop_timer *timer = NULL;
        int64_t live = mem_live();
        mem_fault_after(n);
        int rc = loop_new(&other, &err);
        if (rc == 0)
            rc = loop_timer_new(other, count, NULL, &timer, &err);
        assert_int_equal(mem_fault_after(0), rc != 0);
        loop_free(other);
        assert_int_equal(mem_live(), live);
        assert_int_equal(descriptors(), before);
        if (rc == 0)
            break;
        assert_int_equal(rc, -ERR_NOMEM);
        assert_true(n < 20);
    }
    loop_free(NULL);
}

#define LOOP_TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        LOOP_TEST(test_timers),  LOOP_TEST(test_timers_of_one_batch),
        LOOP_TEST(test_watches), LOOP_TEST(test_watch_added_by_a_callback),
        LOOP_TEST(test_hooks),   LOOP_TEST(test_nothing_is_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

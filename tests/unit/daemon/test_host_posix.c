/* host_posix and loop: real processes, signals, timers; ends are told once, sessions are killed
 * whole, pids are not mistaken. */
#include "common/clock.h"
#include "common/io.h"
#include "common/mem.h"
#include "daemon/bus.h"
#include "daemon/host.h"
#include "daemon/loop.h"
#include "tests/lib/cmocka.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

struct fixture {
    char dir[64], output[96];
    struct loop *loop;
    struct host *host;
    int exits;
    struct host_exit ended;
    struct err err;
};

static int setup(void **state)
{
    struct fixture *f = mem_new(1, sizeof *f);
    (void)snprintf(f->dir, sizeof f->dir, "/tmp/test_host_posix.XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    (void)snprintf(f->output, sizeof f->output, "%s/out", f->dir);
    assert_int_equal(loop_new(&f->loop, &f->err), 0);
    assert_int_equal(host_posix_new(f->loop, &f->host, &f->err), 0);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    host_posix_free(f->host);
    loop_free(f->loop);
    assert_int_equal(io_remove_tree(f->dir, &f->err), 0);
    mem_free(f);
    assert_int_equal(mem_live(), 0);
    return 0;
}

static void on_exit_told(void *context, const struct host_exit *ended)
{
    struct fixture *f = context;
    f->exits++;
    f->ended = *ended;
}

static struct host_process *spawn(struct fixture *f, const char *script, struct host_identity *who)
{
    const char *const argv[] = {"/bin/sh", "-c", script, NULL};
    const char *const envp[] = {"PATH=/bin:/usr/bin", "ONLY=this", NULL};
    const struct host_spawn child = {.argv = argv,
                                     .envp = envp,
                                     .output_path = f->output,
                                     .on_exit = on_exit_told,
                                     .context = f};
    struct host_process *process = NULL;
    MUST_WORK(f->host->ops->spawn(f->host, &child, &process, who, &f->err), &f->err);
    return process;
}

/* Turns the loop until there were `exits` ends, at most 20 s. */
static void wait_exits(struct fixture *f, int exits)
{
    int64_t deadline_ms = clock_monotonic_ms() + 20000;
    while (f->exits < exits && clock_monotonic_ms() < deadline_ms)
        assert_int_equal(loop_turn(f->loop, 100, &f->err), 0);
    assert_int_equal(f->exits, exits);
}

static void test_spawn_and_exit(void **state)
{
    struct fixture *f = *state;
    struct host_identity who;
    struct host_process *process =
        spawn(f, "echo $ONLY; echo err >&2; ls /proc/self/fd | wc -l; exit 7", &who);
    assert_true(who.pid > 0 && who.start_time > 0 && strlen(who.boot_id) == 36);
    wait_exits(f, 1);
    assert_int_equal(f->ended.status, 7);
    assert_int_equal(f->ended.signal, 0);
    f->host->ops->signal(f->host, process, SIGTERM); /* no error: it has ended */
    f->host->ops->forget(f->host, process);
    struct buf text;
    buf_init(&text, 1000);
    assert_int_equal(io_read_file(f->output, 1000, &text, &f->err), 0);
    assert_string_equal(buf_str(&text), "this\nerr\n4\n"); /* 0, 1, 2 and the folder's own */
    buf_done(&text);
    struct stat info;
    assert_int_equal(stat(f->output, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
}

static void test_goes_last(void **state)
{
    struct fixture *f = *state;
    for (int last = 0; last < 2; last++) {
        const char *const argv[] = {"/bin/sleep", "100", NULL};
        const char *const envp[] = {NULL};
        const struct host_spawn child = {.argv = argv,
                                         .envp = envp,
                                         .output_path = f->output,
                                         .goes_last = last == 1,
                                         .on_exit = on_exit_told,
                                         .context = f};
        struct host_process *process = NULL;
        struct host_identity who;
        assert_int_equal(f->host->ops->spawn(f->host, &child, &process, &who, &f->err), 0);
        int given = getpriority(PRIO_PROCESS, (id_t)who.pid);
        f->host->ops->signal(f->host, process, SIGKILL);
        wait_exits(f, last + 1);
        f->host->ops->forget(f->host, process);
        assert_int_equal(given, last == 1 ? 19 : getpriority(PRIO_PROCESS, 0));
    }
}

static void test_signal_and_missing_program(void **state)
{
    struct fixture *f = *state;
    struct host_identity who;
    struct host_process *process = spawn(f, "exec sleep 60", &who);
    f->host->ops->signal(f->host, process, SIGKILL);
    wait_exits(f, 1);
    assert_int_equal(f->ended.status, -1);
    assert_int_equal(f->ended.signal, SIGKILL);
    f->host->ops->forget(f->host, process);
    const char *const argv[] = {"/nonexistent/worker", NULL};
    const char *const envp[] = {NULL};
    const struct host_spawn child = {
        .argv = argv, .envp = envp, .output_path = f->output, .on_exit = on_exit_told};
    assert_int_equal(f->host->ops->spawn(f->host, &child, &process, &who, &f->err), -ERR_NOT_FOUND);
    assert_non_null(strstr(f->err.text, "/nonexistent/worker"));
    const char *const sleeper[] = {"/bin/sleep", "0", NULL};
    const struct host_spawn mute = {
        .argv = sleeper, .envp = envp, .output_path = f->dir, .on_exit = on_exit_told};
    assert_int_equal(f->host->ops->spawn(f->host, &mute, &process, &who, &f->err), -ERR_IO);
    assert_non_null(strstr(f->err.text, f->dir));
}

static void test_adopt(void **state)
{
    struct fixture *f = *state;
    struct host_identity who, other;
    struct host_process *child = spawn(f, "exec sleep 60", &who), *adopted = NULL;
    other = who;
    other.start_time++;
    assert_int_equal(f->host->ops->adopt(f->host, &other, on_exit_told, f, &adopted, &f->err),
                     -ERR_NOT_FOUND);
    other = who;
    other.boot_id[0] ^= 1;
    assert_int_equal(f->host->ops->adopt(f->host, &other, on_exit_told, f, &adopted, &f->err),
                     -ERR_NOT_FOUND);
    assert_int_equal(f->host->ops->adopt(f->host, &who, on_exit_told, f, &adopted, &f->err), 0);
    f->host->ops->signal(f->host, adopted, SIGTERM);
    wait_exits(f, 2); /* the child's and the adopted one's */
    f->host->ops->forget(f->host, child);
    f->host->ops->forget(f->host, adopted);
    assert_int_equal(f->host->ops->adopt(f->host, &who, on_exit_told, f, &adopted, &f->err),
                     -ERR_NOT_FOUND);
}

static void test_session(void **state)
{
    struct fixture *f = *state;
    struct host_identity who;
    struct host_process *process = spawn(f, "sleep 61 & sleep 62 & wait", &who);
    int64_t deadline_ms = clock_monotonic_ms() + 20000;
    while (f->host->ops->session_signal(f->host, who.pid, 0, NULL) < 3 &&
           clock_monotonic_ms() < deadline_ms)
        assert_int_equal(loop_turn(f->loop, 10, &f->err), 0);
    assert_int_equal(f->host->ops->session_signal(f->host, who.pid, 0, NULL), 3);
    f->host->ops->signal(f->host, process, SIGKILL); /* leaves two orphans */
    wait_exits(f, 1);
    assert_int_equal(f->host->ops->session_signal(f->host, who.pid, SIGKILL, NULL), 2);
    while (f->host->ops->session_signal(f->host, who.pid, 0, NULL) > 0 &&
           clock_monotonic_ms() < deadline_ms)
        assert_int_equal(loop_turn(f->loop, 10, &f->err), 0);
    assert_int_equal(f->host->ops->session_signal(f->host, who.pid, 0, NULL), 0);
    f->host->ops->forget(f->host, process);
}

/* ---- loop ---------------------------------------------------------------------------------- */

struct counter {
    struct loop *loop;
    int calls;
    struct loop_watch *victim; /* unwatched by the first call */
    struct loop_timer *timer;  /* freed by the third call */
};

static void count_ready(void *context, uint32_t events)
{
    struct counter *counter = context;
    counter->calls++;
    loop_unwatch(counter->victim);
    counter->victim = NULL;
}

static void test_unwatch_within_a_batch(void **state)
{
    struct fixture *f = *state;
    int pair[2][2];
    struct counter first = {.calls = 0}, second = {.calls = 0};
    struct loop_watch *watches[2];
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pipe(pair[i]), 0);
        assert_int_equal(write(pair[i][1], "x", 1), 1);
        assert_int_equal(loop_watch_fd(f->loop, pair[i][0], EPOLLIN, count_ready,
                                       i == 0 ? &first : &second, &watches[i], &f->err),
                         0);
    }
    first.victim = watches[1]; /* whichever comes first removes the other */
    second.victim = watches[0];
    assert_int_equal(loop_turn(f->loop, 1000, &f->err), 0);
    assert_int_equal(first.calls + second.calls, 1);
    loop_unwatch(first.calls == 1 ? watches[0] : watches[1]);
    for (int i = 0; i < 4; i++)
        (void)close(pair[i / 2][i % 2]);
}

static void count_timer(void *context)
{
    struct counter *counter = context;
    if (++counter->calls == 3) {
        loop_timer_free(counter->timer);
        loop_stop(counter->loop);
    }
}

static int64_t count_prepare(void *context)
{
    ++*(int *)context;
    return 5;
}

static void test_timer_and_prepare(void **state)
{
    struct fixture *f = *state;
    struct counter counter = {.loop = f->loop};
    int prepares = 0;
    loop_on_prepare(f->loop, count_prepare, &prepares);
    assert_int_equal(loop_timer_new(f->loop, count_timer, &counter, &counter.timer, &f->err), 0);
    int64_t start_ms = clock_monotonic_ms();
    loop_timer_set(counter.timer, 0, 20);
    assert_int_equal(loop_run(f->loop, &f->err), 0);
    int64_t took_ms = clock_monotonic_ms() - start_ms;
    assert_int_equal(counter.calls, 3);
    assert_true(took_ms >= 39);
    assert_true(prepares >= 5); /* woke for the hook too, not only for the timer */
}

static void count_signal(void *context)
{
    ++*(int *)context;
}

static void test_signal(void **state)
{
    struct fixture *f = *state;
    int terms = 0;
    loop_on_signal(f->loop, SIGTERM, count_signal, &terms);
    assert_int_equal(raise(SIGTERM), 0);
    assert_int_equal(raise(SIGHUP), 0); /* nobody minds */
    for (int i = 0; i < 3; i++)
        assert_int_equal(loop_turn(f->loop, 0, &f->err), 0);
    assert_int_equal(terms, 1);
}

static void stop_loop(void *context)
{
    loop_stop(context);
}

/* The daemon turns the loop before it runs it: a SIGTERM of that time counts. */
static void test_stop_before_run(void **state)
{
    struct fixture *f = *state;
    loop_on_signal(f->loop, SIGTERM, stop_loop, f->loop);
    assert_int_equal(raise(SIGTERM), 0);
    assert_int_equal(loop_turn(f->loop, 0, &f->err), 0);
    (void)alarm(10); /* a loop that forgot runs for ever */
    assert_int_equal(loop_run(f->loop, &f->err), 0);
    (void)alarm(0);
}

/* ---- bus ----------------------------------------------------------------------------------- */

struct listener {
    struct bus_listener listener;
    struct bus *bus;
    struct bus_listener *removes; /* when called */
    int calls;
};

static void hear(void *context, const struct bus_note *note)
{
    struct listener *listener = context;
    assert_string_equal(note->job_id, "j");
    listener->calls++;
    if (listener->removes != NULL)
        bus_unlisten(listener->bus, listener->removes);
}

static void test_bus(void **state)
{
    for (int victim = 0; victim < 3; victim++) { /* the second of three removes one of them */
        struct bus bus = {.first = NULL};
        struct listener all[3] = {{.calls = 0}, {.calls = 0}, {.calls = 0}};
        for (int i = 2; i >= 0; i--) {
            all[i].listener = (struct bus_listener){.called = hear, .context = &all[i]};
            all[i].bus = &bus;
            bus_listen(&bus, &all[i].listener);
        }
        all[1].removes = &all[victim].listener;
        bus_publish(&bus, &(struct bus_note){.job_id = "j"});
        all[1].removes = NULL;
        bus_publish(&bus, &(struct bus_note){.job_id = "j"});
        for (int i = 0; i < 3; i++)
            assert_int_equal(all[i].calls, i != victim ? 2 : victim == 2 ? 0 : 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_spawn_and_exit, setup, teardown),
        cmocka_unit_test_setup_teardown(test_goes_last, setup, teardown),
        cmocka_unit_test_setup_teardown(test_signal_and_missing_program, setup, teardown),
        cmocka_unit_test_setup_teardown(test_adopt, setup, teardown),
        cmocka_unit_test_setup_teardown(test_session, setup, teardown),
        cmocka_unit_test_setup_teardown(test_unwatch_within_a_batch, setup, teardown),
        cmocka_unit_test_setup_teardown(test_timer_and_prepare, setup, teardown),
        cmocka_unit_test_setup_teardown(test_signal, setup, teardown),
        cmocka_unit_test_setup_teardown(test_stop_before_run, setup, teardown),
        cmocka_unit_test(test_bus),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

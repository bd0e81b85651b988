/* report: frames reach a daemon once and in order, whatever happens to the connection; a full ring
 * drops metrics, counts them, and keeps the last frame; commands become flags or the end. The
 * daemon is played here, on a listening socket. */
#include "worker/report.h"

#include "common/clock.h"
#include "common/io.h"
#include "common/json.h"
#include "common/mem.h"
#include "tests/lib/cmocka.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { DEADLINE_MS = 20000 };

struct daemon {
    char folder[64];
    struct launch_plan plan;
    int listen_fd;
    int fd; /* the rank's connection, or -1 */
    struct buf in;
    bool heard_heartbeat;
};

static void make_spec(struct job_spec *spec)
{
    static const char text[] = "{\"model\":\"m\",\"training_file\":\"file-a\"}";
    struct err err = {0};
    json_t *json = NULL;
    assert_int_equal(json_parse(text, strlen(text), "spec", &json, &err), 0);
    assert_int_equal(job_spec_parse(json, spec, &err), 0);
    json_decref(json);
}

static void daemon_listen(struct daemon *daemon)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, daemon->plan.socket, sizeof daemon->plan.socket);
    (void)unlink(daemon->plan.socket);
    daemon->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(daemon->listen_fd >= 0);
    assert_int_equal(bind(daemon->listen_fd, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(daemon->listen_fd, 4), 0);
}

static int setup(void **state)
{
    struct daemon *daemon = mem_new(1, sizeof *daemon);
    (void)snprintf(daemon->folder, sizeof daemon->folder, "/tmp/ithaca-report-XXXXXX");
    if (daemon == NULL || mkdtemp(daemon->folder) == NULL)
        return -1;
    daemon->fd = daemon->listen_fd = -1;
    daemon->plan = (struct launch_plan){.job_id = "ftjob-1",
                                        .attempt = 2,
                                        .world = 2,
                                        .shm_name = "/ithaca-report",
                                        .heartbeat_limit_ms = 1000,
                                        .coll_timeout_ms = 1000,
                                        .orphan_limit_ms = 60000,
                                        .threads = 1,
                                        .secret = {1, 2, 3}};
    (void)snprintf(daemon->plan.socket, sizeof daemon->plan.socket, "%s/s", daemon->folder);
    daemon->plan.job_dir = mem_strdup(daemon->folder);
    daemon->plan.model_dir = mem_strdup(daemon->folder);
    make_spec(&daemon->plan.spec);
    buf_init(&daemon->in, 32 << 20);
    *state = daemon;
    return 0;
}

static void daemon_drop(struct daemon *daemon)
{
    if (daemon->fd >= 0)
        (void)close(daemon->fd);
    daemon->fd = -1;
    buf_clear(&daemon->in);
}

static void daemon_gone(struct daemon *daemon)
{
    daemon_drop(daemon);
    if (daemon->listen_fd >= 0)
        (void)close(daemon->listen_fd);
    daemon->listen_fd = -1;
    (void)unlink(daemon->plan.socket);
}

static int teardown(void **state)
{
    struct daemon *daemon = *state;
    daemon_gone(daemon);
    (void)rmdir(daemon->folder);
    launch_plan_done(&daemon->plan);
    buf_done(&daemon->in);
    mem_free(daemon);
    return 0;
}

static void daemon_send(struct daemon *daemon, const struct wire_frame *frame)
{
    struct err err = {0};
    CLEANUP(buf_done) struct buf out;
    buf_init(&out, 1 << 20);
    assert_int_equal(wire_encode(frame, &out, &err), 0);
    assert_int_equal(send(daemon->fd, out.data, out.length, MSG_NOSIGNAL), (ssize_t)out.length);
}

static void daemon_seen(struct daemon *daemon, uint32_t seq)
{
    daemon_send(daemon, &(struct wire_frame){.type = WIRE_SEEN, .number = seq});
}

/* The next frame that is not a heartbeat; its bytes live until the next call. */
static struct wire_frame daemon_next(struct daemon *daemon, size_t *taken)
{
    int64_t end = clock_monotonic_ms() + DEADLINE_MS;
    for (;;) {
        struct wire_frame frame;
        struct err err = {0};
        buf_drop_front(&daemon->in, *taken);
        *taken = 0;
        assert_int_equal(wire_decode(&daemon->in, &frame, taken, &err), 0);
        if (*taken > 0 && frame.type == WIRE_HEARTBEAT) {
            daemon->heard_heartbeat = true;
            assert_int_equal(frame.seq, 0);
            continue;
        }
        if (*taken > 0)
            return frame;
        struct pollfd ready = {.fd = daemon->fd, .events = POLLIN};
        assert_true(clock_monotonic_ms() < end);
        char bytes[65536];
        ssize_t got = poll(&ready, 1, 100) > 0 ? recv(daemon->fd, bytes, sizeof bytes, 0) : 0;
        assert_true(got >= 0);
        buf_append(&daemon->in, bytes, (size_t)got);
    }
}

static void daemon_send_plan(struct daemon *daemon, const struct launch_plan *plan)
{
    CLEANUP(json_unref) json_t *json = launch_plan_json(plan);
    CLEANUP(buf_done) struct buf text;
    struct err err = {0};
    buf_init(&text, 1 << 16);
    assert_int_equal(json_print(json, &text, &err), 0);
    daemon_send(daemon, &(struct wire_frame){.type = WIRE_PLAN,
                                             .plan = {.json = text.data, .length = text.length}});
}

static void daemon_accept(struct daemon *daemon, size_t *taken)
{
    *taken = 0;
    daemon->fd = accept4(daemon->listen_fd, NULL, NULL, SOCK_CLOEXEC);
    assert_true(daemon->fd >= 0);
    struct wire_frame hello = daemon_next(daemon, taken);
    assert_int_equal(hello.type, WIRE_HELLO);
    assert_int_equal(hello.seq, 0);
    assert_string_equal(hello.hello.job_id, "ftjob-1");
    assert_int_equal(hello.hello.attempt, 2);
    assert_int_equal(hello.hello.rank, 1);
    assert_memory_equal(hello.hello.secret, daemon->plan.secret, WIRE_SECRET_BYTES);
}

static struct report *open_report(struct daemon *daemon)
{
    struct report *report = NULL;
    struct err err = {0};
    assert_int_equal(report_open(&daemon->plan, 1, &report, &err), 0);
    return report;
}

static void put_metric(struct report *report, uint64_t step)
{
    struct wire_metrics metrics = {
        .step = step, .count = 1, .points = {{.metric = METRIC_LOSS, .value = 0.5}}};
    report_metrics(report, &metrics);
}

/* The daemon hears each frame in order; what it had not seen when the connection broke comes
 * again. */
static void test_reconnect(void **state)
{
    struct daemon *daemon = *state;
    size_t taken = 0;
    struct report *report = open_report(daemon); /* no daemon yet */
    report_ready(report, 9);
    put_metric(report, 1);
    daemon_listen(daemon);
    daemon_accept(daemon, &taken);
    daemon_send_plan(daemon, &daemon->plan);
    struct wire_frame frame = daemon_next(daemon, &taken);
    assert_int_equal(frame.type, WIRE_READY);
    assert_int_equal(frame.seq, 1);
    assert_int_equal(frame.ready.steps_total, 9);
    put_metric(report, 2);
    for (uint32_t seq = 2; seq <= 3; seq++) {
        frame = daemon_next(daemon, &taken);
        assert_int_equal(frame.type, WIRE_METRICS);
        assert_int_equal(frame.seq, seq);
    }
    daemon_seen(daemon, 2);
    report_phase(report, 3, WIRE_PHASE_FORWARD);
    clock_sleep_ms(100); /* not needed for right, only to make SEEN and loss two events */
    daemon_drop(daemon);
    put_metric(report, 3);
    daemon_accept(daemon, &taken);
    daemon_send_plan(daemon, &daemon->plan);
    for (uint32_t seq = 3; seq <= 4; seq++) {
        frame = daemon_next(daemon, &taken);
        while (frame.seq < seq) /* SEEN may have been lost with the connection */
            frame = daemon_next(daemon, &taken);
        assert_int_equal(frame.seq, seq);
        assert_int_equal(frame.metrics.step, seq - 1);
    }
    report_done(report, &(struct wire_done){.steps = 3});
    frame = daemon_next(daemon, &taken);
    assert_int_equal(frame.type, WIRE_DONE);
    daemon_seen(daemon, frame.seq);
    int64_t start = clock_monotonic_ms();
    report_flush(report, DEADLINE_MS);
    assert_true(clock_monotonic_ms() - start < DEADLINE_MS / 4);
    assert_true(daemon->heard_heartbeat);
    report_close(report);
}

/* Nobody listens: metrics fill the ring and are dropped, the last words are not. */
static void test_full_ring(void **state)
{
    struct daemon *daemon = *state;
    size_t taken = 0;
    struct report *report = open_report(daemon);
    enum { FRAMES = 200000 };
    for (uint64_t step = 1; step <= FRAMES; step++)
        put_metric(report, step);
    struct err reason = {0};
    (void)err_set(&reason, ERR_NONFINITE, "loss is nan");
    report_failed(report, &reason);
    daemon_listen(daemon);
    daemon_accept(daemon, &taken);
    daemon_send_plan(daemon, &daemon->plan);
    uint32_t next = 1;
    bool failed = false, told = false;
    while (!failed || !told) {
        struct wire_frame frame = daemon_next(daemon, &taken);
        assert_int_equal(frame.seq, next);
        next++;
        failed = failed || frame.type == WIRE_FAILED;
        if (frame.type == WIRE_EVENT) {
            assert_non_null(strstr(frame.event.text, "dropped"));
            told = true;
        }
        if (next % 1000 == 0)
            daemon_seen(daemon, frame.seq);
    }
    assert_true(next > 1000 && next < FRAMES);
    report_close(report);
}

static int64_t cpu_ms(void)
{
    struct timespec used;
    assert_int_equal(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used), 0);
    return (int64_t)used.tv_sec * 1000 + used.tv_nsec / 1000000;
}

/* A daemon that reads everything and has seen nothing, as one does whose disk is full: the ring is
 * full of sent frames, and the thread sleeps. The count of drops comes when there is room. */
static void test_full_ring_is_quiet(void **state)
{
    struct daemon *daemon = *state;
    size_t taken = 0;
    struct wire_frame frame;
    enum { FRAMES = 20000 }; /* of 356 bytes; the ring has 4 MiB */
    daemon_listen(daemon);
    struct report *report = open_report(daemon);
    daemon_accept(daemon, &taken);
    daemon_send_plan(daemon, &daemon->plan);
    struct wire_metrics metrics = {.count = 32}; /* as many as a step has */
    for (metrics.step = 1; metrics.step <= FRAMES; metrics.step++)
        report_metrics(report, &metrics);
    int64_t end_ms = clock_monotonic_ms() + DEADLINE_MS;
    uint32_t fit = 1; /* known from the first frame on */
    for (uint32_t seq = 1; seq <= fit; seq++) {
        frame = daemon_next(daemon, &taken);
        assert_int_equal(frame.seq, seq);
        fit = (uint32_t)((LIMIT_REPORT_BYTES - LIMIT_FRAME_BYTES) / taken + 1);
    }
    assert_true(clock_monotonic_ms() < end_ms); /* no piece of it waited for a heartbeat */
    int64_t used_ms = cpu_ms();
    clock_sleep_ms(200);
    assert_true(cpu_ms() - used_ms < 10);
    daemon_seen(daemon, fit);
    frame = daemon_next(daemon, &taken);
    assert_int_equal(frame.type, WIRE_EVENT);
    assert_int_equal(strtoull(frame.event.text, NULL, 10), FRAMES - fit); /* told once */
    assert_non_null(strstr(frame.event.text, "dropped"));
    daemon_seen(daemon, frame.seq);
    report_close(report);
}

/* No daemon: what was to be sent is on disk after a flush that was in vain. */
static void test_unsent_frames_are_kept(void **state)
{
    struct daemon *daemon = *state;
    struct err err = {0};
    CLEANUP(mem_free_ptr) char *folder = launch_plan_attempt_dir(&daemon->plan);
    struct report *report = open_report(daemon); /* of rank 1 */
    CLEANUP(mem_free_ptr) char *path = io_join(folder, "unsent-1");
    assert_int_equal(io_make_dirs(folder, 0700, &err), 0);
    assert_int_equal(report_keep(report, &err), 0);
    assert_false(io_exists(path)); /* nothing is nothing */
    report_ready(report, 9);
    report_paused(report, 4, 40);
    report_flush(report, 0);
    CLEANUP(buf_done) struct buf frames;
    buf_init(&frames, 1 << 20);
    assert_int_equal(io_read_file(path, 1 << 20, &frames, &err), 0);
    static const enum wire_type wanted[] = {WIRE_READY, WIRE_PAUSED};
    for (uint32_t i = 0; i < 2; i++) {
        struct wire_frame frame;
        size_t bytes = 0;
        assert_int_equal(wire_decode(&frames, &frame, &bytes, &err), 0);
        assert_int_equal(frame.type, wanted[i]);
        assert_int_equal(frame.seq, i + 1);
        buf_drop_front(&frames, bytes);
    }
    assert_int_equal(frames.length, 0);
    report_close(report);
    assert_int_equal(io_remove_tree(folder, &err), 0);
}

static void test_commands(void **state)
{
    struct daemon *daemon = *state;
    size_t taken = 0;
    daemon_listen(daemon);
    struct report *report = open_report(daemon);
    daemon_accept(daemon, &taken);
    daemon_send_plan(daemon, &daemon->plan);
    static const struct {
        enum wire_type type;
        unsigned flag;
    } commands[] = {{WIRE_PAUSE, REPORT_COMMAND_PAUSE},
                    {WIRE_CHECKPOINT, REPORT_COMMAND_CHECKPOINT}};
    for (size_t i = 0; i < 2; i++) {
        daemon_send(daemon, &(struct wire_frame){.type = commands[i].type});
        struct wire_frame ack = daemon_next(daemon, &taken);
        assert_int_equal(ack.type, WIRE_ACK);
        assert_int_equal(ack.number, commands[i].type);
        assert_int_equal(report_take_commands(report), commands[i].flag);
        assert_int_equal(report_take_commands(report), 0);
    }
    assert_false(report_orphaned(report));
    report_close(report);
}

/* What a rank's process does when the daemon sends `frame` (or another job's plan); its exit
 * status. */
static int child_status(struct daemon *daemon, const struct launch_plan *plan,
                        const struct wire_frame *frame)
{
    size_t taken = 0;
    daemon_listen(daemon);
    (void)fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)open_report(daemon);
        clock_sleep_ms(DEADLINE_MS);
        _exit(0);
    }
    daemon_accept(daemon, &taken);
    daemon_send_plan(daemon, plan);
    if (frame != NULL)
        daemon_send(daemon, frame);
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void test_cancel(void **state)
{
    struct daemon *daemon = *state;
    int64_t start = clock_monotonic_ms();
    assert_int_equal(child_status(daemon, &daemon->plan, &(struct wire_frame){.type = WIRE_CANCEL}),
                     err_code_exit(ERR_CANCELLED));
    assert_true(clock_monotonic_ms() - start < DEADLINE_MS / 4);
}

static void test_other_plan(void **state)
{
    struct daemon *daemon = *state;
    struct launch_plan other = daemon->plan;
    other.attempt = 3;
    assert_int_equal(child_status(daemon, &other, NULL), err_code_exit(ERR_PROTOCOL));
}

static void test_orphan(void **state)
{
    struct daemon *daemon = *state;
    daemon->plan.orphan_limit_ms = 100;
    struct report *report = open_report(daemon);
    assert_false(report_orphaned(report));
    clock_sleep_ms(150);
    assert_true(report_orphaned(report));
    report_close(report);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_reconnect, setup, teardown),
        cmocka_unit_test_setup_teardown(test_full_ring, setup, teardown),
        cmocka_unit_test_setup_teardown(test_full_ring_is_quiet, setup, teardown),
        cmocka_unit_test_setup_teardown(test_unsent_frames_are_kept, setup, teardown),
        cmocka_unit_test_setup_teardown(test_commands, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cancel, setup, teardown),
        cmocka_unit_test_setup_teardown(test_other_plan, setup, teardown),
        cmocka_unit_test_setup_teardown(test_orphan, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

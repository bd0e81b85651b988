/* ingest: frames over a socket pair: split, joined, malformed, out of turn; and a peer that does
 * not read. */
#include "common/buf.h"
#include "common/clock.h"
#include "common/mem.h"
#include "common/rng.h"
#include "daemon/ingest.h"
#include "daemon/loop.h"
#include "tests/lib/cmocka.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

struct fixture {
    struct loop *loop;
    struct ingest *ingest;
    char path[64];
    int64_t now_ms;
    int hellos, frames;
    uint64_t last_step;
    bool refuse_frames;
    int other; /* the object of ftjob-b; that of ftjob-1 is the fixture */
    struct err err;
};

static int on_hello(void *context, const struct wire_hello *hello, struct ingest_peer *ret_peer,
                    struct err *err)
{
    struct fixture *f = context;
    const bool second = strcmp(hello->job_id, "ftjob-b") == 0;
    if (!second && strcmp(hello->job_id, "ftjob-1") != 0)
        return err_set(err, ERR_PROTOCOL, "not mine");
    f->hellos++;
    *ret_peer = (struct ingest_peer){.object = second ? (void *)&f->other : f,
                                     .rank = hello->rank,
                                     .plan_json = "{\"a\":1}",
                                     .plan_length = 7};
    return 0;
}

static int on_frame(void *context, void *object, uint32_t rank, const struct wire_frame *frame,
                    struct err *err)
{
    struct fixture *f = context;
    assert_ptr_equal(object, f);
    assert_int_equal(rank, 1);
    if (f->refuse_frames)
        return err_set(err, ERR_IO, "no room");
    f->frames++;
    if (frame->type == WIRE_HEARTBEAT)
        f->last_step = frame->heartbeat.step;
    return 0;
}

static int64_t on_now(void *context)
{
    return ((struct fixture *)context)->now_ms;
}

static int setup(void **state)
{
    struct fixture *f = mem_new(1, sizeof *f);
    (void)snprintf(f->path, sizeof f->path, "/tmp/test_ingest.%d.sock", (int)getpid());
    const struct ingest_owner owner = {
        .context = f, .hello = on_hello, .frame = on_frame, .now_ms = on_now};
    assert_int_equal(loop_new(&f->loop, &f->err), 0);
    assert_int_equal(ingest_new(f->path, f->loop, &owner, &f->ingest, &f->err), 0);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    ingest_free(f->ingest);
    loop_free(f->loop);
    assert_int_equal(access(f->path, F_OK), -1);
    mem_free(f);
    assert_int_equal(mem_live(), 0);
    return 0;
}

static void turn(struct fixture *f)
{
    for (int i = 0; i < 50; i++)
        assert_int_equal(loop_turn(f->loop, 0, &f->err), 0);
}

static int plug(struct fixture *f)
{
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
    assert_int_equal(ingest_take(f->ingest, pair[0], &f->err), 0);
    return pair[1];
}

static void put(struct fixture *f, struct buf *out, struct wire_frame frame)
{
    assert_int_equal(wire_encode(&frame, out, &f->err), 0);
}

static void put_hello(struct fixture *f, struct buf *out, const char *job_id)
{
    struct wire_frame hello = {.type = WIRE_HELLO, .hello = {.rank = 1}};
    (void)snprintf(hello.hello.job_id, sizeof hello.hello.job_id, "%s", job_id);
    put(f, out, hello);
}

static bool is_closed(int fd)
{
    char bytes[4096];
    ssize_t got;
    do
        got = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
    while (got > 0);
    return got == 0 || errno == ECONNRESET;
}

static void push(struct fixture *f, int fd, const struct buf *out)
{
    assert_int_equal(write(fd, out->data, out->length), out->length);
    turn(f);
}

static void test_bytes_one_by_one(void **state)
{
    struct fixture *f = *state;
    struct buf out;
    buf_init(&out, 1 << 20);
    int fd = plug(f);
    put_hello(f, &out, "ftjob-1");
    for (uint64_t step = 1; step <= 3; step++)
        put(f, &out, (struct wire_frame){.type = WIRE_HEARTBEAT, .heartbeat = {.step = step}});
    for (size_t i = 0; i < out.length; i++) {
        assert_int_equal(write(fd, out.data + i, 1), 1);
        assert_int_equal(loop_turn(f->loop, 0, &f->err), 0);
    }
    assert_int_equal(f->frames, 3);
    assert_int_equal(f->last_step, 3);
    assert_int_equal(ingest_count(f->ingest, f), 1);
    char plan[64];
    ssize_t got = recv(fd, plan, sizeof plan, MSG_DONTWAIT);
    assert_int_equal(got, 16 + 7);
    assert_memory_equal(plan + 16, "{\"a\":1}", 7);
    (void)close(fd);
    turn(f);
    assert_int_equal(ingest_count(f->ingest, f), 0);
    buf_done(&out);
}

static void test_out_of_turn(void **state)
{
    struct fixture *f = *state;
    const struct {
        const char *job_id; /* of a HELLO that comes first; NULL: none */
        enum wire_type type;
    } cases[] = {
        {.job_id = NULL, .type = WIRE_READY},      /* before HELLO */
        {.job_id = "ftjob-2", .type = WIRE_READY}, /* HELLO of a stranger */
        {.job_id = "ftjob-1", .type = WIRE_HELLO}, /* a second HELLO */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct buf out;
        buf_init(&out, 1 << 20);
        int fd = plug(f);
        if (cases[i].job_id != NULL)
            put_hello(f, &out, cases[i].job_id);
        if (cases[i].type == WIRE_HELLO)
            put_hello(f, &out, "ftjob-1");
        else
            put(f, &out, (struct wire_frame){.type = cases[i].type, .seq = 1});
        push(f, fd, &out);
        assert_true(is_closed(fd));
        (void)close(fd);
        buf_done(&out);
    }
    assert_int_equal(f->frames, 0);
}

static void test_malformed_ends_only_its_connection(void **state)
{
    struct fixture *f = *state;
    const uint64_t seed = 7;
    print_message("seed %llu\n", (unsigned long long)seed);
    struct buf hello, beat;
    buf_init(&hello, 1 << 20);
    buf_init(&beat, 1 << 20);
    put_hello(f, &hello, "ftjob-1");
    put(f, &beat, (struct wire_frame){.type = WIRE_HEARTBEAT, .heartbeat = {.step = 1}});
    int good = plug(f);
    push(f, good, &hello);
    for (uint64_t round = 0; round < 100; round++) {
        int bad = plug(f);
        uint64_t words[16];
        for (uint64_t i = 0; i < 16; i++)
            words[i] = rng_u64(seed, RNG_STREAM_TEST, round * 16 + i);
        assert_int_equal(write(bad, words, sizeof words), sizeof words);
        turn(f);
        assert_true(is_closed(bad));
        (void)close(bad);
    }
    push(f, good, &beat);
    assert_int_equal(f->frames, 1);
    (void)close(good);
    buf_done(&hello);
    buf_done(&beat);
}

static void test_newer_connection_replaces(void **state)
{
    struct fixture *f = *state;
    struct buf hello, ready;
    buf_init(&hello, 1 << 20);
    buf_init(&ready, 1 << 20);
    put_hello(f, &hello, "ftjob-1");
    put(f, &ready, (struct wire_frame){.type = WIRE_READY, .seq = 1});
    int older = plug(f), newer = plug(f);
    push(f, older, &hello);
    push(f, newer, &hello);
    assert_true(is_closed(older));
    assert_int_equal(ingest_count(f->ingest, f), 1);
    push(f, newer, &ready);
    push(f, newer, &ready); /* the same sequence number again */
    assert_int_equal(f->frames, 1);
    ingest_drop(f->ingest, f);
    assert_true(is_closed(newer));
    (void)close(older);
    (void)close(newer);
    buf_done(&hello);
    buf_done(&ready);
}

/* Bytes that have come to a peer. */
static ssize_t take(int fd)
{
    char bytes[4096];
    return recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
}

/* What is said to one job's rank comes to no other; those who said no HELLO are nobody's. */
static void test_each_to_its_own(void **state)
{
    struct fixture *f = *state;
    int fds[3] = {plug(f), plug(f), plug(f)};
    for (int i = 0; i < 2; i++) {
        CLEANUP(buf_done) struct buf out;
        buf_init(&out, 1000);
        put_hello(f, &out, i == 0 ? "ftjob-1" : "ftjob-b");
        push(f, fds[i], &out);
        assert_true(take(fds[i]) > 0); /* the plan */
    }
    assert_int_equal(ingest_count(f->ingest, f), 1);
    assert_int_equal(ingest_count(f->ingest, &f->other), 1);
    assert_int_equal(ingest_count(f->ingest, NULL), 0);
    ingest_send(f->ingest, f, 1, &(struct wire_frame){.type = WIRE_CANCEL});
    ingest_send(f->ingest, f, 2, &(struct wire_frame){.type = WIRE_CANCEL});
    turn(f);
    assert_true(take(fds[0]) > 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(take(fds[i]), -1);
    ingest_drop(f->ingest, f);
    turn(f);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(is_closed(fds[i]), i == 0);
        (void)close(fds[i]);
    }
    turn(f);
}

static void test_owner_refuses_a_frame(void **state)
{
    struct fixture *f = *state;
    struct buf out;
    buf_init(&out, 1 << 20);
    put_hello(f, &out, "ftjob-1");
    put(f, &out, (struct wire_frame){.type = WIRE_READY, .seq = 1});
    f->refuse_frames = true;
    int fd = plug(f);
    push(f, fd, &out);
    assert_true(is_closed(fd)); /* the rank will send it again */
    (void)close(fd);
    buf_done(&out);
}

static void test_silence_before_hello(void **state)
{
    struct fixture *f = *state;
    int fd = plug(f);
    f->now_ms = INGEST_HELLO_MS;
    ingest_tick(f->ingest);
    assert_false(is_closed(fd));
    f->now_ms++;
    ingest_tick(f->ingest);
    assert_true(is_closed(fd));
    (void)close(fd);
}

static void test_peer_that_does_not_read(void **state)
{
    struct fixture *f = *state;
    struct buf out;
    buf_init(&out, 1 << 20);
    put_hello(f, &out, "ftjob-1");
    int fd = plug(f);
    push(f, fd, &out);
    const struct wire_frame seen = {.type = WIRE_SEEN, .number = 1};
    for (int i = 0; i < 200000 && ingest_count(f->ingest, f) == 1; i++) {
        ingest_send(f->ingest, f, 1, &seen);
        if (i % 1000 == 0)
            ingest_tick(f->ingest);
    }
    assert_int_equal(ingest_count(f->ingest, f), 0);
    (void)close(fd);
    buf_done(&out);
}

static void test_too_many_connections(void **state)
{
    struct fixture *f = *state;
    int fds[LIMIT_RANK_LINKS];
    for (int i = 0; i < LIMIT_RANK_LINKS; i++)
        fds[i] = plug(f);
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
    assert_int_equal(ingest_take(f->ingest, pair[0], &f->err), -ERR_TOO_MANY);
    (void)close(pair[1]);
    for (int i = 0; i < LIMIT_RANK_LINKS; i++)
        (void)close(fds[i]);
    turn(f);
}

/* No descriptor is left to accept with: the loop sleeps all the same, and takes the connection once
 * there is one. */
static void test_out_of_descriptors(void **state)
{
    struct fixture *f = *state;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    (void)snprintf(address.sun_path, sizeof address.sun_path, "%s", f->path);
    int client = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    const struct rlimit few = {.rlim_cur = (rlim_t)client + 1, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0); /* descriptors below may be free */
    int filler[64];
    int filled = 0;
    while (filled < 64 && (filler[filled] = dup(client)) >= 0)
        filled++;
    assert_int_equal(connect(client, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(loop_turn(f->loop, 0, &f->err), 0);
    int64_t start_ms = clock_monotonic_ms();
    assert_int_equal(loop_turn(f->loop, 50, &f->err), 0);
    int64_t slept_ms = clock_monotonic_ms() - start_ms;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    while (filled > 0)
        (void)close(filler[--filled]);
    assert_true(slept_ms >= 40);
    struct buf out;
    buf_init(&out, 1 << 20);
    put_hello(f, &out, "ftjob-1");
    ingest_tick(f->ingest);
    turn(f);
    push(f, client, &out);
    assert_int_equal(ingest_count(f->ingest, f), 1);
    (void)close(client);
    buf_done(&out);
    turn(f);
}

static void test_socket_file(void **state)
{
    struct fixture *f = *state;
    struct stat info;
    assert_int_equal(stat(f->path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
    char path[300];
    (void)memset(path, 'x', sizeof path);
    path[0] = '/';
    path[sizeof path - 1] = '\0';
    const struct ingest_owner owner = {.context = f};
    struct ingest *other = NULL;
    assert_int_equal(ingest_new(path, f->loop, &owner, &other, &f->err), -ERR_SETTING);
}

#define INGEST_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        INGEST_TEST(test_bytes_one_by_one),
        INGEST_TEST(test_out_of_turn),
        INGEST_TEST(test_malformed_ends_only_its_connection),
        INGEST_TEST(test_newer_connection_replaces),
        INGEST_TEST(test_each_to_its_own),
        INGEST_TEST(test_owner_refuses_a_frame),
        INGEST_TEST(test_silence_before_hello),
        INGEST_TEST(test_peer_that_does_not_read),
        INGEST_TEST(test_too_many_connections),
        INGEST_TEST(test_out_of_descriptors),
        INGEST_TEST(test_socket_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

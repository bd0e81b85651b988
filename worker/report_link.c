/* report_link: see report_link.h.
 *
 * Bytes to send lie in `out`, which only ever holds whole frames behind a part of one already
 * begun: HELLO first, then whatever is due. The ring is copied into it in pieces, so that a
 * heartbeat never waits behind megabytes of old metrics. */
#include "worker/report_link.h"

#include "common/clock.h"
#include "common/mem.h"
#include "common/must.h"
#include "worker/last_words.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum {
    LINK_HEARTBEAT_MS = 1000,
    LINK_BACKOFF_FIRST_MS = 50,
    LINK_BACKOFF_LAST_MS = 2000,
    LINK_OUT_BYTES = 256 * 1024,  /* piece of the ring taken at once, and a few small frames */
    LINK_FRAME_HEADER_BYTES = 16, /* wire.h */
    LINK_LENGTH_OFFSET = 8,
    LINK_SEQ_OFFSET = 12
};

struct link {
    struct report *report;
    int fd;              /* -1 while disconnected */
    struct buf in;       /* bytes not yet decoded */
    struct buf out;      /* bytes to send */
    int64_t next_try_ms; /* of connecting */
    int64_t backoff_ms;
    int64_t next_heartbeat_ms;
};

static uint32_t link_u32(const char *bytes)
{
    const unsigned char *b = (const unsigned char *)bytes;
    return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

static size_t link_frame_bytes(const char *frame)
{
    return LINK_FRAME_HEADER_BYTES + link_u32(frame + LINK_LENGTH_OFFSET);
}

/* Ends the process: the reason into the last words, no destructors (the training thread lives). */
__attribute__((noreturn)) static void link_exit(struct link *link, enum err_code code,
                                                const char *sentence)
{
    (void)pthread_mutex_lock(&link->report->lock);
    if (link->report->coll != NULL)
        link->report->coll->ops->abort(link->report->coll);
    if (sentence != NULL)
        last_words_say(sentence);
    _exit(err_code_exit(code));
}

static void link_disconnect(struct link *link)
{
    if (link->fd < 0)
        return;
    (void)close(link->fd); /* a broken socket has nothing to tell */
    link->fd = -1;
    buf_clear(&link->in);
    buf_clear(&link->out);
    if (atomic_exchange(&link->report->connected, false))
        atomic_store(&link->report->alone_since_ms, clock_monotonic_ms());
    link->next_try_ms = clock_monotonic_ms() + link->backoff_ms;
    link->backoff_ms =
        link->backoff_ms * 2 < LINK_BACKOFF_LAST_MS ? link->backoff_ms * 2 : LINK_BACKOFF_LAST_MS;
}

static void link_put(struct link *link, const struct wire_frame *frame)
{
    struct err err = {0};
    if (wire_encode(frame, &link->out, &err) != 0)
        link_exit(link, err.code, err.text); /* our own frames always encode */
}

static void link_connect(struct link *link)
{
    const struct launch_plan *plan = link->report->plan;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    static_assert(sizeof address.sun_path >= sizeof plan->socket, "a plan's socket path fits");
    memcpy(address.sun_path, plan->socket, sizeof plan->socket);
    link->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (link->fd < 0 || connect(link->fd, (struct sockaddr *)&address, sizeof address) != 0) {
        if (link->fd < 0)
            link->next_try_ms = clock_monotonic_ms() + LINK_BACKOFF_LAST_MS;
        link_disconnect(link);
        return;
    }
    struct wire_frame frame = {
        .type = WIRE_HELLO,
        .hello = {.attempt = plan->attempt, .rank = link->report->rank, .pid = (uint32_t)getpid()}};
    memcpy(frame.hello.job_id, plan->job_id, sizeof plan->job_id);
    memcpy(frame.hello.secret, plan->secret, sizeof plan->secret);
    link_put(link, &frame);
    (void)pthread_mutex_lock(&link->report->lock);
    link->report->sent = 0;
    (void)pthread_mutex_unlock(&link->report->lock);
    link->next_heartbeat_ms = clock_monotonic_ms();
}

static void link_take_plan(struct link *link, const struct wire_frame *frame)
{
    struct report *report = link->report;
    struct err err = {0};
    CLEANUP(json_unref) json_t *json = NULL;
    struct launch_plan plan = {0};
    if (json_parse(frame->plan.json, frame->plan.length, "the daemon's plan", &json, &err) != 0 ||
        launch_plan_parse(json, &plan, &err) != 0)
        link_exit(link, ERR_PROTOCOL, err.text);
    if (strcmp(plan.job_id, report->plan->job_id) != 0 || plan.attempt != report->plan->attempt ||
        plan.world != report->plan->world)
        link_exit(link, ERR_PROTOCOL, "the daemon sent the plan of another job or attempt");
    launch_plan_done(&plan);
    atomic_store(&report->connected, true);
    link->backoff_ms = LINK_BACKOFF_FIRST_MS;
}

static void link_take_seen(struct link *link, uint32_t seen)
{
    struct report *report = link->report;
    (void)pthread_mutex_lock(&report->lock);
    size_t front = 0;
    while (front < report->sent && link_u32(report->ring.data + front + LINK_SEQ_OFFSET) <= seen)
        front += link_frame_bytes(report->ring.data + front);
    must(front <= report->sent);
    buf_drop_front(&report->ring, front);
    report->sent -= front;
    (void)pthread_mutex_unlock(&report->lock);
}

static void link_flush_out(struct link *link)
{
    while (link->fd >= 0 && link->out.length > 0) {
        ssize_t wrote = send(link->fd, link->out.data, link->out.length, MSG_NOSIGNAL);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return;
        if (wrote < 0) {
            link_disconnect(link);
            return;
        }
        buf_drop_front(&link->out, (size_t)wrote);
    }
}

static void link_take_frame(struct link *link, const struct wire_frame *frame)
{
    struct wire_frame ack = {.type = WIRE_ACK, .number = (uint32_t)frame->type};
    switch (frame->type) {
    case WIRE_PLAN:
        link_take_plan(link, frame);
        return;
    case WIRE_SEEN:
        link_take_seen(link, frame->number);
        return;
    case WIRE_CANCEL:
        link_put(link, &ack);
        link_flush_out(link);
        link_exit(link, ERR_CANCELLED, NULL);
    case WIRE_PAUSE:
        atomic_fetch_or(&link->report->commands, REPORT_COMMAND_PAUSE);
        break;
    case WIRE_CHECKPOINT:
        atomic_fetch_or(&link->report->commands, REPORT_COMMAND_CHECKPOINT);
        break;
    case WIRE_PROFILE:
        atomic_store(&link->report->profile_steps, (int64_t)frame->number);
        break;
    default: /* a frame that only a rank sends */
        link_disconnect(link);
        return;
    }
    link_put(link, &ack);
}

static void link_read(struct link *link)
{
    char bytes[16 * 1024];
    ssize_t got = recv(link->fd, bytes, sizeof bytes, 0);
    if (got < 0 && (errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK))
        return;
    if (got <= 0) {
        link_disconnect(link);
        return;
    }
    buf_append(&link->in, bytes, (size_t)got);
    while (link->fd >= 0) {
        struct wire_frame frame;
        struct err err = {0};
        size_t taken = 0;
        if (buf_error(&link->in, &err) != 0 || wire_decode(&link->in, &frame, &taken, &err) != 0) {
            link_disconnect(link);
            return;
        }
        if (taken == 0)
            return;
        link_take_frame(link, &frame);
        if (link->fd >= 0)
            buf_drop_front(&link->in, taken);
    }
}

/* Tells of dropped frames once the ring has room, then copies whole unsent frames to `out`. */
static void link_take_ring(struct link *link)
{
    struct report *report = link->report;
    if (!atomic_load(&report->connected))
        return; /* nothing but HELLO before the daemon has answered */
    (void)pthread_mutex_lock(&report->lock);
    while (report->sent < report->ring.length) {
        const char *frame = report->ring.data + report->sent;
        size_t bytes = link_frame_bytes(frame);
        must(report->sent + bytes <= report->ring.length);
        if (link->out.length + bytes > LINK_OUT_BYTES / 2)
            break;
        buf_append(&link->out, frame, bytes);
        report->sent += bytes;
    }
    bool room = report->sent == report->ring.length && report->ring.length < LINK_OUT_BYTES;
    uint64_t dropped = room ? report->dropped : 0; /* else the word of it would be dropped too */
    report->dropped -= dropped;
    (void)pthread_mutex_unlock(&report->lock);
    if (dropped > 0)
        report_event(report, 1,
                     "%llu frames of metrics or events were dropped: the daemon was "
                     "away too long",
                     (unsigned long long)dropped);
}

static void link_heartbeat(struct link *link)
{
    struct report *report = link->report;
    int64_t now = clock_monotonic_ms();
    if (!atomic_load(&report->connected) || now < link->next_heartbeat_ms)
        return;
    (void)pthread_mutex_lock(&report->lock);
    uint64_t coll_seq = report->coll == NULL ? 0 : atomic_load(&report->coll->seq);
    (void)pthread_mutex_unlock(&report->lock);
    struct wire_frame frame = {.type = WIRE_HEARTBEAT,
                               .heartbeat = {.step = atomic_load(&report->step),
                                             .phase = atomic_load(&report->phase),
                                             .coll_seq = coll_seq}};
    link_put(link, &frame);
    link->next_heartbeat_ms = now + LINK_HEARTBEAT_MS;
}

/* More than one piece of the ring waits: the next is due as soon as the socket takes it. */
static bool link_has_unsent(struct link *link)
{
    struct report *report = link->report;
    if (!atomic_load(&report->connected))
        return false;
    (void)pthread_mutex_lock(&report->lock);
    bool unsent = report->sent < report->ring.length;
    (void)pthread_mutex_unlock(&report->lock);
    return unsent;
}

/* Sleeps until there is something to do. */
static void link_poll(struct link *link)
{
    struct pollfd fds[2] = {{.fd = link->report->wake_fd, .events = POLLIN},
                            {.fd = link->fd, .events = POLLIN}};
    if (link->out.length > 0 || link_has_unsent(link))
        fds[1].events |= POLLOUT;
    int64_t due = link->fd < 0 ? link->next_try_ms : link->next_heartbeat_ms;
    int64_t wait = due - clock_monotonic_ms();
    if (link->fd >= 0 && !atomic_load(&link->report->connected))
        wait = LINK_HEARTBEAT_MS; /* the daemon's answer to HELLO */
    wait = wait < 0 ? 0 : wait > LINK_HEARTBEAT_MS ? LINK_HEARTBEAT_MS : wait;
    if (poll(fds, 2, (int)wait) <= 0)
        return;
    uint64_t count;
    if (fds[0].revents != 0)
        (void)!read(link->report->wake_fd, &count, sizeof count); /* only to make it quiet */
    if (link->fd >= 0 && (fds[1].revents & (POLLIN | POLLHUP | POLLERR)) != 0)
        link_read(link);
}

static void *link_run(void *argument)
{
    struct link link = {.report = argument, .fd = -1, .backoff_ms = LINK_BACKOFF_FIRST_MS};
    buf_init(&link.in, LIMIT_FRAME_BYTES + 32 * 1024);
    buf_init(&link.out, LINK_OUT_BYTES);
    while (!atomic_load(&link.report->stopping)) {
        if (link.fd < 0 && clock_monotonic_ms() >= link.next_try_ms)
            link_connect(&link);
        if (link.fd >= 0) {
            link_heartbeat(&link);
            link_take_ring(&link);
            link_flush_out(&link);
        }
        link_poll(&link);
    }
    link_disconnect(&link);
    buf_done(&link.in);
    buf_done(&link.out);
    return NULL;
}

int report_link_start(struct report *report, struct err *err)
{
    sigset_t all, old;
    (void)sigfillset(&all); /* signals go to the training thread */
    (void)pthread_sigmask(SIG_SETMASK, &all, &old);
    int rc = pthread_create(&report->thread, NULL, link_run, report);
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (rc != 0)
        return err_set_errno(err, rc, "the report's thread");
    report->threaded = true;
    return 0;
}

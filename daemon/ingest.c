/* ingest: a list of connections, each with a buffer in and a buffer out.
 *
 * A connection that must end inside a callback is only marked (closing) and freed by the code that
 * called: so nothing that is on the stack goes away under it. */
#include "daemon/ingest.h"

#include "common/buf.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/must.h"
#include "daemon/loop.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum {
    INGEST_READ_BYTES = 64 * 1024,           /* one read; the next turn of the loop reads on */
    INGEST_IN_BYTES = 4 * LIMIT_FRAME_BYTES, /* a whole frame and one read more */
    INGEST_OUT_BYTES = 4 * LIMIT_FRAME_BYTES,
    INGEST_BACKLOG = 128,
};

struct ingest_link {
    struct ingest *ingest;
    int fd;
    struct loop_watch *watch;
    struct buf in, out;
    bool proven;             /* HELLO was accepted: peer is set */
    bool writing;            /* waits for EPOLLOUT */
    bool closing;            /* to be freed as soon as no callback uses it */
    int64_t since_ms;        /* when it connected */
    struct ingest_peer peer; /* received_seq goes on counting here */
    struct ingest_link *next;
};

struct ingest {
    struct loop *loop;
    struct ingest_owner owner;
    int fd; /* listens; -1 while there is none */
    struct loop_watch *watch;
    bool starved;          /* accept failed: nobody is let in until the next tick */
    enum err_code refused; /* why no frame can be taken for now: that is told once */
    char path[sizeof((struct sockaddr_un *)0)->sun_path];
    struct ingest_link *links;
    int link_count;
};

static void ingest_link_free(struct ingest_link *link)
{
    struct ingest *ingest = link->ingest;
    for (struct ingest_link **at = &ingest->links; *at != NULL; at = &(*at)->next) {
        if (*at != link)
            continue;
        *at = link->next;
        ingest->link_count--;
        break;
    }
    loop_unwatch(link->watch);
    (void)close(link->fd); /* what was to be sent is in the kernel or lost with the peer */
    buf_done(&link->in);
    buf_done(&link->out);
    mem_free(link);
}

static void ingest_link_end(struct ingest_link *link, const struct err *why)
{
    struct ingest *ingest = link->ingest;
    if (!link->closing && why != NULL && why->code != ingest->refused) {
        if (link->proven)
            log_warn("ingest", "connection of rank %u ends: %s", link->peer.rank, why->text);
        else
            log_warn("ingest", "a connection to the job socket ends: %s", why->text);
    }
    if (why != NULL)
        ingest->refused = why->code != ERR_PROTOCOL ? why->code : ERR_NONE;
    link->closing = true;
}

/* Sends what waits. */
static void ingest_flush(struct ingest_link *link)
{
    while (!link->closing && link->out.length > 0) {
        ssize_t sent = send(link->fd, link->out.data, link->out.length, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0 && errno != EAGAIN) {
            ingest_link_end(link, NULL); /* the peer has gone; its end is told by its keeper */
            return;
        }
        if (sent < 0)
            break;
        buf_drop_front(&link->out, (size_t)sent);
    }
    bool writing = link->out.length > 0;
    struct err err;
    if (writing != link->writing &&
        loop_watch_events(link->watch, writing ? EPOLLIN | EPOLLOUT : EPOLLIN, &err) != 0)
        ingest_link_end(link, &err);
    link->writing = writing;
}

static void ingest_link_send(struct ingest_link *link, const struct wire_frame *frame)
{
    struct err err;
    if (wire_encode(frame, &link->out, &err) != 0 || buf_error(&link->out, &err) != 0) {
        ingest_link_end(link, &err); /* it does not read what it is sent */
        return;
    }
    ingest_flush(link);
}

static struct ingest_link *ingest_find(const struct ingest *ingest, const void *object,
                                       uint32_t rank)
{
    struct ingest_link *link = ingest->links;
    while (link != NULL && !(link->proven && !link->closing && link->peer.object == object &&
                             link->peer.rank == rank))
        link = link->next;
    return link;
}

static int ingest_hello(struct ingest_link *link, const struct wire_frame *frame, struct err *err)
{
    struct ingest *ingest = link->ingest;
    if (frame->type != WIRE_HELLO)
        return err_set(err, ERR_PROTOCOL, "the first frame is not HELLO");
    TRY(ingest->owner.hello(ingest->owner.context, &frame->hello, &link->peer, err));
    struct ingest_link *older = ingest_find(ingest, link->peer.object, link->peer.rank);
    if (older != NULL)
        ingest_link_free(older);
    link->proven = true;
    const struct wire_frame plan = {
        .type = WIRE_PLAN,
        .plan = {.json = link->peer.plan_json, .length = link->peer.plan_length}};
    ingest_link_send(link, &plan);
    return 0;
}

static int ingest_frame(struct ingest_link *link, const struct wire_frame *frame, struct err *err)
{
    struct ingest *ingest = link->ingest;
    if (!link->proven)
        return ingest_hello(link, frame, err);
    if (frame->type == WIRE_HELLO)
        return err_set(err, ERR_PROTOCOL, "a second HELLO");
    if (frame->seq != 0 && frame->seq <= link->peer.received_seq)
        return 0; /* received before the reconnect */
    TRY(ingest->owner.frame(ingest->owner.context, link->peer.object, link->peer.rank, frame, err));
    if (frame->seq != 0) {
        link->peer.received_seq = frame->seq;
        ingest->refused = ERR_NONE;
    }
    return 0;
}

static int ingest_decode(struct ingest_link *link, struct err *err)
{
    while (!link->closing) {
        struct wire_frame frame;
        size_t bytes = 0;
        TRY(wire_decode(&link->in, &frame, &bytes, err));
        if (bytes == 0)
            return 0;
        TRY(ingest_frame(link, &frame, err));
        buf_drop_front(&link->in, bytes);
    }
    return 0;
}

static void ingest_read(struct ingest_link *link)
{
    char bytes[INGEST_READ_BYTES];
    struct err err;
    ssize_t got = recv(link->fd, bytes, sizeof bytes, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got <= 0) {
        ingest_link_end(link, NULL); /* the peer closed it; its end is told by its keeper */
        return;
    }
    buf_append(&link->in, bytes, (size_t)got);
    if (buf_error(&link->in, &err) != 0 || ingest_decode(link, &err) != 0)
        ingest_link_end(link, &err);
}

static void ingest_link_ready(void *context, uint32_t events)
{
    struct ingest_link *link = context;
    loop_doing(link->ingest->loop, "ranks:", "their frames");
    if ((events & EPOLLOUT) != 0)
        ingest_flush(link);
    if (!link->closing && (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0)
        ingest_read(link);
    if (link->closing)
        ingest_link_free(link);
}

int ingest_take(struct ingest *ingest, int fd, struct err *err)
{
    struct ingest_link *link =
        ingest->link_count < LIMIT_RANK_LINKS ? mem_new(1, sizeof *link) : NULL;
    if (link == NULL) {
        (void)close(fd); /* nothing was sent */
        return err_set(err, ERR_TOO_MANY, "no room for another connection to the job socket");
    }
    *link = (struct ingest_link){
        .ingest = ingest, .fd = fd, .since_ms = ingest->owner.now_ms(ingest->owner.context)};
    buf_init(&link->in, INGEST_IN_BYTES);
    buf_init(&link->out, INGEST_OUT_BYTES);
    link->next = ingest->links;
    ingest->links = link;
    ingest->link_count++;
    int rc = loop_watch_fd(ingest->loop, fd, EPOLLIN, ingest_link_ready, link, &link->watch, err);
    if (rc != 0)
        ingest_link_free(link);
    return rc;
}

static void ingest_accept(void *context, uint32_t events)
{
    (void)events;
    struct ingest *ingest = context;
    int fd = accept4(ingest->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    struct err err;
    if (fd < 0 && (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED))
        return;
    if (fd < 0) { /* out of descriptors, say: who waits there would wake the loop for ever */
        if (!ingest->starved)
            log_warn("ingest", "no connection to the job socket is taken: %s", strerror(errno));
        ingest->starved = loop_watch_events(ingest->watch, 0, &err) == 0;
        return;
    }
    ingest->starved = false;
    if (ingest_take(ingest, fd, &err) != 0)
        log_warn("ingest", "%s", err.text);
}

static int ingest_listen(struct ingest *ingest, const char *path, struct err *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path)
        return err_set(err, ERR_SETTING,
                       "%s: a socket's path has at most %zu bytes; choose a shorter data_dir", path,
                       sizeof address.sun_path - 1);
    (void)snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    ingest->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (ingest->fd < 0)
        return err_set_errno(err, errno, "%s", path);
    (void)unlink(path); /* the data directory is locked, so it is a dead daemon's */
    if (bind(ingest->fd, (struct sockaddr *)&address, sizeof address) != 0 ||
        chmod(path, 0600) != 0 || listen(ingest->fd, INGEST_BACKLOG) != 0)
        return err_set_errno(err, errno, "%s", path);
    memcpy(ingest->path, address.sun_path, sizeof ingest->path);
    return loop_watch_fd(ingest->loop, ingest->fd, EPOLLIN, ingest_accept, ingest, &ingest->watch,
                         err);
}

int ingest_new(const char *path, struct loop *loop, const struct ingest_owner *owner,
               struct ingest **ret_ingest, struct err *err)
{
    struct ingest *ingest = mem_new(1, sizeof *ingest);
    if (ingest == NULL)
        return mem_fail(err, sizeof *ingest, "the job socket");
    *ingest = (struct ingest){.loop = loop, .owner = *owner, .fd = -1};
    int rc = ingest_listen(ingest, path, err);
    if (rc != 0) {
        ingest_free(ingest);
        return rc;
    }
    *ret_ingest = ingest;
    return 0;
}

void ingest_free(struct ingest *ingest)
{
    if (ingest == NULL)
        return;
    while (ingest->links != NULL)
        ingest_link_free(ingest->links);
    loop_unwatch(ingest->watch);
    if (ingest->fd >= 0)
        (void)close(ingest->fd); /* only listens */
    if (ingest->path[0] != '\0')
        (void)unlink(ingest->path); /* the next daemon would replace it anyway */
    mem_free(ingest);
}

void ingest_send(struct ingest *ingest, const void *object, uint32_t rank,
                 const struct wire_frame *frame)
{
    struct ingest_link *link = ingest_find(ingest, object, rank);
    if (link != NULL)
        ingest_link_send(link, frame); /* a link that ends here is freed when its fd tells so */
}

int ingest_count(const struct ingest *ingest, const void *object)
{
    int count = 0;
    for (const struct ingest_link *link = ingest->links; link != NULL; link = link->next)
        count += link->proven && link->peer.object == object;
    return count;
}

void ingest_drop(struct ingest *ingest, const void *object)
{
    for (struct ingest_link *link = ingest->links, *next; link != NULL; link = next) {
        next = link->next;
        if (link->proven && link->peer.object == object)
            ingest_link_free(link);
    }
}

void ingest_tick(struct ingest *ingest)
{
    int64_t now_ms = ingest->owner.now_ms(ingest->owner.context);
    struct err unchanged; /* then the next tick tries again */
    if (ingest->starved)
        (void)loop_watch_events(ingest->watch, EPOLLIN, &unchanged);
    for (struct ingest_link *link = ingest->links, *next; link != NULL; link = next) {
        next = link->next;
        struct err err;
        if (!link->proven && now_ms - link->since_ms > INGEST_HELLO_MS) {
            (void)err_set(&err, ERR_PROTOCOL, "no HELLO within %d s", INGEST_HELLO_MS / 1000);
            ingest_link_end(link, &err);
        }
        if (link->closing)
            ingest_link_free(link);
    }
}

/* loop: epoll, level-triggered. A timer is a timerfd with a watch, the signals are one signalfd
 * with a watch: so there is one kind of thing to wait for.
 *
 * A callback may remove a watch whose event is still in the batch being dispatched. So removed
 * watches are only marked (ready = NULL) and freed after the batch. */
#include "daemon/loop.h"

#include "common/clock.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/must.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

enum { LOOP_BATCH = 64, LOOP_SIGNALS = 3 };

static const int loop_signal_numbers[LOOP_SIGNALS] = {SIGTERM, SIGINT, SIGHUP};

struct loop_call {
    loop_fn *call; /* NULL: none */
    void *context;
};

struct loop_watch {
    struct loop *loop;
    int fd;
    loop_fd_fn *ready; /* NULL once removed */
    void *context;
    struct loop_watch *prev, *next; /* in loop->watches, or next in loop->removed */
};

struct loop_timer {
    int fd; /* timerfd */
    struct loop_watch *watch;
    struct loop_call fire;
    struct loop_timer *prev, *next; /* in loop->timers */
};

struct loop {
    int epoll_fd;
    int signal_fd;
    bool stopped;
    struct loop_watch *watches; /* live */
    struct loop_watch *removed; /* freed after the batch */
    struct loop_timer *timers;
    struct loop_call signals[LOOP_SIGNALS]; /* as loop_signal_numbers */
    struct {
        loop_prepare_fn *call;
        void *context;
    } prepares[LOOP_PREPARE_MAX];
    int prepare_count;
    struct loop_turns turns;
};

static void loop_signal_ready(void *context, uint32_t events)
{
    (void)events;
    struct loop *loop = context;
    struct signalfd_siginfo info;
    while (read(loop->signal_fd, &info, sizeof info) == (ssize_t)sizeof info) {
        for (int i = 0; i < LOOP_SIGNALS; i++) {
            struct loop_call *call = &loop->signals[i];
            if ((int)info.ssi_signo == loop_signal_numbers[i] && call->call != NULL)
                call->call(call->context);
        }
    }
}

static int loop_init(struct loop *loop, struct err *err)
{
    sigset_t mask;
    sigemptyset(&mask);
    for (int i = 0; i < LOOP_SIGNALS; i++)
        sigaddset(&mask, loop_signal_numbers[i]);
    loop->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (sigprocmask(SIG_BLOCK, &mask, NULL) == 0)
        loop->signal_fd = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
    if (loop->epoll_fd < 0 || loop->signal_fd < 0)
        return err_set_errno(err, errno, "event loop");
    struct loop_watch *watch = NULL; /* lives as long as the loop */
    return loop_watch_fd(loop, loop->signal_fd, EPOLLIN, loop_signal_ready, loop, &watch, err);
}

int loop_new(struct loop **ret_loop, struct err *err)
{
    struct loop *loop = mem_new(1, sizeof *loop);
    if (loop == NULL)
        return mem_fail(err, sizeof *loop, "the event loop");
    loop->epoll_fd = loop->signal_fd = -1;
    int rc = loop_init(loop, err);
    if (rc != 0) {
        loop_free(loop);
        return rc;
    }
    *ret_loop = loop;
    return 0;
}

static void loop_free_removed(struct loop *loop)
{
    while (loop->removed != NULL) {
        struct loop_watch *watch = loop->removed;
        loop->removed = watch->next;
        mem_free(watch);
    }
}

void loop_free(struct loop *loop)
{
    if (loop == NULL)
        return;
    while (loop->timers != NULL)
        loop_timer_free(loop->timers);
    while (loop->watches != NULL)
        loop_unwatch(loop->watches);
    loop_free_removed(loop);
    if (loop->epoll_fd >= 0)
        (void)close(loop->epoll_fd); /* of both: nothing was written that could be lost */
    if (loop->signal_fd >= 0)
        (void)close(loop->signal_fd);
    mem_free(loop);
}

int loop_watch_fd(struct loop *loop, int fd, uint32_t events, loop_fd_fn *ready, void *context,
                  struct loop_watch **ret_watch, struct err *err)
{
    must(fd >= 0 && ready != NULL);
    struct loop_watch *watch = mem_new(1, sizeof *watch);
    if (watch == NULL)
        return mem_fail(err, sizeof *watch, "a watch");
    *watch = (struct loop_watch){.loop = loop, .fd = fd, .ready = ready, .context = context};
    struct epoll_event event = {.events = events, .data.ptr = watch};
    if (epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0) {
        mem_free(watch);
        return err_set_errno(err, errno, "watch a file descriptor");
    }
    watch->next = loop->watches;
    if (watch->next != NULL)
        watch->next->prev = watch;
    loop->watches = watch;
    *ret_watch = watch;
    return 0;
}

int loop_watch_events(struct loop_watch *watch, uint32_t events, struct err *err)
{
    must(watch->ready != NULL);
    struct epoll_event event = {.events = events, .data.ptr = watch};
    if (epoll_ctl(watch->loop->epoll_fd, EPOLL_CTL_MOD, watch->fd, &event) != 0)
        return err_set_errno(err, errno, "change a watch");
    return 0;
}

void loop_unwatch(struct loop_watch *watch)
{
    if (watch == NULL)
        return;
    must(watch->ready != NULL);
    struct loop *loop = watch->loop;
    struct epoll_event unused = {.events = 0};
    (void)epoll_ctl(loop->epoll_fd, EPOLL_CTL_DEL, watch->fd, &unused); /* fails when closed */
    if (watch->prev != NULL)
        watch->prev->next = watch->next;
    else
        loop->watches = watch->next;
    if (watch->next != NULL)
        watch->next->prev = watch->prev;
    watch->ready = NULL;
    watch->prev = NULL;
    watch->next = loop->removed;
    loop->removed = watch;
}

static void loop_timer_ready(void *context, uint32_t events)
{
    (void)events;
    struct loop_timer *timer = context;
    uint64_t expirations = 0;
    if (read(timer->fd, &expirations, sizeof expirations) == (ssize_t)sizeof expirations)
        timer->fire.call(timer->fire.context); /* may free the timer */
}

int loop_timer_new(struct loop *loop, loop_fn *fire, void *context, struct loop_timer **ret_timer,
                   struct err *err)
{
    must(fire != NULL);
    struct loop_timer *timer = mem_new(1, sizeof *timer);
    if (timer == NULL)
        return mem_fail(err, sizeof *timer, "a timer");
    timer->fire = (struct loop_call){.call = fire, .context = context};
    timer->fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    int rc = timer->fd < 0 ? err_set_errno(err, errno, "make a timer") : 0;
    if (rc == 0)
        rc = loop_watch_fd(loop, timer->fd, EPOLLIN, loop_timer_ready, timer, &timer->watch, err);
    if (rc != 0) {
        if (timer->fd >= 0)
            (void)close(timer->fd); /* only a timer */
        mem_free(timer);
        return rc;
    }
    timer->next = loop->timers;
    if (timer->next != NULL)
        timer->next->prev = timer;
    loop->timers = timer;
    *ret_timer = timer;
    return 0;
}

static struct timespec loop_timespec(int64_t ms)
{
    return (struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
}

void loop_timer_set(struct loop_timer *timer, int64_t delay_ms, int64_t every_ms)
{
    must(delay_ms >= 0 && every_ms >= 0);
    struct itimerspec when = {.it_value = loop_timespec(delay_ms),
                              .it_interval = loop_timespec(every_ms)};
    if (delay_ms == 0)
        when.it_value.tv_nsec = 1; /* zero would stop the timer */
    must(timerfd_settime(timer->fd, 0, &when, NULL) == 0);
}

void loop_timer_stop(struct loop_timer *timer)
{
    const struct itimerspec never = {.it_value = {.tv_sec = 0}};
    must(timerfd_settime(timer->fd, 0, &never, NULL) == 0);
}

void loop_timer_free(struct loop_timer *timer)
{
    if (timer == NULL)
        return;
    struct loop *loop = timer->watch->loop;
    loop_unwatch(timer->watch);
    (void)close(timer->fd); /* only a timer */
    if (timer->prev != NULL)
        timer->prev->next = timer->next;
    else
        loop->timers = timer->next;
    if (timer->next != NULL)
        timer->next->prev = timer->prev;
    mem_free(timer);
}

void loop_on_signal(struct loop *loop, int signal_number, loop_fn *arrived, void *context)
{
    int i = 0;
    while (i < LOOP_SIGNALS && loop_signal_numbers[i] != signal_number)
        i++;
    must(i < LOOP_SIGNALS); /* the others are not blocked, so they never come here */
    loop->signals[i] = (struct loop_call){.call = arrived, .context = context};
}

void loop_on_prepare(struct loop *loop, loop_prepare_fn *prepare, void *context)
{
    must(loop->prepare_count < LOOP_PREPARE_MAX);
    loop->prepares[loop->prepare_count].call = prepare;
    loop->prepares[loop->prepare_count].context = context;
    loop->prepare_count++;
}

const struct loop_turns *loop_get_turns(const struct loop *loop)
{
    return &loop->turns;
}

void loop_doing(struct loop *loop, const char *what, const char *which)
{
    loop_turns_doing(&loop->turns, clock_monotonic_ns(), what, which);
}

/* The turn of the sleep before ends. */
static int loop_sleep(struct loop *loop, struct epoll_event batch[LOOP_BATCH], int64_t sleep_ms)
{
    char line[LOOP_TURNS_LINE_BYTES];
    if (loop_turns_end(&loop->turns, clock_monotonic_ns(), clock_process_ns(), line))
        log_warn("loop", "%s", line);
    int count = epoll_wait(loop->epoll_fd, batch, LOOP_BATCH, (int)sleep_ms);
    const int why = errno;
    loop_turns_begin(&loop->turns, clock_monotonic_ns(), clock_process_ns());
    errno = why;
    return count;
}

int loop_turn(struct loop *loop, int64_t max_ms, struct err *err)
{
    int64_t sleep_ms = max_ms;
    for (int i = 0; i < loop->prepare_count; i++) {
        int64_t limit_ms = loop->prepares[i].call(loop->prepares[i].context);
        if (limit_ms >= 0 && (sleep_ms < 0 || limit_ms < sleep_ms))
            sleep_ms = limit_ms;
    }
    const int64_t longest_ms = 3600000; /* epoll takes an int; an hour is for ever */
    if (sleep_ms > longest_ms)
        sleep_ms = longest_ms;
    if (loop->stopped)
        sleep_ms = 0; /* a prepare hook stopped the loop */
    struct epoll_event batch[LOOP_BATCH];
    int count = loop_sleep(loop, batch, sleep_ms);
    if (count < 0 && errno != EINTR)
        return err_set_errno(err, errno, "event loop");
    for (int i = 0; i < count; i++) {
        struct loop_watch *watch = batch[i].data.ptr;
        if (watch->ready == NULL)
            continue;
        loop_doing(loop, "small", "things");
        watch->ready(watch->context, batch[i].events);
    }
    loop_free_removed(loop);
    return 0;
}

int loop_run(struct loop *loop, struct err *err)
{
    while (!loop->stopped)
        TRY(loop_turn(loop, -1, err));
    loop->stopped = false; /* it may run again */
    return 0;
}

void loop_stop(struct loop *loop)
{
    loop->stopped = true;
}

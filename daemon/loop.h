/* loop: the daemon's one event loop (epoll). Everything in the daemon runs on its thread.
 *
 * A watch calls back when its fd is ready; a timer when its time has come; a signal watch when the
 * signal arrived (blocked for the process, read from a signalfd: block signals before the first
 * thread starts, which loop_new() does). Watches and timers may be added, changed and removed from
 * any callback, their own included. The loop never closes a caller's fd.
 *
 * The prepare hooks run before every sleep and say how long it may last, so that a library with its
 * own timers (libmicrohttpd: MHD_run, then MHD_get_timeout) is served even when no fd fired.
 *
 *     struct loop *loop = NULL;
 *     TRY(loop_new(&loop, err));
 *     TRY(loop_watch_fd(loop, fd, EPOLLIN, on_ready, self, &self->watch, err));
 *     TRY(loop_run(loop, err));        until loop_stop()
 *     loop_unwatch(self->watch);
 *     loop_free(loop); */
#pragma once
#include "common/err.h"
#include "daemon/loop_turns.h"

#include <stdint.h>

struct loop;
struct loop_watch;
struct loop_timer;

typedef void loop_fd_fn(void *context, uint32_t events); /* EPOLLIN, EPOLLOUT, ... that fired */
typedef void loop_fn(void *context);
typedef int64_t loop_prepare_fn(void *context); /* longest sleep in ms; negative: no limit */

int loop_new(struct loop **ret_loop, struct err *err);
void loop_free(struct loop *loop); /* NULL is fine; watches and timers left are released */

/* Runs until loop_stop(), not at all when that came before (a signal in a loop_turn() of the
 * start). Fails only when epoll itself does. */
int loop_run(struct loop *loop, struct err *err);
void loop_stop(struct loop *loop); /* from a callback */

/* One turn: prepare hooks, sleep of at most max_ms (negative: no limit), callbacks. For tests and
 * for draining at the end. */
int loop_turn(struct loop *loop, int64_t max_ms, struct err *err);

/* Level-triggered. */
int loop_watch_fd(struct loop *loop, int fd, uint32_t events, loop_fd_fn *ready, void *context,
                  struct loop_watch **ret_watch, struct err *err);
int loop_watch_events(struct loop_watch *watch, uint32_t events, struct err *err); /* change */
void loop_unwatch(struct loop_watch *watch); /* NULL is fine; do it before closing the fd */

/* A timer starts idle. set: first call after delay_ms, then each every_ms (0: once). */
int loop_timer_new(struct loop *loop, loop_fn *fire, void *context, struct loop_timer **ret_timer,
                   struct err *err);
void loop_timer_set(struct loop_timer *timer, int64_t delay_ms, int64_t every_ms);
void loop_timer_stop(struct loop_timer *timer);
void loop_timer_free(struct loop_timer *timer); /* NULL is fine */

/* SIGTERM, SIGINT, SIGHUP (the three that loop_new blocks): call `arrived` on the loop. */
void loop_on_signal(struct loop *loop, int signal_number, loop_fn *arrived, void *context);

/* At most LOOP_PREPARE_MAX hooks; they stay for the loop's life. */
enum { LOOP_PREPARE_MAX = 4 };
void loop_on_prepare(struct loop *loop, loop_prepare_fn *prepare, void *context);

/* What is done from here on, until the next call says something else: see loop_turns.h. */
void loop_doing(struct loop *loop, const char *what, const char *which);
const struct loop_turns *loop_get_turns(const struct loop *loop);

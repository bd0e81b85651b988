/* report_link: the thread of a report: connects to the daemon's job socket, sends the ring and a
 * heartbeat a second, reads commands. Private to report.c. */
#pragma once
#include "common/buf.h"
#include "worker/report.h"

#include <pthread.h>
#include <stdatomic.h>

struct report {
    const struct launch_plan *plan;
    uint32_t rank;
    bool threaded; /* there is a daemon to speak to */
    pthread_t thread;
    int wake_fd; /* eventfd: the ring has news, or stop */
    _Atomic bool stopping;

    pthread_mutex_t lock; /* guards the next five */
    struct buf ring;      /* whole frames not yet seen by the daemon */
    size_t sent;          /* bytes of the ring given to this connection */
    uint32_t next_seq;
    uint64_t dropped; /* frames that found the ring full, not yet told */
    struct coll *coll;

    _Atomic uint64_t step; /* what the training thread is doing */
    _Atomic uint32_t phase;
    _Atomic unsigned commands;      /* REPORT_COMMAND_ bits not yet taken */
    _Atomic int64_t profile_steps;  /* of a PROFILE not yet taken; 0: none */
    _Atomic bool connected;         /* the PLAN came over this connection */
    _Atomic int64_t alone_since_ms; /* when it last was; for the orphan limit */
};

int report_link_start(struct report *report, struct err *err);

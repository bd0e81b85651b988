/* rank_log: a rank's stdout and stderr, through a pipe into a file that cannot outgrow its limit.
 *
 * A rank must never wait for its log, and a rank that prints without end must not fill the disk:
 * the keeper reads all that comes, writes what the limit allows, marks the cut, and drops the rest
 * (also what the disk does not take). */
#pragma once
#include "common/err.h"

#include <stdint.h>

struct rank_log {
    int pipe_fd;        /* the reading end; -1 when closed */
    int file_fd;        /* -1 when closed */
    int64_t bytes_left; /* until the limit */
    int64_t dropped;    /* bytes not written */
};

/* Creates the file anew, mode 0600, and a pipe; *ret_write_fd is the writing end, the caller's. */
int rank_log_open(struct rank_log *log, const char *path, int64_t bytes_max, int *ret_write_fd,
                  struct err *err);
void rank_log_pump(struct rank_log *log); /* takes what has come; never waits */
/* Pumps, says how much was dropped, adds what the keeper has to say (of any length), closes. */
void rank_log_close(struct rank_log *log, const char *last);

/* rank_log: one read a pump, so that a noisy rank cannot hold up the others; closing reads until
 * the pipe is empty, within a bound, because a process that escaped may still be writing. */
#include "worker/rank_log.h"

#include "common/io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    RANK_LOG_CHUNK = 64 * 1024, /* the size of a pipe */
    RANK_LOG_LAST_READS = 64,   /* 4 MiB at closing */
};

static void rank_log_close_fd(int *fd)
{
    if (*fd >= 0)
        (void)close(*fd); /* a log that is lost has no reader */
    *fd = -1;
}

int rank_log_open(struct rank_log *log, const char *path, int64_t bytes_max, int *ret_write_fd,
                  struct err *err)
{
    *log = (struct rank_log){.pipe_fd = -1, .file_fd = -1, .bytes_left = bytes_max};
    int file_fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
    if (file_fd < 0)
        return err_set_errno(err, errno, "%s", path);
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0 || fcntl(ends[0], F_SETFL, O_NONBLOCK) != 0) {
        int rc = err_set_errno(err, errno, "%s: pipe", path);
        rank_log_close_fd(&file_fd);
        return rc;
    }
    log->file_fd = file_fd;
    log->pipe_fd = ends[0];
    *ret_write_fd = ends[1];
    return 0;
}

static void rank_log_write(struct rank_log *log, const char *bytes, int64_t length)
{
    struct err ignored; /* dropped bytes are counted and said */
    if (length > 0 && io_write_full(log->file_fd, bytes, (size_t)length, &ignored) != 0)
        log->dropped += length;
}

/* One read; false when there was nothing or the other end is closed. */
static bool rank_log_take(struct rank_log *log)
{
    char chunk[RANK_LOG_CHUNK];
    if (log->pipe_fd < 0)
        return false;
    ssize_t got = read(log->pipe_fd, chunk, sizeof chunk);
    if (got == 0)
        rank_log_close_fd(&log->pipe_fd);
    if (got <= 0)
        return false;
    int64_t kept = got < log->bytes_left ? got : log->bytes_left;
    rank_log_write(log, chunk, kept);
    log->bytes_left -= kept;
    if (kept < got && log->dropped == 0) {
        static const char mark[] = "\n[the log's limit is reached: later output is dropped]\n";
        rank_log_write(log, mark, sizeof mark - 1);
    }
    log->dropped += got - kept;
    return true;
}

void rank_log_pump(struct rank_log *log)
{
    (void)rank_log_take(log);
}

void rank_log_close(struct rank_log *log, const char *last)
{
    for (int reads = 0; reads < RANK_LOG_LAST_READS && rank_log_take(log); reads++)
        continue;
    if (log->dropped > 0) {
        char line[64];
        int length = snprintf(line, sizeof line, "[%lld bytes of output were dropped]\n",
                              (long long)log->dropped);
        rank_log_write(log, line, length);
    }
    rank_log_write(log, last, (int64_t)strlen(last));
    rank_log_close_fd(&log->pipe_fd);
    rank_log_close_fd(&log->file_fd);
}

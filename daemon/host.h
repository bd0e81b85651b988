/* host: what the job side of the daemon asks of the machine: time, random bytes, processes. A
 * struct of functions, all required: host_posix.c is the real one, tests supply their own and so
 * run the coordinator without a process or a clock.
 *
 * A process is named by pid, start time and boot id, so that a recycled pid is never taken for it.
 * Its end is told by a callback on the loop, once. */
#pragma once
#include "common/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { HOST_BOOT_ID_BYTES = 40 };

struct host_identity {
    int32_t pid;
    uint64_t start_time;              /* field 22 of /proc/<pid>/stat, clock ticks since boot */
    char boot_id[HOST_BOOT_ID_BYTES]; /* /proc/sys/kernel/random/boot_id */
};

struct host_exit {
    int32_t status; /* exit status; -1 when ended by a signal or not our child */
    int32_t signal; /* 0 when it exited */
};

typedef void host_exit_fn(void *context, const struct host_exit *ended);

struct host_spawn {
    const char *const *argv; /* argv[0] is the program's path; NULL at the end */
    const char *const *envp; /* the whole environment; NULL at the end */
    const char *input_path;  /* stdin; NULL: empty */
    const char *output_path; /* stdout and stderr are appended here, mode 0600 */
    const char *error_path;  /* stderr is appended here instead, mode 0600; NULL: not */
    bool goes_last;          /* all others have the processor before it */
    host_exit_fn *on_exit;   /* called once, after the process was reaped */
    void *context;
};

struct host;
struct host_process; /* a child, or an adopted stranger; ends with on_exit or host_forget */

struct host_ops {
    int64_t (*monotonic_ms)(struct host *host);
    int64_t (*wall_ms)(struct host *host); /* Unix time */
    int (*random)(struct host *host, void *ret_bytes, size_t length, struct err *err);

    /* Starts a program in its own session; it outlives the daemon. */
    int (*spawn)(struct host *host, const struct host_spawn *spawn, struct host_process **ret,
                 struct host_identity *ret_identity, struct err *err);
    /* Watches a living process that is not our child. ERR_NOT_FOUND when it is gone (or its pid
     * now names another). */
    int (*adopt)(struct host *host, const struct host_identity *identity, host_exit_fn *on_exit,
                 void *context, struct host_process **ret, struct err *err);
    /* Sends a signal through the pidfd; a process that has ended is no error. */
    void (*signal)(struct host *host, struct host_process *process, int signal_number);
    /* Ends the watch without a callback; valid after on_exit too (frees). NULL is fine. */
    void (*forget)(struct host *host, struct host_process *process);
    /* 'R', 'S', 'D' (in the kernel, deaf to signals), ... of any process; '?': it is gone. */
    char (*process_state)(struct host *host, int32_t pid);
    /* Sends a signal to every living process of a session (signal 0: to none) and returns how many
     * there are; ret_pid (may be NULL) becomes one of them. The session is the pid of a process
     * that spawn() started. */
    int (*session_signal)(struct host *host, int32_t session, int signal_number, int32_t *ret_pid);
};

struct host {
    const struct host_ops *ops;
};

/* The real one. Exit callbacks run on the loop. */
struct loop;
int host_posix_new(struct loop *loop, struct host **ret_host, struct err *err);
void host_posix_free(struct host *host); /* NULL is fine; processes go on living */

/* "ftjob-" + 24 characters of [A-Za-z0-9], 142 random bits. `prefix` ends with its dash. */
enum { HOST_ID_RANDOM_CHARS = 24 };
int host_new_id(struct host *host, const char *prefix, char *ret_id, size_t ret_id_bytes,
                struct err *err);

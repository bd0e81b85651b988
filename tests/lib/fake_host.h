/* fake_host: a host seam without processes and without a clock. Time moves when the test says so,
 * processes are rows in a table, and they end when the test ends them. For cmocka programs. */
#pragma once
#include "daemon/host.h"
#include "tests/lib/cmocka.h"

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { FAKE_PROCESSES_MAX = 32 };

struct host_process {
    int32_t pid;
    char mode[32];      /* argv[1]: "--keep", "--prepare"; "adopted" */
    char argument[512]; /* argv[2] */
    char input[256];    /* file on stdin; "" for none */
    char output[256];   /* file that takes stdout */
    char errors[256];   /* file that takes stderr; "": output */
    host_exit_fn *on_exit;
    void *context;
    int last_signal; /* 0: none was sent */
    bool ended, forgotten;
};

struct fake_host {
    struct host host; /* first */
    int64_t now_ms;   /* monotonic; wall time is a million ms later, and: */
    int64_t wall_jump_ms;
    int64_t look_ms; /* that pass with each look at the monotonic clock */
    uint32_t random; /* state of the generator */
    struct host_process processes[FAKE_PROCESSES_MAX];
    int count;
    int session_left;               /* what session_signal answers */
    int32_t session;                /* what it was asked for */
    int32_t stuck_pid;              /* of those left: hangs in the kernel */
    bool spawn_fails;               /* spawn answers ERR_IO */
    struct host_identity adoptable; /* pid 0: nothing is alive */
};

static inline struct fake_host *fake_host_of(struct host *host)
{
    return (struct fake_host *)host;
}

static inline int64_t fake_monotonic_ms(struct host *host)
{
    struct fake_host *fake = fake_host_of(host);
    fake->now_ms += fake->look_ms;
    return fake->now_ms;
}

static inline int64_t fake_wall_ms(struct host *host)
{
    return fake_host_of(host)->now_ms + 1000000 + fake_host_of(host)->wall_jump_ms;
}

static inline int fake_random(struct host *host, void *ret_bytes, size_t length, struct err *err)
{
    struct fake_host *fake = fake_host_of(host);
    for (size_t i = 0; i < length; i++) {
        fake->random = fake->random * 1664525u + 1013904223u;
        ((uint8_t *)ret_bytes)[i] = (uint8_t)(fake->random >> 24);
    }
    return 0;
}

static inline struct host_process *fake_add(struct fake_host *fake, host_exit_fn *on_exit,
                                            void *context)
{
    assert_true(fake->count < FAKE_PROCESSES_MAX);
    struct host_process *process = &fake->processes[fake->count++];
    *process =
        (struct host_process){.pid = 1000 + fake->count, .on_exit = on_exit, .context = context};
    return process;
}

static inline const char *fake_text(const char *text)
{
    return text != NULL ? text : "";
}

static inline int fake_spawn(struct host *host, const struct host_spawn *spawn,
                             struct host_process **ret, struct host_identity *ret_identity,
                             struct err *err)
{
    struct fake_host *fake = fake_host_of(host);
    if (fake->spawn_fails)
        return err_set(err, ERR_IO, "start %s: no such file", spawn->argv[0]);
    struct host_process *process = fake_add(fake, spawn->on_exit, spawn->context);
    (void)snprintf(process->mode, sizeof process->mode, "%s", spawn->argv[1]);
    (void)snprintf(process->argument, sizeof process->argument, "%s", spawn->argv[2]);
    (void)snprintf(process->input, sizeof process->input, "%s", fake_text(spawn->input_path));
    (void)snprintf(process->output, sizeof process->output, "%s", fake_text(spawn->output_path));
    (void)snprintf(process->errors, sizeof process->errors, "%s", fake_text(spawn->error_path));
    *ret_identity = (struct host_identity){.pid = process->pid, .start_time = 77, .boot_id = "b"};
    *ret = process;
    return 0;
}

static inline int fake_adopt(struct host *host, const struct host_identity *identity,
                             host_exit_fn *on_exit, void *context, struct host_process **ret,
                             struct err *err)
{
    struct fake_host *fake = fake_host_of(host);
    if (identity->pid == 0 || identity->pid != fake->adoptable.pid ||
        identity->start_time != fake->adoptable.start_time)
        return err_set(err, ERR_NOT_FOUND, "process %d is gone", identity->pid);
    *ret = fake_add(fake, on_exit, context);
    (*ret)->pid = identity->pid;
    (void)snprintf((*ret)->mode, sizeof(*ret)->mode, "adopted");
    return 0;
}

static inline void fake_signal(struct host *host, struct host_process *process, int signal_number)
{
    assert_false(process->forgotten);
    process->last_signal = signal_number;
}

static inline void fake_forget(struct host *host, struct host_process *process)
{
    if (process != NULL)
        process->forgotten = true;
}

static inline char fake_process_state(struct host *host, int32_t pid)
{
    return fake_host_of(host)->stuck_pid == pid ? 'D' : 'S';
}

static inline int fake_session_signal(struct host *host, int32_t session, int signal_number,
                                      int32_t *ret_pid)
{
    struct fake_host *fake = fake_host_of(host);
    fake->session = session;
    if (fake->session_left > 0 && ret_pid != NULL)
        *ret_pid = fake->stuck_pid;
    return fake->session_left;
}

static inline void fake_host_init(struct fake_host *fake)
{
    static const struct host_ops ops = {
        .monotonic_ms = fake_monotonic_ms,
        .wall_ms = fake_wall_ms,
        .random = fake_random,
        .spawn = fake_spawn,
        .adopt = fake_adopt,
        .signal = fake_signal,
        .forget = fake_forget,
        .process_state = fake_process_state,
        .session_signal = fake_session_signal,
    };
    *fake = (struct fake_host){.host = {.ops = &ops}, .now_ms = 1000, .random = 1};
}

/* The newest process of a mode that has not ended; NULL when there is none. */
static inline struct host_process *fake_host_find(struct fake_host *fake, const char *mode)
{
    for (int i = fake->count; i-- > 0;) {
        struct host_process *process = &fake->processes[i];
        if (!process->ended && !process->forgotten && strcmp(process->mode, mode) == 0)
            return process;
    }
    return NULL;
}

static inline void fake_host_end(struct host_process *process, int status, int signal_number)
{
    assert_false(process->ended);
    process->ended = true;
    if (!process->forgotten)
        process->on_exit(process->context,
                         &(struct host_exit){.status = signal_number != 0 ? -1 : status,
                                             .signal = signal_number});
}

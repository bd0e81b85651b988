/* rank_process: starting one rank as a child of the keeper.
 *
 * The rank is executed as `ithaca-worker --rank R --attempt-dir DIR` in the keeper's session. What
 * it inherits: stdin (the keeper's), stdout and stderr (a pipe to its log), the environment given;
 * no other descriptor, no blocked signal. It dies with the keeper (PR_SET_PDEATHSIG), leaves no
 * core file, and is what the kernel kills first when memory runs out.
 *
 * The death signal is that of the thread that forks: the keeper has one thread. */
#pragma once
#include "common/err.h"
#include "worker/rank_log.h"

#include <stdint.h>
#include <sys/types.h>

struct rank_command {
    const char *program;     /* what is executed */
    const char *attempt_dir; /* its argument, and where rank-R.log goes */
    char **env;              /* rank_env.h */
    int64_t log_bytes_max;
};

struct rank_process {
    pid_t pid; /* 0 when there is none, or it has been reaped */
    struct rank_log log;
};

/* Returns when the program runs. ERR_RANK_START with the reason otherwise; a child that could not
 * become the program is a zombie that the caller's waitpid(-1) takes. */
int rank_process_start(struct rank_process *process, const struct rank_command *command, int rank,
                       struct err *err);

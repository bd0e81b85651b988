/* keeper: the parent of all ranks of one attempt of a job.
 *
 * `ithaca-worker --keep ATTEMPT_DIR` starts the ranks of ATTEMPT_DIR/plan.json, waits for them, and
 * leaves exit.json (common/exit_report.h) when none of them, nor anything they started, is left. It
 * outlives the daemon; ranks never outlive it. In the attempt's folder it writes
 *
 *     keeper.json   {"pid", "start_time", "boot_id"}: who the keeper is, for a daemon that adopts
 * it keeper.log    its own log rank-R.log    what rank R printed, at most LIMIT_RANK_LOG_BYTES
 *     exit.json     how it ended
 *
 * When a rank failed, the ranks' records of collectives (coll_verdict.h) are compared: exit.json
 * says who was waited for, each log ends with that rank's last calls. When all went well they are
 * removed.
 *
 * The ladder. A rank that fails leaves the others KEEPER_FAILED_GRACE_MS to notice and to end in
 * their own words; then SIGTERM, after KEEPER_STOP_GRACE_MS more SIGKILL. SIGTERM (or SIGINT,
 * SIGHUP) to the keeper means stop: SIGTERM to the ranks at once, then SIGKILL as above. After
 * SIGKILL it waits KEEPER_KILL_WAIT_MS; a process that is still there sits in the kernel, and is
 * reported as such. What ranks started is killed when they are gone.
 *
 * Where the plan names a control group (common/cgroup.h) the keeper joins it first, and all that it
 * starts is born there.
 *
 * Killed itself, it takes the ranks along (PR_SET_PDEATHSIG), not what they may have started: the
 * daemon kills the group, and the keeper's session, which all share that have not left it. */
#pragma once
#include "common/err.h"

#include <stdint.h>

enum {
    KEEPER_FAILED_GRACE_MS = 5000, /* collectives notice an abort or an end in 0.1 s (shm_room.h) */
    KEEPER_STOP_GRACE_MS = 5000,
    KEEPER_KILL_WAIT_MS = 10000,
};

/* The process's exit status is err_code_exit() of what comes back: 0 when every rank exited with 0,
 * ERR_RANK_START, ERR_RANK_DIED, ERR_CANCELLED when it was told to stop, or what failed here. */
int keeper_main(const char *attempt_dir, struct err *err);

/* keeper_main with everything given. It turns the process into a keeper (session, subreaper,
 * blocked signals, stdout and stderr to keeper.log): the caller's next step is to exit. */
struct keeper_options {
    const char *attempt_dir;
    const char *program;  /* of the ranks */
    const char *cgroup;   /* joined before anything is started; NULL for none */
    const char *shm_name; /* unlinked at the end; "" for none */
    uint32_t world;
    uint32_t threads; /* of each rank */
    const char *gpus; /* of the ranks (worker/rank_env.h); "" for none */
    int64_t log_bytes_max;
    int64_t failed_grace_ms, stop_grace_ms, kill_wait_ms;
};
int keeper_run(const struct keeper_options *options, struct err *err);

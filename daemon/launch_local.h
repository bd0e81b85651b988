/* launch_local: starts an attempt of a job on this machine: its folder, plan.json (0600), and the
 * keeper `ithaca-worker --keep <attempt folder>`, in a session of its own, so that it outlives the
 * daemon. Its output goes to keeper.log. */
#pragma once
#include "common/err.h"
#include "daemon/host.h"

#include <stddef.h>

struct launch_local {
    const char *worker_program; /* absolute path of ithaca-worker */
    const char *attempt_dir;    /* made when it is not there */
    const char *plan_text;      /* the plan's JSON, as the ranks get it in their PLAN frames */
    size_t plan_length;
    host_exit_fn *on_exit; /* the keeper has ended and was reaped */
    void *context;
};
int launch_local_start(struct host *host, const struct launch_local *launch,
                       struct host_process **ret_keeper, struct host_identity *ret_identity,
                       struct err *err);

/* What a worker may see of the daemon's environment: paths, locale, thread, BLAS and GPU settings,
 * at least all that a rank is given of its keeper's (worker/rank_env.h). The
 * caller's own variables stand in place of the daemon's. Borrowed; NULL at the end. */
enum { LAUNCH_ENVIRONMENT_MAX = 64 }; /* more are left out */
void launch_local_environment(const char *const *own, size_t own_count,
                              const char *ret_variables[LAUNCH_ENVIRONMENT_MAX + 1]);

/* Starts a worker (argv: its path, a mode, arguments, NULL) in that environment, output appended to
 * a file. */
int launch_local_worker(struct host *host, const char *const *argv, const char *output_path,
                        host_exit_fn *on_exit, void *context, struct host_process **ret_process,
                        struct host_identity *ret_identity, struct err *err);

/* The error of a worker that ended badly, of this code: "<what>: <the last that it said>", which is
 * its log's last line without its name, or how it ended where it said nothing. */
int launch_local_failed(const char *what, const char *log_path, const struct host_exit *ended,
                        enum err_code code, struct err *err);

/* Removes what ranks that were killed while they joined leave behind: the shared memory's name. */
struct launch_plan;
void launch_local_clean(const struct launch_plan *plan);

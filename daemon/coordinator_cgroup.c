/* coordinator_cgroup: control groups of attempts (common/cgroup.h): made before the keeper starts,
 * removed by the supervisor when all in them has ended, looked for when a daemon starts.
 *
 * A job never waits or fails for want of a group: it is logged, and the process group does. */
#include "common/log.h"
#include "common/mem.h"
#include "daemon/coordinator_private.h"

enum { CGROUP_LEFTOVER_MS = 1000 }; /* for processes of an earlier daemon's attempt to end */

/* memory.max of an attempt that plans for so much; 0: none. */
static int64_t cgroup_memory_max(const struct coordinator *coordinator, int64_t ranks,
                                 int64_t planned_bytes)
{
    int64_t margin = coordinator->config.job_memory_margin_bytes, limit = 0;
    if (margin == 0 || !coordinator->config.cgroup->memory ||
        __builtin_mul_overflow(ranks, margin, &limit) ||
        __builtin_add_overflow(limit, planned_bytes, &limit))
        return 0;
    return limit;
}

void coordinator_cgroup_make(const struct coordinator_job *job, int64_t planned_bytes,
                             struct launch_plan *plan)
{
    const struct coordinator *coordinator = job->coordinator;
    const struct cgroup_home *home = coordinator->config.cgroup;
    char path[CGROUP_PATH_BYTES];
    struct err err;
    if (home == NULL || home->path[0] == '\0')
        return;
    int64_t limit = cgroup_memory_max(coordinator, plan->world, planned_bytes);
    int rc = cgroup_make(home, job->id, job->attempt, limit, path, &err);
    if (rc == 0)
        plan->cgroup = mem_strdup(path);
    if (rc == 0 && plan->cgroup == NULL)
        rc = mem_fail(&err, sizeof path, "a path");
    if (rc != 0)
        log_warn("coordinator", "%s has no control group: %s", job->id, err.text);
}

/* A group that nobody here will end: of a job of this daemon, and of no attempt that goes on. What
 * is of no job that is known is another daemon's. */
static void cgroup_end_leftover(void *context, const char *job_id, int64_t attempt,
                                const char *path)
{
    const struct coordinator *coordinator = context;
    const struct coordinator_job *job = coordinator_find(coordinator, job_id);
    char owner[LIMIT_NAME_BYTES + 1];
    struct err err;
    bool goes_on = job != NULL && job->attempt == attempt &&
                   (job->supervisor != NULL || job->recover_until_ms > 0);
    if (goes_on || store_job_owner(coordinator->store, job_id, owner, &err) != 0)
        return;
    if (cgroup_end(path, CGROUP_LEFTOVER_MS, &err) != 0)
        log_warn("coordinator", "a control group is left over: %s", err.text);
    else
        log_info("coordinator", "%s was left over and is removed", path);
}

void coordinator_cgroup_end_leftovers(struct coordinator *coordinator)
{
    if (coordinator->config.cgroup != NULL)
        cgroup_each(coordinator->config.cgroup, cgroup_end_leftover, coordinator);
}

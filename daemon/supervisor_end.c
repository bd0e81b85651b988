/* supervisor_end: the last rung of the ladder and what comes after it. Ranks die with their keeper;
 * what they started may have left them, yet is in the keeper's session, or, if it left that too, in
 * the attempt's control group, where there is one. */
#include "common/clock.h"
#include "common/log.h"
#include "common/mem.h"
#include "daemon/coordinator.h"
#include "daemon/supervisor.h"

#include <signal.h>
#include <stdio.h>

static void supervisor_note_kill(struct supervisor *supervisor)
{
    struct host *host = supervisor->host;
    if (supervisor->killed_ms != 0)
        return;
    supervisor->killed_ms = host->ops->monotonic_ms(host);
    supervisor->killed_wall_ms = host->ops->wall_ms(host);
}

void supervisor_kill(struct supervisor *supervisor)
{
    struct host *host = supervisor->host;
    supervisor_note_kill(supervisor);
    host->ops->signal(host, supervisor->keeper, SIGKILL);
    (void)host->ops->session_signal(host, supervisor->identity.pid, SIGKILL, NULL);
    if (supervisor->plan.cgroup != NULL)
        cgroup_kill(supervisor->plan.cgroup);
}

void supervisor_drop_group(struct supervisor *supervisor)
{
    struct err err;
    const char *group = supervisor->plan.cgroup;
    if (group != NULL && cgroup_remove(group, &err) != 0)
        log_warn("supervisor", "a control group stays: %s", err.text); /* until the next start */
}

/* False: nobody is in the group, which is gone then. */
static bool supervisor_sweep_group(struct supervisor *supervisor)
{
    const char *group = supervisor->plan.cgroup;
    if (group != NULL && cgroup_is_populated(group)) {
        cgroup_kill(group);
        return true;
    }
    if (group != NULL)
        cgroup_memory(group, &supervisor->memory);
    supervisor_drop_group(supervisor);
    return false;
}

bool supervisor_sweep(struct supervisor *supervisor)
{
    struct host *host = supervisor->host;
    if (!supervisor->session_gone)
        supervisor->session_gone =
            host->ops->session_signal(host, supervisor->identity.pid, SIGKILL, NULL) == 0;
    if (!supervisor->group_gone)
        supervisor->group_gone = !supervisor_sweep_group(supervisor);
    bool left = !supervisor->session_gone || !supervisor->group_gone;
    if (left)
        supervisor_note_kill(supervisor);
    return left;
}

/* A process that is left; 0: there is none. */
static int32_t supervisor_left(const struct supervisor *supervisor)
{
    struct host *host = supervisor->host;
    int32_t session = supervisor->identity.pid, pid = 0;
    if (!supervisor->session_gone && host->ops->session_signal(host, session, 0, &pid) > 0)
        return pid;
    return supervisor->plan.cgroup != NULL ? cgroup_first(supervisor->plan.cgroup) : 0;
}

/* "rank 3", "the keeper", "a process of the job" */
static void supervisor_name(const struct supervisor *supervisor, int32_t pid, char *ret_text,
                            size_t bytes)
{
    (void)snprintf(ret_text, bytes, "%s",
                   pid == supervisor->identity.pid ? "the keeper" : "a process of the job");
    for (uint32_t i = 0; i < supervisor->plan.world; i++)
        if (supervisor->ranks[i].pid == pid)
            (void)snprintf(ret_text, bytes, "rank %u", i);
}

bool supervisor_is_stuck(const struct supervisor *supervisor, char *ret_text, size_t bytes)
{
    struct host *host = supervisor->host;
    int64_t grace_ms = supervisor->config->stop_grace_ms;
    if (supervisor->over || supervisor->killed_ms == 0 ||
        host->ops->monotonic_ms(host) - supervisor->killed_ms < grace_ms)
        return false;
    int32_t pid = supervisor_left(supervisor);
    if (pid == 0)
        return false;
    char name[32], since[CLOCK_ISO_BYTES];
    supervisor_name(supervisor, pid, name, sizeof name);
    clock_iso(supervisor->killed_wall_ms, since);
    (void)snprintf(ret_text, bytes,
                   "%s (process %d) does not end: state %c, SIGKILL was sent at %s. What the job "
                   "runs on is not given out until it is gone",
                   name, pid, host->ops->process_state(host, pid), since);
    return true;
}

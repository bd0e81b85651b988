/* coordinator_memory: jobs side by side share the host's memory, of which slots say nothing. One
 * whose ranks would find too little beside running jobs keeps its place in the queue, and its
 * slots, until some have ended. One that would be alone starts whatever it takes: its ranks say
 * what there is. */
#include "common/host_memory.h"
#include "daemon/coordinator_private.h"

#include <stdio.h>

/* Of all ranks, by the plan; 0: not known. */
static int64_t memory_planned(struct coordinator_job *job)
{
    if (job->host_bytes == 0)
        job->host_bytes = coordinator_plan_host_bytes(job);
    return job->host_bytes > 0 ? job->host_bytes : 0;
}

bool coordinator_memory_waits(struct coordinator_job *job)
{
    const struct coordinator *coordinator = job->coordinator;
    int64_t all = coordinator->config.host_bytes, taken = memory_planned(job);
    bool alone = true;
    if (all == 0)
        all = host_memory_read().total;
    for (struct coordinator_job *other = coordinator->jobs; other != NULL; other = other->next) {
        if (!other->has_slots)
            continue;
        alone = false;
        if (__builtin_add_overflow(taken, memory_planned(other), &taken))
            taken = INT64_MAX;
    }
    job->memory_lack = !alone && taken > all ? taken - all : 0;
    return job->memory_lack > 0;
}

void coordinator_memory_tell(const struct coordinator_job *job, char *ret, size_t bytes)
{
    (void)snprintf(ret, bytes,
                   "waits for the host's memory: it takes %.4g GiB, %.3g more than running jobs "
                   "leave",
                   (double)job->host_bytes * 0x1p-30, (double)job->memory_lack * 0x1p-30);
}

/* coordinator_memory: jobs side by side share the host's memory, of which slots say nothing. One
 * whose ranks would find too little beside running jobs keeps its place in the queue, and its
 * slots, until some have ended. One that would be alone starts whatever it takes: its ranks say
 * what there is. */
#include "common/host_memory.h"
#include "common/number.h"
#include "daemon/coordinator_private.h"

#include <stdio.h>

/* Of a rank beside its plan: programs, libraries, their buffers. */
enum { MEMORY_RANK_BYTES = 256 << 20 };
static const int64_t memory_most = 1LL << 50; /* of a job: sums of these are none too large */

/* -1: not known. */
static int64_t memory_of_ranks(const struct coordinator_job *job)
{
    const int64_t planned = coordinator_plan_host_bytes(job);
    if (planned < 0)
        return -1;
    return (planned < memory_most ? planned : memory_most) +
           job_spec_slots(&job->spec) * MEMORY_RANK_BYTES;
}

int64_t coordinator_memory_planned(struct coordinator_job *job)
{
    if (job->host_bytes == 0)
        job->host_bytes = memory_of_ranks(job);
    return job->host_bytes > 0 ? job->host_bytes : 0;
}

/* What the host has for all jobs, and what of it is free now, which what running jobs have not
 * taken yet is a part of. */
static struct host_memory memory_of_host(const struct coordinator *coordinator)
{
    const int64_t given = coordinator->config.host_bytes;
    if (given > 0)
        return (struct host_memory){.total = given, .available = given};
    return host_memory_read();
}

bool coordinator_memory_waits(struct coordinator_job *job)
{
    const struct coordinator *coordinator = job->coordinator;
    const struct host_memory host = memory_of_host(coordinator);
    int64_t own = coordinator_memory_planned(job), others = 0;
    bool alone = true;
    for (struct coordinator_job *other = coordinator->jobs; other != NULL; other = other->next) {
        if (!other->has_slots)
            continue;
        alone = false;
        others += coordinator_memory_planned(other);
    }
    int64_t left = host.total - others < host.available ? host.total - others : host.available;
    job->memory_lack = !alone && own > left ? own - left : 0;
    return job->memory_lack > 0;
}

void coordinator_memory_tell(const struct coordinator_job *job, char *ret, size_t bytes)
{
    (void)snprintf(ret, bytes,
                   "waits for the host's memory: it takes %s GiB, %s more than running jobs "
                   "leave",
                   number_plain((double)job->host_bytes * 0x1p-30, 4).text,
                   number_plain((double)job->memory_lack * 0x1p-30, 4).text);
}

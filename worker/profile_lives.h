/* profile_lives: when each planned buffer was needed in rank 0's first profiled step: from the
 * first phase of the plan that needs it to the end of the last that does, as the step went. */
#pragma once
#include "worker/profile_job.h"

struct profile_life {
    const struct mem_buffer *buffer; /* of the job's plan */
    int64_t begin_ns, end_ns;
};

struct profile_lives {
    struct profile_life *list; /* (count) the largest first */
    int64_t count;
};

/* At most `max`; without buffers whose phases the step did not have. */
int profile_lives_of(const struct profile_job *job, int64_t max, struct profile_lives *ret,
                     struct err *err);
void profile_lives_done(struct profile_lives *lives);

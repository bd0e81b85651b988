/* profile_sums: the figures of a job's profile: where the time of its steps went, over all ranks
 * and steps. Each is a sum of slices of the trace (profile_trace.h), or of times in which slices of
 * some kinds ran, counted once.
 *
 *     TRY(profile_sums_make(job, &sums, err));
 *     sums.step_ns                               all ranks' steps: what shares are of
 *     profile_sums_ns(&sums, PROFILE_WAIT, "gather_wait_s") */
#pragma once
#include "worker/profile_job.h"

enum { PROFILE_GAPS = 3 }; /* the longest are told */

struct profile_figure {
    char name[PROFILE_NAME_BYTES];
    int64_t count, ns; /* slices of this name, and their time */
};
struct profile_figures {
    struct profile_figure *list; /* (count) the longest first */
    int64_t count;
};

/* Of one rank, or of all. */
struct profile_busy {
    int64_t step_ns;                             /* of all steps */
    int64_t kernel_ns;                           /* some kernel ran */
    int64_t wait_ns;                             /* the work stood still */
    int64_t collective_ns, collective_hidden_ns; /* begun and not done; a kernel ran meanwhile */
    int64_t copy_ns, copy_hidden_ns;             /* alike */
    int64_t idle_ns; /* no kernel, copy or collective ran, and nothing was waited for */
};

struct profile_gap { /* idle time */
    int64_t begin_ns, end_ns;
    uint32_t rank;
    int64_t step;
    char phase[PROFILE_NAME_BYTES];
};

struct profile_sums {
    int64_t steps;                                    /* of each rank */
    struct profile_figures kinds[PROFILE_KIND_COUNT]; /* over all ranks */
    struct profile_busy all;                          /* sums over ranks */
    struct profile_busy *ranks;                       /* (world) */
    struct profile_gap gaps[PROFILE_GAPS];            /* the longest first */
    int gap_count;
};

int profile_sums_make(const struct profile_job *job, struct profile_sums *ret, struct err *err);
void profile_sums_done(struct profile_sums *sums);
/* Time of a name; 0 when there is none such. */
int64_t profile_sums_ns(const struct profile_sums *sums, enum profile_kind kind, const char *name);
double profile_sums_share(const struct profile_sums *sums, int64_t ns); /* of all steps' time */

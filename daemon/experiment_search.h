/* experiment_search: which seq_len is to be run next where the longest that runs is looked for. A
 * pure function of what was run so far, so that a daemon that starts anew goes on as the one before
 * it. It takes shorter sequences to need less. */
#pragma once
#include <stddef.h>
#include <stdint.h>

enum experiment_outcome {
    EXPERIMENT_RUNS,
    EXPERIMENT_TOO_LONG, /* for memory or time */
    EXPERIMENT_BREAKS    /* it failed for another reason: nothing is learnt of its length */
};

struct experiment_probe {
    int64_t seq_len;
    enum experiment_outcome outcome;
};

/* The first probe is the longest that there may be, others lie between min and it. step: how close
 * the answer is to be, above 0. 0: the search is over; its answer is the longest that runs. */
int64_t experiment_search_next(const struct experiment_probe *probes, size_t count, int64_t min,
                               int64_t step);

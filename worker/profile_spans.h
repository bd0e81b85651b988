/* profile_spans: times as sets of intervals, so that what runs at once is counted once.
 *
 *     TRY(profile_spans_of(file, PROFILE_BIT(KERNEL) | PROFILE_BIT(COPY), &busy, err));
 *     profile_spans_ns(&busy)                     time in which at least one of them ran
 *     profile_spans_shared_ns(&busy, &other)      in which both did */
#pragma once
#include "worker/profile_file.h"

struct profile_span {
    int64_t begin_ns, end_ns;
};

struct profile_spans {
    struct profile_span *list; /* (count) apart from each other, in the order of time */
    int64_t count;
};

#define PROFILE_BIT(kind) (1u << PROFILE_##kind)

/* The union of a rank's events of these kinds, which are in the order of their begin. */
int profile_spans_of(const struct profile_file *file, unsigned kinds, struct profile_spans *ret,
                     struct err *err);
void profile_spans_done(struct profile_spans *spans);
int64_t profile_spans_ns(const struct profile_spans *spans);
int64_t profile_spans_shared_ns(const struct profile_spans *a, const struct profile_spans *b);

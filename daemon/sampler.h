/* sampler: the points of a series as a chart shows them, in few enough to be sent.
 *
 * Steps are cut into buckets of equal width; of each the lowest and the highest value are kept, and
 * the first that is not finite: a peak is never averaged away, a NaN never hidden. The first and
 * the last point of the series are kept too. A series no longer than asked for is kept whole.
 *
 * Points are added in order of step. Of a step that several attempts have, the last one added
 * counts. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

enum { SAMPLER_POINTS_MIN = 10 };

struct sampler_point {
    int64_t step;
    int64_t attempt;
    double value;
    double wall_s; /* Unix time */
};

/* Takes the points that are kept, in order of step; non-zero ends the sampling and is returned. */
typedef int sampler_fn(void *context, const struct sampler_point *point);

struct sampler {
    sampler_fn *keep;
    void *context;
    int64_t first_step;                      /* of the first bucket */
    int64_t width;                           /* steps in a bucket */
    int64_t bucket;                          /* under way */
    bool begun;                              /* a point was added */
    bool kept_any;                           /* the first point was kept */
    struct sampler_point newest;             /* added last: another attempt may replace it */
    struct sampler_point low, high, strange; /* of the bucket */
    bool has_finite, has_strange;            /* of the bucket */
    struct sampler_point last_kept;
};

/* For steps from first to last, at most points_max (SAMPLER_POINTS_MIN or more) of them. */
void sampler_begin(struct sampler *sampler, int64_t first_step, int64_t last_step,
                   int64_t points_max, sampler_fn *keep, void *context);
int sampler_add(struct sampler *sampler, const struct sampler_point *point);
int sampler_end(struct sampler *sampler);

/* sampler: a bucket is given when a point of the next one comes. The newest point waits outside
 * until another step follows, since another attempt's may take its place. Three points a bucket and
 * two ends: so many buckets fit. */
#include "daemon/sampler.h"

#include "common/must.h"

#include <math.h>

void sampler_begin(struct sampler *sampler, int64_t first_step, int64_t last_step,
                   int64_t points_max, sampler_fn *keep, void *context)
{
    must(points_max >= SAMPLER_POINTS_MIN);
    int64_t steps = last_step >= first_step ? last_step - first_step + 1 : 1;
    int64_t buckets = (points_max - 2) / 3;
    *sampler = (struct sampler){.keep = keep,
                                .context = context,
                                .first_step = first_step,
                                .width = steps <= points_max ? 1 : (steps + buckets - 1) / buckets};
}

static int sampler_keep(struct sampler *sampler, const struct sampler_point *point)
{
    if (sampler->kept_any && point->step == sampler->last_kept.step)
        return 0; /* the same point for two reasons */
    sampler->kept_any = true;
    sampler->last_kept = *point;
    return sampler->keep(sampler->context, point);
}

/* Gives what the bucket keeps. */
static int sampler_flush(struct sampler *sampler)
{
    const struct sampler_point *kept[3];
    int count = 0;
    if (sampler->has_finite) {
        kept[count++] = &sampler->low;
        kept[count++] = &sampler->high;
    }
    if (sampler->has_strange)
        kept[count++] = &sampler->strange;
    for (int i = 1; i < count; i++) /* by step */
        for (int j = i; j > 0 && kept[j]->step < kept[j - 1]->step; j--) {
            const struct sampler_point *swapped = kept[j];
            kept[j] = kept[j - 1];
            kept[j - 1] = swapped;
        }
    for (int i = 0; i < count; i++) {
        int rc = sampler_keep(sampler, kept[i]);
        if (rc != 0)
            return rc;
    }
    sampler->has_finite = sampler->has_strange = false;
    return 0;
}

/* The newest point takes its place in a bucket. */
static int sampler_settle(struct sampler *sampler)
{
    const struct sampler_point *point = &sampler->newest;
    int64_t bucket = (point->step - sampler->first_step) / sampler->width;
    int rc = bucket != sampler->bucket ? sampler_flush(sampler) : 0;
    if (rc == 0 && !sampler->kept_any)
        rc = sampler_keep(sampler, point);
    sampler->bucket = bucket;
    if (!isfinite(point->value)) {
        if (!sampler->has_strange)
            sampler->strange = *point;
        sampler->has_strange = true;
        return rc;
    }
    if (!sampler->has_finite || point->value < sampler->low.value)
        sampler->low = *point;
    if (!sampler->has_finite || point->value > sampler->high.value)
        sampler->high = *point;
    sampler->has_finite = true;
    return rc;
}

int sampler_add(struct sampler *sampler, const struct sampler_point *point)
{
    must(!sampler->begun || point->step >= sampler->newest.step);
    int rc = 0;
    if (sampler->begun && point->step > sampler->newest.step)
        rc = sampler_settle(sampler);
    sampler->begun = true;
    sampler->newest = *point;
    return rc;
}

int sampler_end(struct sampler *sampler)
{
    if (!sampler->begun)
        return 0;
    int rc = sampler_settle(sampler);
    if (rc == 0)
        rc = sampler_flush(sampler);
    return rc != 0 ? rc : sampler_keep(sampler, &sampler->newest);
}

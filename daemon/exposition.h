/* exposition: metrics as Prometheus reads them, in its text format 0.0.4 or as OpenMetrics 1.0.0
 * (https://prometheus.io/docs/instrumenting/exposition_formats). Samples of a
 * family follow it at once; names and labels are our own, label values are escaped.
 *
 *     exposition_family(out, "ithaca_jobs", "gauge", "Jobs by state");
 *     exposition_sample(out, "ithaca_jobs", 3, "state", "running", NULL);
 *     exposition_end(out);
 *
 * A counter's family is named without its "_total", which is put where the format wants it. */
#pragma once
#include "common/buf.h"

#include <stdbool.h>
#include <stdint.h>

struct exposition {
    struct buf *text;
    bool openmetrics;
};

void exposition_family(const struct exposition *out, const char *name, const char *type,
                       const char *help);
/* Then pairs of label and value, both strings, and NULL. */
void exposition_sample(const struct exposition *out, const char *name, double value, ...)
    __attribute__((sentinel));
void exposition_end(const struct exposition *out);

/* Durations in buckets of 1 ms to 60 s. */
enum { EXPOSITION_BUCKETS = 12 };
struct exposition_histogram {
    int64_t counts[EXPOSITION_BUCKETS + 1]; /* the last: above all bounds */
    int64_t count;
    double sum_s;
};
void exposition_observe(struct exposition_histogram *histogram, double seconds);
/* One label. */
void exposition_print_histogram(const struct exposition *out, const char *name,
                                const struct exposition_histogram *histogram, const char *label,
                                const char *value);

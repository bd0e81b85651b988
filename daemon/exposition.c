/* exposition: a line a sample. */
#include "daemon/exposition.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const double exposition_bounds[EXPOSITION_BUCKETS] = {
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5, 30, 60};

void exposition_family(const struct exposition *out, const char *name, const char *type,
                       const char *help)
{
    /* In the older format a counter's family has the name of its samples. */
    const char *total = strcmp(type, "counter") == 0 && !out->openmetrics ? "_total" : "";
    buf_printf(out->text, "# HELP %s%s %s\n# TYPE %s%s %s\n", name, total, help, name, total, type);
}

static void exposition_value(struct buf *text, double value)
{
    if (isnan(value))
        buf_text(text, " NaN\n");
    else if (isinf(value))
        buf_text(text, value > 0 ? " +Inf\n" : " -Inf\n");
    else
        buf_printf(text, " %.17g\n", value);
}

static void exposition_label(struct buf *text, char before, const char *label, const char *value)
{
    buf_printf(text, "%c%s=\"", before, label);
    for (const char *c = value; *c != '\0'; c++) {
        if (*c == '\\' || *c == '"')
            buf_char(text, '\\');
        if (*c == '\n')
            buf_text(text, "\\n");
        else
            buf_char(text, *c);
    }
    buf_char(text, '"');
}

void exposition_sample(const struct exposition *out, const char *name, double value, ...)
{
    va_list args;
    char before = '{';
    const char *label;
    buf_text(out->text, name);
    va_start(args, value);
    while ((label = va_arg(args, const char *)) != NULL) {
        exposition_label(out->text, before, label, va_arg(args, const char *));
        before = ',';
    }
    va_end(args);
    if (before == ',')
        buf_char(out->text, '}');
    exposition_value(out->text, value);
}

void exposition_end(const struct exposition *out)
{
    if (out->openmetrics)
        buf_text(out->text, "# EOF\n");
}

void exposition_observe(struct exposition_histogram *histogram, double seconds)
{
    int bucket = 0;
    while (bucket < EXPOSITION_BUCKETS && seconds > exposition_bounds[bucket])
        bucket++;
    histogram->counts[bucket]++;
    histogram->count++;
    histogram->sum_s += seconds;
}

void exposition_print_histogram(const struct exposition *out, const char *name,
                                const struct exposition_histogram *histogram, const char *label,
                                const char *value)
{
    char full[96], bound[32];
    int64_t below = 0;
    (void)snprintf(full, sizeof full, "%s_bucket", name);
    for (int i = 0; i < EXPOSITION_BUCKETS; i++) {
        below += histogram->counts[i];
        (void)snprintf(bound, sizeof bound, "%g", exposition_bounds[i]);
        exposition_sample(out, full, (double)below, label, value, "le", bound, NULL);
    }
    exposition_sample(out, full, (double)histogram->count, label, value, "le", "+Inf", NULL);
    (void)snprintf(full, sizeof full, "%s_count", name);
    exposition_sample(out, full, (double)histogram->count, label, value, NULL);
    (void)snprintf(full, sizeof full, "%s_sum", name);
    exposition_sample(out, full, histogram->sum_s, label, value, NULL);
}

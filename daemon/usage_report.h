/* usage_report: hours that attempts held GPUs and CPU slots, added up by user, job, day, model or
 * state. Pure: attempts go in, sums come out.
 *
 *     struct usage_report report;
 *     usage_report_init(&report, USAGE_BY_user, after_ms, before_ms);
 *     usage_report_add(&report, &held, &err);      in the order of store_attempts_held()
 *     usage_report_sort(&report);
 *     usage_report_done(&report);
 *
 * Of an attempt counts what lies in the window. Where it went is a guess of equal steps: those that
 * were lost are its last ones. Days are those of the machine's time zone. */
#pragma once
#include "common/buf.h"
#include "common/json.h"
#include "daemon/store_attempts.h"

/* What a row is about. */
#define USAGE_BY(X) \
    X(user)         \
    X(job)          \
    X(day)          \
    X(model)        \
    X(state)
enum usage_by {
#define X(id) USAGE_BY_##id,
    USAGE_BY(X)
#undef X
        USAGE_BY_COUNT
};

enum { USAGE_SUMS_MAX = 100000 }; /* jobs of a report, some 500 bytes each */

struct usage_sum {
    char *key;   /* owned, like these */
    char *user;  /* of a job; NULL: it is of several */
    char *model; /* likewise */
    char *job;   /* the last one that was counted */
#define X(name, kind, label, doc) double name;
#include "api/usage_columns.def"
#undef X
};

struct usage_report {
    enum usage_by by;
    int64_t after_ms, before_ms; /* the window */
    struct usage_sum *sums;      /* (count), by key until they are sorted, owned */
    size_t count, capacity;
    struct usage_sum total; /* its key is NULL */
};

const char *usage_by_name(enum usage_by by);
/* USAGE_BY_COUNT: there is no such name. */
enum usage_by usage_by_parse(const char *name);
void usage_report_init(struct usage_report *ret, enum usage_by by, int64_t after_ms,
                       int64_t before_ms);
void usage_report_done(struct usage_report *report);
/* ERR_INVALID_VALUE beyond USAGE_SUMS_MAX: the window is too wide. */
int usage_report_add(struct usage_report *report, const struct store_held *held, struct err *err);
/* Most hours first; days by date. */
void usage_report_sort(struct usage_report *report);
/* New reference: a row of the answer; of the total, key is null. */
json_t *usage_report_row(const struct usage_sum *sum);
/* The first `limit` rows as CSV, with a line of names. */
void usage_report_csv(const struct usage_report *report, int64_t limit, struct buf *out);

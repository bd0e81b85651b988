/* usage_report: an attempt is an interval; what of it lies in the window, and in each day of it, is
 * a cut of intervals. Sums lie in the order of their keys and are found by halving; jobs come in
 * that order, so that theirs are put at the end. */
#include "daemon/usage_report.h"

#include "common/clock.h"
#include "common/csv.h"
#include "common/mem.h"
#include "common/must.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define USAGE_HOUR_MS 3600000.0

enum usage_kind { USAGE_WHOLE, USAGE_NUMBER };

static const struct usage_column {
    const char *name;
    enum usage_kind kind;
    size_t offset; /* of a double, in struct usage_sum */
} usage_columns[] = {
#define X(column, of_kind, label, doc) \
    {.name = #column, .kind = USAGE_##of_kind, .offset = offsetof(struct usage_sum, column)},
#include "api/usage_columns.def"
#undef X
};
enum { USAGE_COLUMNS = sizeof usage_columns / sizeof usage_columns[0] };

static double usage_value(const struct usage_sum *sum, int column)
{
    double value = 0;
    memcpy(&value, (const char *)sum + usage_columns[column].offset, sizeof value);
    return value;
}

const char *usage_by_name(enum usage_by by)
{
    static const char *const names[] = {
#define X(id) #id,
        USAGE_BY(X)
#undef X
    };
    must(by < USAGE_BY_COUNT);
    return names[by];
}

enum usage_by usage_by_parse(const char *name)
{
    int by = 0;
    while (by < USAGE_BY_COUNT && strcmp(usage_by_name((enum usage_by)by), name) != 0)
        by++;
    return (enum usage_by)by;
}

void usage_report_init(struct usage_report *ret, enum usage_by by, int64_t after_ms,
                       int64_t before_ms)
{
    must(by < USAGE_BY_COUNT && after_ms < before_ms);
    *ret = (struct usage_report){.by = by, .after_ms = after_ms, .before_ms = before_ms};
}

static void usage_sum_done(struct usage_sum *sum)
{
    mem_free(sum->key);
    mem_free(sum->user);
    mem_free(sum->model);
    mem_free(sum->job);
}

void usage_report_done(struct usage_report *report)
{
    for (size_t i = 0; i < report->count; i++)
        usage_sum_done(&report->sums[i]);
    usage_sum_done(&report->total);
    mem_free(report->sums);
    *report = (struct usage_report){.sums = NULL};
}

/* ---- sums ---------------------------------------------------------------------------------- */

static int usage_reserve(struct usage_report *report, struct err *err)
{
    if (report->count == USAGE_SUMS_MAX)
        return err_set_field(err, ERR_INVALID_VALUE, "after",
                             "there are more than %d rows: ask for less time (after, before), or "
                             "by user, day or model",
                             USAGE_SUMS_MAX);
    if (report->count < report->capacity)
        return 0;
    size_t capacity = report->capacity > 0 ? report->capacity * 2 : 64;
    struct usage_sum *grown = mem_grow(report->sums, capacity, sizeof *grown);
    if (grown == NULL)
        return mem_fail(err, capacity * sizeof *grown, "usage");
    report->sums = grown;
    report->capacity = capacity;
    return 0;
}

/* Where the sum of a key is, or is to be put. */
static size_t usage_place(const struct usage_report *report, const char *key)
{
    size_t low = 0, high = report->count;
    if (high > 0 && strcmp(key, report->sums[high - 1].key) > 0)
        return high; /* jobs */
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (strcmp(key, report->sums[middle].key) <= 0)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* The sum of a key, which is added when new. */
static int usage_find(struct usage_report *report, const struct store_held *held, const char *key,
                      struct usage_sum **ret, struct err *err)
{
    const size_t place = usage_place(report, key);
    if (place < report->count && strcmp(key, report->sums[place].key) == 0) {
        *ret = &report->sums[place];
        return 0;
    }
    TRY(usage_reserve(report, err));
    const bool of_job = report->by == USAGE_BY_job;
    struct usage_sum sum = {.key = mem_strdup(key),
                            .user = of_job ? mem_strdup(held->owner) : NULL,
                            .model = of_job ? mem_strdup(held->model) : NULL};
    if (sum.key == NULL || (of_job && (sum.user == NULL || sum.model == NULL))) {
        usage_sum_done(&sum);
        return mem_fail(err, strlen(key), "usage");
    }
    *ret = &report->sums[place];
    memmove(*ret + 1, *ret, (report->count - place) * sizeof **ret);
    **ret = sum;
    report->count++;
    return 0;
}

/* ---- attempts ------------------------------------------------------------------------------ */

/* Milliseconds that two intervals share. */
static double usage_shared_ms(double from, double to, int64_t after_ms, int64_t before_ms)
{
    double begin = fmax(from, (double)after_ms), end = fmin(to, (double)before_ms);
    return end > begin ? end - begin : 0;
}

/* Steps of an attempt that a later one trained again. */
static int64_t usage_repeated(const struct store_held *held)
{
    if (held->kept_step < 0 || held->kept_step >= held->step)
        return 0;
    return held->step - (held->kept_step > held->from_step ? held->kept_step : held->from_step);
}

/* The share of its time that nothing came of. */
static double usage_lost(const struct store_held *held)
{
    const bool well = held->outcome[0] == '\0' || strcmp(held->outcome, "ok") == 0 ||
                      strcmp(held->outcome, "paused") == 0 ||
                      strcmp(held->outcome, err_code_name(ERR_CANCELLED)) == 0;
    if (held->step > held->from_step)
        return (double)usage_repeated(held) / (double)(held->step - held->from_step);
    return held->step >= 0 && !well ? 1 : 0;
}

/* What of an attempt lies between two times; it held something then. */
static int usage_count(struct usage_sum *sum, const struct store_held *held, int64_t after_ms,
                       int64_t before_ms, struct err *err)
{
    const double start = (double)held->started_ms, all_ms = (double)held->ended_ms - start;
    const double end = (double)held->ended_ms, lost_ms = all_ms * usage_lost(held);
    const double held_ms = usage_shared_ms(start, end, after_ms, before_ms);
    const double slots = (double)held->slots / USAGE_HOUR_MS;
    const double lost = usage_shared_ms(end - lost_ms, end, after_ms, before_ms);
    if (held->has_gpus) {
        sum->gpu_hours += slots * held_ms;
        sum->lost_gpu_hours += slots * lost;
    } else {
        sum->cpu_slot_hours += slots * held_ms;
        sum->lost_cpu_slot_hours += slots * lost;
    }
    sum->attempts++;
    sum->tokens += (double)held->tokens * (all_ms > 0 ? held_ms / all_ms : 1);
    sum->repeated_steps += (double)usage_repeated(held) * (lost_ms > 0 ? lost / lost_ms : 1);
    if (sum->job != NULL && strcmp(sum->job, held->job_id) == 0)
        return 0;
    sum->jobs++;
    mem_free(sum->job);
    sum->job = mem_strdup(held->job_id);
    return sum->job != NULL ? 0 : mem_fail(err, LIMIT_ID_BYTES, "usage");
}

static int usage_add_days(struct usage_report *report, const struct store_held *held,
                          int64_t from_ms, int64_t to_ms, struct err *err)
{
    char date[CLOCK_DATE_BYTES];
    int64_t next_ms = 0;
    do {
        struct usage_sum *sum = NULL;
        clock_day(from_ms, date, &next_ms);
        int64_t until_ms = next_ms < report->before_ms ? next_ms : report->before_ms;
        TRY(usage_find(report, held, date, &sum, err));
        TRY(usage_count(sum, held, from_ms, until_ms, err));
        from_ms = next_ms;
    } while (from_ms < to_ms);
    return 0;
}

int usage_report_add(struct usage_report *report, const struct store_held *given, struct err *err)
{
    struct store_held held = *given;
    if (held.ended_ms < held.started_ms) /* the clock was set back */
        held.ended_ms = held.started_ms;
    const int64_t from_ms = held.started_ms > report->after_ms ? held.started_ms : report->after_ms;
    const int64_t to_ms = held.ended_ms < report->before_ms ? held.ended_ms : report->before_ms;
    const bool at_once = held.ended_ms == held.started_ms && from_ms < report->before_ms;
    if (from_ms > to_ms || (from_ms == to_ms && !at_once))
        return 0;
    struct usage_sum *sum = NULL;
    TRY(usage_count(&report->total, &held, report->after_ms, report->before_ms, err));
    if (report->by == USAGE_BY_day)
        return usage_add_days(report, &held, from_ms, to_ms, err);
    const char *const keys[USAGE_BY_COUNT] = {[USAGE_BY_user] = held.owner,
                                              [USAGE_BY_job] = held.job_id,
                                              [USAGE_BY_model] = held.model,
                                              [USAGE_BY_state] = held.state};
    TRY(usage_find(report, &held, keys[report->by], &sum, err));
    return usage_count(sum, &held, report->after_ms, report->before_ms, err);
}

/* ---- answers ------------------------------------------------------------------------------- */

static int usage_by_hours(const void *a, const void *b)
{
    const struct usage_sum *left = a, *right = b;
    const double hours[2] = {left->gpu_hours + left->cpu_slot_hours,
                             right->gpu_hours + right->cpu_slot_hours};
    return hours[0] > hours[1] ? -1 : hours[0] < hours[1] ? 1 : strcmp(left->key, right->key);
}

void usage_report_sort(struct usage_report *report)
{
    if (report->by != USAGE_BY_day && report->count > 0)
        qsort(report->sums, report->count, sizeof report->sums[0], usage_by_hours);
}

json_t *usage_report_row(const struct usage_sum *sum)
{
    json_t *row =
        json_pack("{s:s?, s:s?, s:s?}", "key", sum->key, "user", sum->user, "model", sum->model);
    for (int i = 0; i < USAGE_COLUMNS; i++) {
        double value = usage_value(sum, i);
        (void)json_object_set_new(row, usage_columns[i].name,
                                  usage_columns[i].kind == USAGE_WHOLE
                                      ? json_integer(llround(value))
                                      : json_real(round(value * 1e6) / 1e6));
    }
    return row;
}

void usage_report_csv(const struct usage_report *report, int64_t limit, struct buf *out)
{
    buf_text(out, "key,user,model");
    for (int i = 0; i < USAGE_COLUMNS; i++)
        buf_printf(out, ",%s", usage_columns[i].name);
    buf_text(out, "\r\n");
    for (size_t row = 0; row < report->count && (int64_t)row < limit; row++) {
        const struct usage_sum *sum = &report->sums[row];
        const char *const texts[] = {sum->key, sum->user, sum->model};
        for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
            if (i > 0)
                buf_char(out, ',');
            csv_put(texts[i] != NULL ? texts[i] : "", out);
        }
        for (int i = 0; i < USAGE_COLUMNS; i++)
            buf_printf(out, usage_columns[i].kind == USAGE_WHOLE ? ",%.0f" : ",%.6f",
                       usage_value(sum, i));
        buf_text(out, "\r\n");
    }
}

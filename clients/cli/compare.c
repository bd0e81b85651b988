/* compare: settings are a job's fields by their dotted paths, so that what differs is one key of
 * two flat objects. */
#include "clients/cli/compare.h"

#include "common/limits.h"
#include "common/median.h"
#include "common/mem.h"
#include "common/metric.h"
#include "common/must.h"

#include <math.h>
#include <string.h>

/* ---- settings ---- */

/* Leaves of an object, nested ones by their path, into a flat one. */
static int compare_flatten(const json_t *object, const char *prefix, json_t *flat, struct err *err)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value)
    {
        CLEANUP(mem_free_ptr)
        char *path = mem_printf("%s%s%s", prefix, prefix[0] != '\0' ? "." : "", key);
        if (path == NULL)
            return mem_fail(err, LIMIT_NAME_BYTES, "a field's name");
        if (json_is_object(value))
            TRY(compare_flatten(value, path, flat, err));
        else if (json_object_set(flat, path, value) != 0)
            return mem_fail(err, LIMIT_NAME_BYTES, "a field");
    }
    return 0;
}

/* New reference. */
static int compare_settings(const json_t *job, json_t **ret, struct err *err)
{
    static const char *const plain[] = {"model", "training_file", "validation_file", "seed"};
    CLEANUP(json_unref) json_t *flat = json_object();
    for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++) {
        json_t *value = json_object_get(job, plain[i]);
        if (value != NULL && json_object_set(flat, plain[i], value) != 0)
            return mem_fail(err, LIMIT_NAME_BYTES, "a field");
    }
    const json_t *ithaca = json_object_get(job, "ithaca");
    TRY(compare_flatten(json_object_get(ithaca, "spec"), "", flat, err));
    *ret = json_incref(flat);
    return 0;
}

/* A field that a job does not have is null in it: `lora` is, where another has lora.r. */
static bool compare_differs(const json_t *jobs, const char *path)
{
    size_t i;
    const json_t *job, *first = NULL;
    json_array_foreach(jobs, i, job)
    {
        const json_t *value = json_object_get(json_object_get(job, "settings"), path);
        bool absent = value == NULL || json_is_null(value);
        bool absent_first = first == NULL || json_is_null(first);
        if (i == 0)
            first = value;
        else if (absent != absent_first || (!absent && !json_equal(value, first)))
            return true;
    }
    return false;
}

static bool compare_is_listed(const json_t *list, const char *text)
{
    size_t i;
    const json_t *one;
    json_array_foreach(list, i, one)
    {
        if (strcmp(json_string_value(one), text) == 0)
            return true;
    }
    return false;
}

/* Paths that differ, in the order of the fields. */
static int compare_list(const json_t *jobs, json_t *ret_paths, struct err *err)
{
    size_t i;
    const json_t *job;
    json_array_foreach(jobs, i, job)
    {
        const char *path;
        const json_t *value;
        json_object_foreach(json_object_get(job, "settings"), path, value)
        {
            if (!compare_differs(jobs, path) || compare_is_listed(ret_paths, path))
                continue;
            if (json_array_append_new(ret_paths, json_string(path)) != 0)
                return mem_fail(err, LIMIT_NAME_BYTES, "a field's name");
        }
    }
    return 0;
}

/* Leaves out settings that all have alike. */
static int compare_keep(const json_t *jobs, const json_t *paths, struct err *err)
{
    size_t i, p;
    json_t *job;
    const json_t *path;
    json_array_foreach(jobs, i, job)
    {
        CLEANUP(json_unref) json_t *kept = json_object();
        const json_t *all = json_object_get(job, "settings");
        json_array_foreach(paths, p, path)
        {
            const char *key = json_string_value(path);
            json_t *value = json_object_get(all, key);
            int bad = value != NULL ? json_object_set(kept, key, value)
                                    : json_object_set_new(kept, key, json_null());
            if (bad != 0)
                return mem_fail(err, LIMIT_NAME_BYTES, "a field");
        }
        if (json_object_set(job, "settings", kept) != 0)
            return mem_fail(err, LIMIT_NAME_BYTES, "settings");
    }
    return 0;
}

/* ---- results ---- */

/* The series of a metric, the newest attempt's values where several have a step; NULL: none. */
static const json_t *compare_points(const json_t *answer, const char *metric)
{
    size_t i;
    const json_t *series;
    json_array_foreach(json_object_get(answer, "data"), i, series)
    {
        const char *key = json_string_value(json_object_get(series, "key"));
        if (key != NULL && strcmp(key, metric) == 0)
            return json_object_get(series, "points");
    }
    return NULL;
}

struct compare_summary {
    double last, low, high, median; /* NaN: there is none */
    int64_t low_step, high_step;
};

static int compare_summarise(const json_t *metrics, const char *metric, struct compare_summary *ret,
                             struct err *err)
{
    size_t i, count = 0;
    const json_t *point, *points = compare_points(metrics, metric);
    *ret = (struct compare_summary){.last = NAN, .low = NAN, .high = NAN, .median = NAN};
    CLEANUP(mem_free_ptr) double *values = mem_new(json_array_size(points) + 1, sizeof *values);
    if (values == NULL)
        return mem_fail(err, json_array_size(points) * sizeof *values, "points");
    json_array_foreach(points, i, point)
    {
        const json_t *value = json_array_get(point, 1);
        const int64_t step = json_integer_value(json_array_get(point, 0));
        if (!json_is_number(value))
            continue;
        ret->last = values[count++] = json_number_value(value);
        if (!(ret->last >= ret->low)) { /* the first, too */
            ret->low = ret->last;
            ret->low_step = step;
        }
        if (!(ret->last <= ret->high)) {
            ret->high = ret->last;
            ret->high_step = step;
        }
    }
    if (count > 0)
        ret->median = median_sort(values, count);
    if (count > 0 && count % 2 == 0)
        ret->median = (values[count / 2 - 1] + ret->median) / 2;
    return 0;
}

static bool compare_wants_high(const char *metric)
{
    const char *unit = metric_unit(metric_parse(metric));
    return strcmp(unit, "ratio") == 0 || strcmp(unit, "tokens/s") == 0;
}

/* The highest value of any rank. */
static json_t *compare_peak(const json_t *memory)
{
    double most = NAN;
    size_t i, p;
    const json_t *series, *point;
    json_array_foreach(json_object_get(memory, "data"), i, series)
    {
        const char *key = json_string_value(json_object_get(series, "key"));
        if (key == NULL || strcmp(key, "arena_peak_bytes") != 0)
            continue;
        json_array_foreach(json_object_get(series, "points"), p, point)
        {
            const json_t *value = json_array_get(point, 1);
            if (json_is_number(value))
                most = fmax(most, json_number_value(value)); /* fmax passes a NaN over */
        }
    }
    return isnan(most) ? json_null() : json_integer((json_int_t)most);
}

static json_t *compare_time(const json_t *job, int64_t now_s)
{
    const json_t *begun = json_object_get(json_object_get(job, "ithaca"), "started_at");
    const json_t *ended = json_object_get(job, "finished_at");
    if (!json_is_integer(begun))
        return json_null();
    return json_integer((json_is_integer(ended) ? json_integer_value(ended) : now_s) -
                        json_integer_value(begun));
}

static int compare_results(const struct compare_answers *answers, const char *metric, int64_t now_s,
                           json_t **ret, struct err *err)
{
    const json_t *ithaca = json_object_get(answers->job, "ithaca");
    const json_t *planned = json_object_get(answers->memory, "planned");
    struct compare_summary asked, valid, speed, mfu, step;
    const bool high = compare_wants_high(metric);
    TRY(compare_summarise(answers->metrics, metric, &asked, err));
    TRY(compare_summarise(answers->metrics, "valid_loss", &valid, err));
    TRY(compare_summarise(answers->metrics, "tokens_per_s", &speed, err));
    TRY(compare_summarise(answers->metrics, "mfu_causal", &mfu, err));
    TRY(compare_summarise(answers->metrics, "step_time_s", &step, err));
    *ret = json_pack(
        "{s:O?, s:O?, s:O?, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:O?, s:o}", "state",
        json_object_get(ithaca, "state"), "steps_done", json_object_get(ithaca, "steps_done"),
        "steps_total", json_object_get(ithaca, "steps_total"), "last", json_number(asked.last),
        "best", json_number(high ? asked.high : asked.low), "best_step",
        isnan(asked.last) ? json_null() : json_integer(high ? asked.high_step : asked.low_step),
        "valid_loss", json_number(valid.low), "tokens_per_s", json_number(speed.median),
        "mfu_causal", json_number(mfu.median), "step_time_s", json_number(step.median),
        "peak_bytes", compare_peak(answers->memory), "planned_bytes",
        json_object_get(planned, "peak_device_bytes"), "time_s", compare_time(answers->job, now_s));
    return *ret != NULL ? 0 : mem_fail(err, 0, "results");
}

/* ---- the whole ---- */

static int compare_job(const struct compare_answers *answers, const char *metric, int64_t now_s,
                       json_t *ret_jobs, struct err *err)
{
    CLEANUP(json_unref) json_t *settings = NULL;
    CLEANUP(json_unref) json_t *results = NULL;
    TRY(compare_settings(answers->job, &settings, err));
    TRY(compare_results(answers, metric, now_s, &results, err));
    const json_t *points = compare_points(answers->metrics, metric);
    json_t *job = json_pack("{s:O?, s:O, s:O, s:o}", "id", json_object_get(answers->job, "id"),
                            "settings", settings, "results", results, "points",
                            points != NULL ? json_incref((json_t *)points) : json_array());
    return json_array_append_new(ret_jobs, job) == 0 ? 0 : mem_fail(err, 0, "a job");
}

int compare_make(const struct compare_answers *jobs, size_t count, const char *metric,
                 int64_t now_s, json_t **ret, struct err *err)
{
    must(count <= COMPARE_JOBS_MAX && metric_parse(metric) != METRIC_COUNT);
    CLEANUP(json_unref) json_t *list = json_array();
    CLEANUP(json_unref) json_t *paths = json_array();
    for (size_t i = 0; i < count; i++)
        TRY(compare_job(&jobs[i], metric, now_s, list, err));
    TRY(compare_list(list, paths, err));
    TRY(compare_keep(list, paths, err));
    *ret = json_pack("{s:s, s:s, s:O, s:O}", "object", "comparison", "metric", metric, "settings",
                     paths, "jobs", list);
    return *ret != NULL ? 0 : mem_fail(err, 0, "a comparison");
}

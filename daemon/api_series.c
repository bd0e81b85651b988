/* api_series: a walk over (metric, rank), series by series, a page of points a turn. */
#include "daemon/api_series.h"

#include "common/job_spec.h"
#include "common/mem.h"
#include "daemon/api_turns.h"
#include "daemon/http.h"
#include "daemon/sampler.h"

#include <stdio.h>
#include <string.h>

enum { SERIES_MEMORY_POINTS = 200 }; /* of a series of memory, where max_points says nothing */

static const bool series_of_ranks[METRIC_COUNT] = {
#define JOB 0
#define RANK 1
#define X(id, name, unit, scope, label, doc) [METRIC_##id] = scope,
#include "api/metrics.def"
#undef X
#undef JOB
#undef RANK
};

struct series_walk {
    struct api *api;
    struct api_turns turns;
    char job_id[LIMIT_ID_BYTES + 1];
    struct store_point_query wanted; /* job_id is the one above */
    int64_t rank;                    /* wanted, or -1: all */
    int64_t ranks;                   /* of the job */
    int64_t points_max;              /* of a series */
    int metric;                      /* under way; METRIC_COUNT: done */
    struct store_series_query query; /* the next page */
    bool open;                       /* sampler and query are of a series */
    struct sampler sampler;
    json_t *data;        /* series */
    size_t first_series; /* of them, of the metric and rank under way */
    json_t *memory;      /* the rest of an answer about memory, or NULL */
};

static void series_walk_end(void *context)
{
    struct series_walk *walk = context;
    api_turns_done(&walk->turns);
    json_decref(walk->data);
    json_decref(walk->memory);
    mem_free(walk);
}

/* ---- points ---- */

json_t *api_series_json(enum metric_id metric, int64_t attempt, int64_t rank)
{
    return json_pack("{s:s, s:s, s:I, s:I, s:[]}", "key", metric_name(metric), "unit",
                     metric_unit(metric), "attempt", (json_int_t)attempt, "rank", (json_int_t)rank,
                     "points");
}

int api_series_put(json_t *series, int64_t step, double value, double wall_s, struct err *err)
{
    json_t *point =
        json_pack("[I, o, o]", (json_int_t)step, json_number(value), json_number(wall_s));
    return json_array_append_new(json_object_get(series, "points"), point) == 0
               ? 0
               : mem_fail(err, 0, "a series");
}

enum { SERIES_NO_MEMORY = 1 }; /* ends a sampling */

/* The series of a point's attempt, borrowed: among the newest, which are of the same metric and
 * rank. NULL when out of memory. */
static json_t *series_of(struct series_walk *walk, int64_t attempt)
{
    for (size_t i = json_array_size(walk->data); i > walk->first_series; i--) {
        json_t *series = json_array_get(walk->data, i - 1);
        if (json_integer_value(json_object_get(series, "attempt")) == attempt)
            return series;
    }
    json_t *series = api_series_json(walk->query.metric, attempt, walk->query.rank);
    return json_array_append_new(walk->data, series) == 0 ? series : NULL;
}

static int series_keep(void *context, const struct sampler_point *point)
{
    json_t *series = series_of(context, point->attempt);
    struct err full; /* said by who adds points */
    return api_series_put(series, point->step, point->value, point->wall_s, &full) != 0
               ? SERIES_NO_MEMORY
               : 0;
}

static int series_add(void *context, const struct store_point *point, struct err *err)
{
    struct series_walk *walk = context;
    const struct sampler_point taken = {.step = point->step,
                                        .attempt = point->attempt,
                                        .value = point->value,
                                        .wall_s = point->wall_s};
    walk->query.after_step = point->step;
    walk->query.after_attempt = point->attempt;
    return sampler_add(&walk->sampler, &taken) == 0 ? 0 : mem_fail(err, 0, "a series");
}

/* ---- the walk ---- */

/* Opens the series of (metric, rank) where it has points. */
static int series_open(struct series_walk *walk, struct err *err)
{
    int64_t last = 0;
    walk->query.metric = (enum metric_id)walk->metric;
    walk->query.attempt = walk->wanted.attempt;
    walk->query.after_step = walk->wanted.from_step - 1;
    walk->query.after_attempt = INT64_MAX;
    walk->query.limit = LIMIT_PAGE_ROWS;
    walk->first_series = json_array_size(walk->data);
    int rc = store_series_last(walk->api->store, &walk->query, &last, NULL, err);
    if (rc == -ERR_NOT_FOUND)
        return 0;
    TRY(rc);
    walk->open = true;
    sampler_begin(&walk->sampler, walk->wanted.from_step, last, walk->points_max, series_keep,
                  walk);
    return 0;
}

/* To the next (metric, rank) that is wanted. */
static void series_next(struct series_walk *walk)
{
    bool wanted =
        walk->metric >= 0 && (walk->wanted.all_metrics || walk->wanted.metrics[walk->metric]);
    int64_t end = wanted && series_of_ranks[walk->metric] ? walk->ranks : 1;
    if (walk->rank >= 0)
        end = walk->rank + 1;
    if (wanted && ++walk->query.rank < end)
        return;
    walk->query.rank = walk->rank >= 0 ? walk->rank : 0;
    do
        walk->metric++;
    while (walk->metric < METRIC_COUNT && !walk->wanted.all_metrics &&
           !walk->wanted.metrics[walk->metric]);
}

static int series_step(struct series_walk *walk, struct err *err)
{
    if (!walk->open) {
        series_next(walk);
        return walk->metric < METRIC_COUNT ? series_open(walk, err) : 0;
    }
    bool more = false;
    const struct store_series_query page = walk->query;
    TRY(store_series_list(walk->api->store, &page, series_add, walk, &more, err));
    walk->open = more;
    if (!more && sampler_end(&walk->sampler) != 0)
        return mem_fail(err, 0, "a series");
    return 0;
}

static void series_finish(struct series_walk *walk)
{
    if (walk->memory != NULL) {
        bool whole = json_object_set(walk->memory, "data", walk->data) == 0;
        http_answer_json(walk->turns.request, 200, whole ? json_incref(walk->memory) : NULL);
        return;
    }
    http_answer_json(walk->turns.request, 200,
                     json_pack("{s:s, s:s, s:O, s:i, s:b}", "object", "fine_tuning.job.metrics",
                               "job_id", walk->job_id, "data", walk->data, "after", 0, "has_more",
                               0));
}

static int series_turn(void *context, bool *ret_done, struct err *err)
{
    struct series_walk *walk = context;
    TRY(series_step(walk, err));
    /* Series without points cost an index look-up: they need no turn each. */
    for (int i = 0; !walk->open && walk->metric < METRIC_COUNT && i < 64; i++)
        TRY(series_step(walk, err));
    *ret_done = walk->metric >= METRIC_COUNT;
    if (*ret_done)
        series_finish(walk);
    return 0;
}

static int series_take_ranks(void *ret_ranks, const struct store_job *job, struct err *err)
{
    (void)err;
    *(int64_t *)ret_ranks = job->ranks;
    return 0;
}

/* Takes memory over (may be NULL). */
static int series_start(struct api *api, struct http_request *request,
                        const struct store_point_query *wanted, int64_t rank, int64_t points_max,
                        json_t *memory, struct err *err)
{
    struct series_walk *walk = mem_new(1, sizeof *walk);
    if (walk == NULL) {
        json_decref(memory);
        return mem_fail(err, sizeof *walk, "series");
    }
    *walk = (struct series_walk){
        .api = api,
        .turns = {.request = request, .turn = series_turn, .only_answers = true, .context = walk},
        .wanted = *wanted,
        .rank = rank,
        .points_max = points_max,
        .metric = -1,
        .data = json_array(),
        .memory = memory};
    (void)snprintf(walk->job_id, sizeof walk->job_id, "%.*s", LIMIT_ID_BYTES, wanted->job_id);
    walk->wanted.job_id = walk->query.job_id = walk->job_id;
    http_request_on_end(request, series_walk_end, walk);
    if (walk->data == NULL)
        return mem_fail(err, 0, "series");
    TRY(store_job_get(api->store, walk->job_id, series_take_ranks, &walk->ranks, err));
    return api_turns_start(&walk->turns, api->loop, err);
}

int api_series_answer(struct api *api, struct http_request *request,
                      const struct store_point_query *wanted, int64_t rank, int64_t points_max,
                      struct err *err)
{
    return series_start(api, request, wanted, rank, points_max, NULL, err);
}

/* ---- memory ---- */

struct series_job {
    struct api *api;
    json_t *planned; /* the memory plan of its settings, or NULL */
};

/* What the job's resolved settings take by the plan. */
static int series_plan(struct series_job *planned, const struct store_job *job, struct err *err)
{
    CLEANUP(json_unref) json_t *body = NULL;
    CLEANUP(job_spec_done) struct job_spec spec = {.metadata = NULL};
    TRY(json_parse(job->spec_json, strlen(job->spec_json), job->id, &body, err));
    TRY(job_spec_parse_legal(body, &spec, err));
    return api_estimate_memory_json(planned->api, job->model_dir, &spec, &planned->planned, err);
}

/* null, for one that cannot be planned: its model is gone, say. */
static int series_plan_or_null(void *context, const struct store_job *job, struct err *err)
{
    struct series_job *planned = context;
    int rc = series_plan(planned, job, err);
    if (rc == -ERR_NOMEM)
        return rc;
    if (rc != 0)
        planned->planned = json_null();
    return 0;
}

int api_series_memory(struct api *api, struct http_request *request, struct err *err)
{
    const char *query = http_request_route(request)->query;
    const char *id = http_request_route(request)->name;
    struct store_point_query wanted = {.job_id = id};
    int64_t points_max = SERIES_MEMORY_POINTS;
    int64_t rank = -1;
    static const enum metric_id metrics[] = {METRIC_ARENA_BYTES, METRIC_ARENA_PEAK_BYTES,
                                             METRIC_HOST_ARENA_BYTES, METRIC_DEVICE_BYTES,
                                             METRIC_HOST_BYTES};
    for (size_t i = 0; i < sizeof metrics / sizeof metrics[0]; i++)
        wanted.metrics[metrics[i]] = true;
    for (int peak = METRIC_PEAK_STATES_BYTES; peak <= (int)METRIC_PEAK_COMMUNICATION_BYTES; peak++)
        wanted.metrics[peak] = true;
    TRY(route_query_int(query, "from_step", 0, INT64_MAX, &wanted.from_step, err));
    TRY(route_query_int(query, "attempt", 1, INT32_MAX, &wanted.attempt, err));
    TRY(route_query_int(query, "rank", 0, LIMIT_RANKS - 1, &rank, err));
    TRY(route_query_int(query, "max_points", SAMPLER_POINTS_MIN, LIMIT_PAGE_ROWS, &points_max,
                        err));
    struct series_job job = {.api = api};
    TRY(store_job_get(api->store, id, series_plan_or_null, &job, err));
    json_t *memory = json_pack("{s:s, s:s, s:o}", "object", "fine_tuning.job.memory", "job_id", id,
                               "planned", job.planned);
    if (memory == NULL) /* else it would be an answer about metrics */
        return mem_fail(err, 0, "an answer about memory");
    return series_start(api, request, &wanted, rank, points_max, memory, err);
}

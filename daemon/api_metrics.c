/* api_metrics: what a job has said: its events, its metric points as series, its ranks' output. */
#include "common/io.h"
#include "common/mem.h"
#include "common/utf8.h"
#include "daemon/api.h"
#include "daemon/api_series.h"
#include "daemon/http.h"
#include "daemon/sampler.h"
#include "daemon/settings.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { API_LOG_BYTES = 64 << 10 }; /* of a rank's output in one answer */

struct api_job_facts {
    int64_t ranks;
    int64_t attempt;
};

static int api_take_facts(void *context, const struct store_job *job, struct err *err)
{
    (void)err;
    *(struct api_job_facts *)context =
        (struct api_job_facts){.ranks = job->ranks, .attempt = job->attempt};
    return 0;
}

/* ---- events ---- */

struct api_events {
    const struct api *api;
    json_t *data;
};

static int api_events_append(void *context, const struct store_event *event, struct err *err)
{
    const struct api_events *events = context;
    json_t *json = api_jobs_event_json(events->api, event, err);
    if (json == NULL)
        return -(int)err->code;
    return json_array_append_new(events->data, json) == 0 ? 0
                                                          : mem_fail(err, 0, "a list of events");
}

int api_jobs_events(struct api *api, struct http_request *request, struct err *err)
{
    const char *id = http_request_route(request)->name;
    char after[LIMIT_ID_BYTES + 1];
    struct store_page page;
    struct api_job_facts facts;
    bool has_more = false;
    CLEANUP(json_unref) json_t *data = json_array();
    TRY(api_read_page(request, 20, after, sizeof after, &page, err));
    TRY(store_job_get(api->store, id, api_take_facts, &facts, err));
    struct api_events events = {.api = api, .data = data};
    TRY(store_events_list(api->store, id, &page, api_events_append, &events, &has_more, err));
    api_answer_list(request, data, has_more);
    return 0;
}

/* ---- metrics: {"data":[{"key","unit","attempt","rank","points":[[step, value, time],...]}]} ----
 */

struct api_series {
    json_t *by_name;  /* "loss 1 0" -> series, in the order they appear */
    int64_t rank;     /* wanted, or -1: all */
    int64_t last_row; /* of the page */
};

static int api_series_add(void *context, const struct store_point *point, struct err *err)
{
    struct api_series *series = context;
    series->last_row = point->row;
    if (series->rank >= 0 && point->rank != series->rank)
        return 0;
    char name[96];
    (void)snprintf(name, sizeof name, "%s %lld %lld", metric_name(point->metric),
                   (long long)point->attempt, (long long)point->rank);
    json_t *one = json_object_get(series->by_name, name);
    if (one == NULL) {
        one = api_series_json(point->metric, point->attempt, point->rank);
        if (json_object_set_new(series->by_name, name, one) != 0)
            return mem_fail(err, 0, "a series");
    }
    return api_series_put(one, point->step, point->value, point->wall_s, err);
}

/* keys=loss,tokens_per_s */
static int api_read_keys(const char *query, struct store_point_query *ret, struct err *err)
{
    char text[ROUTE_VALUE_BYTES + 1];
    bool found = false;
    TRY(route_query_text(query, "keys", text, &found, err));
    ret->all_metrics = !found;
    for (char *word = text; found && *word != '\0';) {
        size_t length = strcspn(word, ",");
        bool more = word[length] == ',';
        word[length] = '\0';
        enum metric_id metric = metric_parse(word);
        if (metric == METRIC_COUNT)
            return err_set_field(err, ERR_INVALID_VALUE, "keys",
                                 "there is no metric \"%s\"; without keys the answer has all that "
                                 "this job has",
                                 word);
        ret->metrics[metric] = true;
        word += length + more;
    }
    return 0;
}

int api_jobs_metrics(struct api *api, struct http_request *request, struct err *err)
{
    const char *query = http_request_route(request)->query;
    struct store_point_query wanted = {.job_id = http_request_route(request)->name,
                                       .limit = LIMIT_PAGE_ROWS};
    struct api_job_facts facts;
    struct api_series series = {.rank = -1};
    int64_t points_max = 0; /* all */
    bool has_more = false;
    TRY(api_read_keys(query, &wanted, err));
    TRY(route_query_int(query, "from_step", 0, INT64_MAX, &wanted.from_step, err));
    TRY(route_query_int(query, "attempt", 1, INT32_MAX, &wanted.attempt, err));
    TRY(route_query_int(query, "rank", 0, LIMIT_RANKS - 1, &series.rank, err));
    TRY(route_query_int(query, "after", 0, INT64_MAX, &wanted.after_row, err));
    TRY(route_query_int(query, "limit", 1, LIMIT_PAGE_ROWS, &wanted.limit, err));
    TRY(route_query_int(query, "max_points", SAMPLER_POINTS_MIN, LIMIT_PAGE_ROWS, &points_max,
                        err));
    TRY(store_job_get(api->store, wanted.job_id, api_take_facts, &facts, err));
    if (points_max > 0)
        return api_series_answer(api, request, &wanted, series.rank, points_max, err);
    CLEANUP(json_unref) json_t *by_name = json_object();
    CLEANUP(json_unref) json_t *data = json_array();
    series.by_name = by_name;
    series.last_row = wanted.after_row;
    TRY(store_points_list(api->store, &wanted, api_series_add, &series, &has_more, err));
    const char *name;
    json_t *one;
    json_object_foreach(by_name, name, one)
    {
        if (json_array_append(data, one) != 0)
            return mem_fail(err, 0, "a list of series");
    }
    http_answer_json(request, 200,
                     json_pack("{s:s, s:s, s:O, s:I, s:b}", "object", "fine_tuning.job.metrics",
                               "job_id", wanted.job_id, "data", data, "after",
                               (json_int_t)series.last_row, "has_more", has_more));
    return 0;
}

/* ---- logs ---- */

/* At most API_LOG_BYTES of a file from *start (negative: its end) into text, NULs as spaces. An
 * absent file is empty: the rank has said nothing yet. */
static int api_read_log(const char *path, int64_t *start, int64_t *ret_bytes, char *text,
                        struct err *err)
{
    struct stat info;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    text[0] = '\0';
    *ret_bytes = 0;
    if (fd < 0 || fstat(fd, &info) != 0) {
        int errnum = errno;
        if (fd >= 0)
            (void)close(fd); /* only read from */
        *start = *start < 0 ? 0 : *start;
        return errnum == ENOENT ? 0 : err_set_errno(err, errnum, "the rank's output");
    }
    int64_t size = info.st_size;
    if (*start < 0)
        *start = size > API_LOG_BYTES ? size - API_LOG_BYTES : 0;
    int64_t left = size > *start ? size - *start : 0;
    size_t length = (size_t)(left < API_LOG_BYTES ? left : API_LOG_BYTES);
    int rc = length > 0 ? io_pread_full(fd, text, length, *start, err) : 0;
    (void)close(fd); /* only read from */
    TRY(rc);
    for (size_t i = 0; i < length; i++)
        if (text[i] == '\0')
            text[i] = ' ';
    text[length] = '\0';
    *ret_bytes = (int64_t)length;
    return 0;
}

int api_jobs_logs(struct api *api, struct http_request *request, struct err *err)
{
    const char *query = http_request_route(request)->query;
    const char *id = http_request_route(request)->name;
    struct api_job_facts facts;
    int64_t rank = 0;
    int64_t start = -1;
    int64_t bytes = 0;
    TRY(store_job_get(api->store, id, api_take_facts, &facts, err));
    int64_t attempt = facts.attempt;
    TRY(route_query_int(query, "rank", 0, facts.ranks - 1, &rank, err));
    TRY(route_query_int(query, "attempt", 1, attempt > 1 ? attempt : 1, &attempt, err));
    TRY(route_query_int(query, "after", 0, INT64_MAX, &start, err));
    CLEANUP(mem_free_ptr)
    char *path = mem_printf("%s/jobs/%s/attempt-%lld/rank-%lld.log", api->settings->data_dir, id,
                            (long long)attempt, (long long)rank);
    CLEANUP(mem_free_ptr) char *text = mem_new(API_LOG_BYTES + 1, 1);
    if (path == NULL || text == NULL)
        return mem_fail(err, API_LOG_BYTES, "a rank's output");
    TRY(api_read_log(path, &start, &bytes, text, err));
    utf8_scrub(text); /* a character cut by the page's edge becomes '?' */
    http_answer_json(request, 200,
                     json_pack("{s:s, s:s, s:I, s:I, s:s, s:I, s:I}", "object",
                               "fine_tuning.job.log", "job_id", id, "attempt", (json_int_t)attempt,
                               "rank", (json_int_t)rank, "text", text, "start", (json_int_t)start,
                               "after", (json_int_t)start + (json_int_t)bytes));
    return 0;
}

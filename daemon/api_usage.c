/* api_usage: GET /v1/usage: hours on GPUs and CPU slots, some attempts a turn of the loop: there
 * may be a million. A user sees its own. Those of deleted jobs are there, too (store_attempts.h).
 */
#include "common/mem.h"
#include "daemon/access.h"
#include "daemon/api.h"
#include "daemon/api_turns.h"
#include "daemon/host.h"
#include "daemon/http.h"
#include "daemon/usage_report.h"

#include <stdio.h>
#include <string.h>

enum { USAGE_ATTEMPTS = 250, USAGE_SHOWN = 1000, USAGE_SHOWN_MAX = 10000 };
static const int64_t USAGE_TIME_MAX_S = INT64_C(1) << 40; /* in ms it is a number still */

struct api_usage {
    struct api *api;
    struct api_turns turns;
    const char *viewer; /* of the request */
    int64_t now_ms;     /* until when what runs is counted */
    int64_t limit;      /* rows shown */
    bool is_csv;
    char job_id[LIMIT_ID_BYTES + 1]; /* of the last attempt that was added */
    int64_t number;
    struct usage_report report;
};

static void usage_end(void *context)
{
    struct api_usage *usage = context;
    api_turns_done(&usage->turns);
    usage_report_done(&usage->report);
    mem_free(usage);
}

static int usage_answer(struct api_usage *usage, struct err *err)
{
    const struct usage_report *report = &usage->report;
    usage_report_sort(&usage->report);
    if (usage->is_csv) {
        CLEANUP(buf_done) struct buf text;
        buf_init(&text, LIMIT_ANSWER_BYTES);
        usage_report_csv(report, usage->limit, &text);
        TRY(buf_error(&text, err));
        http_answer_plain(usage->turns.request, "text/csv; charset=utf-8", &text);
        return 0;
    }
    json_t *data = json_array();
    for (size_t i = 0; i < report->count && (int64_t)i < usage->limit; i++)
        (void)json_array_append_new(data, usage_report_row(&report->sums[i]));
    const int64_t until_ms = report->before_ms < usage->now_ms ? report->before_ms : usage->now_ms;
    http_answer_json(usage->turns.request, 200,
                     json_pack("{s:s, s:s, s:o, s:o, s:o, s:o, s:b}", "object", "usage", "by",
                               usage_by_name(report->by), "after", api_time(report->after_ms),
                               "before", api_time(until_ms), "data", data, "total",
                               usage_report_row(&report->total), "has_more",
                               (int64_t)report->count > usage->limit));
    return 0;
}

static int usage_add(void *context, const struct store_held *held, struct err *err)
{
    struct api_usage *usage = context;
    (void)snprintf(usage->job_id, sizeof usage->job_id, "%s", held->job_id);
    usage->number = held->number;
    if (!access_is_seen(usage->viewer, held->owner))
        return 0;
    return usage_report_add(&usage->report, held, err);
}

static int usage_turn(void *context, bool *ret_done, struct err *err)
{
    struct api_usage *usage = context;
    int64_t count = 0;
    char job_id[LIMIT_ID_BYTES + 1]; /* the query needs it to its end, usage_add() writes there */
    memcpy(job_id, usage->job_id, sizeof job_id);
    const struct store_held_page page = {.now_ms = usage->now_ms,
                                         .job_id = job_id,
                                         .number = usage->number,
                                         .limit = USAGE_ATTEMPTS};
    TRY(store_attempts_held(usage->api->store, &page, usage_add, usage, &count, err));
    *ret_done = count < USAGE_ATTEMPTS;
    return *ret_done ? usage_answer(usage, err) : 0;
}

static int usage_read(struct api_usage *usage, const char *query, struct err *err)
{
    char by[ROUTE_VALUE_BYTES + 1] = "user", format[ROUTE_VALUE_BYTES + 1] = "json";
    int64_t after_s = 0, before_s = USAGE_TIME_MAX_S;
    bool given = false;
    TRY(route_query_text(query, "by", by, &given, err));
    TRY(route_query_text(query, "format", format, &given, err));
    TRY(route_query_int(query, "after", 0, USAGE_TIME_MAX_S, &after_s, err));
    TRY(route_query_int(query, "before", 0, USAGE_TIME_MAX_S, &before_s, err));
    TRY(route_query_int(query, "limit", 1, USAGE_SHOWN_MAX, &usage->limit, err));
    if (usage_by_parse(by) == USAGE_BY_COUNT)
        return err_set_field(err, ERR_INVALID_VALUE, "by",
                             "by is \"%.32s\"; it must be user, job, day, model or state", by);
    usage->is_csv = strcmp(format, "csv") == 0;
    if (!usage->is_csv && strcmp(format, "json") != 0)
        return err_set_field(err, ERR_INVALID_VALUE, "format",
                             "format is \"%.32s\"; it must be json or csv", format);
    if (after_s >= before_s)
        return err_set_field(err, ERR_INVALID_VALUE, "before",
                             "before is %lld; it must be later than after, %lld",
                             (long long)before_s, (long long)after_s);
    usage_report_init(&usage->report, usage_by_parse(by), after_s * 1000, before_s * 1000);
    return 0;
}

int api_usage_get(struct api *api, struct http_request *request, struct err *err)
{
    struct api_usage *usage = mem_new(1, sizeof *usage);
    if (usage == NULL)
        return mem_fail(err, sizeof *usage, "a request that waits");
    *usage = (struct api_usage){
        .api = api,
        .turns = {.request = request, .turn = usage_turn, .only_answers = true, .context = usage},
        .viewer = access_viewer(request),
        .now_ms = api->host->ops->wall_ms(api->host),
        .limit = USAGE_SHOWN};
    http_request_on_end(request, usage_end, usage);
    TRY(usage_read(usage, http_request_route(request)->query, err));
    return api_turns_start(&usage->turns, api->loop, err);
}

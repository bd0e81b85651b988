/* api_experiments: make, list, show, cancel and delete experiments, and their results. Nothing runs
 * here: an experiment is stored with its planned points, and experiments.h does the rest. */
#include "common/mem.h"
#include "daemon/access.h"
#include "daemon/api.h"
#include "daemon/experiment_chart.h"
#include "daemon/experiment_planner.h"
#include "daemon/experiment_table.h"
#include "daemon/experiments.h"
#include "daemon/host.h"
#include "daemon/http.h"
#include "daemon/job_fsm.h"
#include "daemon/store_experiments.h"

#include <string.h>

enum {
    EXPERIMENTS_SHOWN = 20,
    EXPERIMENTS_PAGE = 50 /* at most, whatever the query says: the points of all are counted */
};

/* ---- an experiment as JSON ---- */

struct experiment_answer {
    struct api *api;
    bool rows; /* with its results */
    json_t *json;
};

struct experiment_rows {
    struct api *api;
    json_t *rows; /* of the results; NULL: they are only counted */
    json_int_t all, waiting, unfinished, succeeded, failed, left;
};

static int experiment_take_state(void *ret_state, const struct store_job *job, struct err *err)
{
    (void)err;
    *(enum job_state *)ret_state = job->state;
    return 0;
}

int api_experiments_add_row(const struct api *api, const struct store_point_row *point,
                            const char *job_state, json_t *rows, struct err *err)
{
    CLEANUP(json_unref) json_t *row = NULL;
    TRY(experiment_table_row(point, job_state, &row, err));
    return json_object_set_new(row, "note", api_sentence(api, point->note)) == 0 &&
                   json_array_append(rows, row) == 0
               ? 0
               : mem_fail(err, 0, "results");
}

static int experiment_add_row(struct experiment_rows *rows, const struct store_point_row *point,
                              struct err *err)
{
    enum job_state state = JOB_STATE_COUNT;
    struct err deleted; /* meanwhile: the next round settles it */
    if (strcmp(point->status, STORE_POINT_SUBMITTED) == 0)
        (void)store_job_get(rows->api->store, point->job_id, experiment_take_state, &state,
                            &deleted);
    const char *name = state < JOB_STATE_COUNT ? job_state_name(state) : "";
    return api_experiments_add_row(rows->api, point, name, rows->rows, err);
}

static void experiment_on_status(void *context, const char *status, int64_t count)
{
    struct experiment_rows *rows = context;
    rows->all += count;
    if (strcmp(status, STORE_POINT_WAITING) == 0)
        rows->waiting += count;
    else if (strcmp(status, STORE_POINT_SUBMITTED) == 0)
        rows->unfinished += count;
    else if (strcmp(status, job_state_name(JOB_STATE_SUCCEEDED)) == 0)
        rows->succeeded += count;
    else if (strcmp(status, job_state_name(JOB_STATE_FAILED)) == 0)
        rows->failed += count;
    else
        rows->left += count;
}

static int experiment_on_point(void *context, const struct store_point_row *point, struct err *err)
{
    experiment_on_status(context, point->status, 1);
    return experiment_add_row(context, point, err);
}

static const char *experiment_status(const struct store_experiment *experiment,
                                     const struct experiment_rows *rows)
{
    if (experiment->ended_ms > 0)
        return experiment->cancelled ? "cancelled" : "finished";
    if (experiment->cancelled)
        return "cancelling";
    return rows->waiting == rows->all - rows->left ? "waiting" : "running";
}

/* New reference: of each label the longest seq_len that ran, where that was looked for; NULL: this
 * is not told. */
static json_t *experiment_longest(const json_t *spec, const json_t *rows)
{
    const char *kind = json_string_value(json_object_get(spec, "kind"));
    size_t i;
    const json_t *row;
    if (rows == NULL || kind == NULL || strcmp(kind, "find_max_seq_len") != 0)
        return NULL;
    json_t *longest = json_object();
    json_array_foreach(rows, i, row)
    {
        const char *status = json_string_value(json_object_get(row, "status"));
        const char *label = json_string_value(json_object_get(row, "label"));
        json_t *seq_len = json_object_get(row, "seq_len");
        if (label == NULL || strcmp(status, job_state_name(JOB_STATE_SUCCEEDED)) != 0 ||
            json_integer_value(seq_len) <= json_integer_value(json_object_get(longest, label)))
            continue;
        if (json_object_set(longest, label, seq_len) != 0)
            json_unref(&longest);
    }
    return longest;
}

static int experiment_on_row(void *context, const struct store_experiment *experiment,
                             struct err *err)
{
    struct experiment_answer *answer = context;
    CLEANUP(json_unref) json_t *spec = NULL;
    CLEANUP(json_unref) json_t *list = answer->rows ? json_array() : NULL;
    struct experiment_rows rows = {.api = answer->api, .rows = list};
    TRY(json_parse(experiment->spec_json, strlen(experiment->spec_json), experiment->id, &spec,
                   err));
    if (answer->rows)
        TRY(store_experiment_points(answer->api->store, experiment->id, experiment_on_point, &rows,
                                    err));
    else
        TRY(store_experiment_statuses(answer->api->store, experiment->id, experiment_on_status,
                                      &rows, err));
    answer->json = json_pack(
        "{s:s, s:s, s:o, s:s, s:o, s:o, s:s, s:{s:I, s:I, s:I, s:I, s:I, s:I}, s:O, s:o*, s:O*}",
        "id", experiment->id, "object", "experiment", "name", api_text(experiment->name), "status",
        experiment_status(experiment, &rows), "created_at", api_time(experiment->created_ms),
        "finished_at", api_time(experiment->ended_ms), "owner", experiment->owner, "points", "all",
        rows.all, "waiting", rows.waiting, "unfinished", rows.unfinished, "succeeded",
        rows.succeeded, "failed", rows.failed, "not_run", rows.left, "spec", spec, "longest",
        experiment_longest(spec, list), "results", list);
    return answer->json != NULL ? 0 : mem_fail(err, 0, "an experiment");
}

int api_experiments_answer_one(struct api *api, struct http_request *request, const char *id,
                               struct err *err)
{
    struct experiment_answer answer = {.api = api, .rows = true};
    TRY(store_experiment_get(api->store, id, experiment_on_row, &answer, err));
    http_answer_json(request, 200, answer.json);
    return 0;
}

/* ---- create ---- */

struct experiment_points {
    struct experiment_planned *planned; /* (count) */
    struct store_point_row *points;     /* (count) borrowed of these */
    size_t count;
};

static void experiment_points_done(struct experiment_points *all)
{
    for (size_t i = 0; i < all->count; i++)
        experiment_planned_done(&all->planned[i]);
    mem_free(all->planned);
    mem_free(all->points);
}

/* An experiment none of whose points is a job is a mistake. */
static int experiment_check_refused(const struct experiment_points *all, struct err *err)
{
    for (size_t i = 0; i < all->count; i++)
        if (strcmp(all->points[i].status, STORE_POINT_REFUSED) != 0)
            return 0;
    return err_set_field(err, ERR_INVALID_VALUE, "grid",
                         "none of the %zu points can be a job; the first: %s", all->count,
                         all->points[0].note);
}

static int experiment_plan_all(struct api *api, struct http_request *request,
                               const struct experiment_spec *spec, struct experiment_points *all,
                               struct err *err)
{
    CLEANUP(experiment_planner_done)
    struct experiment_planner planner = {
        .api = api, .viewer = access_viewer(request), .spec = spec};
    const size_t points = (size_t)spec->points;
    all->planned = mem_new(points, sizeof *all->planned);
    all->points = mem_new(points, sizeof *all->points);
    if (all->planned == NULL || all->points == NULL)
        return mem_fail(err, points * sizeof *all->planned, "an experiment");
    for (size_t i = 0; i < points; i++) {
        TRY(experiment_planner_point(&planner, (int64_t)i, 0, &all->planned[i], err));
        all->count++;
        TRY(api_queue_check_priority(api, request, (double)all->planned[i].priority, err));
        all->points[i] = experiment_planned_row(&all->planned[i], (int64_t)i);
    }
    return experiment_check_refused(all, err);
}

static int experiment_check_open(struct api *api, const char *owner, struct err *err)
{
    int64_t count = 0;
    TRY(store_experiments_open_count(api->store, owner, &count, err));
    if (count < LIMIT_EXPERIMENTS_OPEN)
        return 0;
    return err_set(err, ERR_TOO_MANY,
                   "%s has %lld experiments that have not ended, which is the most: await or "
                   "cancel some of them",
                   owner, (long long)count);
}

int api_experiments_create(struct api *api, struct http_request *request, struct err *err)
{
    CLEANUP(json_unref) json_t *body = NULL;
    CLEANUP(json_unref) json_t *printed = NULL;
    CLEANUP(experiment_spec_done) struct experiment_spec spec = {.base = NULL};
    CLEANUP(experiment_points_done) struct experiment_points all = {.count = 0};
    CLEANUP(buf_done) struct buf text;
    char id[LIMIT_ID_BYTES + 1];
    buf_init(&text, LIMIT_JSON_BODY_BYTES);
    TRY(api_read_body(request, &body, err));
    TRY(experiment_spec_parse(body, &spec, err));
    TRY(experiment_check_open(api, http_request_owner(request), err));
    TRY(experiment_plan_all(api, request, &spec, &all, err));
    TRY(host_new_id(api->host, "exp-", id, sizeof id, err));
    printed = experiment_spec_json(&spec);
    TRY(json_print(printed, &text, err));
    const struct store_experiment experiment = {
        .id = id,
        .created_ms = api->host->ops->wall_ms(api->host),
        .owner = http_request_owner(request),
        .name = spec.name,
        .spec_json = buf_str(&text),
    };
    TRY(store_experiment_insert(api->store, &experiment, all.points, all.count, err));
    experiments_wake(api->experiments);
    return api_experiments_answer_one(api, request, id, err);
}

/* ---- list, get, cancel, delete ---- */

struct experiment_list {
    struct api *api;
    json_t *data;
};

static int experiment_append(void *context, const struct store_experiment *experiment,
                             struct err *err)
{
    struct experiment_list *list = context;
    struct experiment_answer answer = {.api = list->api};
    TRY(experiment_on_row(&answer, experiment, err));
    return json_array_append_new(list->data, answer.json) == 0 ? 0 : mem_fail(err, 0, "a list");
}

int api_experiments_list(struct api *api, struct http_request *request, struct err *err)
{
    char after[LIMIT_ID_BYTES + 1];
    struct store_page page;
    bool has_more = false;
    CLEANUP(json_unref) json_t *data = json_array();
    struct experiment_list list = {.api = api, .data = data};
    TRY(api_read_page(request, EXPERIMENTS_SHOWN, after, sizeof after, &page, err));
    page.limit = page.limit < EXPERIMENTS_PAGE ? page.limit : EXPERIMENTS_PAGE;
    TRY(store_experiments_list(api->store, access_viewer(request), &page, experiment_append, &list,
                               &has_more, err));
    api_answer_list(request, data, has_more);
    return 0;
}

int api_experiments_get(struct api *api, struct http_request *request, struct err *err)
{
    return api_experiments_answer_one(api, request, http_request_route(request)->name, err);
}

int api_experiments_cancel(struct api *api, struct http_request *request, struct err *err)
{
    const char *id = http_request_route(request)->name;
    char owner[LIMIT_NAME_BYTES + 1];
    TRY(store_experiment_owner(api->store, id, owner, err)); /* it is there */
    TRY(store_experiment_cancel(api->store, id, err));
    experiments_wake(api->experiments);
    return api_experiments_answer_one(api, request, id, err);
}

int api_experiments_delete(struct api *api, struct http_request *request, struct err *err)
{
    const char *id = http_request_route(request)->name;
    TRY(store_experiment_delete(api->store, id, err));
    experiments_wake(api->experiments);
    http_answer_json(request, 200,
                     json_pack("{s:s, s:s, s:b}", "id", id, "object", "experiment", "deleted", 1));
    return 0;
}

/* ---- results ---- */

typedef void experiment_form_fn(const json_t *rows, struct buf *out);

static const struct {
    const char *name, *type;
    experiment_form_fn *print;
} experiment_forms[] = {
    {.name = "csv", .type = "text/csv; charset=utf-8", .print = experiment_table_csv},
    {.name = "markdown",
     .type = "text/markdown; charset=utf-8",
     .print = experiment_table_markdown},
    {.name = "svg", .type = "image/svg+xml", .print = experiment_chart_svg},
};

int api_experiments_results(struct api *api, struct http_request *request, struct err *err)
{
    const struct route_match *route = http_request_route(request);
    char format[ROUTE_VALUE_BYTES + 1];
    bool given = false;
    CLEANUP(json_unref) json_t *list = json_array();
    CLEANUP(buf_done) struct buf text;
    char owner[LIMIT_NAME_BYTES + 1];
    struct experiment_rows rows = {.api = api, .rows = list};
    buf_init(&text, LIMIT_ANSWER_BYTES);
    TRY(route_query_text(route->query, "format", format, &given, err));
    TRY(store_experiment_owner(api->store, route->name, owner, err)); /* it is there */
    TRY(store_experiment_points(api->store, route->name, experiment_on_point, &rows, err));
    if (!given || strcmp(format, "json") == 0) {
        http_answer_json(request, 200,
                         json_pack("{s:s, s:s, s:O}", "object", "experiment.results", "experiment",
                                   route->name, "data", list));
        return 0;
    }
    for (size_t i = 0; i < sizeof experiment_forms / sizeof experiment_forms[0]; i++)
        if (strcmp(format, experiment_forms[i].name) == 0) {
            experiment_forms[i].print(list, &text);
            TRY(buf_error(&text, err));
            http_answer_plain(request, experiment_forms[i].type, &text);
            return 0;
        }
    return err_set_field(err, ERR_INVALID_VALUE, "format",
                         "format is \"%.32s\"; it must be json, csv, markdown or svg", format);
}

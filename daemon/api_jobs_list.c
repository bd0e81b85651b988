/* api_jobs_list: the list of jobs. A page may have thousands, each with all its settings, so it is
 * printed some jobs a turn of the loop while the request waits; jobs that are made or deleted
 * meanwhile are in it or not, and none is in it twice. */
#include "common/job_spec.h"
#include "common/mem.h"
#include "daemon/access.h"
#include "daemon/api.h"
#include "daemon/http.h"
#include "daemon/loop.h"

#include <stdio.h>
#include <string.h>

enum {
    JOBS_LIST_SHOWN = 20, /* where the query says nothing */
    JOBS_LIST_TURN = 32   /* jobs a turn: some 3 ms */
};

struct jobs_list {
    struct api *api;
    struct http_request *request;
    char viewer[LIMIT_NAME_BYTES + 1];
    char after[LIMIT_ID_BYTES + 1]; /* of the query */
    struct store_page page;         /* of the next turn; its after is the one above */
    int64_t left;                   /* jobs that the page may still have */
    struct buf filter;              /* metadata, as store_jobs_list() takes it */
    struct buf text;                /* the answer so far */
    char first_id[LIMIT_ID_BYTES + 1], last_id[LIMIT_ID_BYTES + 1]; /* of its jobs; "": none */
    struct loop_timer *timer;
};

static void jobs_list_end(void *context)
{
    struct jobs_list *list = context;
    loop_timer_free(list->timer);
    buf_done(&list->filter);
    buf_done(&list->text);
    mem_free(list);
}

/* ---- the filter ---- */

/* One pair of a query into the filter, which is null for metadata=null. */
static int jobs_list_take(struct route_pair *pair, json_t **filter, struct err *err)
{
    static const char prefix[] = "metadata[";
    size_t length = strlen(pair->key);
    if (strcmp(pair->key, "metadata") == 0) {
        if (strcmp(pair->value, "null") != 0 && pair->value[0] != '\0')
            return err_set_field(err, ERR_INVALID_VALUE, "metadata",
                                 "metadata must be metadata[key]=value, or metadata=null for jobs "
                                 "without any");
        json_decref(*filter);
        *filter = json_null();
    }
    if (strncmp(pair->key, prefix, sizeof prefix - 1) != 0 || pair->key[length - 1] != ']')
        return 0;
    pair->key[length - 1] = '\0';
    if (json_object_size(*filter) >= LIMIT_METADATA_PAIRS)
        return err_set_field(err, ERR_INVALID_VALUE, "metadata", "metadata has more than %d pairs",
                             LIMIT_METADATA_PAIRS);
    if (json_object_set_new(*filter, pair->key + sizeof prefix - 1, json_string(pair->value)) != 0)
        return err_set_field(err, ERR_INVALID_VALUE, "metadata",
                             "metadata is not UTF-8, or null and pairs at once");
    return 0;
}

/* metadata[key]=value pairs of the query as an object, or null. */
static int jobs_list_metadata(const char *query, json_t **filter, struct err *err)
{
    struct route_pair pair;
    bool more = true;
    while (more) {
        TRY(route_query_next(&query, &pair, &more, err));
        if (more)
            TRY(jobs_list_take(&pair, filter, err));
    }
    return 0;
}

static int jobs_list_filter(struct jobs_list *list, struct err *err)
{
    CLEANUP(json_unref) json_t *metadata = json_object();
    TRY(jobs_list_metadata(http_request_route(list->request)->query, &metadata, err));
    if (!json_is_null(metadata) && json_object_size(metadata) == 0)
        return 0;
    return json_print(metadata, &list->filter, err);
}

/* ---- turns ---- */

static int jobs_list_put(void *context, const struct store_job *job, struct err *err)
{
    struct jobs_list *list = context;
    CLEANUP(json_unref) json_t *json = api_jobs_json(list->api, job, err);
    if (json == NULL)
        return -(int)err->code;
    if (list->first_id[0] == '\0')
        (void)snprintf(list->first_id, sizeof list->first_id, "%s", job->id);
    else
        buf_char(&list->text, ',');
    (void)snprintf(list->last_id, sizeof list->last_id, "%s", job->id);
    list->page.after_row = job->row;
    list->left--;
    return json_print(json, &list->text, err);
}

/* *ret_more: there are jobs after these. */
static int jobs_list_turn(struct jobs_list *list, bool *ret_more, struct err *err)
{
    list->page.limit = list->left < JOBS_LIST_TURN ? list->left : JOBS_LIST_TURN;
    return store_jobs_list(list->api->store, list->viewer, buf_str(&list->filter), &list->page,
                           jobs_list_put, list, ret_more, err);
}

static int jobs_list_finish(struct jobs_list *list, bool has_more, struct err *err)
{
    const char *quote = list->first_id[0] != '\0' ? "\"" : "";
    const char *first = list->first_id[0] != '\0' ? list->first_id : "null";
    const char *last = list->first_id[0] != '\0' ? list->last_id : "null";
    buf_printf(&list->text, "],\"first_id\":%s%s%s,\"last_id\":%s%s%s,\"has_more\":%s}", quote,
               first, quote, quote, last, quote, has_more ? "true" : "false");
    TRY(buf_error(&list->text, err));
    http_answer_printed(list->request, 200, &list->text);
    return 0;
}

/* *ret_done: the request is answered. A page of very long jobs ends early and says has_more. */
static int jobs_list_go_on(struct jobs_list *list, bool *ret_done, struct err *err)
{
    bool more = false;
    TRY(jobs_list_turn(list, &more, err));
    *ret_done = !more || list->left == 0 || list->text.length > LIMIT_ANSWER_BYTES / 2;
    return *ret_done ? jobs_list_finish(list, more, err) : 0;
}

static void jobs_list_on_turn(void *context)
{
    struct jobs_list *list = context;
    bool done = false;
    struct err err;
    if (jobs_list_go_on(list, &done, &err) != 0)
        http_answer_error(list->request, &err);
    else if (!done)
        loop_timer_set(list->timer, 0, 0);
}

int api_jobs_list(struct api *api, struct http_request *request, struct err *err)
{
    bool done = false;
    struct jobs_list *list = mem_new(1, sizeof *list);
    if (list == NULL)
        return mem_fail(err, sizeof *list, "a list of jobs");
    *list = (struct jobs_list){.api = api, .request = request};
    buf_init(&list->filter, LIMIT_JSON_BODY_BYTES);
    buf_init(&list->text, LIMIT_ANSWER_BYTES);
    http_request_on_end(request, jobs_list_end, list);
    TRY(api_read_page(request, JOBS_LIST_SHOWN, list->after, sizeof list->after, &list->page, err));
    list->left = list->page.limit;
    (void)snprintf(list->viewer, sizeof list->viewer, "%s", access_viewer(request));
    TRY(jobs_list_filter(list, err));
    buf_text(&list->text, "{\"object\":\"list\",\"data\":[");
    TRY(jobs_list_go_on(list, &done, err));
    if (done)
        return 0;
    TRY(loop_timer_new(api->loop, jobs_list_on_turn, list, &list->timer, err));
    loop_timer_set(list->timer, 0, 0);
    http_defer(request, NULL, NULL);
    return 0;
}

/* api_jobs_list: the list of jobs. A page may have thousands, each with all its settings, so it is
 * printed some jobs a turn of the loop while the request waits; jobs that are made or deleted
 * meanwhile are in it or not, and none is in it twice. */
#include "common/job_spec.h"
#include "common/mem.h"
#include "daemon/access.h"
#include "daemon/api.h"
#include "daemon/api_turns.h"
#include "daemon/http.h"

#include <stdio.h>
#include <string.h>

enum {
    JOBS_LIST_SHOWN = 20, /* where the query says nothing */
    JOBS_LIST_TURN = 32,  /* jobs a turn: some 3 ms */
    JOBS_LIST_LOOK = 1000 /* and rows that it looks at for them: some 3 ms, too */
};

struct jobs_list {
    struct api *api;
    struct api_turns turns;
    const char *viewer;             /* of the request */
    char after[LIMIT_ID_BYTES + 1]; /* of the query */
    struct store_page page;         /* of the next turn; its after is the one above */
    int64_t left;                   /* jobs that the page may still have */
    struct buf filter;              /* metadata, as store_jobs_list() takes it */
    struct buf text;                /* the answer so far */
    char first_id[LIMIT_ID_BYTES + 1], last_id[LIMIT_ID_BYTES + 1]; /* of its jobs; "": none */
};

static void jobs_list_end(void *context)
{
    struct jobs_list *list = context;
    api_turns_done(&list->turns);
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
    TRY(jobs_list_metadata(http_request_route(list->turns.request)->query, &metadata, err));
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

static int jobs_list_finish(struct jobs_list *list, bool has_more, struct err *err)
{
    if (list->first_id[0] == '\0')
        buf_text(&list->text, "],\"first_id\":null,\"last_id\":null");
    else
        buf_printf(&list->text, "],\"first_id\":\"%s\",\"last_id\":\"%s\"", list->first_id,
                   list->last_id);
    buf_printf(&list->text, ",\"has_more\":%s}", has_more ? "true" : "false");
    TRY(buf_error(&list->text, err));
    http_answer_printed(list->turns.request, 200, &list->text);
    return 0;
}

/* A page of very long jobs ends early and says has_more. */
static int jobs_list_turn(void *context, bool *ret_done, struct err *err)
{
    struct jobs_list *list = context;
    bool more = false;
    int64_t looked_row = 0;
    list->page.limit = list->left < JOBS_LIST_TURN ? list->left : JOBS_LIST_TURN;
    TRY(store_jobs_look(list->api->store, list->viewer, buf_str(&list->filter), &list->page,
                        JOBS_LIST_LOOK, jobs_list_put, list, &more, &looked_row, err));
    if (looked_row > 0)
        list->page.after_row = looked_row;
    const bool full = list->left == 0 && looked_row == 0; /* else whether there are more is open */
    *ret_done = !more || full || list->text.length > LIMIT_ANSWER_BYTES / 2;
    return *ret_done ? jobs_list_finish(list, more, err) : 0;
}

int api_jobs_list(struct api *api, struct http_request *request, struct err *err)
{
    struct jobs_list *list = mem_new(1, sizeof *list);
    if (list == NULL)
        return mem_fail(err, sizeof *list, "a list of jobs");
    *list = (struct jobs_list){.api = api,
                               .turns = {.request = request,
                                         .turn = jobs_list_turn,
                                         .only_answers = true,
                                         .context = list},
                               .viewer = access_viewer(request)};
    buf_init(&list->filter, LIMIT_JSON_BODY_BYTES);
    buf_init(&list->text, LIMIT_ANSWER_BYTES);
    http_request_on_end(request, jobs_list_end, list);
    TRY(api_read_page(request, JOBS_LIST_SHOWN, list->after, sizeof list->after, &list->page, err));
    list->left = list->page.limit;
    TRY(jobs_list_filter(list, err));
    buf_text(&list->text, "{\"object\":\"list\",\"data\":[");
    return api_turns_start(&list->turns, api->loop, err);
}

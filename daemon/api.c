/* api: a table from route to handler. The table is filled by name, so a row of api/routes.def
 * without a handler is found by the check in api_app(). */
#include "daemon/api.h"

#include "common/mem.h"
#include "common/must.h"
#include "common/utf8.h"
#include "daemon/auth.h"
#include "daemon/chat.h"
#include "daemon/files.h"
#include "daemon/http.h"
#include "daemon/models.h"
#include "daemon/settings.h"
#include "daemon/sse.h"

#include <string.h>
#include <unistd.h>

static int api_healthz(struct api *api, struct http_request *request, struct err *err)
{
    (void)api;
    (void)err;
    http_answer_json(request, 200, json_pack("{s:s, s:s}", "status", "ok", "version",
                                             ITHACA_VERSION));
    return 0;
}

static int api_readyz(struct api *api, struct http_request *request, struct err *err)
{
    TRY(store_check(api->store, err));
    if (access(api->settings->worker, X_OK) != 0)
        return err_set(err, ERR_UNAVAILABLE, "%s: the worker program cannot be run",
                       api->settings->worker);
    for (size_t i = 0; i < api->settings->model_roots.count; i++)
        if (access(api->settings->model_roots.items[i].value, R_OK | X_OK) != 0)
            return err_set(err, ERR_UNAVAILABLE, "%s: the folder of models cannot be read",
                           api->settings->model_roots.items[i].value);
    http_answer_json(request, 200, json_pack("{s:s}", "status", "ready"));
    return 0;
}

static api_handler *const api_handlers[ROUTE_COUNT] = {
    [ROUTE_HEALTHZ] = api_healthz,
    [ROUTE_READYZ] = api_readyz,
    [ROUTE_FILES_CREATE] = files_create,
    [ROUTE_FILES_LIST] = files_list,
    [ROUTE_FILES_GET] = files_get,
    [ROUTE_FILES_CONTENT] = files_content,
    [ROUTE_FILES_DELETE] = files_delete,
    [ROUTE_MODELS_LIST] = models_list,
    [ROUTE_MODELS_GET] = models_get,
    [ROUTE_JOBS_CREATE] = api_jobs_create,
    [ROUTE_JOBS_LIST] = api_jobs_list,
    [ROUTE_JOBS_GET] = api_jobs_get,
    [ROUTE_JOBS_CANCEL] = api_jobs_cancel,
    [ROUTE_JOBS_EVENTS] = api_jobs_events,
    [ROUTE_JOBS_METRICS] = api_jobs_metrics,
    [ROUTE_JOBS_LOGS] = api_jobs_logs,
    [ROUTE_JOBS_STREAM] = sse_job,
    [ROUTE_STREAM] = sse_all,
    [ROUTE_CHAT] = chat_create,
};

static int api_begin(void *context, struct http_request *request, struct err *err)
{
    struct api *api = context;
    enum route_id route = http_request_route(request)->route;
    enum route_access access_wanted = route_access(route);
    if (access_wanted == ROUTE_ACCESS_NONE)
        return 0;
    struct auth_who who;
    TRY(auth_check(api->auth, http_request_header(request, "Authorization"), &who, err));
    if (access_wanted == ROUTE_ACCESS_SUBMIT ? !who.may_submit : !who.may_read)
        return err_set(err, ERR_FORBIDDEN, "the token \"%s\" may not do this", who.name);
    http_request_set_owner(request, who.name);
    return route == ROUTE_FILES_CREATE ? files_begin(api, request, err) : 0;
}

static int api_handle(void *context, struct http_request *request, struct err *err)
{
    return api_handlers[http_request_route(request)->route](context, request, err);
}

void api_app(struct api *api, struct http_app *ret_app)
{
    for (int route = 0; route < ROUTE_COUNT; route++)
        must(api_handlers[route] != NULL);
    *ret_app = (struct http_app){.begin = api_begin, .handle = api_handle, .context = api};
}

/* ---- shared by handlers ---- */

void api_answer_list(struct http_request *request, json_t *data, bool has_more)
{
    size_t count = json_array_size(data);
    json_t *first = json_object_get(json_array_get(data, 0), "id");
    json_t *last = count > 0 ? json_object_get(json_array_get(data, count - 1), "id") : NULL;
    http_answer_json(request, 200,
                     json_pack("{s:s, s:o, s:O?, s:O?, s:b}", "object", "list", "data", data,
                               "first_id", first, "last_id", last, "has_more", has_more));
}

int api_read_page(struct http_request *request, int64_t default_limit, char *ret_after,
                  size_t after_bytes, struct store_page *ret_page, struct err *err)
{
    const char *query = http_request_route(request)->query;
    char text[ROUTE_VALUE_BYTES + 1];
    bool found = false;
    int64_t limit = default_limit;
    TRY(route_query_text(query, "after", text, &found, err));
    TRY(route_query_int(query, "limit", 1, LIMIT_PAGE_ROWS, &limit, err));
    if (found && strlen(text) >= after_bytes)
        return err_set_field(err, ERR_INVALID_VALUE, "after", "after is not an id of this list");
    memcpy(ret_after, found ? text : "", found ? strlen(text) + 1 : 1);
    *ret_page =
        (struct store_page){.after = ret_after, .limit = limit, .order = STORE_NEWEST_FIRST};
    return 0;
}

int api_read_body(struct http_request *request, json_t **ret_object, struct err *err)
{
    const struct buf *body = http_request_body(request);
    CLEANUP(json_unref) json_t *value = NULL;
    if (body->length == 0)
        return err_set(err, ERR_BAD_JSON, "the request body is empty; a JSON object is expected");
    TRY(json_parse(buf_str(body), body->length, "request body", &value, err));
    if (!json_is_object(value))
        return err_set(err, ERR_BAD_JSON, "the request body must be a JSON object");
    *ret_object = json_incref(value);
    return 0;
}

json_t *api_text(const char *text)
{
    if (text == NULL || text[0] == '\0')
        return json_null();
    json_t *value = json_string(text);
    if (value != NULL)
        return value;
    CLEANUP(mem_free_ptr) char *clean = mem_strdup(text);
    if (clean != NULL)
        utf8_scrub(clean);
    return clean != NULL ? json_string(clean) : NULL;
}

json_t *api_time(int64_t unix_ms)
{
    return unix_ms > 0 ? json_integer(unix_ms / 1000) : json_null();
}

/* api: a table from route to handler. The table is filled by name, so a row of api/routes.def
 * without a handler is found by the check in api_app(). */
#include "daemon/api.h"

#include "common/log.h"
#include "common/must.h"
#include "daemon/access.h"
#include "daemon/api_series.h"
#include "daemon/chat.h"
#include "daemon/dashboard.h"
#include "daemon/files.h"
#include "daemon/http.h"
#include "daemon/loop.h"
#include "daemon/models.h"
#include "daemon/preview.h"
#include "daemon/replay.h"
#include "daemon/session.h"
#include "daemon/settings.h"
#include "daemon/sse.h"
#include "daemon/tokens.h"
#include "daemon/uploads.h"
#include "daemon/webhooks.h"

#include <unistd.h>

static int api_healthz(struct api *api, struct http_request *request, struct err *err)
{
    (void)api;
    (void)err;
    http_answer_json(request, 200,
                     json_pack("{s:s, s:s}", "status", "ok", "version", ITHACA_VERSION));
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
    [ROUTE_DASHBOARD] = dashboard_index,
    [ROUTE_DASHBOARD_FILE] = dashboard_get,
    [ROUTE_HEALTHZ] = api_healthz,
    [ROUTE_READYZ] = api_readyz,
    [ROUTE_SESSION_CREATE] = session_create,
    [ROUTE_SESSION_GET] = session_get,
    [ROUTE_SESSION_END] = session_end,
    [ROUTE_TOKENS_CREATE] = tokens_create,
    [ROUTE_TOKENS_LIST] = tokens_list,
    [ROUTE_TOKENS_REVOKE] = tokens_revoke,
    [ROUTE_METRICS] = prometheus_get,
    [ROUTE_FILES_CREATE] = files_create,
    [ROUTE_FILES_LIST] = files_list,
    [ROUTE_FILES_GET] = files_get,
    [ROUTE_FILES_CONTENT] = files_content,
    [ROUTE_FILES_DELETE] = files_delete,
    [ROUTE_UPLOADS_CREATE] = uploads_create,
    [ROUTE_UPLOADS_PART] = uploads_part,
    [ROUTE_UPLOADS_COMPLETE] = uploads_complete,
    [ROUTE_UPLOADS_CANCEL] = uploads_cancel,
    [ROUTE_MODELS_LIST] = models_list,
    [ROUTE_MODELS_GET] = models_get,
    [ROUTE_ESTIMATE] = api_estimate,
    [ROUTE_LIMITS] = api_limits,
    [ROUTE_JOBS_CREATE] = api_jobs_create,
    [ROUTE_JOBS_LIST] = api_jobs_list,
    [ROUTE_JOBS_GET] = api_jobs_get,
    [ROUTE_JOBS_DELETE] = api_delete,
    [ROUTE_JOBS_ASKED] = api_jobs_asked,
    [ROUTE_JOBS_CANCEL] = api_control_cancel,
    [ROUTE_JOBS_PAUSE] = api_control_pause,
    [ROUTE_JOBS_RESUME] = api_control_resume,
    [ROUTE_JOBS_CHANGE] = api_control_change,
    [ROUTE_QUEUE] = api_queue_get,
    [ROUTE_USAGE] = api_usage_get,
    [ROUTE_QUEUE_DRAIN] = api_queue_drain,
    [ROUTE_QUEUE_UNDRAIN] = api_queue_undrain,
    [ROUTE_JOBS_CHECKPOINTS] = api_checkpoints_list,
    [ROUTE_JOBS_MODEL_FILES] = api_model_files,
    [ROUTE_JOBS_MODEL_CONTENT] = api_model_content,
    [ROUTE_JOBS_PROFILE] = api_profile_get,
    [ROUTE_JOBS_PROFILE_ASK] = api_profile_ask,
    [ROUTE_JOBS_TRACE] = api_profile_trace,
    [ROUTE_JOBS_EVENTS] = api_jobs_events,
    [ROUTE_JOBS_METRICS] = api_jobs_metrics,
    [ROUTE_JOBS_MEMORY] = api_series_memory,
    [ROUTE_JOBS_LOGS] = api_jobs_logs,
    [ROUTE_JOBS_STREAM] = sse_job,
    [ROUTE_STORAGE] = api_storage_get,
    [ROUTE_STORAGE_PRUNE] = api_prune,
    [ROUTE_WEBHOOKS_GET] = api_webhooks_get,
    [ROUTE_WEBHOOKS_ROTATE] = api_webhooks_rotate,
    [ROUTE_STREAM] = sse_all,
    [ROUTE_PREVIEW] = preview_create,
    [ROUTE_EXPERIMENTS_CREATE] = api_experiments_create,
    [ROUTE_EXPERIMENTS_ESTIMATE] = api_experiments_estimate,
    [ROUTE_EXPERIMENTS_LIST] = api_experiments_list,
    [ROUTE_EXPERIMENTS_GET] = api_experiments_get,
    [ROUTE_EXPERIMENTS_RESULTS] = api_experiments_results,
    [ROUTE_EXPERIMENTS_CANCEL] = api_experiments_cancel,
    [ROUTE_EXPERIMENTS_DELETE] = api_experiments_delete,
    [ROUTE_GPUS_LIST] = api_gpus_list,
    [ROUTE_GPUS_DRAIN] = api_gpus_drain,
    [ROUTE_GPUS_UNDRAIN] = api_gpus_undrain,
    [ROUTE_CHAT] = chat_create,
};

static int api_begin(void *context, struct http_request *request, struct err *err)
{
    struct api *api = context;
    TRY(access_check(api, request, err));
    TRY(route_query_check(http_request_route(request), err));
    enum route_id route = http_request_route(request)->route;
    if (route_changes(route))
        TRY(store_check_files(api->store, err)); /* before a file of it is written */
    if (route == ROUTE_FILES_CREATE)
        return files_begin(api, request, err);
    return route == ROUTE_UPLOADS_PART ? uploads_begin(api, request, err) : 0;
}

int api_handle(struct api *api, struct http_request *request, struct err *err)
{
    struct replay replay;
    bool answered = false;
    TRY(replay_begin(api, request, &replay, &answered, err));
    if (answered)
        return 0;
    const struct store_request asked = {
        .user = http_request_who(request)->user,
        .id = http_request_id(request),
        .replay = replay.kept && replay.makes ? &replay.row : NULL,
    };
    bool known = http_request_who(request)->scope != AUTH_SCOPE_NONE;
    store_set_request(api->store, known ? &asked : NULL);
    const enum route_id route = http_request_route(request)->route;
    loop_doing(api->loop, route_method(route), route_path(route));
    int rc = api_handlers[route](api, request, err);
    loop_doing(api->loop, "HTTP", "connections");
    store_set_request(api->store, NULL);
    return rc;
}

static int api_on_request(void *context, struct http_request *request, struct err *err)
{
    return api_handle(context, request, err);
}

/* The log says who changed what. */
static void api_answered(void *context, struct http_request *request, int status, const char *body)
{
    enum route_id route = http_request_route(request)->route;
    const struct auth_who *who = http_request_who(request);
    if (!route_changes(route))
        return;
    log_info("api", "%s: %s %.200s by %s (%s)", http_request_id(request), route_method(route),
             http_request_target(request), who->user, who->caller);
    replay_keep(context, request, status, body);
}

void api_app(struct api *api, struct http_app *ret_app)
{
    for (int route = 0; route < ROUTE_COUNT; route++)
        must(api_handlers[route] != NULL);
    *ret_app = (struct http_app){
        .begin = api_begin, .handle = api_on_request, .answered = api_answered, .context = api};
}

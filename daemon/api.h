/* api: the public API's meaning: one handler a route of api/routes.def, the check of tokens in
 * front of them, and the JSON shapes they share. OpenAI's shapes where it has the route; Ithaca's
 * own fields under one key, `ithaca`.
 *
 * Handlers (api.c: health; api_jobs.c, api_control.c, api_metrics.c, api_checkpoints.c: jobs;
 * files.c, models.c, sse.c, chat.c) take (api, request, err) and answer, defer or fail (http.h). */
#pragma once
#include "common/err.h"
#include "common/json.h"
#include "daemon/store.h"

#include <stdbool.h>

struct api {
    const struct settings *settings;
    struct loop *loop;
    struct host *host;
    struct store *store;
    struct bus *bus;
    struct coordinator *coordinator;
    struct loop_timer *tick; /* calls coordinator_tick(); made by main */
    struct auth *auth;
    struct quota *quota;
    struct sse *sse;                   /* made by main: sse_new */
    struct chat *chat;                 /* made by main: chat_new */
    struct exports *exports;           /* made by main: exports_new */
    struct housekeeping *housekeeping; /* made by main: housekeeping_new */
    struct storage *storage;           /* made by main: storage_new */
    struct prune *prune;               /* made by main: prune_new */
    struct retention *retention;       /* made by main: retention_new */
    struct experiments *experiments;   /* made by main: experiments_new */
    struct webhooks *webhooks;         /* made by main: webhooks_new */
    struct http *http;                 /* made by main: http_new */
    struct uploads_join *joins;        /* uploads_join.c: requests that complete an upload */
    int64_t searches;                  /* api_search.c: under way */
};

struct http_app;
struct http_request;
typedef int api_handler(struct api *api, struct http_request *request, struct err *err);

/* The app to give http_new(); api outlives it. */
void api_app(struct api *api, struct http_app *ret_app);

/* api_jobs.c; api_metrics.c */
api_handler api_jobs_create, api_jobs_list, api_jobs_get, api_jobs_asked, api_jobs_events,
    api_jobs_metrics, api_jobs_logs;
api_handler api_control_cancel, api_control_pause, api_control_resume; /* api_control.c */
api_handler api_control_change;
api_handler api_delete;
/* A job at its end, without its result file; at once, its bytes follow. */
int api_delete_job(struct api *api, const char *id, struct err *err); /* api_delete.c */
api_handler api_queue_get, api_queue_drain, api_queue_undrain;        /* api_queue.c */
/* Whether who asks may give a job this priority; ERR_FORBIDDEN. */
int api_queue_check_priority(const struct api *api, const struct http_request *request,
                             double priority, struct err *err);
api_handler api_usage_get;                                   /* api_usage.c */
api_handler api_checkpoints_list;                            /* api_checkpoints.c */
api_handler api_model_files, api_model_content;              /* api_model.c */
api_handler api_gpus_list, api_gpus_drain, api_gpus_undrain; /* api_gpus.c */
api_handler prometheus_get;                                  /* prometheus.c */
api_handler api_storage_get;                                 /* api_storage.c */
api_handler api_prune;                                       /* api_prune.c */
api_handler api_limits;                                      /* api_limits.c */
api_handler api_estimate;                                    /* api_estimate.c */
/* api_experiments.c */
api_handler api_experiments_create, api_experiments_list, api_experiments_get,
    api_experiments_results, api_experiments_cancel, api_experiments_delete;
api_handler api_experiments_estimate; /* api_experiments_estimate.c */
int api_experiments_answer_one(struct api *api, struct http_request *request, const char *id,
                               struct err *err);
struct store_point_row;
/* Appends a point's row of the results; job_state: of its job, "" where it has none. */
int api_experiments_add_row(const struct api *api, const struct store_point_row *point,
                            const char *job_state, json_t *rows, struct err *err);
api_handler api_profile_ask, api_profile_get, api_profile_trace; /* api_profile.c */
struct job_spec;
struct model_config;
struct models_entry;
/* Files that a job names must be there and the viewer's (access.h), its webhook one that is
 * allowed: whatever makes a job of a user's words asks this first. */
int api_jobs_check_names(struct api *api, const char *viewer, const struct job_spec *spec,
                         struct err *err);
/* The same, then finds its model, and api_estimate_admit(). request: the one that the job is of, or
 * NULL; with one, ask api_search_waits() first, whatever comes back. */
int api_jobs_resolve(struct api *api, struct http_request *request, struct job_spec *spec,
                     struct models_entry *model, double *ret_step_s, struct err *err);
/* Settles a job's values for this machine (job_spec_resolve) and plans its memory; ERR_DOES_NOT_FIT
 * with need, what there is, and the shortest changes that fit; ERR_NO_SPACE by disk_budget.h.
 * ret_step_s: an optimizer step's time by this machine's calibration; 0 where there is none. */
int api_estimate_admit(struct api *api, struct http_request *request,
                       const struct model_config *config, struct job_spec *spec, double *ret_step_s,
                       struct err *err);
/* New reference: the memory plan (mem_report.h) of settled values. */
int api_estimate_memory_json(struct api *api, const char *model_dir, const struct job_spec *spec,
                             json_t **ret_json, struct err *err);
/* New reference: what the job's training file holds, from the report of its preparation, or null
 * while there is none. */
json_t *api_data_json(const struct api *api, const char *job_id);
/* Answers with the job; ERR_NOT_FOUND. */
int api_jobs_answer_one(struct api *api, struct http_request *request, const char *id,
                        struct err *err);
/* New reference: the job object; NULL with err when it cannot be made. */
json_t *api_jobs_json(struct api *api, const struct store_job *job, struct err *err);
/* New reference: an item of the list of events. */
json_t *api_jobs_event_json(const struct api *api, const struct store_event *event,
                            struct err *err);

/* Runs the handler of the request's route, as the user who asks; what came before with the same
 * key is answered instead (replay.h). */
int api_handle(struct api *api, struct http_request *request, struct err *err);

/* ---- shared by handlers ---- */

/* {"object":"list","data":[...],"first_id","last_id","has_more"}. */
void api_answer_list(struct http_request *request, json_t *data, bool has_more);
/* after and limit of a query. after points into ret_after. */
int api_read_page(struct http_request *request, int64_t default_limit, char *ret_after,
                  size_t after_bytes, struct store_page *ret_page, struct err *err);
/* The body, which must be a JSON object. New reference. */
int api_read_body(struct http_request *request, json_t **ret_object, struct err *err);
/* New reference: a string, or null when it is "". Bytes that are not UTF-8 become '?'. */
json_t *api_text(const char *text);
/* The same of a sentence, which may name files of this server (public_text.h). */
json_t *api_sentence(const struct api *api, const char *text);
/* Unix seconds of milliseconds; null for 0. */
json_t *api_time(int64_t unix_ms);

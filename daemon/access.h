/* access: who may ask what, and whose things are.
 *
 * A user sees and touches its own jobs, files and tuned models; one whose scope is admin sees all.
 * What is someone else's answers as what is not there (404, the same words): ids tell nothing.
 * Routes below /v1/fine_tuning/jobs/{id}, /v1/files/{id}, /v1/uploads/{id} and /v1/experiments/{id}
 * are checked here before their handlers run; handlers check what a body or a query names
 * (api_jobs_check_names, access_check_file, models_find), and lists take access_viewer(). */
#pragma once
#include "daemon/api.h"

/* Finds who asks; refuses what it may not. ERR_AUTH, ERR_FORBIDDEN, ERR_NOT_FOUND. */
int access_check(struct api *api, struct http_request *request, struct err *err);

/* The user whose things are shown; "" for one who sees all. */
const char *access_viewer(const struct http_request *request);
bool access_is_seen(const char *viewer, const char *owner);

/* ERR_NOT_FOUND unless the viewer sees it. */
int access_check_file(struct store *store, const char *viewer, const char *id, struct err *err);

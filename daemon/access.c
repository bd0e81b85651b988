/* access: one check in front of all handlers, by the row of api/routes.def: its scope, and whose
 * the thing is that its path names. A new route below a table's prefix is checked without a word.
 */
#include "daemon/access.h"

#include "common/must.h"
#include "daemon/auth.h"
#include "daemon/http.h"
#include "daemon/http_check.h"
#include "daemon/quota.h"
#include "daemon/session.h"
#include "daemon/settings.h"
#include "daemon/store_experiments.h"
#include "daemon/uploads.h"

#include <string.h>

const char *access_viewer(const struct http_request *request)
{
    const struct auth_who *who = http_request_who(request);
    return who->scope == AUTH_SCOPE_ADMIN ? "" : who->user;
}

bool access_is_seen(const char *viewer, const char *owner)
{
    return viewer[0] == '\0' || strcmp(viewer, owner) == 0;
}

/* Things that have owners. */
struct access_kind {
    const char *prefix; /* of its routes */
    const char *what;   /* as the store calls one that is missing */
    int (*owner)(struct store *store, const char *id, char ret_owner[LIMIT_NAME_BYTES + 1],
                 struct err *err);
};
static const struct access_kind access_job = {
    .prefix = "/v1/fine_tuning/jobs/{id}", .what = "fine-tuning job", .owner = store_job_owner};
static const struct access_kind access_file = {
    .prefix = "/v1/files/{id}", .what = "file", .owner = store_file_owner};
static const struct access_kind access_upload = {
    .prefix = "/v1/uploads/{id}", .what = "upload", .owner = uploads_owner};

static const struct access_kind access_experiment = {
    .prefix = "/v1/experiments/{id}", .what = "experiment", .owner = store_experiment_owner};

/* One that is hidden is refused in the words for one that is missing. */
static int access_check_one(const struct access_kind *kind, struct store *store, const char *viewer,
                            const char *id, struct err *err)
{
    char owner[LIMIT_NAME_BYTES + 1];
    TRY(kind->owner(store, id, owner, err));
    if (access_is_seen(viewer, owner))
        return 0;
    return err_set(err, ERR_NOT_FOUND, "there is no %s %s", kind->what, id);
}

int access_check_file(struct store *store, const char *viewer, const char *id, struct err *err)
{
    return access_check_one(&access_file, store, viewer, id, err);
}

/* What the path names must be the viewer's. */
static int access_check_path(struct api *api, const struct http_request *request, struct err *err)
{
    static const struct access_kind *const kinds[] = {&access_job, &access_file, &access_upload,
                                                      &access_experiment};
    const struct route_match *match = http_request_route(request);
    const char *path = route_path(match->route);
    const char *viewer = access_viewer(request);
    for (size_t i = 0; viewer[0] != '\0' && i < sizeof kinds / sizeof kinds[0]; i++)
        if (strncmp(path, kinds[i]->prefix, strlen(kinds[i]->prefix)) == 0)
            return access_check_one(kinds[i], api->store, viewer, match->name, err);
    return 0;
}

/* By a token, else by what the kernel says of a Unix socket's peer, else by a session's cookie. */
static int access_find(struct api *api, const struct http_request *request,
                       struct auth_who *ret_who, struct err *err)
{
    const char *authorization = http_request_header(request, "Authorization");
    const char *cookie = http_request_cookie(request, SESSION_COOKIE);
    if (authorization == NULL && http_request_peer(request) >= 0)
        return auth_check_peer(api->auth, http_request_peer(request), &api->settings->admins,
                               ret_who, err);
    if (authorization != NULL || cookie == NULL)
        return auth_check(api->auth, authorization, ret_who, err);
    TRY(http_check_origin(route_changes(http_request_route(request)->route),
                          http_request_header(request, "Sec-Fetch-Site"),
                          http_request_header(request, "Origin"),
                          http_request_header(request, "Host"), err));
    return auth_check_session(api->auth, cookie, ret_who, err);
}

int access_check(struct api *api, struct http_request *request, struct err *err)
{
    enum auth_scope needed = route_scope(http_request_route(request)->route);
    struct auth_who who;
    if (needed == AUTH_SCOPE_NONE)
        return 0;
    TRY(access_find(api, request, &who, err));
    must(who.scope != AUTH_SCOPE_NONE);
    if (who.scope < needed)
        return err_set(err, ERR_FORBIDDEN,
                       "this needs a token with the scope \"%s\"; that of %s has \"%s\"",
                       auth_scope_name(needed), who.user, auth_scope_name(who.scope));
    http_request_set_who(request, &who);
    TRY(quota_request(api->quota, access_viewer(request), err));
    return access_check_path(api, request, err);
}

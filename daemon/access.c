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

/* Words of a missing file or job, for one that is hidden. */
static int access_hidden(const char *what, const char *id, struct err *err)
{
    return err_set(err, ERR_NOT_FOUND, "there is no %s %s", what, id);
}

int access_check_file(struct store *store, const char *viewer, const char *id, struct err *err)
{
    char owner[LIMIT_NAME_BYTES + 1];
    TRY(store_file_owner(store, id, owner, err));
    return access_is_seen(viewer, owner) ? 0 : access_hidden("file", id, err);
}

int access_check_job(struct store *store, const char *viewer, const char *id, struct err *err)
{
    char owner[LIMIT_NAME_BYTES + 1];
    TRY(store_job_owner(store, id, owner, err));
    return access_is_seen(viewer, owner) ? 0 : access_hidden("fine-tuning job", id, err);
}

static int access_check_upload(struct store *store, const char *viewer, const char *id,
                               struct err *err)
{
    char owner[LIMIT_NAME_BYTES + 1];
    TRY(uploads_owner(store, id, owner, err));
    return access_is_seen(viewer, owner) ? 0 : access_hidden("upload", id, err);
}

/* What the path names must be the viewer's. */
static int access_check_path(struct api *api, const struct http_request *request, struct err *err)
{
    static const struct {
        const char *prefix; /* of the routes */
        int (*check)(struct store *store, const char *viewer, const char *id, struct err *err);
    } rows[] = {
        {.prefix = "/v1/fine_tuning/jobs/{id}", .check = access_check_job},
        {.prefix = "/v1/files/{id}", .check = access_check_file},
        {.prefix = "/v1/uploads/{id}", .check = access_check_upload},
    };
    const struct route_match *match = http_request_route(request);
    const char *path = route_path(match->route);
    const char *viewer = access_viewer(request);
    for (size_t i = 0; viewer[0] != '\0' && i < sizeof rows / sizeof rows[0]; i++)
        if (strncmp(path, rows[i].prefix, strlen(rows[i].prefix)) == 0)
            return rows[i].check(api->store, viewer, match->name, err);
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

/* session: a session is a row of tokens (auth.h), so it outlives the daemon and ends with its
 * token. */
#include "daemon/session.h"

#include "daemon/auth.h"
#include "daemon/host.h"
#include "daemon/http.h"
#include "daemon/settings.h"
#include "daemon/sse.h"

#include <stdio.h>

enum { SESSION_COOKIE_BYTES = 192 };

static void session_answer(struct http_request *request, const struct auth_who *who)
{
    http_answer_json(request, 200,
                     json_pack("{s:s, s:s, s:s, s:o}", "object", "session", "user", who->user,
                               "scope", auth_scope_name(who->scope), "expires_at",
                               api_time(who->expires_ms)));
}

static void session_set_cookie(const struct api *api, struct http_request *request,
                               const char *secret, int64_t seconds)
{
    char cookie[SESSION_COOKIE_BYTES];
    (void)snprintf(cookie, sizeof cookie,
                   SESSION_COOKIE "=%s; Max-Age=%lld; Path=/; HttpOnly; SameSite=Strict%s", secret,
                   (long long)seconds, api->settings->tls_cert[0] != '\0' ? "; Secure" : "");
    http_request_set_header(request, "Set-Cookie", cookie);
}

int session_create(struct api *api, struct http_request *request, struct err *err)
{
    struct auth_who who = *http_request_who(request);
    char id[LIMIT_ID_BYTES + 1], secret[AUTH_TOKEN_CHARS + 1];
    int64_t now_ms = api->host->ops->wall_ms(api->host);
    int64_t end_ms = now_ms + SESSION_HOURS * 3600000LL;
    if (who.session[0] != '\0')
        return err_set(err, ERR_BAD_STATE, "a session is opened with a token, not with a session");
    if (who.expires_ms == 0 || who.expires_ms > end_ms)
        who.expires_ms = end_ms;
    const struct auth_grant grant = {.parent = who.caller,
                                     .name = "session",
                                     .user = who.user,
                                     .scope = who.scope,
                                     .expires_ms = who.expires_ms};
    TRY(auth_grant(api->auth, &grant, id, secret, err));
    session_set_cookie(api, request, secret, (who.expires_ms - now_ms) / 1000);
    session_answer(request, &who);
    return 0;
}

int session_get(struct api *api, struct http_request *request, struct err *err)
{
    (void)api;
    (void)err;
    session_answer(request, http_request_who(request));
    return 0;
}

int session_end(struct api *api, struct http_request *request, struct err *err)
{
    const struct auth_who *who = http_request_who(request);
    if (who->session[0] == '\0')
        return err_set(err, ERR_BAD_STATE, "this request came by a token: there is no session");
    TRY(store_token_revoke(api->store, who->session, api->host->ops->wall_ms(api->host), err));
    sse_end_revoked(api->sse);
    session_set_cookie(api, request, "", 0);
    http_answer_json(request, 200, json_pack("{s:s, s:b}", "object", "session", "ended", 1));
    return 0;
}

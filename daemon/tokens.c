/* tokens: the request's fields, and rows of the store as JSON. */
#include "daemon/tokens.h"

#include "common/mem.h"
#include "daemon/auth.h"
#include "daemon/host.h"
#include "daemon/http.h"
#include "daemon/sse.h"

#include <string.h>

enum { TOKENS_EXPIRY_MIN_S = 60, TOKENS_EXPIRY_MAX_S = 10 * 366 * 86400, TOKENS_PAGE = 100 };

/* New reference. secret: NULL but for a token that was just made. */
static json_t *tokens_json(const struct store_token *token, const char *secret)
{
    return json_pack("{s:s, s:s, s:o, s:s, s:s, s:s, s:o, s:o, s:o, s:o, s:s*}", "id", token->id,
                     "object", "token", "name", api_text(token->name), "user", token->user, "scope",
                     token->scope, "prefix", token->prefix, "created_at",
                     api_time(token->created_ms), "expires_at", api_time(token->expires_ms),
                     "last_used_at", api_time(token->last_used_ms), "revoked_at",
                     api_time(token->revoked_ms), "token", secret);
}

/* ---- create ---- */

/* What was asked for; texts are borrowed from the body. */
struct tokens_wish {
    const char *user, *name;
    enum auth_scope scope;
    int64_t expires_in_s; /* 0: never */
};

static int tokens_read_field(struct tokens_wish *wish, const char *key, const json_t *value,
                             struct err *err)
{
    const char *text = json_string_value(value);
    if (strcmp(key, "user") == 0) {
        wish->user = text != NULL ? text : "";
        return auth_is_user(wish->user)
                   ? 0
                   : err_set_field(err, ERR_INVALID_VALUE, key,
                                   "user must be 1 to %d of A-Z a-z 0-9 _ . @ -, beginning with a "
                                   "letter, a digit or _",
                                   AUTH_USER_BYTES_MAX);
    }
    if (strcmp(key, "name") == 0) {
        wish->name = text;
        return text != NULL && strlen(text) <= LIMIT_NAME_BYTES
                   ? 0
                   : err_set_field(err, ERR_INVALID_VALUE, key,
                                   "name must be a string of at most %d bytes", LIMIT_NAME_BYTES);
    }
    if (strcmp(key, "scope") == 0) {
        wish->scope = auth_scope_parse(text != NULL ? text : "");
        return wish->scope != AUTH_SCOPE_NONE
                   ? 0
                   : err_set_field(err, ERR_INVALID_VALUE, key,
                                   "scope must be \"read\", \"submit\" or \"admin\"");
    }
    if (strcmp(key, "expires_in_s") != 0)
        return err_set_field(err, ERR_UNKNOWN_FIELD, key,
                             "%s: there is no such field; a token has user, name, scope and "
                             "expires_in_s",
                             key);
    wish->expires_in_s = json_integer_value(value);
    return json_is_null(value) || (wish->expires_in_s >= TOKENS_EXPIRY_MIN_S &&
                                   wish->expires_in_s <= TOKENS_EXPIRY_MAX_S)
               ? 0
               : err_set_field(err, ERR_INVALID_VALUE, key,
                               "expires_in_s must be %d to %d seconds, or null for never",
                               TOKENS_EXPIRY_MIN_S, TOKENS_EXPIRY_MAX_S);
}

static int tokens_read_wish(json_t *body, struct tokens_wish *ret_wish, struct err *err)
{
    struct tokens_wish wish = {.name = "", .scope = AUTH_SCOPE_SUBMIT};
    const char *key;
    json_t *value;
    json_object_foreach(body, key, value)
    {
        TRY(tokens_read_field(&wish, key, value, err));
    }
    if (wish.user == NULL)
        return err_set_field(err, ERR_MISSING_FIELD, "user",
                             "user is missing: name the user whose token it will be");
    *ret_wish = wish;
    return 0;
}

int tokens_create(struct api *api, struct http_request *request, struct err *err)
{
    CLEANUP(json_unref) json_t *body = NULL;
    struct tokens_wish wish = {.name = NULL};
    char id[LIMIT_ID_BYTES + 1], secret[AUTH_TOKEN_CHARS + 1], prefix[AUTH_PUBLIC_CHARS + 1];
    int64_t now_ms = api->host->ops->wall_ms(api->host);
    TRY(api_read_body(request, &body, err));
    TRY(tokens_read_wish(body, &wish, err));
    const struct auth_grant grant = {
        .parent = "",
        .name = wish.name,
        .user = wish.user,
        .scope = wish.scope,
        .expires_ms = wish.expires_in_s > 0 ? now_ms + wish.expires_in_s * 1000 : 0,
    };
    TRY(auth_grant(api->auth, &grant, id, secret, err));
    auth_public_part(secret, prefix);
    const struct store_token made = {.id = id,
                                     .prefix = prefix,
                                     .name = grant.name,
                                     .user = grant.user,
                                     .scope = auth_scope_name(grant.scope),
                                     .created_ms = now_ms,
                                     .expires_ms = grant.expires_ms};
    http_answer_json(request, 200, tokens_json(&made, secret));
    return 0;
}

/* ---- list, revoke ---- */

static int tokens_append(void *data, const struct store_token *token, struct err *err)
{
    return json_array_append_new(data, tokens_json(token, NULL)) == 0
               ? 0
               : mem_fail(err, 0, "a list of tokens");
}

int tokens_list(struct api *api, struct http_request *request, struct err *err)
{
    char after[LIMIT_ID_BYTES + 1];
    struct store_page page;
    bool has_more = false;
    CLEANUP(json_unref) json_t *data = json_array();
    TRY(api_read_page(request, TOKENS_PAGE, after, sizeof after, &page, err));
    TRY(store_tokens_list(api->store, &page, tokens_append, data, &has_more, err));
    api_answer_list(request, data, has_more);
    return 0;
}

int tokens_revoke(struct api *api, struct http_request *request, struct err *err)
{
    const char *id = http_request_route(request)->name;
    if (strcmp(id, AUTH_ADMIN_ID) == 0)
        return err_set(err, ERR_BAD_STATE,
                       "this is the token in admin.token: delete that file and restart the daemon "
                       "to change it");
    TRY(store_token_revoke(api->store, id, api->host->ops->wall_ms(api->host), err));
    sse_end_revoked(api->sse);
    http_answer_json(request, 200,
                     json_pack("{s:s, s:s, s:b}", "id", id, "object", "token", "revoked", 1));
    return 0;
}

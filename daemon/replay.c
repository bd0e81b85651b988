/* replay: everything is read from the request again when its answer is there, which may be long
 * after its handler ran. */
#include "daemon/replay.h"

#include "common/log.h"
#include "common/mem.h"
#include "daemon/auth.h"
#include "daemon/files.h"
#include "daemon/host.h"
#include "daemon/http.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    REPLAY_KEY_BYTES = 255,
    REPLAY_KEY_MS = 24 * 3600 * 1000,
    REPLAY_HASH_MS = 10 * 60 * 1000,
    REPLAY_BODY_BYTES = 64 << 10 /* longer answers are not kept: they are asked again */
};

bool replay_is_kept(enum route_id route)
{
    return strcmp(route_method(route), "POST") == 0 && route != ROUTE_TOKENS_CREATE &&
           route != ROUTE_WEBHOOKS_ROTATE && route != ROUTE_SESSION_CREATE;
}

static int replay_read_key(const struct http_request *request, const char **ret_key,
                           struct err *err)
{
    const char *key = http_request_header(request, "Idempotency-Key");
    size_t length = key != NULL ? strlen(key) : 0;
    for (size_t i = 0; i < length; i++)
        if (key[i] < ' ' || key[i] > '~')
            length = REPLAY_KEY_BYTES + 1;
    if (key != NULL && (length == 0 || length > REPLAY_KEY_BYTES))
        return err_set_field(err, ERR_INVALID_VALUE, "Idempotency-Key",
                             "Idempotency-Key must be 1 to %d printable ASCII characters",
                             REPLAY_KEY_BYTES);
    *ret_key = key != NULL ? key : "";
    return 0;
}

static int replay_read(struct api *api, struct http_request *request, struct replay *ret,
                       struct err *err)
{
    enum route_id route = http_request_route(request)->route;
    const char *count = http_request_header(request, "x-stainless-retry-count");
    const char *key = "";
    *ret = (struct replay){.makes = route == ROUTE_JOBS_CREATE || route == ROUTE_FILES_CREATE ||
                                    route == ROUTE_EXPERIMENTS_CREATE};
    if (!replay_is_kept(route))
        return 0;
    TRY(replay_read_key(request, &key, err));
    ret->kept = key[0] != '\0' || (ret->makes && count != NULL);
    if (!ret->kept)
        return 0;
    http_request_digest(request, ret->hash);
    int64_t now_ms = api->host->ops->wall_ms(api->host);
    ret->row = (struct store_replay){
        .caller = http_request_who(request)->caller,
        .target = http_request_target(request),
        .key = key,
        .hash = ret->hash,
        .now_ms = now_ms,
        .expires_ms = now_ms + (key[0] != '\0' ? REPLAY_KEY_MS : REPLAY_HASH_MS),
    };
    return 0;
}

struct replay_found {
    const struct replay *replay;
    char made[LIMIT_ID_BYTES + 1]; /* or "" */
    int status;
    json_t *body; /* owned; NULL where something was made */
};

static void replay_found_done(struct replay_found *found)
{
    json_decref(found->body);
}

static int replay_on_row(void *context, const struct store_replayed *row, struct err *err)
{
    struct replay_found *found = context;
    if (strcmp(row->hash, found->replay->hash) != 0)
        return err_set_field(err, ERR_KEY_REUSED, "Idempotency-Key",
                             "this Idempotency-Key came with another body before; use a new key "
                             "for a new request");
    (void)snprintf(found->made, sizeof found->made, "%s", row->made);
    found->status = row->status;
    if (row->made[0] != '\0')
        return 0;
    return json_parse(row->body, strlen(row->body), "an answer that was kept", &found->body, err);
}

static int replay_answer(struct api *api, struct http_request *request,
                         const struct replay_found *found, struct err *err)
{
    http_request_set_header(request, "Idempotent-Replayed", "true");
    if (found->made[0] == '\0') {
        http_answer_json(request, found->status, json_incref(found->body));
        return 0;
    }
    enum route_id route = http_request_route(request)->route;
    if (route == ROUTE_JOBS_CREATE)
        return api_jobs_answer_one(api, request, found->made, err);
    return route == ROUTE_EXPERIMENTS_CREATE
               ? api_experiments_answer_one(api, request, found->made, err)
               : files_answer_one(api, request, found->made, err);
}

int replay_begin(struct api *api, struct http_request *request, struct replay *ret,
                 bool *ret_answered, struct err *err)
{
    bool found = false;
    TRY(replay_read(api, request, ret, err));
    CLEANUP(replay_found_done) struct replay_found earlier = {.replay = ret};
    const char *count = http_request_header(request, "x-stainless-retry-count");
    bool again = count != NULL && strtol(count, NULL, 10) > 0;
    if (ret->kept && (ret->row.key[0] != '\0' || again))
        TRY(store_replay_find(api->store, &ret->row, replay_on_row, &earlier, &found, err));
    *ret_answered = found;
    return found ? replay_answer(api, request, &earlier, err) : 0;
}

void replay_keep(struct api *api, struct http_request *request, int status, const char *body)
{
    struct replay replay;
    struct err err;
    int rc = replay_read(api, request, &replay, &err);
    if (rc == 0 && replay.kept && !replay.makes && strlen(body) <= REPLAY_BODY_BYTES)
        rc = store_replay_put(api->store, &replay.row,
                              &(struct store_replayed){.status = status, .body = body}, &err);
    if (rc != 0)
        log_warn("replay", "an answer is not kept: %s", err.text);
}

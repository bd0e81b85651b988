/* replay: requests that are sent again do not act again.
 *
 * A POST with the header Idempotency-Key (1 to 255 printable characters) is remembered for a day:
 * the same key from the same caller to the same path gets the answer of the first one, over
 * restarts of the daemon too; with another body it is refused (422). Without a key: what OpenAI's
 * SDKs send again after a lost connection (x-stainless-retry-count above 0), with the same caller,
 * path and body within ten minutes, gets what the first one made; this is for requests that make
 * something (jobs, files), others may be done twice. Only success is remembered: what was refused
 * can be asked again.
 *
 * Of a request that made a job or a file its id is remembered, in the same transaction, and the
 * replay shows it as it is now. Answers with a secret (tokens, sessions) are never kept: there a
 * second request makes a second one. Two requests with one key at the same moment both act when
 * their answers take time (chat, pause); these change nothing twice.
 *
 * draft-ietf-httpapi-idempotency-key-header has the header's meaning. */
#pragma once
#include "common/io.h"
#include "daemon/api.h"
#include "daemon/route.h"

/* How this request is remembered; texts are the request's own. */
struct replay {
    struct store_replay row;
    char hash[IO_HASH_BYTES]; /* row.hash */
    bool kept;                /* it is one that is remembered */
    bool makes;               /* a job or a file, by its id */
};

/* Does a request of this route with a key get its first answer again? */
bool replay_is_kept(enum route_id route);

/* Fills *ret. *ret_answered: an earlier one was found and its answer given. ERR_KEY_REUSED. */
int replay_begin(struct api *api, struct http_request *request, struct replay *ret,
                 bool *ret_answered, struct err *err);
/* Keeps an answer, unless what it made is kept already. */
void replay_keep(struct api *api, struct http_request *request, int status, const char *body);

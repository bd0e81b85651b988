/* auth: tokens. Every request but /healthz carries "Authorization: Bearer <token>".
 *
 * A token is "ithaca-" and 43 characters of [A-Za-z0-9_-], 256 random bits. jobs.db holds only a
 * keyed hash of it (BLAKE2b, key in <data_dir>/auth.key, 0600): a copy of the database opens
 * nothing, and a plain hash is enough for random tokens. The hash finds the row; it is compared
 * again in constant time.
 *
 * The admin token is made at the first start and kept in <data_dir>/admin.token (0600), where the
 * command line reads it. Delete that file and restart to change it. */
#pragma once
#include "common/err.h"
#include "common/limits.h"

#include <stdbool.h>

struct auth;
struct host;
struct store;

/* Makes key and admin token when they are missing. The store outlives it. */
int auth_new(const char *data_dir, struct store *store, struct host *host, struct auth **ret_auth,
             struct err *err);
void auth_free(struct auth *auth); /* NULL is fine */

struct auth_who {
    char name[LIMIT_NAME_BYTES + 1]; /* of the token, a job's owner */
    bool may_read;
    bool may_submit;
};

/* The value of an Authorization header, or NULL. ERR_AUTH when it is no known token. */
int auth_check(struct auth *auth, const char *authorization, struct auth_who *ret_who,
               struct err *err);

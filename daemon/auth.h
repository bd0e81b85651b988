/* auth: who asks. Every request but /healthz carries "Authorization: Bearer <token>", or came by
 * the Unix socket, whose users the kernel names, or has a session's cookie (access.h decides
 * which).
 *
 * A token is "ithaca-" and 43 characters of [A-Za-z0-9_-], 256 random bits. The first 8 of these
 * are its public prefix, by which its row is found; the rest is secret. jobs.db holds only a
 * keyed hash of the whole (BLAKE2b, key in <data_dir>/auth.key, 0600): a copy of the database opens
 * nothing, and a plain hash is enough for random tokens. It is compared in constant time.
 *
 * A token is of a user and has a scope: read, submit (and read), admin (everything, of all users).
 * It may end at a time, and be revoked. A session (a browser's cookie) is a token too, of the user
 * and scope of the one that it was opened with, and ends with it; it is no Bearer token.
 *
 * The admin token is made at the first start and kept in <data_dir>/admin.token (0600), where the
 * command line reads it. Delete that file and restart to change it. */
#pragma once
#include "common/err.h"
#include "common/limits.h"

#include <stdbool.h>
#include <stdint.h>

struct auth;
struct host;
struct store;

enum auth_scope { AUTH_SCOPE_NONE, AUTH_SCOPE_READ, AUTH_SCOPE_SUBMIT, AUTH_SCOPE_ADMIN };
const char *auth_scope_name(enum auth_scope scope); /* "submit"; NONE has none */
enum auth_scope auth_scope_parse(const char *name); /* NONE when it is none */
#define AUTH_ADMIN_ID "token-admin"                 /* of the token in admin.token */
enum {
    AUTH_TOKEN_CHARS = 50,  /* of a token */
    AUTH_PUBLIC_CHARS = 15, /* of them, from the first on, the public prefix */
    AUTH_USER_BYTES_MAX = 64
};

/* Makes key and admin token when they are missing. The store outlives it. */
int auth_new(const char *data_dir, struct store *store, struct host *host, struct auth **ret_auth,
             struct err *err);
void auth_free(struct auth *auth); /* NULL is fine */

struct auth_who {
    char user[LIMIT_NAME_BYTES + 1];  /* the owner of what it makes */
    char caller[LIMIT_ID_BYTES + 1];  /* id of the token, or "uid-<number>" */
    char session[LIMIT_ID_BYTES + 1]; /* id of the session's own row; "" when it is none */
    enum auth_scope scope;
    int64_t expires_ms; /* of the token or session; 0: never */
};

/* The value of an Authorization header, or NULL. ERR_AUTH when it is no token that counts. */
int auth_check(struct auth *auth, const char *authorization, struct auth_who *ret_who,
               struct err *err);
/* The value of a session's cookie. */
int auth_check_session(struct auth *auth, const char *secret, struct auth_who *ret_who,
                       struct err *err);

/* The user at the other end of a Unix socket. Root and the daemon's own user are the user "admin";
 * others go by their login name (looked up once), and may submit, or everything where `admins`
 * names them. A login "admin" that is neither is "uid-<number>", as is a user without a name. */
struct settings_list;
int auth_check_peer(struct auth *auth, int64_t uid, const struct settings_list *admins,
                    struct auth_who *ret_who, struct err *err);

/* Does a token or session that was found still count? For what outlasts its request: streams. Where
 * the store cannot say, it does. */
bool auth_still_counts(struct auth *auth, const struct auth_who *who);

/* A token that is to be. */
struct auth_grant {
    const char *parent; /* id of the token, for a session; else "" */
    const char *name;
    const char *user;
    enum auth_scope scope;
    int64_t expires_ms; /* 0: never */
};
/* The secret is given here once and never again. ERR_TOO_MANY. */
int auth_grant(struct auth *auth, const struct auth_grant *grant, char ret_id[LIMIT_ID_BYTES + 1],
               char ret_secret[AUTH_TOKEN_CHARS + 1], struct err *err);

/* The public prefix of a token, which has AUTH_TOKEN_CHARS. */
void auth_public_part(const char *token, char ret[AUTH_PUBLIC_CHARS + 1]);

/* A secret of our own for a purpose, the same as long as auth.key is. */
enum { AUTH_DERIVED_BYTES = 32 };
void auth_derive(const struct auth *auth, const char *purpose, uint8_t ret[AUTH_DERIVED_BYTES]);

/* May this name a user? 1..AUTH_USER_BYTES_MAX of [A-Za-z0-9_.@-], beginning with a letter, a
 * digit or "_". */
bool auth_is_user(const char *name);

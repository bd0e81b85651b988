/* auth: libsodium for the keyed hash and the comparison; randomness from the host seam. */
#include "daemon/auth.h"

#include "common/io.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/must.h"
#include "daemon/host.h"
#include "daemon/settings.h"
#include "daemon/store.h"

#include <ctype.h>
#include <pwd.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum {
    AUTH_RANDOM_BYTES = 32,
    AUTH_RANDOM_CHARS = 43, /* of them in URL-safe base64, no padding */
    AUTH_KEY_BYTES = crypto_generichash_KEYBYTES,
    AUTH_USED_MS = 60000, /* the time of last use is kept about as exactly as this */
    AUTH_TOKENS_MAX = 10000,
    AUTH_LOGINS = 256 /* of people on one machine */
};
static const char auth_uid_prefix[] = "uid-"; /* of callers that have no token */
static const char auth_word[] = "ithaca-";
enum { AUTH_WORD_CHARS = sizeof auth_word - 1 };
_Static_assert(AUTH_WORD_CHARS + AUTH_RANDOM_CHARS == AUTH_TOKEN_CHARS, "auth.h says the length");

/* A user of the machine; looked up once, since that may ask a directory on another one. */
struct auth_login {
    int64_t uid;
    char name[AUTH_USER_BYTES_MAX + 1];
};

struct auth {
    struct store *store;
    struct host *host;
    struct auth_login logins[AUTH_LOGINS]; /* the newest ones known */
    int login_count;                       /* ever looked up */
    uint8_t key[AUTH_KEY_BYTES];           /* of the hash */
};

static const char *const auth_scope_names[] = {"", "read", "submit", "admin"};

const char *auth_scope_name(enum auth_scope scope)
{
    must(scope > AUTH_SCOPE_NONE && scope <= AUTH_SCOPE_ADMIN);
    return auth_scope_names[scope];
}

enum auth_scope auth_scope_parse(const char *name)
{
    int scope = AUTH_SCOPE_ADMIN;
    while (scope > AUTH_SCOPE_NONE && strcmp(auth_scope_names[scope], name) != 0)
        scope--;
    return (enum auth_scope)scope;
}

bool auth_is_user(const char *name)
{
    size_t length = strlen(name);
    return length > 0 && length <= AUTH_USER_BYTES_MAX &&
           (isalnum((unsigned char)name[0]) || name[0] == '_') &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.@-") ==
               length;
}

static void auth_hash(const struct auth *auth, const char *token, uint8_t ret[STORE_HASH_BYTES])
{
    (void)crypto_generichash(ret, STORE_HASH_BYTES, (const unsigned char *)token, strlen(token),
                             auth->key, sizeof auth->key); /* fails only for wrong sizes */
}

void auth_derive(const struct auth *auth, const char *purpose, uint8_t ret[AUTH_DERIVED_BYTES])
{
    must(strncmp(purpose, auth_word, AUTH_WORD_CHARS) != 0); /* it is no token's hash */
    auth_hash(auth, purpose, ret);
}

static int auth_load_key(struct auth *auth, const char *path, struct err *err)
{
    struct host *host = auth->host;
    if (!io_exists(path)) {
        TRY(host->ops->random(host, auth->key, sizeof auth->key, err));
        return io_write_file(path, auth->key, sizeof auth->key, 0600, err);
    }
    CLEANUP(buf_done) struct buf bytes;
    buf_init(&bytes, AUTH_KEY_BYTES);
    TRY(io_read_secret(path, 077, AUTH_KEY_BYTES, &bytes, err));
    if (bytes.length != AUTH_KEY_BYTES)
        return err_set(
            err, ERR_CORRUPT,
            "%s: must have %d bytes; put a copy of it back, or delete it to make a new one: "
            "users then need new tokens",
            path, AUTH_KEY_BYTES);
    memcpy(auth->key, bytes.data, AUTH_KEY_BYTES);
    return 0;
}

static int auth_make_token(struct host *host, char ret[AUTH_TOKEN_CHARS + 1], struct err *err)
{
    uint8_t random[AUTH_RANDOM_BYTES];
    char encoded[AUTH_RANDOM_CHARS + 1];
    TRY(host->ops->random(host, random, sizeof random, err));
    (void)sodium_bin2base64(encoded, sizeof encoded, random, sizeof random,
                            sodium_base64_VARIANT_URLSAFE_NO_PADDING);
    (void)snprintf(ret, AUTH_TOKEN_CHARS + 1, "%s%s", auth_word, encoded);
    return 0;
}

void auth_public_part(const char *token, char ret[AUTH_PUBLIC_CHARS + 1])
{
    memcpy(ret, token, AUTH_PUBLIC_CHARS);
    ret[AUTH_PUBLIC_CHARS] = '\0';
}

static int auth_put(struct auth *auth, const char *id, const struct auth_grant *grant,
                    const char *token, struct err *err)
{
    uint8_t hash[STORE_HASH_BYTES];
    char prefix[AUTH_PUBLIC_CHARS + 1];
    auth_hash(auth, token, hash);
    auth_public_part(token, prefix);
    const struct store_token row = {.id = id,
                                    .parent = grant->parent,
                                    .prefix = prefix,
                                    .hash = hash,
                                    .name = grant->name,
                                    .user = grant->user,
                                    .scope = auth_scope_name(grant->scope),
                                    .created_ms = auth->host->ops->wall_ms(auth->host),
                                    .expires_ms = grant->expires_ms};
    return store_token_put(auth->store, &row, err);
}

int auth_grant(struct auth *auth, const struct auth_grant *grant, char ret_id[LIMIT_ID_BYTES + 1],
               char ret_secret[AUTH_TOKEN_CHARS + 1], struct err *err)
{
    int64_t count = 0;
    int64_t now_ms = auth->host->ops->wall_ms(auth->host);
    must(auth_is_user(grant->user));
    TRY(store_tokens_prune(auth->store, now_ms, err));
    TRY(store_tokens_count(auth->store, now_ms, &count, err));
    if (count >= AUTH_TOKENS_MAX)
        return err_set(err, ERR_TOO_MANY, "there are %d tokens and sessions, the most there may be",
                       AUTH_TOKENS_MAX);
    TRY(host_new_id(auth->host, grant->parent[0] != '\0' ? "session-" : "token-", ret_id,
                    LIMIT_ID_BYTES + 1, err));
    TRY(auth_make_token(auth->host, ret_secret, err));
    return auth_put(auth, ret_id, grant, ret_secret, err);
}

static const struct auth_grant auth_admin = {
    .parent = "", .name = "admin.token", .user = "admin", .scope = AUTH_SCOPE_ADMIN};

static int auth_read_admin(const char *path, char ret[AUTH_TOKEN_CHARS + 1], struct err *err)
{
    CLEANUP(buf_done) struct buf text;
    buf_init(&text, 256);
    TRY(io_read_secret(path, 077, 256, &text, err));
    while (text.length > 0 && isspace((unsigned char)text.data[text.length - 1]))
        text.data[--text.length] = '\0';
    if (text.length != AUTH_TOKEN_CHARS || strncmp(text.data, auth_word, AUTH_WORD_CHARS) != 0)
        return err_set(err, ERR_CORRUPT, "%s: not a token; delete it to make a new one", path);
    memcpy(ret, text.data, AUTH_TOKEN_CHARS + 1);
    return 0;
}

static int auth_load_admin(struct auth *auth, const char *path, struct err *err)
{
    char token[AUTH_TOKEN_CHARS + 1];
    if (io_exists(path)) {
        TRY(auth_read_admin(path, token, err));
    } else {
        char line[AUTH_TOKEN_CHARS + 2];
        TRY(auth_make_token(auth->host, token, err));
        int length = snprintf(line, sizeof line, "%s\n", token);
        TRY(io_write_file(path, line, (size_t)length, 0600, err));
    }
    int rc = auth_put(auth, AUTH_ADMIN_ID, &auth_admin, token, err);
    sodium_memzero(token, sizeof token);
    return rc;
}

static int auth_init(struct auth *auth, const char *data_dir, struct err *err)
{
    CLEANUP(mem_free_ptr) char *key_path = io_join(data_dir, "auth.key");
    CLEANUP(mem_free_ptr) char *admin_path = io_join(data_dir, "admin.token");
    if (key_path == NULL || admin_path == NULL)
        return mem_fail(err, LIMIT_PATH_BYTES, "a path");
    if (sodium_init() < 0)
        return err_set(err, ERR_INTERNAL, "libsodium cannot start");
    TRY(auth_load_key(auth, key_path, err));
    return auth_load_admin(auth, admin_path, err);
}

int auth_new(const char *data_dir, struct store *store, struct host *host, struct auth **ret_auth,
             struct err *err)
{
    struct auth *auth = mem_new(1, sizeof *auth);
    if (auth == NULL)
        return mem_fail(err, sizeof *auth, "tokens");
    auth->store = store;
    auth->host = host;
    int rc = auth_init(auth, data_dir, err);
    if (rc == 0)
        *ret_auth = auth;
    else
        auth_free(auth);
    return rc;
}

void auth_free(struct auth *auth)
{
    if (auth != NULL)
        sodium_memzero(auth->key, sizeof auth->key);
    mem_free(auth);
}

struct auth_found {
    uint8_t hash[STORE_HASH_BYTES]; /* the one looked for */
    bool session;                   /* it came in a cookie */
    int64_t now_ms;
    bool stale; /* its time of last use is to be renewed */
    struct auth_who who;
};

static int auth_on_row(void *context, const struct store_token *token, struct err *err)
{
    struct auth_found *found = context;
    bool session = token->parent[0] != '\0';
    const char *what = session ? "session" : "token";
    if (sodium_memcmp(token->hash, found->hash, STORE_HASH_BYTES) != 0 || session != found->session)
        return err_set(err, ERR_AUTH, "the %s is not known", found->session ? "session" : "token");
    if (token->revoked_ms != 0)
        return err_set(err, ERR_AUTH, "the %s was revoked", what);
    if (token->expires_ms != 0 && token->expires_ms <= found->now_ms)
        return err_set(err, ERR_AUTH, "the %s has expired", what);
    struct auth_who *who = &found->who;
    (void)snprintf(who->user, sizeof who->user, "%s", token->user);
    (void)snprintf(who->caller, sizeof who->caller, "%s", session ? token->parent : token->id);
    (void)snprintf(who->session, sizeof who->session, "%s", session ? token->id : "");
    who->scope = auth_scope_parse(token->scope);
    who->expires_ms = token->expires_ms;
    found->stale = found->now_ms - token->last_used_ms >= AUTH_USED_MS;
    return 0;
}

/* Id of the row by which it was found, or "uid-<number>". */
static const char *auth_row_id(const struct auth_who *who)
{
    return who->session[0] != '\0' ? who->session : who->caller;
}

static int auth_find(struct auth *auth, const char *secret, bool session, struct auth_who *ret_who,
                     struct err *err)
{
    struct auth_found found = {.session = session, .now_ms = auth->host->ops->wall_ms(auth->host)};
    char prefix[AUTH_PUBLIC_CHARS + 1];
    struct err unsaved;
    if (strlen(secret) != AUTH_TOKEN_CHARS)
        return err_set(err, ERR_AUTH, "the %s is not known", session ? "session" : "token");
    auth_hash(auth, secret, found.hash);
    auth_public_part(secret, prefix);
    TRY(store_token_find(auth->store, prefix, auth_on_row, &found, err));
    const char *id = auth_row_id(&found.who);
    if (found.stale && store_token_used(auth->store, id, found.now_ms, &unsaved) != 0)
        log_warn("auth", "the time of use of %s is not kept: %s", id, unsaved.text);
    *ret_who = found.who;
    return 0;
}

int auth_check(struct auth *auth, const char *authorization, struct auth_who *ret_who,
               struct err *err)
{
    static const char scheme[] = "Bearer ";
    if (authorization == NULL || strncasecmp(authorization, scheme, sizeof scheme - 1) != 0)
        return err_set(err, ERR_AUTH,
                       "send the header \"Authorization: Bearer <token>\"; the admin's token is in "
                       "admin.token in the data folder");
    const char *token = authorization + sizeof scheme - 1;
    return auth_find(auth, token + strspn(token, " "), false, ret_who, err);
}

int auth_check_session(struct auth *auth, const char *secret, struct auth_who *ret_who,
                       struct err *err)
{
    return auth_find(auth, secret, true, ret_who, err);
}

bool auth_still_counts(struct auth *auth, const struct auth_who *who)
{
    struct err unread;
    bool counts = true; /* stays where the store cannot be read */
    const char *id = auth_row_id(who);
    if (strncmp(id, auth_uid_prefix, strlen(auth_uid_prefix)) != 0)
        (void)store_token_counts(auth->store, id, auth->host->ops->wall_ms(auth->host), &counts,
                                 &unread);
    return counts;
}

static const char *auth_login(struct auth *auth, int64_t uid)
{
    int known = auth->login_count < AUTH_LOGINS ? auth->login_count : AUTH_LOGINS;
    for (int i = 0; i < known; i++)
        if (auth->logins[i].uid == uid)
            return auth->logins[i].name;
    struct auth_login *login = &auth->logins[auth->login_count++ % AUTH_LOGINS];
    const struct passwd *entry = getpwuid((uid_t)uid);
    login->uid = uid;
    if (entry != NULL && auth_is_user(entry->pw_name))
        (void)snprintf(login->name, sizeof login->name, "%s", entry->pw_name);
    else
        (void)snprintf(login->name, sizeof login->name, "%s%lld", auth_uid_prefix, (long long)uid);
    return login->name;
}

static bool auth_is_listed(const struct settings_list *users, const char *login)
{
    for (size_t i = 0; i < users->count; i++)
        if (strcmp(users->items[i].value, login) == 0)
            return true;
    return false;
}

int auth_check_peer(struct auth *auth, int64_t uid, const struct settings_list *admins,
                    struct auth_who *ret_who, struct err *err)
{
    if (uid < 0)
        return err_set(err, ERR_AUTH, "the user at the other end of the socket is not known");
    const char *login = auth_login(auth, uid);
    bool own = uid == 0 || uid == geteuid();
    bool admin = own || auth_is_listed(admins, login);
    struct auth_who who = {.scope = admin ? AUTH_SCOPE_ADMIN : AUTH_SCOPE_SUBMIT};
    (void)snprintf(who.caller, sizeof who.caller, "%s%lld", auth_uid_prefix, (long long)uid);
    const char *user = own ? auth_admin.user : login;
    if (!admin && strcmp(login, auth_admin.user) == 0)
        user = who.caller; /* the admin's things are not its own */
    (void)snprintf(who.user, sizeof who.user, "%s", user);
    *ret_who = who;
    return 0;
}

/* auth: libsodium for the keyed hash and the comparison; randomness from the host seam. */
#include "daemon/auth.h"

#include "common/io.h"
#include "common/mem.h"
#include "daemon/host.h"
#include "daemon/store.h"

#include <ctype.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

enum {
    AUTH_RANDOM_BYTES = 32,
    AUTH_RANDOM_CHARS = 43, /* of them in URL-safe base64, no padding */
    AUTH_KEY_BYTES = crypto_generichash_KEYBYTES
};
static const char auth_prefix[] = "ithaca-";
enum { AUTH_TOKEN_CHARS = sizeof auth_prefix - 1 + AUTH_RANDOM_CHARS };

struct auth {
    struct store *store;
    uint8_t key[AUTH_KEY_BYTES]; /* of the hash */
};

static void auth_hash(const struct auth *auth, const char *token, uint8_t ret[STORE_HASH_BYTES])
{
    (void)crypto_generichash(ret, STORE_HASH_BYTES, (const unsigned char *)token, strlen(token),
                             auth->key, sizeof auth->key); /* fails only for wrong sizes */
}

/* A secret file must be ours alone. */
static int auth_read_secret(const char *path, size_t bytes_max, struct buf *out, struct err *err)
{
    struct stat info;
    if (stat(path, &info) == 0 && (info.st_mode & 077) != 0)
        return err_set(err, ERR_SETTING, "%s: others may read it; run chmod 600 on it", path);
    return io_read_file(path, bytes_max, out, err);
}

static int auth_load_key(struct auth *auth, const char *path, struct host *host, struct err *err)
{
    if (!io_exists(path)) {
        TRY(host->ops->random(host, auth->key, sizeof auth->key, err));
        return io_write_file(path, auth->key, sizeof auth->key, 0600, err);
    }
    CLEANUP(buf_done) struct buf bytes;
    buf_init(&bytes, AUTH_KEY_BYTES);
    TRY(auth_read_secret(path, AUTH_KEY_BYTES, &bytes, err));
    if (bytes.length != AUTH_KEY_BYTES)
        return err_set(err, ERR_CORRUPT,
                       "%s: must have %d bytes; delete it and admin.token to make new ones", path,
                       AUTH_KEY_BYTES);
    memcpy(auth->key, bytes.data, AUTH_KEY_BYTES);
    return 0;
}

static int auth_make_token(const char *path, struct host *host, char ret[AUTH_TOKEN_CHARS + 1],
                           struct err *err)
{
    uint8_t random[AUTH_RANDOM_BYTES];
    TRY(host->ops->random(host, random, sizeof random, err));
    char encoded[AUTH_RANDOM_CHARS + 1];
    (void)sodium_bin2base64(encoded, sizeof encoded, random, sizeof random,
                            sodium_base64_VARIANT_URLSAFE_NO_PADDING);
    (void)snprintf(ret, AUTH_TOKEN_CHARS + 1, "%s%s", auth_prefix, encoded);
    char line[AUTH_TOKEN_CHARS + 2];
    int length = snprintf(line, sizeof line, "%s\n", ret);
    return io_write_file(path, line, (size_t)length, 0600, err);
}

static int auth_load_admin(struct auth *auth, const char *path, struct host *host, struct err *err)
{
    char token[AUTH_TOKEN_CHARS + 1];
    if (io_exists(path)) {
        CLEANUP(buf_done) struct buf text;
        buf_init(&text, 256);
        TRY(auth_read_secret(path, 256, &text, err));
        while (text.length > 0 && isspace((unsigned char)text.data[text.length - 1]))
            text.data[--text.length] = '\0';
        if (text.length != AUTH_TOKEN_CHARS || strncmp(text.data, auth_prefix, 7) != 0)
            return err_set(err, ERR_CORRUPT, "%s: not a token; delete it to make a new one", path);
        memcpy(token, text.data, sizeof token);
    } else {
        TRY(auth_make_token(path, host, token, err));
    }
    uint8_t hash[STORE_HASH_BYTES];
    auth_hash(auth, token, hash);
    sodium_memzero(token, sizeof token);
    const struct store_token row = {.name = "admin",
                                    .hash = hash,
                                    .scopes = "read submit admin",
                                    .created_ms = host->ops->wall_ms(host)};
    return store_token_put(auth->store, &row, err);
}

static int auth_init(struct auth *auth, const char *data_dir, struct host *host, struct err *err)
{
    CLEANUP(mem_free_ptr) char *key_path = io_join(data_dir, "auth.key");
    CLEANUP(mem_free_ptr) char *admin_path = io_join(data_dir, "admin.token");
    if (key_path == NULL || admin_path == NULL)
        return mem_fail(err, LIMIT_PATH_BYTES, "a path");
    if (sodium_init() < 0)
        return err_set(err, ERR_INTERNAL, "libsodium cannot start");
    TRY(auth_load_key(auth, key_path, host, err));
    return auth_load_admin(auth, admin_path, host, err);
}

int auth_new(const char *data_dir, struct store *store, struct host *host, struct auth **ret_auth,
             struct err *err)
{
    struct auth *auth = mem_new(1, sizeof *auth);
    if (auth == NULL)
        return mem_fail(err, sizeof *auth, "tokens");
    auth->store = store;
    int rc = auth_init(auth, data_dir, host, err);
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
    const uint8_t *hash;  /* the one looked for */
    struct auth_who *who; /* filled when the row's is the same */
};

static bool auth_has_scope(const char *scopes, const char *wanted)
{
    size_t length = strlen(wanted);
    for (const char *word = scopes; *word != '\0';) {
        size_t word_length = strcspn(word, " ");
        if (word_length == length && memcmp(word, wanted, length) == 0)
            return true;
        word += word_length;
        word += strspn(word, " ");
    }
    return false;
}

static int auth_on_row(void *context, const struct store_token *token, struct err *err)
{
    struct auth_found *found = context;
    if (sodium_memcmp(token->hash, found->hash, STORE_HASH_BYTES) != 0)
        return err_set(err, ERR_AUTH, "the token is not known");
    (void)snprintf(found->who->name, sizeof found->who->name, "%s", token->name);
    found->who->may_read = auth_has_scope(token->scopes, "read");
    found->who->may_submit = auth_has_scope(token->scopes, "submit");
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
    token += strspn(token, " ");
    if (strlen(token) != AUTH_TOKEN_CHARS)
        return err_set(err, ERR_AUTH, "the token is not known");
    uint8_t hash[STORE_HASH_BYTES];
    auth_hash(auth, token, hash);
    struct auth_who who = {0};
    struct auth_found found = {.hash = hash, .who = &who};
    TRY(store_token_find(auth->store, hash, auth_on_row, &found, err));
    *ret_who = who;
    return 0;
}

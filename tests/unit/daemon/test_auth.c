/* auth: tokens open until they end or are revoked, sessions with them, all else does not; only
 * hashes are stored; users of a Unix socket are who the machine says they are. */
#include "daemon/auth.h"

#include "common/buf.h"
#include "common/io.h"
#include "common/mem.h"
#include "daemon/host.h"
#include "daemon/loop.h"
#include "daemon/settings.h"
#include "daemon/store.h"
#include "tests/lib/cmocka.h"

#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The machine's users, instead of those of libc: who asks, and who is known by a name. */
static uid_t own_uid;
static int lookups;

uid_t geteuid(void)
{
    return own_uid;
}

struct passwd *getpwuid(uid_t uid)
{
    static char admin[] = "admin", nobody[] = "nobody", odd[] = "a b";
    static struct passwd entry;
    entry.pw_name = uid == 501 ? admin : uid == 502 ? nobody : odd;
    lookups++;
    return uid >= 501 && uid <= 503 ? &entry : NULL;
}

struct fixture {
    char folder[64];
    struct loop *loop;
    struct host *host;
    struct store *store;
    struct auth *auth;
};

static int open_all(void **state)
{
    static struct fixture fixture;
    struct err err;
    own_uid = getuid();
    fixture = (struct fixture){.folder = "/tmp/ithaca-auth-XXXXXX"};
    *state = &fixture;
    assert_non_null(mkdtemp(fixture.folder));
    assert_int_equal(loop_new(&fixture.loop, &err), 0);
    assert_int_equal(host_posix_new(fixture.loop, &fixture.host, &err), 0);
    assert_int_equal(store_open(fixture.folder, &fixture.store, &err), 0);
    return auth_new(fixture.folder, fixture.store, fixture.host, &fixture.auth, &err);
}

static int close_all(void **state)
{
    struct fixture *fixture = *state;
    struct err err;
    auth_free(fixture->auth);
    store_close(fixture->store);
    host_posix_free(fixture->host);
    loop_free(fixture->loop);
    assert_int_equal(mem_live(), 0);
    return io_remove_tree(fixture->folder, &err);
}

static void reopen(struct fixture *fixture)
{
    struct err err;
    auth_free(fixture->auth);
    fixture->auth = NULL;
    assert_int_equal(auth_new(fixture->folder, fixture->store, fixture->host, &fixture->auth, &err),
                     0);
}

static void path_of(const struct fixture *fixture, const char *name, char ret[128])
{
    (void)snprintf(ret, 128, "%s/%s", fixture->folder, name);
}

static void read_header(const struct fixture *fixture, char ret_header[128])
{
    struct err err;
    char path[128];
    path_of(fixture, "admin.token", path);
    CLEANUP(buf_done) struct buf text;
    buf_init(&text, 256);
    assert_int_equal(io_read_file(path, 256, &text, &err), 0);
    (void)snprintf(ret_header, 128, "Bearer %.50s", buf_str(&text));
}

static int check(struct fixture *fixture, const char *header)
{
    struct err err;
    struct auth_who who;
    return auth_check(fixture->auth, header, &who, &err);
}

static void test_admin(void **state)
{
    struct fixture *fixture = *state;
    struct auth_who who;
    struct err err;
    char header[128];
    read_header(fixture, header);
    assert_int_equal(auth_check(fixture->auth, header, &who, &err), 0);
    assert_string_equal(who.user, "admin");
    assert_string_equal(who.caller, AUTH_ADMIN_ID);
    assert_int_equal(who.scope, AUTH_SCOPE_ADMIN);
    assert_int_equal(who.expires_ms, 0);
    memcpy(header, "bEARER", 6); /* the scheme's case does not matter */
    assert_int_equal(check(fixture, header), 0);
    char spaced[128];
    (void)snprintf(spaced, sizeof spaced, "Bearer   %.50s", header + strlen("Bearer "));
    assert_int_equal(check(fixture, spaced), 0);
    assert_int_equal(check(fixture, NULL), -ERR_AUTH);
    assert_int_equal(check(fixture, ""), -ERR_AUTH);
    assert_int_equal(check(fixture, "Bearer "), -ERR_AUTH);
    assert_int_equal(check(fixture, header + strlen("Bearer ")), -ERR_AUTH);
    header[strlen("Bearer ithaca-")] ^= 1;
    assert_int_equal(check(fixture, header), -ERR_AUTH);
    header[strlen("Bearer ithaca-")] ^= 1;
    header[strlen(header) - 1] = '\0';
    assert_int_equal(check(fixture, header), -ERR_AUTH);
}

static void test_stays_and_rotates(void **state)
{
    struct fixture *fixture = *state;
    char first[128], second[128], path[128];
    read_header(fixture, first);
    reopen(fixture);
    assert_int_equal(check(fixture, first), 0);
    path_of(fixture, "admin.token", path);
    assert_int_equal(remove(path), 0);
    reopen(fixture);
    read_header(fixture, second);
    assert_string_not_equal(first, second);
    assert_int_equal(check(fixture, second), 0);
    assert_int_equal(check(fixture, first), -ERR_AUTH);
}

static void test_files_are_private(void **state)
{
    struct fixture *fixture = *state;
    static const char *const names[] = {"admin.token", "auth.key"};
    for (size_t i = 0; i < 2; i++) {
        char path[128];
        struct stat info;
        struct err err;
        struct auth *auth = NULL;
        path_of(fixture, names[i], path);
        assert_int_equal(stat(path, &info), 0);
        assert_int_equal(info.st_mode & 0777, 0600);
        assert_int_equal(chmod(path, 0640), 0);
        assert_int_equal(auth_new(fixture->folder, fixture->store, fixture->host, &auth, &err),
                         -ERR_SETTING);
        assert_non_null(strstr(err.text, names[i]));
        assert_int_equal(chmod(path, 0600), 0);
    }
}

static void test_keys(void **state)
{
    struct fixture *fixture = *state;
    char header[128], path[128];
    read_header(fixture, header);
    path_of(fixture, "auth.key", path);
    assert_int_equal(remove(path), 0);
    reopen(fixture); /* a new key: the same token is hashed and stored anew */
    assert_int_equal(check(fixture, header), 0);
    struct err err;
    struct auth *auth = NULL;
    assert_int_equal(io_write_file(path, "short", 5, 0600, &err), 0);
    assert_int_equal(auth_new(fixture->folder, fixture->store, fixture->host, &auth, &err),
                     -ERR_CORRUPT);
    assert_int_equal(remove(path), 0);
    path_of(fixture, "admin.token", path);
    const char *good = header + strlen("Bearer ");
    char files[4][64]; /* too short, too long, another word, with space behind it */
    (void)snprintf(files[0], sizeof files[0], "%.49s", good);
    (void)snprintf(files[1], sizeof files[1], "%.50sA", good);
    (void)snprintf(files[2], sizeof files[2], "Ithaca-%.43s", good + strlen("ithaca-"));
    (void)snprintf(files[3], sizeof files[3], "%.50s \n\n", good);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(io_write_file(path, files[i], strlen(files[i]), 0600, &err), 0);
        assert_int_equal(auth_new(fixture->folder, fixture->store, fixture->host, &auth, &err),
                         i < 3 ? -ERR_CORRUPT : 0);
    }
    auth_free(auth);
    assert_int_equal(check(fixture, header), -ERR_AUTH); /* by the key of before */
    reopen(fixture);
    assert_int_equal(check(fixture, header), 0);
}

/* A token of ann's; ret_header takes "Bearer " and the secret. */
static void grant(struct fixture *fixture, const struct auth_grant *wish,
                  char ret_id[LIMIT_ID_BYTES + 1], char ret_header[128])
{
    struct err err;
    char secret[AUTH_TOKEN_CHARS + 1];
    assert_int_equal(auth_grant(fixture->auth, wish, ret_id, secret, &err), 0);
    assert_int_equal(strlen(secret), AUTH_TOKEN_CHARS);
    (void)snprintf(ret_header, 128, "Bearer %s", secret);
}

static void test_grants(void **state)
{
    struct fixture *fixture = *state;
    int64_t now_ms = fixture->host->ops->wall_ms(fixture->host);
    struct auth_grant wish = {
        .parent = "", .name = "", .user = "ann", .scope = AUTH_SCOPE_READ, .expires_ms = 0};
    char id[LIMIT_ID_BYTES + 1], other[LIMIT_ID_BYTES + 1], session[LIMIT_ID_BYTES + 1];
    char header[128], ended[128], cookie[128];
    struct auth_who who;
    struct err err;
    grant(fixture, &wish, id, header);
    reopen(fixture); /* it outlives the daemon */
    assert_int_equal(auth_check(fixture->auth, header, &who, &err), 0);
    assert_string_equal(who.user, "ann");
    assert_string_equal(who.caller, id);
    assert_string_equal(who.session, "");
    assert_int_equal(who.scope, AUTH_SCOPE_READ);
    wish.expires_ms = now_ms - 1;
    grant(fixture, &wish, other, ended);
    assert_string_not_equal(id, other);
    assert_memory_equal(id, "token-", 6);
    assert_int_equal(auth_check(fixture->auth, ended, &who, &err), -ERR_AUTH);
    assert_string_equal(err.text, "the token has expired");
    /* The public part alone is worth nothing. */
    memset(header + strlen("Bearer ithaca-") + 8, 'A', 35);
    assert_int_equal(auth_check(fixture->auth, header, &who, &err), -ERR_AUTH);
    assert_string_equal(err.text, "the token is not known");

    wish.parent = id;
    wish.expires_ms = now_ms + 1000000;
    grant(fixture, &wish, session, cookie);
    const char *secret = cookie + strlen("Bearer ");
    assert_int_equal(auth_check(fixture->auth, cookie, &who, &err), -ERR_AUTH);
    assert_int_equal(auth_check_session(fixture->auth, secret, &who, &err), 0);
    assert_string_equal(who.caller, id);
    assert_string_equal(who.session, session);
    assert_memory_equal(session, "session-", 8);
    assert_int_equal(who.expires_ms, wish.expires_ms);
    assert_int_equal(auth_check_session(fixture->auth, ended + strlen("Bearer "), &who, &err),
                     -ERR_AUTH); /* no token is a session */
    assert_int_equal(auth_check_session(fixture->auth, "", &who, &err), -ERR_AUTH);
    assert_string_equal(err.text, "the session is not known");
    assert_int_equal(store_token_revoke(fixture->store, id, now_ms, &err), 0);
    assert_int_equal(auth_check_session(fixture->auth, secret, &who, &err), -ERR_AUTH);
    assert_string_equal(err.text, "the session was revoked");
}

/* An admin token that became known is changed by deleting its file: what was opened with it goes
 * too. */
static void test_sessions_end_with_an_old_admin_token(void **state)
{
    struct fixture *fixture = *state;
    const struct auth_grant wish = {.parent = AUTH_ADMIN_ID,
                                    .name = "session",
                                    .user = "admin",
                                    .scope = AUTH_SCOPE_ADMIN,
                                    .expires_ms = INT64_MAX};
    char id[LIMIT_ID_BYTES + 1], header[128], path[128];
    struct auth_who who;
    struct err err;
    grant(fixture, &wish, id, header);
    const char *secret = header + strlen("Bearer ");
    reopen(fixture); /* with the same token */
    assert_int_equal(auth_check_session(fixture->auth, secret, &who, &err), 0);
    assert_true(auth_still_counts(fixture->auth, &who));
    path_of(fixture, "admin.token", path);
    assert_int_equal(unlink(path), 0);
    reopen(fixture);
    assert_int_equal(auth_check_session(fixture->auth, secret, &who, &err), -ERR_AUTH);
    assert_false(auth_still_counts(fixture->auth, &who));
}

static void test_scopes_and_users(void **state)
{
    for (int scope = AUTH_SCOPE_READ; scope <= AUTH_SCOPE_ADMIN; scope++)
        assert_int_equal(auth_scope_parse(auth_scope_name((enum auth_scope)scope)), scope);
    assert_int_equal(auth_scope_parse(""), AUTH_SCOPE_NONE);
    assert_int_equal(auth_scope_parse("Admin"), AUTH_SCOPE_NONE);
    static const char *const users[] = {"a", "_x", "ann@site.example", "0-9"};
    static const char *const others[] = {"", ".", "-a", "a b", "a/b", "\xc3\xa4", "a\nb"};
    for (size_t i = 0; i < sizeof users / sizeof users[0]; i++)
        assert_true(auth_is_user(users[i]));
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        assert_false(auth_is_user(others[i]));
    char longest[AUTH_USER_BYTES_MAX + 2];
    memset(longest, 'a', sizeof longest);
    longest[AUTH_USER_BYTES_MAX + 1] = '\0';
    assert_false(auth_is_user(longest));
    longest[AUTH_USER_BYTES_MAX] = '\0';
    assert_true(auth_is_user(longest));
}

static void test_peers(void **state)
{
    struct fixture *fixture = *state;
    char nobody[] = "nobody", somebody[] = "somebody";
    struct settings_pair pairs[] = {{.value = somebody}, {.value = nobody}};
    const struct settings_list none = {.count = 0}, others = {.items = pairs, .count = 1},
                               admins = {.items = pairs, .count = 2};
    static const struct {
        int64_t uid;
        bool listed; /* as an admin */
        enum auth_scope scope;
        const char *user;
    } rows[] = {
        {0, false, AUTH_SCOPE_ADMIN, "admin"},      {4711, false, AUTH_SCOPE_ADMIN, "admin"},
        {1, false, AUTH_SCOPE_SUBMIT, "uid-1"},     {502, false, AUTH_SCOPE_SUBMIT, "nobody"},
        {502, true, AUTH_SCOPE_ADMIN, "nobody"},    {501, true, AUTH_SCOPE_SUBMIT, "uid-501"},
        {503, false, AUTH_SCOPE_SUBMIT, "uid-503"},
    };
    struct auth_who who;
    struct err err;
    own_uid =
        4711; /* the daemon's own user; that one and root are the admin, one named so is not */
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char caller[32];
        (void)snprintf(caller, sizeof caller, "uid-%d", (int)rows[i].uid);
        assert_int_equal(auth_check_peer(fixture->auth, rows[i].uid,
                                         rows[i].listed ? &admins : &none, &who, &err),
                         0);
        assert_string_equal(who.user, rows[i].user);
        assert_string_equal(who.caller, caller);
        assert_int_equal(who.scope, rows[i].scope);
        assert_true(auth_still_counts(fixture->auth, &who)); /* no token that could end */
    }
    assert_int_equal(auth_check_peer(fixture->auth, 502, &others, &who, &err), 0);
    assert_int_equal(who.scope, AUTH_SCOPE_SUBMIT);
    assert_int_equal(lookups, 6);                             /* each user's name once */
    for (int64_t uid = 1700000000; uid < 1700000300; uid++) { /* more than are remembered */
        char name[32];
        (void)snprintf(name, sizeof name, "uid-%lld", (long long)uid);
        assert_int_equal(auth_check_peer(fixture->auth, uid, &none, &who, &err), 0);
        assert_string_equal(who.user, name);
    }
    assert_int_equal(auth_check_peer(fixture->auth, -1, &none, &who, &err), -ERR_AUTH);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_admin, open_all, close_all),
        cmocka_unit_test_setup_teardown(test_stays_and_rotates, open_all, close_all),
        cmocka_unit_test_setup_teardown(test_files_are_private, open_all, close_all),
        cmocka_unit_test_setup_teardown(test_keys, open_all, close_all),
        cmocka_unit_test_setup_teardown(test_grants, open_all, close_all),
        cmocka_unit_test_setup_teardown(test_peers, open_all, close_all),
        cmocka_unit_test_setup_teardown(test_sessions_end_with_an_old_admin_token, open_all,
                                        close_all),
        cmocka_unit_test(test_scopes_and_users),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

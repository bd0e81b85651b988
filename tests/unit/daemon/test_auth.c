/* auth: the admin token opens, all else does not; only its hash is stored. */
#include "daemon/auth.h"

#include "common/buf.h"
#include "common/io.h"
#include "common/mem.h"
#include "daemon/host.h"
#include "daemon/loop.h"
#include "daemon/store.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

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
    assert_string_equal(who.caller, auth_admin_id);
    assert_int_equal(who.scope, AUTH_SCOPE_ADMIN);
    assert_int_equal(who.expires_ms, 0);
    memcpy(header, "bEARER", 6); /* the scheme's case does not matter */
    assert_int_equal(check(fixture, header), 0);
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
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_admin, open_all, close_all),
        cmocka_unit_test_setup_teardown(test_stays_and_rotates, open_all, close_all),
        cmocka_unit_test_setup_teardown(test_files_are_private, open_all, close_all),
        cmocka_unit_test_setup_teardown(test_keys, open_all, close_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

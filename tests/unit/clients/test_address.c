/* address: which URL is taken, and to whom a token is given: never to a stranger. */
#include "clients/cli/address.h"

#include "clients/cli/cli.h"
#include "common/io.h"
#include "common/mem.h"
#include "tests/lib/folder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char own[96];
static struct err err;

static void put(const char *dir, const char *name, const char *text)
{
    CLEANUP(mem_free_ptr) char *path = io_join(dir, name);
    assert_int_equal(io_make_dirs(dir, 0700, &err), 0);
    assert_int_equal(io_write_file(path, text, strlen(text), 0600, &err), 0);
}

static int setup(void **state)
{
    if (folder_open(state) != 0)
        return -1;
    (void)snprintf(own, sizeof own, "%s/xdg/ithaca", folder);
    (void)unsetenv("ITHACA_TOKEN");
    (void)setenv("HOME", folder, 1);
    CLEANUP(mem_free_ptr) char *xdg = io_join(folder, "xdg");
    return setenv("XDG_DATA_HOME", xdg, 1);
}

static void expect(const char *url, const char *data_dir, const char *want_url,
                   const char *want_token)
{
    struct address address;
    MUST_WORK(address_find(url, data_dir, &address, &err), &err);
    assert_string_equal(address.url, want_url);
    if (want_token == NULL && address.token != NULL)
        fail_msg("%s gets the token", address.url);
    if (want_token != NULL)
        assert_string_equal(address.token, want_token);
    address_done(&address);
}

/* A folder that the user named lends its token to any URL. */
static void test_named_folder(void **state)
{
    put(folder, "url", "http://127.0.0.1:8620/\r\nmore\n");
    put(folder, "admin.token", "secret\n");
    expect(NULL, folder, "http://127.0.0.1:8620", "secret");
    static const char *const urls[][2] = {{"http://far.example///", "http://far.example"},
                                          {"https://far.example/v1", "https://far.example"},
                                          {"http://far.example:1//v1//", "http://far.example:1"},
                                          {"http://far.example/x/v1", "http://far.example/x"},
                                          {"http://far.example/x1", "http://far.example/x1"},
                                          {"http://v1", "http://v1"},
                                          {"unix:/tmp/v1", "unix:/tmp/v1"}};
    for (size_t i = 0; i < sizeof urls / sizeof urls[0]; i++)
        expect(urls[i][0], folder, urls[i][1], "secret");
    assert_int_equal(setenv("ITHACA_TOKEN", "other", 1), 0);
    expect(NULL, folder, "http://127.0.0.1:8620", "other");
    assert_int_equal(setenv("ITHACA_TOKEN", "", 1), 0); /* as if it were not set */
    expect(NULL, folder, "http://127.0.0.1:8620", "secret");
}

static bool system_daemon(void)
{
    return io_exists("/var/lib/ithaca/url") || io_exists("/var/lib/ithaca/admin.token");
}

/* The default folder lends its token only to the URL in its own file. */
static void test_default_folder(void **state)
{
    if (system_daemon())
        skip(); /* a daemon of the system stands before ours */
    put(own, "url", "http://127.0.0.1:8620\n");
    put(own, "admin.token", "secret\n");
    expect(NULL, NULL, "http://127.0.0.1:8620", "secret");
    static const char *const same[] = {"http://127.0.0.1:8620", "http://127.0.0.1:8620/",
                                       "http://localhost:8620", "http://LOCALHOST:8620",
                                       "http://[::1]:8620"};
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++) {
        struct address address;
        assert_int_equal(address_find(same[i], NULL, &address, &err), 0);
        if (address.token == NULL || !address.local)
            fail_msg("%s is our own daemon", same[i]);
        address_done(&address);
    }
    static const char *const strangers[] = {"http://far.example:8620",
                                            "http://127.0.0.1:8621",
                                            "http://127.0.0.1",
                                            "http://127.0.0.1:86200",
                                            "http://localhost.far.example:8620",
                                            "http://127.0.0.1.far.example:8620",
                                            "http://localhost@far.example:8620",
                                            "http://127.0.0.1:8620@far.example",
                                            "http://127.0.0.1:8620/../x"};
    for (size_t i = 0; i < sizeof strangers / sizeof strangers[0]; i++)
        expect(strangers[i], NULL, strangers[i], NULL);
}

static void test_where_the_default_is(void **state)
{
    if (system_daemon())
        skip();
    CLEANUP(mem_free_ptr) char *home = io_join(folder, ".local/share/ithaca");
    put(home, "url", "http://127.0.0.1:1\n");
    put(own, "url", "http://127.0.0.1:2\n");
    expect(NULL, NULL, "http://127.0.0.1:2", NULL);
    assert_int_equal(setenv("XDG_DATA_HOME", "relative", 1), 0); /* is to be ignored */
    expect(NULL, NULL, "http://127.0.0.1:1", NULL);
    assert_int_equal(unsetenv("XDG_DATA_HOME"), 0);
    expect(NULL, NULL, "http://127.0.0.1:1", NULL);
    assert_int_equal(setenv("HOME", "/nonexistent", 1), 0);
    struct address address;
    assert_int_equal(address_find(NULL, NULL, &address, &err), -ERR_UNAVAILABLE);
    assert_non_null(strstr(err.text, "ITHACA_URL"));
}

static void test_nothing_there(void **state)
{
    struct address address;
    assert_int_equal(address_find(NULL, folder, &address, &err), -ERR_UNAVAILABLE);
    put(folder, "url", ""); /* an empty file says nothing */
    assert_int_equal(address_find(NULL, folder, &address, &err), -ERR_UNAVAILABLE);
    put(folder, "admin.token", "\n");
    expect("http://127.0.0.1:1", folder, "http://127.0.0.1:1", NULL);
    address_done(&(struct address){.url = NULL});
}

static void test_local(void **state)
{
    static const struct {
        const char *url;
        bool local;
    } urls[] = {{"http://localhost", true},     {"https://[::1]:1", true},
                {"127.0.0.1:8620", true},       {"http://far.example", false},
                {"http://localhosts:1", false}, {"http://10.0.0.1", false},
                {"http://my.localhost", false}};
    for (size_t i = 0; i < sizeof urls / sizeof urls[0]; i++) {
        struct address address;
        assert_int_equal(address_find(urls[i].url, folder, &address, &err), 0);
        if (address.local != urls[i].local)
            fail_msg("%s", urls[i].url);
        address_done(&address);
    }
}

static void test_allocation_failures(void **state)
{
    put(folder, "url", "http://127.0.0.1:8620\n");
    put(folder, "admin.token", "secret\n");
    for (int64_t n = 1; n < 40; n++) {
        struct address address = {.url = NULL};
        mem_fault_after(n);
        int rc = address_find("http://127.0.0.1:8620", folder, &address, &err);
        mem_fault_after(0);
        if (rc == 0)
            address_done(&address);
        assert_int_equal(mem_live(), 0);
    }
}

#define ADDRESS_TEST(function) cmocka_unit_test_setup_teardown(function, setup, folder_close)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ADDRESS_TEST(test_named_folder),
        ADDRESS_TEST(test_default_folder),
        ADDRESS_TEST(test_where_the_default_is),
        ADDRESS_TEST(test_nothing_there),
        ADDRESS_TEST(test_local),
        ADDRESS_TEST(test_allocation_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

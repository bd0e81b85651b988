/* http_listen: a Unix socket has the mode it was given before anyone can connect; wrong settings
 * are named; what lies at its path is not destroyed. A port is taken again at once. */
#include "daemon/http_listen.h"

#include "tests/lib/http_world.h"

#include <arpa/inet.h>
#include <sys/stat.h>
#include <sys/un.h>

static void refused(struct http_world *h, enum err_code code, const char *field, const char *text)
{
    int fd = -1;
    assert_int_equal(http_listen_unix(&h->settings, &fd, &h->w->err), -(int)code);
    assert_int_equal(fd, -1);
    assert_string_equal(h->w->err.field, field);
    if (strstr(h->w->err.text, text) == NULL)
        fail_msg("no \"%s\" in: %s", text, h->w->err.text);
}

static void test_unix(void **state)
{
    struct http_world *h = *state;
    struct settings kept = h->settings;
    struct stat info;
    char mode[] = "0640", wrong[] = "0888", word[] = "rw", none[] = "", group[] = "no-such-group";
    CLEANUP(mem_free_ptr) char *path = io_join(h->w->dir, "socket");
    CLEANUP(mem_free_ptr) char *fresh = io_join(h->w->dir, "socket.new");
    CLEANUP(mem_free_ptr) char *file = io_join(h->w->dir, "file");
    h->settings.socket = path;
    h->settings.socket_mode = mode;
    int fd = -1;
    OK(h->w, http_listen_unix(&h->settings, &fd, &h->w->err));
    assert_int_equal(lstat(path, &info), 0);
    assert_true(S_ISSOCK(info.st_mode));
    assert_int_equal(info.st_mode & 0777, 0640);
    refused(h, ERR_IN_USE, "socket", "another daemon listens on");
    assert_int_equal(close(fd), 0); /* as if killed: the name stays */
    OK(h->w, http_listen_unix(&h->settings, &fd, &h->w->err));
    assert_int_equal(close(fd), 0);
    assert_false(io_exists(fresh));
    char *const modes[] = {wrong, word, none};
    for (size_t i = 0; i < 3; i++) {
        h->settings.socket_mode = modes[i];
        refused(h, ERR_SETTING, "socket_mode", "octal");
    }
    h->settings.socket_mode = mode;
    h->settings.socket_group = group;
    refused(h, ERR_SETTING, "socket_group", "no-such-group");
    assert_false(io_exists(fresh));
    h->settings.socket_group = none;
    OK(h->w, io_write_file(file, "mine", 4, 0600, &h->w->err));
    h->settings.socket = file;
    refused(h, ERR_IN_USE, "socket", "is no socket");
    assert_true(io_exists(file));
    char longest[200];
    memset(longest, 'a', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    h->settings.socket = longest;
    refused(h, ERR_SETTING, "socket", "is longer than 107 bytes");
    h->settings = kept;
}

static void test_tcp(void **state)
{
    struct http_world *h = *state;
    struct settings kept = h->settings;
    char name[] = "localhost", v6[] = "::1";
    int fd = -1, again = -1, port = 0;
    OK(h->w, http_listen_tcp(&h->settings, &fd, &port, &h->w->err));
    assert_true(port > 0);
    h->settings.port = port;
    assert_int_equal(http_listen_tcp(&h->settings, &again, &port, &h->w->err), -ERR_IN_USE);
    assert_int_equal(again, -1);
    assert_int_equal(close(fd), 0);
    h->settings.listen = name;
    assert_int_equal(http_listen_tcp(&h->settings, &again, &port, &h->w->err), -ERR_SETTING);
    assert_string_equal(h->w->err.field, "listen");
    h->settings.listen = v6;
    if (http_listen_tcp(&h->settings, &fd, &port, &h->w->err) == 0) /* machines may lack it */
        assert_int_equal(close(fd), 0);
    h->settings = kept;
}

/* Connections that the daemon before has closed hold their port for a minute, but not against the
 * next daemon. */
static void test_tcp_again(void **state)
{
    struct http_world *h = *state;
    struct settings kept = h->settings;
    int fd = -1, port = 0;
    OK(h->w, http_listen_tcp(&h->settings, &fd, &port, &h->w->err));
    const struct sockaddr_in address = {.sin_family = AF_INET,
                                        .sin_port = htons((uint16_t)port),
                                        .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(client, (const struct sockaddr *)&address, sizeof address), 0);
    int peer = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
    assert_true(peer >= 0);
    assert_int_equal(close(peer), 0); /* ours goes first: it is the one that lingers */
    assert_int_equal(close(fd), 0);
    assert_int_equal(close(client), 0);
    h->settings.port = port;
    OK(h->w, http_listen_tcp(&h->settings, &fd, &port, &h->w->err));
    assert_int_equal(close(fd), 0);
    h->settings = kept;
}

int main(void)
{
    const struct CMUnitTest tests[] = {HTTP_TEST(test_unix), HTTP_TEST(test_tcp),
                                       HTTP_TEST(test_tcp_again)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

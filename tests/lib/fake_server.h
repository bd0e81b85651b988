/* fake_server: an HTTP server that gives out prepared answers, one a connection, and keeps what it
 * was asked, for tests of the client; and a scene that runs commands of `ithaca` against it and
 * catches what they print. For cmocka programs.
 *
 *     scene_reply(s, 200, "{\"id\":\"a\"}");
 *     scene_run(s, cmd_show, "a", NULL);
 *     assert_int_equal(s->rc, 0);
 *     assert_string_equal(s->server.asked[0].line, "GET /v1/fine_tuning/jobs/a HTTP/1.1");
 *
 * The server is a thread; it takes no memory of common/mem.h. */
#pragma once
#include "clients/cli/cli.h"
#include "clients/cli/client.h"
#include "common/io.h"
#include "common/mem.h"
#include "tests/lib/cmocka.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { FAKE_EXCHANGES = 16, FAKE_REQUEST_BYTES = 1 << 16, FAKE_ARGUMENTS = 32 };

struct fake_request {
    char line[512];                 /* "GET /v1/files HTTP/1.1" */
    char bytes[FAKE_REQUEST_BYTES]; /* all of it, NUL added */
    const char *body;               /* in bytes */
};

struct fake_answer {
    const char *bytes; /* of the test, status line included */
    size_t length;
    char own[4096]; /* of scene_reply */
};

struct fake_server {
    int fd;
    int port;
    pthread_t thread;
    struct fake_answer answers[FAKE_EXCHANGES];
    int answer_count;
    bool always; /* answers[0] to every request; asked[0] is the last one */
    struct fake_request asked[FAKE_EXCHANGES];
    _Atomic int asked_count;
};

/* Is all of the request there? Bodies have a length, as the client sends them. */
static inline bool fake_is_whole(struct fake_request *request)
{
    char *end = strstr(request->bytes, "\r\n\r\n");
    if (end == NULL)
        return false;
    request->body = end + 4;
    const char *length = strcasestr(request->bytes, "\r\nContent-Length:");
    size_t wanted = length != NULL && length < end ? strtoul(length + 17, NULL, 10) : 0;
    return strlen(request->body) >= wanted;
}

static inline void fake_exchange(struct fake_server *server, int fd)
{
    int at = server->always ? 0 : server->asked_count;
    struct fake_request *request = &server->asked[at];
    size_t used = 0;
    request->bytes[0] = '\0';
    request->body = request->bytes;
    while (!fake_is_whole(request)) {
        ssize_t got = recv(fd, request->bytes + used, FAKE_REQUEST_BYTES - 1 - used, 0);
        if (got <= 0)
            return;
        used += (size_t)got;
        request->bytes[used] = '\0';
    }
    size_t length = strcspn(request->bytes, "\r");
    length = length < sizeof request->line ? length : sizeof request->line - 1;
    memcpy(request->line, request->bytes, length); /* the rest is zeros */
    server->asked_count = at + 1;
    if (at < server->answer_count)
        (void)send(fd, server->answers[at].bytes, server->answers[at].length, MSG_NOSIGNAL);
}

static inline void *fake_serve(void *context)
{
    struct fake_server *server = context;
    int fd;
    while ((fd = accept4(server->fd, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
        if (server->asked_count < FAKE_EXCHANGES)
            fake_exchange(server, fd);
        (void)shutdown(fd, SHUT_WR); /* what is unread must not become a reset */
        (void)close(fd);
    }
    return NULL;
}

static inline void fake_server_open(struct fake_server *server)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    server->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(server->fd, (struct sockaddr *)&address, size), 0);
    assert_int_equal(listen(server->fd, 8), 0);
    assert_int_equal(getsockname(server->fd, (struct sockaddr *)&address, &size), 0);
    server->port = ntohs(address.sin_port);
    assert_int_equal(pthread_create(&server->thread, NULL, fake_serve, server), 0);
}

static inline void fake_server_close(struct fake_server *server)
{
    (void)shutdown(server->fd, SHUT_RDWR);
    (void)pthread_join(server->thread, NULL);
    (void)close(server->fd);
}

/* ---- the scene ---- */

struct scene {
    struct fake_server server;
    char folder[64];
    char url[64];
    struct client *client; /* for tests of client.c; made by scene_client */
    bool json;             /* --json of the next commands */
    int rc;                /* of the last command */
    struct err err;
    int64_t fault_after; /* the allocation of the next command that fails; 0: none */
    char *out;           /* what it printed to stdout */
    char *errors;        /* and to stderr */
};

static inline int scene_setup(void **state)
{
    static const char *const variables[] = {"ITHACA_URL", "ITHACA_TOKEN", "ITHACA_DATA_DIR",
                                            "XDG_DATA_HOME"};
    struct scene *s = mem_new(1, sizeof *s);
    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++)
        (void)unsetenv(variables[i]);
    (void)snprintf(s->folder, sizeof s->folder, "/dev/shm/ithaca-cli-XXXXXX");
    assert_non_null(mkdtemp(s->folder));
    (void)setenv("HOME", s->folder, 1);
    fake_server_open(&s->server);
    (void)snprintf(s->url, sizeof s->url, "http://127.0.0.1:%d", s->server.port);
    *state = s;
    return 0;
}

static inline int scene_teardown(void **state)
{
    struct scene *s = *state;
    client_free(s->client);
    fake_server_close(&s->server);
    assert_int_equal(io_remove_tree(s->folder, &s->err), 0);
    mem_free(s->out);
    mem_free(s->errors);
    mem_free(s);
    assert_int_equal(mem_live(), 0);
    return 0;
}

#define SCENE_TEST(function) cmocka_unit_test_setup_teardown(function, scene_setup, scene_teardown)

/* The next answer, as bytes; they must live until it was given. */
static inline void scene_raw(struct scene *s, const char *bytes, size_t length)
{
    assert_true(s->server.answer_count < FAKE_EXCHANGES);
    struct fake_answer *answer = &s->server.answers[s->server.answer_count++];
    answer->bytes = bytes;
    answer->length = length;
}

static inline void scene_reply(struct scene *s, int status, const char *body)
{
    assert_true(s->server.answer_count < FAKE_EXCHANGES);
    struct fake_answer *answer = &s->server.answers[s->server.answer_count++];
    int length = snprintf(answer->own, sizeof answer->own,
                          "HTTP/1.1 %d X\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n%s",
                          status, strlen(body), body);
    assert_true(length > 0 && (size_t)length < sizeof answer->own);
    answer->bytes = answer->own;
    answer->length = (size_t)length;
}

static inline void scene_client(struct scene *s)
{
    assert_int_equal(client_new(s->url, s->folder, NULL, &s->client, &s->err), 0);
}

static inline char *scene_path(struct scene *s, const char *name)
{
    char *path = io_join(s->folder, name);
    assert_non_null(path);
    return path;
}

static inline void scene_put(struct scene *s, const char *name, const char *text)
{
    CLEANUP(mem_free_ptr) char *path = scene_path(s, name);
    assert_int_equal(io_write_file(path, text, strlen(text), 0600, &s->err), 0);
}

/* The text of a file in the folder; the caller mem_free()s. */
static inline char *scene_text(struct scene *s, const char *name)
{
    CLEANUP(mem_free_ptr) char *path = scene_path(s, name);
    CLEANUP(buf_done) struct buf text;
    buf_init(&text, 1 << 24);
    MUST_WORK(io_read_file(path, 1 << 24, &text, &s->err), &s->err);
    return mem_strdup(buf_str(&text));
}

/* Sends a descriptor's output to a file of the folder; what it was comes back. */
static inline int scene_divert(struct scene *s, int fd, const char *name)
{
    CLEANUP(mem_free_ptr) char *path = scene_path(s, name);
    int file = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    int kept = fcntl(fd, F_DUPFD_CLOEXEC, 10);
    assert_true(file >= 0 && kept >= 0);
    assert_int_equal(dup2(file, fd), fd);
    (void)close(file);
    return kept;
}

/* Runs a command with these arguments (NULL at the end), as main.c does. */
static inline void scene_run(struct scene *s, cli_run_fn *command, ...)
{
    char *argv[FAKE_ARGUMENTS];
    int argc = 0;
    struct cli cli = {
        .json = s->json, .url = s->url, .data_dir = s->folder, .command = command_of(command)};
    va_list arguments;
    va_start(arguments, command);
    for (const char *word; (word = va_arg(arguments, const char *)) != NULL;)
        argv[argc++] = (char *)(uintptr_t)word;
    va_end(arguments);
    (void)fflush(NULL);
    int out = scene_divert(s, STDOUT_FILENO, "stdout"), errors = scene_divert(s, 2, "stderr");
    s->err = (struct err){.code = ERR_NONE};
    mem_fault_after(s->fault_after);
    s->rc = cli_parse(&cli, argc, argv, &s->err);
    s->rc = s->rc == 0 ? command(&cli, &s->err) : s->rc;
    mem_fault_after(0);
    (void)fflush(NULL);
    assert_true(dup2(out, STDOUT_FILENO) >= 0 && dup2(errors, STDERR_FILENO) >= 0);
    (void)close(out);
    (void)close(errors);
    client_free(cli.client);
    mem_free(s->out);
    mem_free(s->errors);
    s->out = scene_text(s, "stdout");
    s->errors = scene_text(s, "stderr");
}

static inline void scene_expect(struct scene *s, const char *out)
{
    if (s->rc != 0)
        fail_msg("%s", s->err.text);
    assert_string_equal(s->out, out);
}

static inline void scene_expect_usage(struct scene *s, const char *says)
{
    if (s->rc != -ERR_USAGE || strstr(s->err.text, says) == NULL)
        fail_msg("%d %s, not: %s", s->rc, s->err.text, says);
    assert_string_equal(s->out, "");
}

/* The n-th request's first line. */
static inline void scene_asked(struct scene *s, int n, const char *line)
{
    if (n >= s->server.asked_count)
        fail_msg("%d requests came", s->server.asked_count);
    assert_string_equal(s->server.asked[n].line, line);
}

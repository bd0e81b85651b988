/* http_world: the daemon's HTTP side on top of coordinator_world: the real server, API and store on
 * a fake host, asked over real sockets by a client that turns the loop while it waits. For cmocka
 * programs; state is a struct http_world.
 *
 *     ask(h, "GET", "/v1/files/nothing", NULL);
 *     expect(h, 404, "error.code", "not_found");
 *
 * One answer is kept at a time: h->status, h->head, h->body, h->json. Streams and slow clients use
 * struct http_client themselves. */
#pragma once
#include "common/clock.h"
#include "common/model_config.h"
#include "daemon/api.h"
#include "daemon/auth.h"
#include "daemon/chat.h"
#include "daemon/exports.h"
#include "daemon/files.h"
#include "daemon/housekeeping.h"
#include "daemon/http.h"
#include "daemon/quota.h"
#include "daemon/settings.h"
#include "daemon/sse.h"
#include "daemon/uploads.h"
#include "tests/lib/coordinator_world.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>

enum { HTTP_WORLD_PATIENCE_MS = 60000 }; /* an answer that takes longer is lost, on any machine */

struct http_world {
    struct world *w;
    struct settings settings;
    struct api api;
    struct http *http;
    char models[96]; /* the first model root */
    char token[64];
    int status;    /* of the last answer */
    char *head;    /* its status line and headers */
    char *body;    /* its bytes, NUL added */
    size_t length; /* of them */
    json_t *json;  /* the body, or NULL when it is none */
};

/* ---- building ---- */

static inline void http_world_put(struct http_world *h, const char *folder, const char *name,
                                  const char *text)
{
    CLEANUP(mem_free_ptr) char *path = io_join(folder, name);
    OK(h->w, io_make_dirs(folder, 0700, &h->w->err));
    OK(h->w, io_write_file(path, text, strlen(text), 0600, &h->w->err));
}

/* A folder in a model root that can be tuned. */
static inline void http_world_model(struct http_world *h, const char *root, const char *name)
{
    CLEANUP(json_unref) json_t *config = model_config_json(model_config_builtin("tiny-llama"));
    CLEANUP(mem_free_ptr) char *folder = io_join(root, name);
    CLEANUP(mem_free_ptr) char *path = io_join(folder, "config.json");
    OK(h->w, io_make_dirs(folder, 0700, &h->w->err));
    OK(h->w, json_write_file(path, config, 0600, &h->w->err));
}

static inline void http_world_token(struct http_world *h)
{
    CLEANUP(mem_free_ptr) char *path = io_join(h->w->dir, "admin.token");
    CLEANUP(buf_done) struct buf text;
    buf_init(&text, 1000);
    OK(h->w, io_read_file(path, 1000, &text, &h->w->err));
    (void)snprintf(h->token, sizeof h->token, "%.*s", (int)strcspn(buf_str(&text), "\n"),
                   buf_str(&text));
}

/* Of the tick that a request asks for; the others come when the test says so (world_run). */
static inline void http_world_tick(void *context)
{
    struct http_world *h = context;
    loop_timer_stop(h->api.tick);
    coordinator_tick(h->w->coordinator);
}

static inline int http_world_setup(void **state)
{
    struct http_world *h = mem_new(1, sizeof *h);
    assert_int_equal(world_setup((void **)&h->w), 0);
    struct world *w = h->w;
    (void)snprintf(h->models, sizeof h->models, "%s/models", w->dir);
    char *const argv[] = {"ithacad",   "--data-dir",    w->dir,    "--port",        "0", "--worker",
                          "/bin/true", "--model-roots", h->models, "--streams-max", "3"};
    char *const environment[] = {NULL};
    OK(w, settings_load((int)(sizeof argv / sizeof argv[0]), argv, environment, &h->settings,
                        &w->err));
    h->api = (struct api){.settings = &h->settings,
                          .loop = w->loop,
                          .host = &w->fake.host,
                          .store = w->store,
                          .bus = &w->bus,
                          .coordinator = w->coordinator};
    http_world_model(h, h->models, "tiny-llama");
    OK(w, loop_timer_new(w->loop, http_world_tick, h, &h->api.tick, &w->err));
    OK(w, auth_new(w->dir, w->store, &w->fake.host, &h->api.auth, &w->err));
    OK(w, quota_new(&h->settings, &w->fake.host, w->store, &h->api.quota, &w->err));
    OK(w, files_open(w->dir, &w->err));
    OK(w, uploads_open(w->dir, &w->err));
    OK(w, housekeeping_new(&h->api, &h->api.housekeeping, &w->err));
    OK(w, sse_new(&h->api, &h->api.sse, &w->err));
    OK(w, chat_new(&h->api, &h->api.chat, &w->err));
    OK(w, exports_new(&h->api, &h->api.exports, &w->err));
    struct http_app app;
    api_app(&h->api, &app);
    OK(w, http_new(w->loop, &h->settings, &app, &h->http, &w->err));
    h->api.http = h->http;
    http_world_token(h);
    *state = h;
    return 0;
}

static inline void http_world_forget(struct http_world *h)
{
    mem_free(h->head);
    mem_free(h->body);
    json_decref(h->json);
    h->head = h->body = NULL;
    h->json = NULL;
}

static inline int http_world_teardown(void **state)
{
    struct http_world *h = *state;
    void *w = h->w;
    http_world_forget(h);
    http_stop(h->http);
    for (int i = 0; i < 100 && !http_is_idle(h->http); i++)
        OK(h->w, loop_turn(h->w->loop, 1, &h->w->err));
    http_free(h->http);
    chat_free(h->api.chat);
    exports_free(h->api.exports);
    housekeeping_free(h->api.housekeeping);
    sse_free(h->api.sse);
    quota_free(h->api.quota);
    auth_free(h->api.auth);
    loop_timer_free(h->api.tick);
    settings_done(&h->settings);
    mem_free(h);
    return world_teardown(&w);
}

#define HTTP_TEST(function) \
    cmocka_unit_test_setup_teardown(function, http_world_setup, http_world_teardown)

#define JOBS "/v1/fine_tuning/jobs"

/* What is asked for, as printf: ask(h, "GET", http_target(JOBS "/%s", job.id).text, NULL). */
struct http_target {
    char text[384];
};
__attribute__((format(printf, 1, 2))) static inline struct http_target
http_target(const char *format, ...)
{
    struct http_target target;
    va_list args;
    va_start(args, format);
    int length = vsnprintf(target.text, sizeof target.text, format, args);
    va_end(args);
    assert_true(length > 0 && (size_t)length < sizeof target.text);
    return target;
}

/* ---- a client ---- */

struct http_client {
    int fd;
    struct buf in; /* all that came */
    bool ended;    /* the server closed */
};

static inline void client_open(struct http_world *h, struct http_client *client)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)http_port(h->http)),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    *client = (struct http_client){.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    buf_init(&client->in, (size_t)64 << 20);
    assert_int_equal(connect(client->fd, (struct sockaddr *)&address, sizeof address), 0);
}

static inline void client_close(struct http_client *client)
{
    if (client->fd >= 0)
        (void)close(client->fd);
    client->fd = -1;
    buf_done(&client->in);
}

/* Turns the loop and takes what has come. */
static inline void client_turn(struct http_world *h, struct http_client *client)
{
    char bytes[65536];
    ssize_t got;
    OK(h->w, loop_turn(h->w->loop, 1, &h->w->err));
    while ((got = recv(client->fd, bytes, sizeof bytes, MSG_DONTWAIT)) > 0)
        buf_append(&client->in, bytes, (size_t)got);
    client->ended = client->ended || got == 0 || errno == ECONNRESET;
}

static inline void client_send(struct http_world *h, struct http_client *client, const char *bytes,
                               size_t length)
{
    int64_t end_ms = clock_monotonic_ms() + HTTP_WORLD_PATIENCE_MS;
    while (length > 0 && clock_monotonic_ms() < end_ms) {
        ssize_t sent = send(client->fd, bytes, length, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent > 0) {
            bytes += sent;
            length -= (size_t)sent;
        } else if (errno != EAGAIN) {
            return; /* it was answered before its end */
        }
        client_turn(h, client);
    }
}

/* Until the text has come (NULL: until the server closes). */
static inline void client_await(struct http_world *h, struct http_client *client, const char *text)
{
    int64_t end_ms = clock_monotonic_ms() + HTTP_WORLD_PATIENCE_MS;
    while (text != NULL ? strstr(buf_str(&client->in), text) == NULL : !client->ended) {
        if (client->ended || clock_monotonic_ms() > end_ms)
            fail_msg("\"%s\" never came; this did: %s", text != NULL ? text : "the end",
                     buf_str(&client->in));
        client_turn(h, client);
    }
}

/* The answer that `in` holds. */
static inline void client_take(struct http_world *h, const struct http_client *client)
{
    const char *text = buf_str(&client->in);
    const char *end = strstr(text, "\r\n\r\n");
    http_world_forget(h);
    if (end == NULL)
        fail_msg("no answer, but \"%s\"", text);
    assert_memory_equal(text, "HTTP/1.", 7);
    h->status = (int)strtol(text + 9, NULL, 10);
    h->head = mem_strndup(text, (size_t)(end + 2 - text));
    h->length = client->in.length - (size_t)(end + 4 - text);
    h->body = mem_new(1, h->length + 1);
    memcpy(h->body, end + 4, h->length);
    struct err no_json;
    (void)json_parse(h->body, h->length, "answer", &h->json, &no_json); /* or it stays NULL */
}

/* Sends a request, whose answer is to come. Headers are lines with CRLF; body may be NULL. */
static inline void ask_open(struct http_world *h, struct http_client *client, const char *method,
                            const char *target, const char *headers, const char *body,
                            size_t length)
{
    CLEANUP(buf_done) struct buf request;
    buf_init(&request, (size_t)64 << 20);
    buf_printf(&request,
               "%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
               "Authorization: Bearer %s\r\n%s",
               method, target, h->token, headers);
    if (body != NULL)
        buf_printf(&request, "Content-Length: %zu\r\n", length);
    buf_text(&request, "\r\n");
    if (body != NULL)
        buf_append(&request, body, length);
    client_open(h, client);
    client_send(h, client, request.data, request.length);
}

/* Waits for the child that makes the answer. */
static inline struct host_process *ask_child(struct http_world *h, struct http_client *client,
                                             const char *mode)
{
    int64_t end_ms = clock_monotonic_ms() + HTTP_WORLD_PATIENCE_MS;
    struct host_process *child = NULL;
    while (child == NULL && clock_monotonic_ms() < end_ms) {
        client_turn(h, client);
        child = fake_host_find(&h->w->fake, mode);
    }
    assert_non_null(child);
    return child;
}

/* Waits for the answer and takes it. */
static inline void ask_end(struct http_world *h, struct http_client *client)
{
    client_await(h, client, NULL);
    client_take(h, client);
    client_close(client);
}

static inline void ask_with(struct http_world *h, const char *method, const char *target,
                            const char *headers, const char *body, size_t length)
{
    struct http_client client;
    ask_open(h, &client, method, target, headers, body, length);
    ask_end(h, &client);
}

static inline void ask(struct http_world *h, const char *method, const char *target,
                       const char *body)
{
    ask_with(h, method, target, body != NULL ? "Content-Type: application/json\r\n" : "", body,
             body != NULL ? strlen(body) : 0);
}

/* The member of the answer that a dotted path names ("data.0.id"); NULL when there is none. */
static inline json_t *answer(const struct http_world *h, const char *path)
{
    json_t *value = h->json;
    char word[64];
    while (*path != '\0' && value != NULL) {
        size_t length = strcspn(path, ".");
        (void)snprintf(word, sizeof word, "%.*s", (int)length, path);
        value = json_is_array(value) ? json_array_get(value, strtoul(word, NULL, 10))
                                     : json_object_get(value, word);
        path += length + (path[length] == '.');
    }
    return value;
}

/* Status, and a string of the answer (path NULL: none). */
static inline void expect(const struct http_world *h, int status, const char *path,
                          const char *text)
{
    const char *got = path != NULL ? json_string_value(answer(h, path)) : text;
    if (h->status != status || got == NULL || strcmp(got, text) != 0)
        fail_msg("%d %s, not %d %s: %s: %s", h->status, got, status, text, path, h->body);
}

static inline int64_t answer_int(const struct http_world *h, const char *path)
{
    if (!json_is_integer(answer(h, path)))
        fail_msg("%s is no integer: %s", path, h->body);
    return json_integer_value(answer(h, path));
}

/* ---- scenes ---- */

/* An uploaded file, straight into store and folder. */
static inline void http_world_file(struct http_world *h, const char *id, const char *text)
{
    CLEANUP(mem_free_ptr) char *folder = io_join(h->w->dir, "files");
    http_world_put(h, folder, id, text);
    const struct store_file file = {.id = id,
                                    .created_ms = 5000,
                                    .filename = "a.jsonl",
                                    .purpose = "fine-tune",
                                    .bytes = (int64_t)strlen(text),
                                    .status = "processed",
                                    .status_details = "",
                                    .hash = "",
                                    .owner = "admin"};
    OK(h->w, store_file_insert(h->w->store, &file, &h->w->err));
}

/* As many turns of the loop, of 5 ms each where nothing happens, as some rounds of housekeeping
 * need; on a busy machine a turn lasts longer, and more is due in it. */
static inline void http_world_turn(struct http_world *h)
{
    for (int i = 0; i < 60; i++)
        OK(h->w, loop_turn(h->w->loop, 5, &h->w->err));
}

/* Makes a token of a user's (the answer) and asks with it from now on; http_world_token() turns
 * back to the admin's. */
static inline void http_world_user(struct http_world *h, const char *user)
{
    char body[64];
    (void)snprintf(body, sizeof body, "{\"user\":\"%s\"}", user);
    ask(h, "POST", "/v1/tokens", body);
    assert_int_equal(h->status, 200);
    (void)snprintf(h->token, sizeof h->token, "%s", json_string_value(answer(h, "token")));
}

/* A job that has succeeded, with a model folder of one file. */
static inline struct world_job http_world_succeeded(struct http_world *h)
{
    struct world_attempt a;
    struct world_job job = world_running(h->w, &a, "");
    world_end_done(&a);
    CLEANUP(mem_free_ptr) char *model = io_join(a.plan.job_dir, "model");
    http_world_put(h, model, "config.json", "{\"made\":1}");
    world_attempt_close(&a);
    world_expect(h->w, &job, JOB_STATE_SUCCEEDED);
    return job;
}

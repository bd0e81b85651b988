/* client: an easy handle, and a small parser of text/event-stream (WHATWG HTML, section 9.2). */
#include "clients/cli/client.h"

#include "common/clock.h"
#include "common/io.h"
#include "common/limits.h"
#include "common/mem.h"

#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    CLIENT_ANSWER_BYTES = 1 << 30,
    CLIENT_STREAM_PATIENCE_MS = 300000,
    CLIENT_RETRY_MAX_MS = 5000
};

struct client {
    CURL *curl;
    char *url;                    /* no slash at the end */
    char *authorization;          /* header line, or NULL */
    char detail[CURL_ERROR_SIZE]; /* libcurl's words for the last failure */
};

/* ---- where the daemon is ---- */

/* Trimmed first line of <folder>/<name>; NULL when it cannot be read. */
static char *client_read_line(const char *folder, const char *name)
{
    struct err ignored;
    CLEANUP(mem_free_ptr) char *path = io_join(folder, name);
    CLEANUP(buf_done) struct buf text;
    buf_init(&text, LIMIT_PATH_BYTES);
    if (path == NULL || io_read_file(path, LIMIT_PATH_BYTES, &text, &ignored) != 0)
        return NULL;
    return mem_strndup(buf_str(&text), strcspn(buf_str(&text), "\r\n"));
}

/* The data directories a daemon of this user or of the system has by default, in the order they are
 * tried. */
static int client_data_dirs(char *ret_dirs[2], struct err *err)
{
    const char *xdg = getenv("XDG_DATA_HOME");
    const char *home = getenv("HOME");
    char *own = xdg != NULL && xdg[0] == '/'
                    ? mem_printf("%s/ithaca", xdg)
                    : mem_printf("%s/.local/share/ithaca", home ? home : "");
    char *system_wide = mem_strdup("/var/lib/ithaca");
    if (own == NULL || system_wide == NULL) {
        mem_free(own);
        mem_free(system_wide);
        return mem_fail(err, LIMIT_PATH_BYTES, "a path");
    }
    bool root = geteuid() == 0;
    ret_dirs[0] = root ? system_wide : own;
    ret_dirs[1] = root ? own : system_wide;
    return 0;
}

static void client_find_in(struct client *client, const char *folder, char **token)
{
    if (client->url == NULL)
        client->url = client_read_line(folder, "url");
    if (*token == NULL)
        *token = client_read_line(folder, "admin.token");
}

static int client_find(struct client *client, const char *url, const char *data_dir,
                       struct err *err)
{
    const char *given_token = getenv("ITHACA_TOKEN");
    CLEANUP(mem_free_ptr) char *token = given_token != NULL ? mem_strdup(given_token) : NULL;
    if (url != NULL)
        client->url = mem_strdup(url);
    if (data_dir != NULL) {
        client_find_in(client, data_dir, &token);
    } else {
        char *dirs[2] = {NULL, NULL};
        TRY(client_data_dirs(dirs, err));
        for (int i = 0; i < 2; i++) {
            if (client->url == NULL || token == NULL)
                client_find_in(client, dirs[i], &token);
            mem_free(dirs[i]);
        }
    }
    if (client->url == NULL)
        return err_set(err, ERR_UNAVAILABLE,
                       "no daemon found: start ithacad, or set ITHACA_URL (and ITHACA_TOKEN), or "
                       "ITHACA_DATA_DIR to its data directory");
    size_t length = strlen(client->url);
    while (length > 0 && client->url[length - 1] == '/')
        client->url[--length] = '\0';
    if (token != NULL)
        client->authorization = mem_printf("Authorization: Bearer %s", token);
    return 0;
}

int client_new(const char *url, const char *data_dir, struct client **ret, struct err *err)
{
    struct client *client = mem_new(1, sizeof *client);
    if (client == NULL)
        return mem_fail(err, sizeof *client, "the connection");
    int rc = client_find(client, url, data_dir, err);
    if (rc == 0 && (client->curl = curl_easy_init()) == NULL)
        rc = err_set(err, ERR_INTERNAL, "libcurl could not be started");
    if (rc != 0) {
        client_free(client);
        return rc;
    }
    *ret = client;
    return 0;
}

void client_free(struct client *client)
{
    if (client == NULL)
        return;
    if (client->curl != NULL)
        curl_easy_cleanup(client->curl);
    mem_free(client->url);
    mem_free(client->authorization);
    mem_free(client);
}

const char *client_url(const struct client *client)
{
    return client->url;
}

char *client_escape(const char *segment)
{
    char *escaped = curl_easy_escape(NULL, segment, 0);
    char *copy = escaped != NULL ? mem_strdup(escaped) : NULL;
    curl_free(escaped);
    return copy;
}

/* ---- requests ---- */

struct client_request {
    const char *method; /* NULL: GET, or POST with a body */
    const char *path;
    const char *body;         /* JSON, or NULL */
    curl_mime *mime;          /* or NULL */
    const char *header;       /* one more header line, or NULL */
    curl_write_callback sink; /* takes the answer's body */
    void *sink_context;
};

static void client_free_headers(struct curl_slist **headers)
{
    curl_slist_free_all(*headers);
}

static size_t client_append(char *bytes, size_t size, size_t count, void *context)
{
    struct buf *out = context;
    buf_append(out, bytes, size * count);
    return out->bad == ERR_NONE ? size * count : 0;
}

static int client_unreachable(const struct client *client, CURLcode code, struct err *err)
{
    const char *why = client->detail[0] != '\0' ? client->detail : curl_easy_strerror(code);
    return err_set(err, ERR_UNAVAILABLE, "%s: %s (is ithacad running?)", client->url, why);
}

/* Sends; *ret_status is the HTTP status. */
static CURLcode client_perform(struct client *client, const struct client_request *request,
                               long *ret_status)
{
    CURL *curl = client->curl;
    CLEANUP(mem_free_ptr) char *url = mem_printf("%s%s", client->url, request->path);
    CLEANUP(client_free_headers) struct curl_slist *headers = NULL;
    if (url == NULL)
        return CURLE_OUT_OF_MEMORY;
    const char *lines[] = {client->authorization, request->header,
                           request->body != NULL ? "Content-Type: application/json" : NULL,
                           "Expect:"};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        struct curl_slist *longer =
            lines[i] != NULL ? curl_slist_append(headers, lines[i]) : headers;
        if (lines[i] != NULL && longer == NULL)
            return CURLE_OUT_OF_MEMORY;
        headers = longer;
    }
    curl_easy_reset(curl);
    client->detail[0] = '\0';
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, client->detail);
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(curl, CURLOPT_USERAGENT, "ithaca/" ITHACA_VERSION);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, 10L);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, request->sink);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, request->sink_context);
    if (request->mime != NULL)
        curl_easy_setopt(curl, CURLOPT_MIMEPOST, request->mime);
    if (request->body != NULL)
        curl_easy_setopt(curl, CURLOPT_POSTFIELDS, request->body);
    else if (request->method != NULL && strcmp(request->method, "POST") == 0)
        curl_easy_setopt(curl, CURLOPT_POSTFIELDS, "");
    if (request->method != NULL)
        curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, request->method);
    CURLcode code = curl_easy_perform(curl);
    *ret_status = 0;
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, ret_status);
    return code;
}

/* Turns an answer of 400 and above into its error. */
static int client_refusal(long status, const struct buf *body, struct err *err)
{
    struct err ignored;
    CLEANUP(json_unref) json_t *answer = NULL;
    (void)json_parse(buf_str(body), body->length, "answer", &answer, &ignored); /* may be no JSON */
    const json_t *error = json_object_get(answer, "error");
    const char *message = json_string_value(json_object_get(error, "message"));
    const char *param = json_string_value(json_object_get(error, "param"));
    const char *code_name = json_string_value(json_object_get(error, "code"));
    enum err_code code = code_name != NULL ? err_code_parse(code_name) : ERR_NONE;
    if (code == ERR_NONE)
        code = status >= 500 ? ERR_UNAVAILABLE : ERR_BAD_REQUEST;
    if (message == NULL)
        return err_set(err, code, "the server answered %ld without an error message", status);
    if (param == NULL)
        return err_set(err, code, "%s", message);
    return err_set_field(err, code, param, "%s", message);
}

static int client_exchange(struct client *client, struct client_request *request, struct buf *out,
                           struct err *err)
{
    long status = 0;
    request->sink = client_append;
    request->sink_context = out;
    CURLcode code = client_perform(client, request, &status);
    TRY(buf_error(out, err));
    if (code != CURLE_OK)
        return client_unreachable(client, code, err);
    return status >= 400 ? client_refusal(status, out, err) : 0;
}

static int client_exchange_json(struct client *client, struct client_request *request, json_t **ret,
                                struct err *err)
{
    CLEANUP(buf_done) struct buf answer;
    buf_init(&answer, CLIENT_ANSWER_BYTES);
    TRY(client_exchange(client, request, &answer, err));
    return json_parse(buf_str(&answer), answer.length, "the server's answer", ret, err);
}

int client_json(struct client *client, const char *method, const char *path, const json_t *body,
                json_t **ret, struct err *err)
{
    CLEANUP(buf_done) struct buf text;
    buf_init(&text, LIMIT_JSON_BODY_BYTES);
    if (body != NULL)
        TRY(json_print(body, &text, err));
    struct client_request request = {
        .method = method, .path = path, .body = body != NULL ? buf_str(&text) : NULL};
    return client_exchange_json(client, &request, ret, err);
}

int client_bytes(struct client *client, const char *path, struct buf *out, struct err *err)
{
    struct client_request request = {.path = path};
    return client_exchange(client, &request, out, err);
}

/* Bytes of an answer to a file; those of a refusal to `refusal`. */
struct client_sink {
    struct client *client;
    struct io_file file;
    struct buf refusal;
    struct err err; /* of the file */
};

static size_t client_sink_take(char *bytes, size_t size, size_t count, void *context)
{
    struct client_sink *sink = context;
    long status = 0;
    curl_easy_getinfo(sink->client->curl, CURLINFO_RESPONSE_CODE, &status);
    if (status >= 400)
        return client_append(bytes, size, count, &sink->refusal);
    bool written = io_write_full(sink->file.fd, bytes, size * count, &sink->err) == 0;
    return written ? size * count : 0;
}

static int client_fill_file(struct client_sink *sink, const char *path, struct err *err)
{
    struct client_request request = {.path = path, .sink = client_sink_take, .sink_context = sink};
    long status = 0;
    CURLcode code = client_perform(sink->client, &request, &status);
    if (sink->err.code != ERR_NONE) {
        *err = sink->err;
        return err_wrap(err, -(int)err->code, "%s: ", sink->file.path);
    }
    if (code != CURLE_OK)
        return client_unreachable(sink->client, code, err);
    return status >= 400 ? client_refusal(status, &sink->refusal, err)
                         : io_file_commit(&sink->file, err);
}

int client_file(struct client *client, const char *path, const char *to, struct err *err)
{
    struct client_sink sink = {.client = client, .err = {.code = ERR_NONE}};
    buf_init(&sink.refusal, LIMIT_JSON_BODY_BYTES);
    TRY(io_file_create(&sink.file, to, 0644, err));
    int rc = client_fill_file(&sink, path, err);
    io_file_abort(&sink.file);
    buf_done(&sink.refusal);
    return rc;
}

int client_upload(struct client *client, const char *path, const char *purpose, json_t **ret,
                  struct err *err)
{
    curl_mime *mime = curl_mime_init(client->curl);
    curl_mimepart *file = mime != NULL ? curl_mime_addpart(mime) : NULL;
    curl_mimepart *why = mime != NULL ? curl_mime_addpart(mime) : NULL;
    int rc = 0;
    if (file == NULL || why == NULL || curl_mime_name(file, "file") != CURLE_OK ||
        curl_mime_name(why, "purpose") != CURLE_OK ||
        curl_mime_data(why, purpose, CURL_ZERO_TERMINATED) != CURLE_OK)
        rc = mem_fail(err, 0, "the upload");
    else if (curl_mime_filedata(file, path) != CURLE_OK)
        rc = err_set(err, ERR_NOT_FOUND, "%s: cannot be read", path);
    if (rc == 0) {
        struct client_request request = {.path = "/v1/files", .mime = mime};
        rc = client_exchange_json(client, &request, ret, err);
    }
    curl_mime_free(mime);
    return rc;
}

/* ---- server-sent events ---- */

struct client_sse {
    struct client *client;
    client_event_fn *on_event;
    void *context;
    struct buf line; /* bytes of the line that is not yet whole */
    struct buf data; /* joined data lines of the event that is not yet whole */
    char event[32];
    char last_id[64];
    bool ended;       /* by the callback */
    bool broken;      /* out of memory or over a limit */
    bool refused;     /* status 400 and above: data holds the body */
    int64_t heard_ms; /* monotonic time of the last bytes */
};

static void client_sse_dispatch(struct client_sse *sse)
{
    struct err err;
    CLEANUP(json_unref) json_t *data = NULL;
    if (sse->data.length > 0 &&
        json_parse(buf_str(&sse->data), sse->data.length, "event", &data, &err) == 0)
        sse->ended = !sse->on_event(sse->context, sse->event, sse->last_id, data);
    buf_clear(&sse->data);
    (void)snprintf(sse->event, sizeof sse->event, "message");
}

static void client_sse_line(struct client_sse *sse, const char *line)
{
    if (line[0] == '\0') {
        client_sse_dispatch(sse);
        return;
    }
    const char *colon = strchr(line, ':');
    if (colon == NULL || colon == line)
        return; /* a comment, or a field without a value */
    const char *value = colon[1] == ' ' ? colon + 2 : colon + 1;
    size_t name = (size_t)(colon - line);
    if (name == 4 && strncmp(line, "data", 4) == 0)
        buf_text(&sse->data, value);
    else if (name == 5 && strncmp(line, "event", 5) == 0)
        (void)snprintf(sse->event, sizeof sse->event, "%s", value);
    else if (name == 2 && strncmp(line, "id", 2) == 0)
        (void)snprintf(sse->last_id, sizeof sse->last_id, "%s", value);
}

static size_t client_sse_take(char *bytes, size_t size, size_t count, void *context)
{
    struct client_sse *sse = context;
    size_t length = size * count;
    long status = 0;
    sse->heard_ms = clock_monotonic_ms();
    curl_easy_getinfo(sse->client->curl, CURLINFO_RESPONSE_CODE, &status);
    if (status >= 400) {
        sse->refused = true;
        buf_append(&sse->data, bytes, length);
        return length;
    }
    for (size_t i = 0; i < length && !sse->ended; i++) {
        if (bytes[i] != '\n') {
            buf_char(&sse->line, bytes[i]);
            continue;
        }
        if (sse->line.length > 0 && sse->line.data[sse->line.length - 1] == '\r')
            sse->line.data[--sse->line.length] = '\0';
        client_sse_line(sse, buf_str(&sse->line));
        buf_clear(&sse->line);
    }
    sse->broken = sse->line.bad != ERR_NONE || sse->data.bad != ERR_NONE;
    return sse->ended || sse->broken ? 0 : length;
}

static int client_stream_once(struct client *client, const char *path, struct client_sse *sse,
                              CURLcode *ret_code, struct err *err)
{
    CLEANUP(mem_free_ptr)
    char *resume = sse->last_id[0] != '\0' ? mem_printf("Last-Event-ID: %s", sse->last_id) : NULL;
    struct client_request request = {
        .path = path, .header = resume, .sink = client_sse_take, .sink_context = sse};
    long status = 0;
    buf_clear(&sse->line);
    buf_clear(&sse->data);
    *ret_code = client_perform(client, &request, &status);
    if (sse->broken)
        return err_set(err, ERR_TOO_LARGE, "an event of the stream is over %d bytes",
                       LIMIT_JSON_BODY_BYTES);
    return sse->refused ? client_refusal(status, &sse->data, err) : 0;
}

int client_stream(struct client *client, const char *path, client_event_fn *on_event, void *context,
                  struct err *err)
{
    struct client_sse sse = {
        .client = client, .on_event = on_event, .context = context, .event = "message"};
    buf_init(&sse.line, LIMIT_JSON_BODY_BYTES);
    buf_init(&sse.data, LIMIT_JSON_BODY_BYTES);
    sse.heard_ms = clock_monotonic_ms();
    int64_t pause_ms = 250;
    int rc = 0;
    while (rc == 0 && !sse.ended) {
        CURLcode code = CURLE_OK;
        int64_t before_ms = sse.heard_ms;
        rc = client_stream_once(client, path, &sse, &code, err);
        if (rc != 0 || sse.ended)
            break;
        if (sse.heard_ms != before_ms)
            pause_ms = 250;
        if (clock_monotonic_ms() - sse.heard_ms > CLIENT_STREAM_PATIENCE_MS)
            rc = client_unreachable(client, code, err);
        else
            clock_sleep_ms(pause_ms);
        pause_ms = pause_ms * 2 < CLIENT_RETRY_MAX_MS ? pause_ms * 2 : CLIENT_RETRY_MAX_MS;
    }
    buf_done(&sse.line);
    buf_done(&sse.data);
    return rc;
}

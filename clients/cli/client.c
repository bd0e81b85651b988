/* client: an easy handle, and a small parser of text/event-stream (WHATWG HTML, section 9.2). */
#include "clients/cli/client.h"

#include "clients/cli/address.h"
#include "clients/cli/cli.h"
#include "common/clock.h"
#include "common/io.h"
#include "common/limits.h"
#include "common/mem.h"

#include <curl/curl.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    CLIENT_ANSWER_BYTES = 1 << 30,
    CLIENT_STREAM_PATIENCE_MS = 300000,
    CLIENT_SILENCE_MS = 35000, /* three heartbeats of a stream and a little */
    CLIENT_RETRY_MAX_MS = 5000
};

struct client {
    CURL *curl;
    struct address address;
    char *authorization;          /* header line, or NULL */
    char *cacert;                 /* or NULL: the system's */
    int64_t limit_ms;             /* of a request; 0: none */
    char detail[CURL_ERROR_SIZE]; /* libcurl's words for the last failure */
};

int client_new(const char *url, const char *data_dir, const char *cacert, struct client **ret,
               struct err *err)
{
    struct client *client = mem_new(1, sizeof *client);
    if (client == NULL)
        return mem_fail(err, sizeof *client, "the connection");
    int rc = address_find(url, data_dir, &client->address, err);
    if (rc == 0 && cacert != NULL && (client->cacert = mem_strdup(cacert)) == NULL)
        rc = mem_fail(err, strlen(cacert), "a path");
    if (rc == 0 && client->address.token != NULL) {
        client->authorization = mem_printf("Authorization: Bearer %s", client->address.token);
        if (client->authorization == NULL)
            rc = mem_fail(err, LIMIT_PATH_BYTES, "the token");
    }
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
    address_done(&client->address);
    mem_free(client->authorization);
    mem_free(client->cacert);
    mem_free(client);
}

void client_set_limit(struct client *client, int64_t limit_ms)
{
    client->limit_ms = limit_ms;
}

const char *client_url(const struct client *client)
{
    return client->address.url;
}

char *client_escape(const char *segment)
{
    char *escaped = curl_easy_escape(NULL, segment, 0);
    char *copy = escaped != NULL ? mem_strdup(escaped) : NULL;
    curl_free(escaped);
    return copy;
}

char *client_path(const char *folder, const char *id, const char *tail)
{
    CLEANUP(mem_free_ptr) char *escaped = client_escape(id);
    return escaped != NULL ? mem_printf("%s%s%s", folder, escaped, tail) : NULL;
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
    curl_xferinfo_callback watch; /* asked every second whether to go on (0); or NULL */
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
    const char *hint = code == CURLE_PEER_FAILED_VERIFICATION
                           ? "name the file of your own certificate authority by --cacert"
                       : code == CURLE_SSL_CONNECT_ERROR
                           ? "is it ithacad, and with tls_cert? without, write http://"
                           : "is ithacad running?";
    return err_set(err, ERR_UNAVAILABLE, "%s: %s (%s)", client->address.url, why, hint);
}

/* Sends; *ret_status is the HTTP status. */
static CURLcode client_perform(struct client *client, const struct client_request *request,
                               long *ret_status)
{
    CURL *curl = client->curl;
    const char *socket_path = address_unix_path(client->address.url);
    CLEANUP(mem_free_ptr)
    char *url = mem_printf("%s%s", socket_path != NULL ? "http://localhost" : client->address.url,
                           request->path);
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
    curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, (long)client->limit_ms);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    if (socket_path != NULL)
        curl_easy_setopt(curl, CURLOPT_UNIX_SOCKET_PATH, socket_path);
    if (client->cacert != NULL)
        curl_easy_setopt(curl, CURLOPT_CAINFO, client->cacert);
    if (client->address.local)
        curl_easy_setopt(curl, CURLOPT_PROXY, ""); /* whatever http_proxy says */
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, request->sink);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, request->sink_context);
    if (request->watch != NULL) {
        curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
        curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, request->watch);
        curl_easy_setopt(curl, CURLOPT_XFERINFODATA, request->sink_context);
    }
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
static int client_refusal(const struct client *client, long status, const struct buf *body,
                          struct err *err)
{
    if (status == 401 && client->authorization == NULL)
        return err_set(err, ERR_AUTH,
                       "%s wants a token: set ITHACA_TOKEN, or --data-dir to its data directory",
                       client->address.url);
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
    return status >= 400 ? client_refusal(client, status, out, err) : 0;
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

int client_job(struct client *client, const char *method, const char *id, const char *tail,
               const json_t *body, json_t **ret, struct err *err)
{
    CLEANUP(mem_free_ptr) char *path = client_path("/v1/fine_tuning/jobs/", id, tail);
    return path != NULL ? client_json(client, method, path, body, ret, err)
                        : mem_fail(err, strlen(id), "a path");
}

struct client_download {
    struct client *client;
    int fd;
    struct buf refusal; /* the body of a status of 400 and above */
    struct err err;     /* of writing to fd */
};

static size_t client_download_take(char *bytes, size_t size, size_t count, void *context)
{
    struct client_download *download = context;
    long status = 0;
    curl_easy_getinfo(download->client->curl, CURLINFO_RESPONSE_CODE, &status);
    if (status >= 400)
        return client_append(bytes, size, count, &download->refusal);
    return io_write_full(download->fd, bytes, size * count, &download->err) == 0 ? size * count : 0;
}

int client_download(struct client *client, const char *path, int fd, struct err *err)
{
    struct client_download download = {.client = client, .fd = fd};
    struct client_request request = {
        .path = path, .sink = client_download_take, .sink_context = &download};
    long status = 0;
    int rc = 0;
    buf_init(&download.refusal, LIMIT_JSON_BODY_BYTES);
    CURLcode code = client_perform(client, &request, &status);
    if (download.err.code != ERR_NONE) {
        *err = download.err;
        rc = -(int)err->code;
    } else if (code != CURLE_OK) {
        rc = client_unreachable(client, code, err);
    } else if (status >= 400) {
        rc = client_refusal(client, status, &download.refusal, err);
    }
    buf_done(&download.refusal);
    return rc;
}

int client_file(struct client *client, const char *path, const char *to, struct err *err)
{
    char target[PATH_MAX]; /* behind links, so that they stay */
    struct stat info;
    if (realpath(to, target) != NULL)
        to = target;
    if (stat(to, &info) == 0 && !S_ISREG(info.st_mode)) {
        int fd = open(to, O_WRONLY | O_CLOEXEC);
        if (fd < 0)
            return err_set_errno(err, errno, "%s", to);
        int rc = client_download(client, path, fd, err);
        if (close(fd) != 0 && rc == 0)
            rc = err_set_errno(err, errno, "%s", to);
        return rc;
    }
    CLEANUP(io_file_abort) struct io_file file;
    TRY(io_file_create(&file, to, 0644, err));
    TRY(client_download(client, path, file.fd, err));
    return io_file_commit(&file, err);
}

int client_upload(struct client *client, const char *path, const char *purpose, json_t **ret,
                  struct err *err)
{
    struct stat info;
    if (stat(path, &info) != 0)
        return err_set_errno(err, errno, "%s", path);
    if (S_ISDIR(info.st_mode))
        return err_set(err, ERR_INVALID_VALUE, "%s is a folder; upload one file", path);
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
    char id[64];        /* of the event that is not yet whole, or the last one's */
    char last_id[64];   /* of the last whole event: where a new connection goes on */
    bool ended;         /* by the callback */
    bool broken;        /* out of memory or over a limit */
    bool refused;       /* status 400 and above: data holds the body */
    int64_t heard_ms;   /* monotonic time of the last bytes */
    int64_t asked_ms;   /* monotonic time at which this connection was begun */
    int64_t silence_ms; /* a connection without a byte this long is dead */
};

static void client_sse_dispatch(struct client_sse *sse)
{
    struct err err;
    CLEANUP(json_unref) json_t *data = NULL;
    memcpy(sse->last_id, sse->id, sizeof sse->last_id);
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
        (void)snprintf(sse->id, sizeof sse->id, "%s", value);
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

/* The daemon says something every ten seconds, be it a comment: a connection that is silent for
 * longer leads nowhere any more, though nobody has closed it. */
static int client_sse_watch(void *context, curl_off_t down_total, curl_off_t down,
                            curl_off_t up_total, curl_off_t up)
{
    const struct client_sse *sse = context;
    (void)down_total;
    (void)down;
    (void)up_total;
    (void)up;
    int64_t heard_ms = sse->heard_ms > sse->asked_ms ? sse->heard_ms : sse->asked_ms;
    return clock_monotonic_ms() - heard_ms > sse->silence_ms;
}

static int64_t client_silence_ms(void)
{
    const char *text = cli_environment("ITHACA_STREAM_SILENCE_S");
    long seconds = text != NULL ? strtol(text, NULL, 10) : 0;
    return seconds >= 1 && seconds <= 3600 ? seconds * 1000 : CLIENT_SILENCE_MS;
}

static int client_stream_once(struct client *client, const char *path, struct client_sse *sse,
                              CURLcode *ret_code, struct err *err)
{
    CLEANUP(mem_free_ptr)
    char *resume = sse->last_id[0] != '\0' ? mem_printf("Last-Event-ID: %s", sse->last_id) : NULL;
    struct client_request request = {.path = path,
                                     .header = resume,
                                     .sink = client_sse_take,
                                     .sink_context = sse,
                                     .watch = client_sse_watch};
    long status = 0;
    sse->asked_ms = clock_monotonic_ms();
    buf_clear(&sse->line); /* of a connection that was cut: it comes again */
    buf_clear(&sse->data);
    memcpy(sse->id, sse->last_id, sizeof sse->id);
    (void)snprintf(sse->event, sizeof sse->event, "message");
    *ret_code = client_perform(client, &request, &status);
    if (sse->broken)
        return err_set(err, ERR_TOO_LARGE, "an event of the stream is over %d bytes",
                       LIMIT_JSON_BODY_BYTES);
    return sse->refused ? client_refusal(client, status, &sse->data, err) : 0;
}

int client_stream(struct client *client, const char *path, client_event_fn *on_event, void *context,
                  struct err *err)
{
    struct client_sse sse = {.client = client, .on_event = on_event, .context = context};
    buf_init(&sse.line, LIMIT_JSON_BODY_BYTES);
    buf_init(&sse.data, LIMIT_JSON_BODY_BYTES);
    sse.heard_ms = clock_monotonic_ms();
    sse.silence_ms = client_silence_ms();
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

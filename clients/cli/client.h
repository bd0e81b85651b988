/* client: HTTP to the daemon by libcurl (https://curl.se/libcurl/c/). One connection, used again
 * and again.
 *
 * Where it goes says address.h; addresses of this machine go past any proxy. Answers of 400 and
 * above become errors with the API's message, field and code. */
#pragma once
#include "common/buf.h"
#include "common/err.h"
#include "common/json.h"

#include <stdbool.h>
#include <stdint.h>

struct client;

/* All three may be NULL. cacert: a file of certificates that are trusted instead of the system's.
 */
int client_new(const char *url, const char *data_dir, const char *cacert, struct client **ret,
               struct err *err);
void client_free(struct client *client);

/* Requests from here on fail when they take longer; 0 (the start): they may take any time. What was
 * asked for may be done all the same. */
void client_set_limit(struct client *client, int64_t limit_ms);
/* Where the requests go. */
const char *client_url(const struct client *client);

/* path begins with "/v1/..."; body may be NULL (GET when method is NULL). New reference. */
int client_json(struct client *client, const char *method, const char *path, const json_t *body,
                json_t **ret, struct err *err);
/* The same about a job; tail: "", "/events?limit=10" ... */
int client_job(struct client *client, const char *method, const char *id, const char *tail,
               const json_t *body, json_t **ret, struct err *err);
/* All of a list of the API, page after page, as one. path has no query. New reference. */
int client_list(struct client *client, const char *path, json_t **ret, struct err *err);
/* Raw bytes of a GET, written to fd as they come. */
int client_download(struct client *client, const char *path, int fd, struct err *err);
/* The same into a file, which appears when all is there. A device or a pipe is written to as it is.
 */
int client_file(struct client *client, const char *path, const char *to, struct err *err);
/* Multipart upload of a local file. New reference: the file object. */
int client_upload(struct client *client, const char *path, const char *purpose, json_t **ret,
                  struct err *err);

/* One server-sent event; return false to end the stream. */
typedef bool client_event_fn(void *context, const char *event, const char *id, const json_t *data);
/* Follows a stream until the callback ends it or the server does; a connection that is lost,
 * or silent for 35 s (ITHACA_STREAM_SILENCE_S), is taken up again after the last id seen, with
 * pauses growing to 5 s, for at most five minutes without an answer. */
int client_stream(struct client *client, const char *path, client_event_fn *on_event, void *context,
                  struct err *err);

/* Percent-encodes one path segment. Caller mem_free()s; NULL when out of memory. */
char *client_escape(const char *segment);
/* "<folder><id, escaped><tail>": a path of one thing. The same. */
char *client_path(const char *folder, const char *id, const char *tail);

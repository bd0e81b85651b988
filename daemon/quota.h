/* quota: what one user may take at once, so that none takes all: requests a second, open streams,
 * uploads under way, files and their bytes (settings user_*; 0: no limit). A user's tokens share
 * them. Who sees all (access_viewer() is "") has none: the operator sets the limits.
 *
 * Requests go by a bucket of two seconds' worth: short bursts pass. What is stored is counted in
 * the store; here is what is under way. An upload is checked at its begin, as its bytes come, and
 * at its end, when others may have ended before it.
 *
 * Refusals name the limit, its setting and what to do: ERR_TOO_MANY (429, comes with Retry-After)
 * for what passes by itself, ERR_QUOTA (403) for what must be deleted. */
#pragma once
#include "common/err.h"

#include <stdint.h>

struct host;
struct quota;
struct settings;
struct store;

/* All outlive it. */
int quota_new(const struct settings *settings, struct host *host, struct store *store,
              struct quota **ret_quota, struct err *err);
void quota_free(struct quota *quota); /* NULL is fine */

int quota_request(struct quota *quota, const char *viewer, struct err *err); /* one more */

int quota_open_stream(struct quota *quota, const char *viewer, struct err *err);
void quota_close_stream(struct quota *quota, const char *viewer);

/* length: bytes that are announced at least; 0 or below: unknown. */
int quota_open_upload(struct quota *quota, const char *viewer, int64_t length, struct err *err);
/* More bytes of it have come. */
int quota_grow_upload(struct quota *quota, const char *viewer, int64_t bytes, struct err *err);
/* bytes: of it, in all. Before its file is stored, or instead of that. */
void quota_close_upload(struct quota *quota, const char *viewer, int64_t bytes);
/* May a file of so many bytes be stored, or announced? field: of the request, for the error. */
int quota_check_file(struct quota *quota, const char *viewer, const char *field, int64_t bytes,
                     struct err *err);

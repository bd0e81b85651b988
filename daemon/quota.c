/* quota: a table of the users that were here lately, searched linearly; one that has nothing under
 * way and a full bucket may be forgotten. */
#include "daemon/quota.h"

#include "common/limits.h"
#include "common/mem.h"
#include "common/must.h"
#include "daemon/host.h"
#include "daemon/settings.h"
#include "daemon/store.h"

#include <stdio.h>
#include <string.h>

enum {
    QUOTA_USERS = 1024,  /* that ask within the same seconds */
    QUOTA_REQUEST = 1000 /* credit that one takes: a rate of 1 gives 1 a millisecond */
};

struct quota_user {
    char name[LIMIT_NAME_BYTES + 1]; /* "" for a free place */
    int64_t credit;                  /* left in the bucket */
    int64_t filled_ms;               /* when it was last filled (monotonic) */
    int64_t streams, uploads;        /* open */
    int64_t stored_bytes;            /* of files, when the newest upload began */
    int64_t upload_bytes;            /* of uploads under way */
};

struct quota {
    const struct settings *settings;
    struct host *host;
    struct store *store;
    int used; /* places at the front of the table that were ever taken */
    struct quota_user users[QUOTA_USERS];
};

int quota_new(const struct settings *settings, struct host *host, struct store *store,
              struct quota **ret_quota, struct err *err)
{
    struct quota *quota = mem_new(1, sizeof *quota);
    if (quota == NULL)
        return mem_fail(err, sizeof *quota, "quotas");
    quota->settings = settings;
    quota->host = host;
    quota->store = store;
    *ret_quota = quota;
    return 0;
}

void quota_free(struct quota *quota)
{
    mem_free(quota);
}

static int64_t quota_bucket(const struct quota *quota)
{
    return 2 * QUOTA_REQUEST * quota->settings->user_requests_per_s;
}

static void quota_fill(const struct quota *quota, struct quota_user *user, int64_t now_ms)
{
    int64_t passed_ms = now_ms - user->filled_ms;
    int64_t full = quota_bucket(quota);
    user->filled_ms = now_ms;
    user->credit += passed_ms < 2000 ? passed_ms * quota->settings->user_requests_per_s : full;
    if (user->credit > full)
        user->credit = full;
}

/* The viewer's place, with its bucket filled up to now; NULL: it has no limits, or there are too
 * many users. */
static struct quota_user *quota_find(struct quota *quota, const char *viewer)
{
    int64_t now_ms = quota->host->ops->monotonic_ms(quota->host);
    struct quota_user *idle = NULL;
    if (viewer[0] == '\0')
        return NULL;
    for (int i = 0; i < quota->used; i++) {
        struct quota_user *user = &quota->users[i];
        quota_fill(quota, user, now_ms);
        if (strcmp(user->name, viewer) == 0)
            return user;
        if (user->streams == 0 && user->uploads == 0 && user->credit == quota_bucket(quota))
            idle = user;
    }
    if (idle == NULL && quota->used < QUOTA_USERS)
        idle = &quota->users[quota->used++];
    if (idle == NULL)
        return NULL;
    *idle = (struct quota_user){.credit = quota_bucket(quota), .filled_ms = now_ms};
    (void)snprintf(idle->name, sizeof idle->name, "%s", viewer);
    return idle;
}

/* *ret NULL: a viewer without limits. */
static int quota_take(struct quota *quota, const char *viewer, struct quota_user **ret,
                      struct err *err)
{
    *ret = quota_find(quota, viewer);
    if (*ret == NULL && viewer[0] != '\0')
        return err_set(err, ERR_TOO_MANY, "%d users are being served; ask again soon", QUOTA_USERS);
    return 0;
}

static bool quota_reached(int64_t count, int64_t count_max)
{
    return count_max > 0 && count >= count_max;
}

int quota_request(struct quota *quota, const char *viewer, struct err *err)
{
    struct quota_user *user;
    int64_t rate = quota->settings->user_requests_per_s;
    TRY(quota_take(quota, viewer, &user, err));
    if (user == NULL || rate == 0)
        return 0;
    if (user->credit < QUOTA_REQUEST)
        return err_set(err, ERR_TOO_MANY,
                       "%s sends more than %lld requests a second, the most for a user "
                       "(user_requests_per_s); wait a second",
                       viewer, (long long)rate);
    user->credit -= QUOTA_REQUEST;
    return 0;
}

int quota_open_stream(struct quota *quota, const char *viewer, struct err *err)
{
    struct quota_user *user;
    TRY(quota_take(quota, viewer, &user, err));
    if (user == NULL)
        return 0;
    if (quota_reached(user->streams, quota->settings->user_streams_max))
        return err_set(err, ERR_TOO_MANY,
                       "%s has %lld streams open, the most for a user (user_streams_max); close "
                       "some",
                       viewer, (long long)user->streams);
    user->streams++;
    return 0;
}

void quota_close_stream(struct quota *quota, const char *viewer)
{
    struct quota_user *user = quota_find(quota, viewer);
    if (user == NULL)
        return;
    must(user->streams > 0); /* an open one keeps its place */
    user->streams--;
}

/* ---- uploads ---- */

static int quota_refuse_bytes(const struct quota *quota, const char *viewer, const char *field,
                              int64_t others, struct err *err)
{
    return err_set_field(
        err, ERR_QUOTA, field,
        "%s has %lld bytes of files and uploads; with this one they would be more than %lld, "
        "the most for a user (user_bytes_max): delete some",
        viewer, (long long)others, (long long)quota->settings->user_bytes_max);
}

int quota_check_file(struct quota *quota, const char *viewer, const char *field, int64_t bytes,
                     struct err *err)
{
    const struct settings *settings = quota->settings;
    int64_t files = 0;
    int64_t stored = 0;
    if (viewer[0] == '\0')
        return 0;
    TRY(store_files_usage(quota->store, viewer, &files, &stored, err));
    if (quota_reached(files, settings->user_files_max))
        return err_set_field(err, ERR_QUOTA, field,
                             "%s has %lld files, uploads in parts among them, the most for a user "
                             "(user_files_max): delete some",
                             viewer, (long long)files);
    if (settings->user_bytes_max > 0 && bytes > settings->user_bytes_max - stored)
        return quota_refuse_bytes(quota, viewer, field, stored, err);
    struct quota_user *user;
    TRY(quota_take(quota, viewer, &user, err));
    user->stored_bytes = stored;
    return 0;
}

int quota_open_upload(struct quota *quota, const char *viewer, int64_t length, struct err *err)
{
    struct quota_user *user;
    TRY(quota_check_file(quota, viewer, "file", length > 0 ? length : 1, err));
    TRY(quota_take(quota, viewer, &user, err));
    if (user == NULL)
        return 0;
    if (quota_reached(user->uploads, quota->settings->user_uploads_max))
        return err_set_field(err, ERR_TOO_MANY, "file",
                             "%s has %lld uploads under way, the most for a user "
                             "(user_uploads_max); await one",
                             viewer, (long long)user->uploads);
    user->uploads++;
    return 0;
}

int quota_grow_upload(struct quota *quota, const char *viewer, int64_t bytes, struct err *err)
{
    int64_t bytes_max = quota->settings->user_bytes_max;
    struct quota_user *user = quota_find(quota, viewer);
    if (user == NULL)
        return 0;
    must(user->uploads > 0);
    int64_t others = user->stored_bytes + user->upload_bytes;
    if (bytes_max > 0 && bytes > bytes_max - others)
        return quota_refuse_bytes(quota, viewer, "file", others, err);
    user->upload_bytes += bytes;
    return 0;
}

void quota_close_upload(struct quota *quota, const char *viewer, int64_t bytes)
{
    struct quota_user *user = quota_find(quota, viewer);
    if (user == NULL)
        return;
    must(user->uploads > 0 && user->upload_bytes >= bytes);
    user->uploads--;
    user->upload_bytes -= bytes;
}

/* uploads_join: completing an upload. Its parts are copied together a slice at a turn of the loop,
 * which so stays quick however much there is; meanwhile the request waits. A client that is lost on
 * the way asks again: a completed upload answers as it did, and one that is being completed when
 * the first request for it has ended, so that its parts are copied once. */
#include "common/md5.h"
#include "common/mem.h"
#include "daemon/files.h"
#include "daemon/host.h"
#include "daemon/http.h"
#include "daemon/loop.h"
#include "daemon/settings.h"
#include "daemon/uploads.h"
#include "daemon/uploads_private.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    UPLOADS_SLICE_BYTES = 1 << 20, /* at a turn of the loop: 1 to 2 ms, with MD5 4 */
    UPLOADS_BEHIND_MS = 50         /* between looks whether the request before has ended */
};

/* A request that waits for its parts to be one file. */
struct uploads_join {
    struct api *api;
    struct http_request *request;
    char id[LIMIT_ID_BYTES + 1];      /* the upload's */
    char file_id[LIMIT_ID_BYTES + 1]; /* the file's */
    char owner[LIMIT_NAME_BYTES + 1]; /* and the file's */
    char name[FILES_NAME_BYTES + 1];  /* of the file, as shown */
    int64_t lifetime_s;               /* of the file; 0: it stays */
    bool completed;                   /* the upload is */
    bool copying;                     /* of its upload, the one that does it */
    struct uploads_join *next_join;   /* in api->joins, from its first turn on */
    char *dir;                        /* of the parts */
    json_t *part_ids;                 /* strings, in the order of the file */
    char md5_wanted[MD5_HEX_BYTES];   /* of the file, lower case; "": not asked for */
    struct md5 md5;                   /* of what is copied */
    size_t next;                      /* index of the part to be opened next */
    int fd;                           /* part being copied, or -1 */
    struct files_spool spool;
    struct loop_timer *timer; /* the next slice */
    char *slice;              /* UPLOADS_SLICE_BYTES */
};

static void uploads_join_end(void *context)
{
    struct uploads_join *join = context;
    struct uploads_join **at = &join->api->joins;
    while (*at != NULL && *at != join)
        at = &(*at)->next_join;
    if (*at != NULL)
        *at = join->next_join;
    loop_timer_free(join->timer);
    if (join->fd >= 0)
        (void)close(join->fd); /* only read from */
    io_file_abort(&join->spool.file);
    json_decref(join->part_ids);
    mem_free(join->dir);
    mem_free(join->slice);
    mem_free(join);
}

/* The parts are all there, each once, and as many bytes as were announced. */
static int uploads_check_parts(const struct uploads_join *join, int64_t bytes, struct err *err)
{
    CLEANUP(json_unref) json_t *seen = json_object();
    int64_t sum = 0;
    size_t i;
    const json_t *part;
    json_array_foreach(join->part_ids, i, part)
    {
        const char *id = json_string_value(part);
        int64_t part_bytes = 0;
        CLEANUP(mem_free_ptr) char *path = io_join(join->dir, id != NULL ? id : "");
        if (path == NULL)
            return mem_fail(err, LIMIT_PATH_BYTES, "a path");
        if (id == NULL || strncmp(id, "part_", 5) != 0 || !route_is_name(id, strlen(id)) ||
            io_file_size(path, &part_bytes, err) != 0)
            return err_set_field(err, ERR_INVALID_VALUE, "part_ids",
                                 "part_ids: item %zu is no part of upload %s", i, join->id);
        if (json_object_get(seen, id) != NULL)
            return err_set_field(err, ERR_INVALID_VALUE, "part_ids",
                                 "part_ids: item %zu, %s, is there twice", i, id);
        if (json_object_set_new(seen, id, json_true()) != 0)
            return mem_fail(err, json_array_size(join->part_ids), "the parts");
        sum += part_bytes;
    }
    if (sum == bytes)
        return 0;
    return err_set_field(err, ERR_INVALID_VALUE, "part_ids",
                         "the parts have %lld bytes in all, and the upload was announced with %lld",
                         (long long)sum, (long long)bytes);
}

static int uploads_check_md5(struct uploads_join *join, struct err *err)
{
    char hex[MD5_HEX_BYTES];
    if (join->md5_wanted[0] == '\0')
        return 0;
    md5_hex(&join->md5, hex);
    if (strcmp(hex, join->md5_wanted) == 0)
        return 0;
    return err_set_field(err, ERR_INVALID_VALUE, "md5",
                         "the parts in this order have the MD5 %s, not %s: give part_ids in the "
                         "order of the file, or send the parts again",
                         hex, join->md5_wanted);
}

/* All is copied: the file appears. Somebody else may have ended the upload meanwhile: then this
 * fails and nothing is kept. */
static int uploads_join_finish(struct uploads_join *join, struct err *err)
{
    struct host *host = join->api->host;
    const char *data_dir = join->api->settings->data_dir;
    int64_t now_ms = host->ops->wall_ms(host);
    CLEANUP(mem_free_ptr) char *path = files_path(data_dir, join->file_id);
    if (path == NULL)
        return mem_fail(err, LIMIT_PATH_BYTES, "a path");
    TRY(uploads_check_md5(join, err));
    const struct store_file row = {.id = join->file_id,
                                   .created_ms = now_ms,
                                   .filename = join->name,
                                   .purpose = "fine-tune", /* the only one there is */
                                   .bytes = join->spool.bytes,
                                   .status = "processed",
                                   .status_details = "",
                                   .hash = "",
                                   .owner = join->owner,
                                   .expires_ms =
                                       join->lifetime_s > 0 ? now_ms + join->lifetime_s * 1000 : 0};
    TRY(io_file_commit(&join->spool.file, err));
    int rc = store_upload_complete(join->api->store, join->id, &row, err);
    if (rc != 0) {
        (void)unlink(path); /* no row names it */
        return rc;
    }
    uploads_drop_parts(data_dir, join->id);
    return uploads_answer(join->api, join->request, join->id, err);
}

/* Copies a slice; *ret_done when there was nothing left. */
static int uploads_join_slice(struct uploads_join *join, bool *ret_done, struct err *err)
{
    *ret_done = false;
    if (join->fd < 0) {
        *ret_done = join->next == json_array_size(join->part_ids);
        if (*ret_done)
            return 0;
        const char *id = json_string_value(json_array_get(join->part_ids, join->next++));
        CLEANUP(mem_free_ptr) char *path = io_join(join->dir, id);
        if (path == NULL)
            return mem_fail(err, LIMIT_PATH_BYTES, "a path");
        join->fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
        if (join->fd < 0)
            return err_set_errno(err, errno, "part %s", id);
    }
    ssize_t got = read(join->fd, join->slice, UPLOADS_SLICE_BYTES);
    if (got < 0)
        return err_set_errno(err, errno, "a part cannot be read");
    if (join->md5_wanted[0] != '\0')
        md5_add(&join->md5, join->slice, (size_t)got);
    if (got > 0)
        return files_spool_write(&join->spool, join->slice, (size_t)got, err);
    (void)close(join->fd); /* only read from */
    join->fd = -1;
    return 0;
}

static int uploads_join_step(struct uploads_join *join, bool *ret_done, struct err *err)
{
    bool copied = false;
    *ret_done = false;
    TRY(uploads_join_slice(join, &copied, err));
    if (!copied || !files_spool_settle(&join->spool))
        return 0;
    *ret_done = true;
    return uploads_join_finish(join, err);
}

static int uploads_read_md5(const json_t *value, char ret_hex[MD5_HEX_BYTES], struct err *err)
{
    const char *text = json_is_string(value) ? json_string_value(value) : "";
    if (strlen(text) != MD5_HEX_BYTES - 1 || text[strspn(text, "0123456789abcdefABCDEF")] != '\0')
        return err_set_field(err, ERR_INVALID_VALUE, "md5",
                             "md5 must be the 32 hexadecimal digits of the whole file's MD5");
    for (int i = 0; i < MD5_HEX_BYTES; i++)
        ret_hex[i] = (char)(text[i] >= 'A' && text[i] <= 'F' ? text[i] - 'A' + 'a' : text[i]);
    return 0;
}

static int uploads_read_complete(const json_t *body, struct uploads_join *join, struct err *err)
{
    const char *key;
    json_t *value;
    json_t *ids = json_object_get(body, "part_ids");
    json_object_foreach((json_t *)body, key, value)
    {
        if (strcmp(key, "md5") == 0 && !json_is_null(value))
            TRY(uploads_read_md5(value, join->md5_wanted, err));
        if (strcmp(key, "md5") != 0 && strcmp(key, "part_ids") != 0)
            return err_set_field(err, ERR_UNKNOWN_FIELD, key,
                                 "%s is no field of this request; it has part_ids and md5", key);
    }
    if (ids == NULL)
        return err_set_field(err, ERR_MISSING_FIELD, "part_ids", "part_ids is missing");
    if (json_array_size(ids) < 1 || json_array_size(ids) > UPLOADS_PARTS_MAX)
        return err_set_field(err, ERR_INVALID_VALUE, "part_ids",
                             "part_ids must be an array of 1 to %d ids of parts",
                             UPLOADS_PARTS_MAX);
    join->part_ids = json_incref(ids);
    return 0;
}

/* ---- the request ---- */

static int uploads_join_take(void *context, const struct store_upload *upload, struct err *err)
{
    (void)err;
    struct uploads_join *join = context;
    (void)snprintf(join->owner, sizeof join->owner, "%s", upload->owner);
    (void)snprintf(join->name, sizeof join->name, "%s", upload->filename);
    join->lifetime_s = upload->file_lifetime_s;
    join->completed = strcmp(upload->status, "completed") == 0;
    return 0;
}

static int uploads_join_begin(struct uploads_join *join, struct err *err)
{
    struct api *api = join->api;
    int64_t bytes = 0;
    join->dir = uploads_dir(api->settings->data_dir, join->id);
    join->slice = mem_new(1, UPLOADS_SLICE_BYTES);
    if (join->dir == NULL || join->slice == NULL)
        return mem_fail(err, UPLOADS_SLICE_BYTES, "an upload");
    TRY(uploads_check(api, join->id, &bytes, err));
    TRY(uploads_check_parts(join, bytes, err));
    TRY(host_new_id(api->host, "file-", join->file_id, sizeof join->file_id, err));
    CLEANUP(mem_free_ptr) char *path = files_path(api->settings->data_dir, join->file_id);
    if (path == NULL)
        return mem_fail(err, LIMIT_PATH_BYTES, "a path");
    md5_init(&join->md5);
    join->copying = true;
    return io_file_create(&join->spool.file, path, 0600, err);
}

static bool uploads_join_is_behind(const struct uploads_join *join)
{
    for (const struct uploads_join *other = join->api->joins; other != NULL;
         other = other->next_join)
        if (other->copying && strcmp(other->id, join->id) == 0)
            return true;
    return false;
}

static int uploads_join_turn(struct uploads_join *join, struct err *err)
{
    struct api *api = join->api;
    bool done = false;
    int64_t wait_ms = 0;
    if (join->copying) {
        TRY(uploads_join_step(join, &done, err));
        join->copying = !done;
    } else if (uploads_join_is_behind(join)) {
        wait_ms = UPLOADS_BEHIND_MS;
    } else {
        TRY(store_upload_get(api->store, join->id, uploads_join_take, join, err));
        if (join->completed) /* by a request whose answer was lost, or that was before this one */
            return uploads_answer(api, join->request, join->id, err);
        TRY(uploads_join_begin(join, err));
    }
    if (!done)
        loop_timer_set(join->timer, wait_ms, 0);
    return 0;
}

static void uploads_on_turn(void *context)
{
    struct uploads_join *join = context;
    struct err err;
    if (uploads_join_turn(join, &err) != 0) {
        join->copying = false; /* who is behind tries it itself */
        http_answer_error(join->request, &err);
    }
}

int uploads_complete(struct api *api, struct http_request *request, struct err *err)
{
    CLEANUP(json_unref) json_t *body = NULL;
    struct uploads_join *join = mem_new(1, sizeof *join);
    if (join == NULL)
        return mem_fail(err, sizeof *join, "an upload");
    *join = (struct uploads_join){.api = api, .request = request, .fd = -1, .spool.file.fd = -1};
    (void)snprintf(join->id, sizeof join->id, "%.*s", LIMIT_ID_BYTES,
                   http_request_route(request)->name);
    http_request_on_end(request, uploads_join_end, join);
    TRY(api_read_body(request, &body, err));
    TRY(uploads_read_complete(body, join, err));
    TRY(loop_timer_new(api->loop, uploads_on_turn, join, &join->timer, err));
    join->next_join = api->joins;
    api->joins = join;
    loop_timer_set(join->timer, 0, 0);
    http_defer(request, NULL, NULL); /* a lost client's file is made all the same */
    return 0;
}

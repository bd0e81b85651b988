/* uploads: a part streams into a file of its own, as files do. uploads_join.c makes one of them. */
#include "daemon/uploads.h"

#include "common/mem.h"
#include "daemon/access.h"
#include "daemon/disk_budget.h"
#include "daemon/files.h"
#include "daemon/host.h"
#include "daemon/http.h"
#include "daemon/quota.h"
#include "daemon/settings.h"
#include "daemon/trash.h"
#include "daemon/uploads_private.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { UPLOADS_FORM_BYTES = 64 << 10 }; /* of a form beside the part */

char *uploads_dir(const char *data_dir, const char *id)
{
    return mem_printf("%s/uploads/%s", data_dir, id);
}

int uploads_open(const char *data_dir, struct err *err)
{
    CLEANUP(mem_free_ptr) char *folder = io_join(data_dir, "uploads");
    if (folder == NULL)
        return mem_fail(err, LIMIT_PATH_BYTES, "a path");
    TRY(io_make_dirs(folder, 0700, err));
    DIR *stream = opendir(folder);
    if (stream == NULL)
        return err_set_errno(err, errno, "%s", folder);
    const struct dirent *entry;
    int rc = 0;
    while (rc == 0 && (entry = readdir(stream)) != NULL) {
        if (entry->d_name[0] == '.')
            continue;
        CLEANUP(mem_free_ptr) char *parts = io_join(folder, entry->d_name);
        rc = parts != NULL ? files_clean(parts, err) : mem_fail(err, LIMIT_PATH_BYTES, "a path");
    }
    (void)closedir(stream); /* read only */
    return rc;
}

void uploads_drop_parts(const char *data_dir, const char *id)
{
    struct err stays; /* it is in the way of nothing */
    CLEANUP(mem_free_ptr) char *dir = uploads_dir(data_dir, id);
    if (dir != NULL)
        (void)trash_put(data_dir, dir, &stays);
}

static int uploads_take_owner(void *ret_owner, const struct store_upload *upload, struct err *err)
{
    (void)err;
    (void)snprintf(ret_owner, LIMIT_NAME_BYTES + 1, "%s", upload->owner);
    return 0;
}

int uploads_owner(struct store *store, const char *id, char ret_owner[LIMIT_NAME_BYTES + 1],
                  struct err *err)
{
    return store_upload_get(store, id, uploads_take_owner, ret_owner, err);
}

/* ---- answers ---- */

static int uploads_file_json(void *ret_json, const struct store_file *file, struct err *err)
{
    json_t *json = files_json(file);
    if (json == NULL)
        return mem_fail(err, 0, "a file");
    *(json_t **)ret_json = json;
    return 0;
}

struct uploads_answer {
    struct api *api;
    struct http_request *request;
};

static int uploads_answer_row(void *context, const struct store_upload *upload, struct err *err)
{
    const struct uploads_answer *answer = context;
    json_t *file = NULL; /* null: there is none, or it was deleted */
    if (upload->file_id[0] != '\0') {
        int rc = store_file_get(answer->api->store, upload->file_id, uploads_file_json, &file, err);
        if (rc != 0 && rc != -ERR_NOT_FOUND)
            return rc;
    }
    http_answer_json(answer->request, 200,
                     json_pack("{s:s, s:s, s:I, s:o, s:o, s:o, s:s, s:s, s:o}", "id", upload->id,
                               "object", "upload", "bytes", (json_int_t)upload->bytes, "created_at",
                               api_time(upload->created_ms), "expires_at",
                               api_time(upload->expires_ms), "filename", api_text(upload->filename),
                               "purpose", upload->purpose, "status", upload->status, "file",
                               file != NULL ? file : json_null()));
    return 0;
}

int uploads_answer(struct api *api, struct http_request *request, const char *id, struct err *err)
{
    struct uploads_answer answer = {.api = api, .request = request};
    return store_upload_get(api->store, id, uploads_answer_row, &answer, err);
}

/* ---- create ---- */

/* The body's members, checked by name and type; texts are borrowed from it. */
struct uploads_wish {
    const char *filename, *purpose, *mime_type;
    int64_t bytes;
    int64_t lifetime_s; /* 0: the file stays */
};

static int uploads_read_lifetime(const json_t *value, int64_t *ret_seconds, struct err *err)
{
    const char *anchor = json_string_value(json_object_get(value, "anchor"));
    const json_t *seconds = json_object_get(value, "seconds");
    if (!json_is_object(value) || anchor == NULL || !json_is_integer(seconds) ||
        json_object_size(value) != 2)
        return err_set_field(err, ERR_INVALID_VALUE, "expires_after",
                             "expires_after must be {\"anchor\": \"created_at\", \"seconds\": N}");
    TRY(files_check_lifetime(anchor, json_integer_value(seconds), err));
    *ret_seconds = json_integer_value(seconds);
    return 0;
}

static int uploads_read_wish(const json_t *body, struct uploads_wish *wish, struct err *err)
{
    static const char *const required[] = {"bytes", "filename", "mime_type", "purpose"};
    const char *key;
    json_t *value;
    for (size_t i = 0; i < sizeof required / sizeof required[0]; i++)
        if (json_object_get(body, required[i]) == NULL)
            return err_set_field(err, ERR_MISSING_FIELD, required[i], "%s is missing", required[i]);
    json_object_foreach((json_t *)(uintptr_t)body, key, value)
    {
        const char **text = strcmp(key, "filename") == 0    ? &wish->filename
                            : strcmp(key, "purpose") == 0   ? &wish->purpose
                            : strcmp(key, "mime_type") == 0 ? &wish->mime_type
                                                            : NULL;
        if (text != NULL) {
            *text = json_string_value(value);
            if (*text == NULL)
                return err_set_field(err, ERR_INVALID_VALUE, key, "%s must be a string", key);
        } else if (strcmp(key, "bytes") == 0) {
            wish->bytes = json_is_integer(value) ? json_integer_value(value) : 0;
        } else if (strcmp(key, "expires_after") != 0) {
            return err_set_field(err, ERR_UNKNOWN_FIELD, key,
                                 "%s is no field of an upload; it has bytes, filename, mime_type, "
                                 "purpose and expires_after",
                                 key);
        } else if (!json_is_null(value)) {
            TRY(uploads_read_lifetime(value, &wish->lifetime_s, err));
        }
    }
    return 0;
}

static int uploads_check_wish(const struct api *api, const struct uploads_wish *wish,
                              struct err *err)
{
    int64_t bytes_max = api->settings->upload_bytes_max;
    TRY(files_check_purpose(wish->purpose, err));
    if (wish->bytes < 1 || wish->bytes > bytes_max)
        return err_set_field(err, ERR_INVALID_VALUE, "bytes",
                             "bytes must be an integer from 1 to %lld (upload_bytes_max)",
                             (long long)bytes_max);
    /* Parts and file are there at once when it is completed. */
    int64_t available = disk_budget_free(api->settings->data_dir);
    if (wish->bytes > available / 2)
        return err_set_field(err, ERR_NO_SPACE, "bytes",
                             "an upload of %lld bytes takes twice as many of disk for a while; the "
                             "data folder has %lld free: free some",
                             (long long)wish->bytes, (long long)available);
    return 0;
}

int uploads_create(struct api *api, struct http_request *request, struct err *err)
{
    CLEANUP(json_unref) json_t *body = NULL;
    struct uploads_wish wish = {.bytes = 0};
    char id[LIMIT_ID_BYTES + 1], name[FILES_NAME_BYTES + 1];
    TRY(api_read_body(request, &body, err));
    TRY(uploads_read_wish(body, &wish, err));
    TRY(uploads_check_wish(api, &wish, err));
    TRY(quota_check_file(api->quota, access_viewer(request), "bytes", wish.bytes, err));
    files_clean_name(wish.filename, name);
    TRY(host_new_id(api->host, "upload_", id, sizeof id, err));
    int64_t now_ms = api->host->ops->wall_ms(api->host);
    const struct store_upload row = {.id = id,
                                     .created_ms = now_ms,
                                     .expires_ms = now_ms + UPLOADS_LIFETIME_S * 1000LL,
                                     .filename = name,
                                     .purpose = wish.purpose,
                                     .bytes = wish.bytes,
                                     .file_lifetime_s = wish.lifetime_s,
                                     .status = "pending",
                                     .file_id = "",
                                     .owner = http_request_owner(request)};
    CLEANUP(mem_free_ptr) char *dir = uploads_dir(api->settings->data_dir, id);
    if (dir == NULL)
        return mem_fail(err, LIMIT_PATH_BYTES, "a path");
    TRY(io_make_dirs(dir, 0700, err));
    TRY(store_upload_insert(api->store, &row, err));
    return uploads_answer(api, request, id, err);
}

/* ---- parts ---- */

struct uploads_part {
    struct api *api;
    struct files_spool spool;
    char id[LIMIT_ID_BYTES + 1];
    bool has_data; /* its field has begun */
};

struct uploads_open {
    const struct api *api;
    int64_t bytes; /* announced */
};

static int uploads_check_open(void *context, const struct store_upload *upload, struct err *err)
{
    struct uploads_open *open = context;
    if (strcmp(upload->status, "pending") != 0)
        return err_set(err, ERR_BAD_STATE, "upload %s is %s", upload->id, upload->status);
    if (upload->expires_ms <= open->api->host->ops->wall_ms(open->api->host))
        return err_set(err, ERR_BAD_STATE, "upload %s has expired: make another", upload->id);
    open->bytes = upload->bytes;
    return 0;
}

int uploads_check(const struct api *api, const char *id, int64_t *ret_bytes, struct err *err)
{
    struct uploads_open open = {.api = api};
    TRY(store_upload_get(api->store, id, uploads_check_open, &open, err));
    *ret_bytes = open.bytes;
    return 0;
}

/* Parts may be sent again, each under another id, but not without end. */
static int uploads_check_room(const char *dir, int64_t bytes, struct err *err)
{
    int64_t count = 0, used = 0;
    struct stat info;
    DIR *stream = opendir(dir);
    if (stream == NULL)
        return err_set_errno(err, errno, "the upload's parts");
    for (const struct dirent *entry; (entry = readdir(stream)) != NULL;)
        if (fstatat(dirfd(stream), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) == 0 &&
            S_ISREG(info.st_mode)) {
            used += info.st_size;
            count++;
        }
    (void)closedir(stream); /* read only */
    if (count < UPLOADS_PARTS_MAX && used / 2 <= bytes)
        return 0;
    return err_set_field(err, ERR_TOO_LARGE, "data",
                         "the upload has %lld parts of %lld bytes in all, and was announced with "
                         "%lld bytes: complete or cancel it",
                         (long long)count, (long long)used, (long long)bytes);
}

static int uploads_on_part(void *context, const char *name, const char *filename, bool first,
                           const char *bytes, size_t length, struct err *err)
{
    struct uploads_part *part = context;
    (void)filename;
    if (strcmp(name, "data") != 0)
        return err_set_field(err, ERR_UNKNOWN_FIELD, name,
                             "there is no form field \"%s\"; a part's bytes are the field data",
                             name);
    if (first && part->has_data)
        return err_set_field(err, ERR_INVALID_VALUE, "data", "data is given twice");
    part->has_data = true;
    if ((int64_t)length > UPLOADS_PART_BYTES - part->spool.bytes)
        return err_set_field(err, ERR_TOO_LARGE, "data", "a part has at most %d bytes",
                             UPLOADS_PART_BYTES);
    return files_spool_write(&part->spool, bytes, length, err);
}

static void uploads_part_end(void *context)
{
    struct uploads_part *part = context;
    io_file_abort(&part->spool.file);
    mem_free(part);
}

int uploads_begin(struct api *api, struct http_request *request, struct err *err)
{
    const char *id = http_request_route(request)->name;
    int64_t bytes = 0;
    struct uploads_part *part = mem_new(1, sizeof *part);
    if (part == NULL)
        return mem_fail(err, sizeof *part, "a part");
    part->api = api;
    part->spool.file.fd = -1;
    http_request_on_end(request, uploads_part_end, part);
    if (http_request_length(request) > UPLOADS_PART_BYTES + UPLOADS_FORM_BYTES)
        return err_set_field(err, ERR_TOO_LARGE, "data", "a part has at most %d bytes",
                             UPLOADS_PART_BYTES);
    TRY(uploads_check(api, id, &bytes, err));
    CLEANUP(mem_free_ptr) char *dir = uploads_dir(api->settings->data_dir, id);
    if (dir == NULL)
        return mem_fail(err, LIMIT_PATH_BYTES, "a path");
    TRY(uploads_check_room(dir, bytes, err));
    TRY(http_request_take_form(request, UPLOADS_PART_BYTES + UPLOADS_FORM_BYTES, uploads_on_part,
                               part, err));
    TRY(host_new_id(api->host, "part_", part->id, sizeof part->id, err));
    CLEANUP(mem_free_ptr) char *path = io_join(dir, part->id);
    if (path == NULL)
        return mem_fail(err, LIMIT_PATH_BYTES, "a path");
    return io_file_create(&part->spool.file, path, 0600, err);
}

int uploads_part(struct api *api, struct http_request *request, struct err *err)
{
    const char *id = http_request_route(request)->name;
    struct uploads_part *part = http_request_ended_context(request);
    int64_t announced = 0;
    if (!part->has_data || part->spool.bytes == 0)
        return err_set_field(err, ERR_MISSING_FIELD, "data",
                             "the form field data is missing or empty");
    TRY(uploads_check(api, id, &announced, err));
    TRY(io_file_commit(&part->spool.file, err));
    http_answer_json(request, 200,
                     json_pack("{s:s, s:s, s:o, s:s}", "id", part->id, "object", "upload.part",
                               "created_at", api_time(api->host->ops->wall_ms(api->host)),
                               "upload_id", id));
    return 0;
}

/* ---- cancel ---- */

int uploads_cancel(struct api *api, struct http_request *request, struct err *err)
{
    const char *id = http_request_route(request)->name;
    char owner[LIMIT_NAME_BYTES + 1];
    TRY(uploads_owner(api->store, id, owner, err)); /* that it is there */
    TRY(store_upload_end(api->store, id, "cancelled", err));
    uploads_drop_parts(api->settings->data_dir, id);
    return uploads_answer(api, request, id, err);
}

/* files: an upload writes through io_file (temporary, fsync, rename); every FILES_FLUSH_BYTES the
 * kernel is asked to start writing, so that the fsync at the end has little left and the loop,
 * which waits for it, is not held up. */
#include "daemon/files.h"

#include "common/io.h"
#include "common/mem.h"
#include "common/must.h"
#include "common/utf8.h"
#include "daemon/access.h"
#include "daemon/coordinator.h"
#include "daemon/host.h"
#include "daemon/http.h"
#include "daemon/quota.h"
#include "daemon/settings.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    FILES_FLUSH_BYTES = 8 << 20,
    FILES_SETTLE_BYTES = 4 << 20,
    FILES_FORM_BYTES = 64 << 10, /* of a form beside the file: boundaries, other fields */
    FILES_TEXT_BYTES = 64        /* of one such field */
};

enum files_field { FILES_PURPOSE, FILES_ANCHOR, FILES_SECONDS, FILES_FIELD_COUNT };
static const char *const files_fields[FILES_FIELD_COUNT] = {
    [FILES_PURPOSE] = "purpose",
    [FILES_ANCHOR] = "expires_after[anchor]",
    [FILES_SECONDS] = "expires_after[seconds]",
};

struct files_upload {
    struct api *api;
    struct files_spool spool;
    char id[LIMIT_ID_BYTES + 1];
    char name[FILES_NAME_BYTES + 1];                     /* as shown */
    char texts[FILES_FIELD_COUNT][FILES_TEXT_BYTES + 1]; /* of the fields beside the file */
    bool has[FILES_FIELD_COUNT];                         /* their parts have begun */
    bool has_file;                                       /* its part has begun */
    const char *viewer; /* whose quota it takes of: the request's */
    bool counted;       /* there */
    int64_t taken;      /* of the quota, bytes */
};

char *files_path(const char *data_dir, const char *id)
{
    return mem_printf("%s/files/%s", data_dir, id);
}

int files_clean(const char *folder, struct err *err)
{
    DIR *stream = opendir(folder);
    if (stream == NULL)
        return err_set_errno(err, errno, "%s", folder);
    const struct dirent *entry;
    while ((entry = readdir(stream)) != NULL)
        if (strstr(entry->d_name, ".tmp-") != NULL)
            (void)unlinkat(dirfd(stream), entry->d_name, 0); /* a next start tries again */
    (void)closedir(stream);                                  /* read only */
    return 0;
}

int files_open(const char *data_dir, struct err *err)
{
    CLEANUP(mem_free_ptr) char *folder = io_join(data_dir, "files");
    if (folder == NULL)
        return mem_fail(err, LIMIT_PATH_BYTES, "a path");
    TRY(io_make_dirs(folder, 0700, err));
    return files_clean(folder, err);
}

/* ---- what uploads must be ---- */

void files_clean_name(const char *sent, char ret_name[FILES_NAME_BYTES + 1])
{
    const char *name = sent;
    for (const char *c = sent; *c != '\0'; c++)
        if (*c == '/' || *c == '\\')
            name = c + 1;
    (void)snprintf(ret_name, FILES_NAME_BYTES + 1, "%s", name[0] != '\0' ? name : "upload.jsonl");
    utf8_cut(ret_name);
    utf8_scrub(ret_name);
    for (char *c = ret_name; *c != '\0'; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            *c = '?';
}

int files_check_purpose(const char *purpose, struct err *err)
{
    if (strcmp(purpose, "fine-tune") == 0)
        return 0;
    return err_set_field(err, ERR_INVALID_VALUE, "purpose",
                         "purpose must be \"fine-tune\", not \"%s\"", purpose);
}

int files_check_lifetime(const char *anchor, int64_t seconds, struct err *err)
{
    if (strcmp(anchor, "created_at") != 0)
        return err_set_field(err, ERR_INVALID_VALUE, "expires_after.anchor",
                             "expires_after.anchor must be \"created_at\", not \"%s\"", anchor);
    if (seconds < FILES_LIFETIME_MIN_S || seconds > FILES_LIFETIME_MAX_S)
        return err_set_field(err, ERR_INVALID_VALUE, "expires_after.seconds",
                             "expires_after.seconds must be an integer from %d to %d",
                             FILES_LIFETIME_MIN_S, FILES_LIFETIME_MAX_S);
    return 0;
}

/* ---- upload ---- */

int files_spool_write(struct files_spool *spool, const void *bytes, size_t length, struct err *err)
{
    int rc = io_write_full(spool->file.fd, bytes, length, err);
    if (rc != 0)
        return err_wrap(err, rc, "the file cannot be stored: ");
    spool->bytes += (int64_t)length;
    if (spool->bytes - spool->flushed >= FILES_FLUSH_BYTES) {
        (void)sync_file_range(spool->file.fd, spool->flushed, spool->bytes - spool->flushed,
                              SYNC_FILE_RANGE_WRITE); /* a hint; fsync has the last word */
        spool->flushed = spool->bytes;
    }
    return 0;
}

bool files_spool_settle(struct files_spool *spool)
{
    if (spool->settled >= spool->bytes)
        return true;
    (void)sync_file_range(spool->file.fd, spool->settled, FILES_SETTLE_BYTES,
                          SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
                              SYNC_FILE_RANGE_WAIT_AFTER); /* fsync has the last word */
    spool->settled += FILES_SETTLE_BYTES;
    return false;
}

static int files_take_bytes(struct files_upload *upload, const char *bytes, size_t length,
                            struct err *err)
{
    int64_t bytes_max = upload->api->settings->upload_bytes_max;
    if ((int64_t)length > bytes_max - upload->spool.bytes)
        return err_set_field(err, ERR_TOO_LARGE, "file",
                             "the file has more than %lld bytes, the limit (upload_bytes_max)",
                             (long long)bytes_max);
    TRY(quota_grow_upload(upload->api->quota, upload->viewer, (int64_t)length, err));
    upload->taken += (int64_t)length;
    return files_spool_write(&upload->spool, bytes, length, err);
}

static int files_take_text(struct files_upload *upload, enum files_field field, bool first,
                           const char *bytes, size_t length, struct err *err)
{
    const char *name = files_fields[field];
    char *text = upload->texts[field];
    size_t used = strlen(text);
    if (first && upload->has[field])
        return err_set_field(err, ERR_INVALID_VALUE, name, "%s is given twice", name);
    upload->has[field] = true;
    if (length > FILES_TEXT_BYTES - used)
        return err_set_field(err, ERR_INVALID_VALUE, name, "%s is too long", name);
    memcpy(text + used, bytes, length); /* zeroed behind it */
    return 0;
}

static int files_on_part(void *context, const char *name, const char *filename, bool first,
                         const char *bytes, size_t length, struct err *err)
{
    struct files_upload *upload = context;
    if (strcmp(name, "file") == 0) {
        if (first && upload->has_file)
            return err_set_field(err, ERR_INVALID_VALUE, "file", "file is given twice");
        if (first)
            files_clean_name(filename != NULL ? filename : "", upload->name);
        upload->has_file = true;
        return files_take_bytes(upload, bytes, length, err);
    }
    for (int field = 0; field < FILES_FIELD_COUNT; field++)
        if (strcmp(name, files_fields[field]) == 0)
            return files_take_text(upload, (enum files_field)field, first, bytes, length, err);
    return err_set_field(err, ERR_UNKNOWN_FIELD, name, "there is no form field \"%s\"", name);
}

static void files_upload_end(void *context)
{
    struct files_upload *upload = context;
    io_file_abort(&upload->spool.file);
    if (upload->counted)
        quota_close_upload(upload->api->quota, upload->viewer, upload->taken);
    mem_free(upload);
}

int files_begin(struct api *api, struct http_request *request, struct err *err)
{
    struct files_upload *upload = mem_new(1, sizeof *upload);
    if (upload == NULL)
        return mem_fail(err, sizeof *upload, "an upload");
    upload->api = api;
    upload->viewer = access_viewer(request);
    upload->spool.file.fd = -1;
    http_request_on_end(request, files_upload_end, upload);
    int64_t body_max = api->settings->upload_bytes_max + FILES_FORM_BYTES;
    if (http_request_length(request) > body_max) /* before a byte of it is read */
        return err_set_field(err, ERR_TOO_LARGE, "file",
                             "the body has %lld bytes; files may have %lld (upload_bytes_max)",
                             (long long)http_request_length(request),
                             (long long)api->settings->upload_bytes_max);
    int64_t at_least = http_request_length(request) - FILES_FORM_BYTES;
    TRY(quota_open_upload(api->quota, upload->viewer, at_least, err));
    upload->counted = true;
    TRY(http_request_take_form(request, body_max, files_on_part, upload, err));
    TRY(host_new_id(api->host, "file-", upload->id, sizeof upload->id, err));
    CLEANUP(mem_free_ptr) char *path = files_path(api->settings->data_dir, upload->id);
    if (path == NULL)
        return mem_fail(err, LIMIT_PATH_BYTES, "a path");
    return io_file_create(&upload->spool.file, path, 0600, err);
}

static int files_check(const struct files_upload *upload, struct err *err)
{
    if (!upload->has_file)
        return err_set_field(err, ERR_MISSING_FIELD, "file", "the form field file is missing");
    if (!upload->has[FILES_PURPOSE])
        return err_set_field(err, ERR_MISSING_FIELD, "purpose",
                             "the form field purpose is missing; it must be \"fine-tune\"");
    TRY(files_check_purpose(upload->texts[FILES_PURPOSE], err));
    if (upload->spool.bytes == 0)
        return err_set_field(err, ERR_INVALID_VALUE, "file", "the file is empty");
    return 0;
}

/* *ret_seconds: 0 where the form says nothing. */
static int files_read_lifetime(const struct files_upload *upload, int64_t *ret_seconds,
                               struct err *err)
{
    const char *text = upload->texts[FILES_SECONDS];
    char *end;
    *ret_seconds = 0;
    if (!upload->has[FILES_ANCHOR] && !upload->has[FILES_SECONDS])
        return 0;
    long long seconds = strtoll(text, &end, 10);
    if (end == text || *end != '\0')
        seconds = -1;
    TRY(files_check_lifetime(upload->texts[FILES_ANCHOR], seconds, err));
    *ret_seconds = seconds;
    return 0;
}

json_t *files_json(const struct store_file *file)
{
    return json_pack("{s:s, s:s, s:I, s:o, s:o, s:o, s:s, s:o, s:o}", "id", file->id, "object",
                     "file", "bytes", (json_int_t)file->bytes, "created_at",
                     api_time(file->created_ms), "filename", api_text(file->filename), "purpose",
                     api_text(file->purpose), "status", file->status, "status_details",
                     api_text(file->status_details), "expires_at", api_time(file->expires_ms));
}

int files_create(struct api *api, struct http_request *request, struct err *err)
{
    struct files_upload *upload = http_request_ended_context(request);
    int64_t lifetime_s = 0;
    int64_t now_ms = api->host->ops->wall_ms(api->host);
    TRY(files_check(upload, err));
    TRY(files_read_lifetime(upload, &lifetime_s, err));
    TRY(quota_check_file(api->quota, upload->viewer, "file", upload->spool.bytes, err));
    const struct store_file row = {.id = upload->id,
                                   .created_ms = now_ms,
                                   .filename = upload->name,
                                   .purpose = upload->texts[FILES_PURPOSE],
                                   .bytes = upload->spool.bytes,
                                   .status = "processed",
                                   .status_details = "",
                                   .hash = "",
                                   .owner = http_request_owner(request),
                                   .expires_ms = lifetime_s > 0 ? now_ms + lifetime_s * 1000 : 0};
    int rc = io_file_commit(&upload->spool.file, err);
    if (rc == 0)
        rc = store_file_insert(api->store, &row, err);
    if (rc != 0) {
        CLEANUP(mem_free_ptr) char *path = files_path(api->settings->data_dir, upload->id);
        if (path != NULL)
            (void)unlink(path); /* no row names it */
        return rc;
    }
    http_answer_json(request, 200, files_json(&row));
    return 0;
}

/* ---- list, get, content, delete ---- */

static int files_append(void *context, const struct store_file *file, struct err *err)
{
    if (json_array_append_new(context, files_json(file)) != 0)
        return mem_fail(err, 0, "a list of files");
    return 0;
}

int files_list(struct api *api, struct http_request *request, struct err *err)
{
    const char *query = http_request_route(request)->query;
    char after[LIMIT_ID_BYTES + 1];
    char order[ROUTE_VALUE_BYTES + 1];
    char purpose[ROUTE_VALUE_BYTES + 1];
    bool ordered = false;
    bool filtered = false;
    bool has_more = false;
    struct store_page page;
    TRY(api_read_page(request, LIMIT_PAGE_ROWS, after, sizeof after, &page, err));
    TRY(route_query_text(query, "order", order, &ordered, err));
    TRY(route_query_text(query, "purpose", purpose, &filtered, err));
    if (ordered && strcmp(order, "asc") == 0)
        page.order = STORE_OLDEST_FIRST;
    else if (ordered && strcmp(order, "desc") != 0)
        return err_set_field(err, ERR_INVALID_VALUE, "order", "order must be asc or desc");
    CLEANUP(json_unref) json_t *data = json_array();
    TRY(store_files_list(api->store, access_viewer(request), filtered ? purpose : "", &page,
                         files_append, data, &has_more, err));
    api_answer_list(request, data, has_more);
    return 0;
}

static int files_answer(void *context, const struct store_file *file, struct err *err)
{
    (void)err;
    http_answer_json(context, 200, files_json(file));
    return 0;
}

int files_answer_one(struct api *api, struct http_request *request, const char *id, struct err *err)
{
    return store_file_get(api->store, id, files_answer, request, err);
}

int files_get(struct api *api, struct http_request *request, struct err *err)
{
    return files_answer_one(api, request, http_request_route(request)->name, err);
}

static int files_exists(void *context, const struct store_file *file, struct err *err)
{
    (void)context;
    (void)file;
    (void)err;
    return 0;
}

int files_content(struct api *api, struct http_request *request, struct err *err)
{
    const char *id = http_request_route(request)->name;
    TRY(store_file_get(api->store, id, files_exists, NULL, err));
    CLEANUP(mem_free_ptr) char *path = files_path(api->settings->data_dir, id);
    if (path == NULL)
        return mem_fail(err, LIMIT_PATH_BYTES, "a path");
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    struct stat info;
    if (fd < 0 || fstat(fd, &info) != 0) {
        int errnum = errno;
        if (fd >= 0)
            (void)close(fd); /* only read from */
        return err_set(err, ERR_IO, "the bytes of %s cannot be read: %s", id, strerror(errnum));
    }
    http_answer_file(request, fd, info.st_size);
    return 0;
}

int files_remove(struct store *store, const char *data_dir, const char *id, struct err *err)
{
    CLEANUP(mem_free_ptr) char *path = files_path(data_dir, id);
    if (path == NULL)
        return mem_fail(err, LIMIT_PATH_BYTES, "a path");
    TRY(store_file_delete(store, id, err));
    (void)unlink(path); /* its row is gone: it does not exist any more, whatever is left */
    return 0;
}

int files_delete(struct api *api, struct http_request *request, struct err *err)
{
    const char *id = http_request_route(request)->name;
    TRY(store_file_get(api->store, id, files_exists, NULL, err));
    if (coordinator_uses_file(api->coordinator, id))
        return err_set(err, ERR_BAD_STATE,
                       "%s is used by a job that has not ended; cancel or await it first", id);
    TRY(files_remove(api->store, api->settings->data_dir, id, err));
    http_answer_json(request, 200,
                     json_pack("{s:s, s:s, s:b}", "id", id, "object", "file", "deleted", 1));
    return 0;
}

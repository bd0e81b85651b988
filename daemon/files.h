/* files: uploaded training files, and the results of jobs (results.h). The bytes are
 * <data_dir>/files/<id>, the row is in jobs.db; a file is there when its row is. Names that users
 * give are for display only.
 *
 * An upload is streamed into a temporary file beside its place, in any order of parts, and decided
 * at its end: only then are purpose and size known. A client that leaves half way leaves nothing.
 * Files above what one request should carry come in parts: uploads.h. */
#pragma once
#include "common/io.h"
#include "daemon/api.h"

enum {
    FILES_NAME_BYTES = 255, /* of the name shown */
    FILES_LIFETIME_MIN_S = 3600,
    FILES_LIFETIME_MAX_S = 2592000 /* OpenAI's: an hour to 30 days */
};

/* Makes the folder and removes what interrupted uploads left. */
int files_open(const char *data_dir, struct err *err);

int files_begin(struct api *api, struct http_request *request, struct err *err); /* at headers */
/* Answers with the file; ERR_NOT_FOUND. */
int files_answer_one(struct api *api, struct http_request *request, const char *id,
                     struct err *err);
api_handler files_create, files_list, files_get, files_content, files_delete;

/* ---- shared with uploads.c, results.c, housekeeping.c ---- */

char *files_path(const char *data_dir, const char *id); /* NULL when out of memory */
json_t *files_json(const struct store_file *file);      /* new reference */
/* Deletes row and bytes. */
int files_remove(struct store *store, const char *data_dir, const char *id, struct err *err);
/* Removes what writes that were cut short left in a folder. */
int files_clean(const char *folder, struct err *err);

/* The last component of whatever path a client sent, printable; "upload.jsonl" for none. */
void files_clean_name(const char *sent, char ret_name[FILES_NAME_BYTES + 1]);
/* ERR_INVALID_VALUE unless files of this purpose may be uploaded. */
int files_check_purpose(const char *purpose, struct err *err);
/* Of a file that is to be deleted so long after an anchor ("created_at"). */
int files_check_lifetime(const char *anchor, int64_t seconds, struct err *err);

/* Bytes on their way into a file. */
struct files_spool {
    struct io_file file; /* fd -1: not open */
    int64_t bytes;       /* so far */
    int64_t flushed;     /* of them, handed to the disk */
    int64_t settled;     /* of them, on the disk: files_spool_settle */
};
int files_spool_write(struct files_spool *spool, const void *bytes, size_t length, struct err *err);
/* Waits for some of what is on its way to the disk; true when nothing is left but the fsync of the
 * end, which then is short. */
bool files_spool_settle(struct files_spool *spool);

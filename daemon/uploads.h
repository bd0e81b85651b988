/* uploads: files that come in parts, for what one request should not carry. An upload is announced
 * with its size; its parts come in any order, several at once, and are sent again after a broken
 * connection; completing it names the parts in their order and makes the file.
 *
 * Parts are <data_dir>/uploads/<upload>/<part>: what was answered outlives the daemon. An upload
 * that is not completed within UPLOADS_LIFETIME_S is expired and its parts are deleted
 * (housekeeping.h). Shapes are OpenAI's; the size is checked, and `md5` where it is given. */
#pragma once
#include "daemon/api.h"

enum {
    UPLOADS_PART_BYTES = 64 << 20, /* OpenAI's */
    UPLOADS_LIFETIME_S = 3600,     /* OpenAI's */
    UPLOADS_PARTS_MAX = 10000      /* of one upload: six times what 100 GiB take */
};

/* Makes the folder and removes what interrupted parts left. */
int uploads_open(const char *data_dir, struct err *err);

int uploads_begin(struct api *api, struct http_request *request, struct err *err); /* of a part */
api_handler uploads_create, uploads_part, uploads_complete, uploads_cancel;

/* The user whose upload it is. ERR_NOT_FOUND. */
int uploads_owner(struct store *store, const char *id, char ret_owner[LIMIT_NAME_BYTES + 1],
                  struct err *err);

/* The parts of an upload that has ended are to be deleted. */
void uploads_drop_parts(const char *data_dir, const char *id);

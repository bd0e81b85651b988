/* files: uploaded training files. The bytes are <data_dir>/files/<id>, the row is in jobs.db; a
 * file is there when its row is. Names that users give are for display only.
 *
 * An upload is streamed into a temporary file beside its place, in any order of parts, and decided
 * at its end: only then are purpose and size known. A client that leaves half way leaves nothing.
 */
#pragma once
#include "daemon/api.h"

/* Makes the folder and removes what interrupted uploads left. */
int files_open(const char *data_dir, struct err *err);

int files_begin(struct api *api, struct http_request *request, struct err *err); /* at headers */
/* Answers with the file; ERR_NOT_FOUND. */
int files_answer_one(struct api *api, struct http_request *request, const char *id,
                     struct err *err);
api_handler files_create, files_list, files_get, files_content, files_delete;

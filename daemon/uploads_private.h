/* uploads_private: what uploads.c and uploads_join.c share. */
#pragma once
#include "daemon/api.h"

/* Folder of an upload's parts; NULL when out of memory. */
char *uploads_dir(const char *data_dir, const char *id);
/* It is there, pending, and its time has not come; *ret_bytes as announced. */
int uploads_check(const struct api *api, const char *id, int64_t *ret_bytes, struct err *err);
/* Answers with the upload as it is. */
int uploads_answer(struct api *api, struct http_request *request, const char *id, struct err *err);

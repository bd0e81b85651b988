/* prepare: the prepare child: data files to token shards, outside the daemon's process. Request and
 * outcome: common/prepare_request.h. */
#pragma once
#include "common/err.h"

/* On failure the reason is also in the request's error_path, where the request could be read. */
int prepare_main(const char *request_path, struct err *err);

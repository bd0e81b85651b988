/* retention: what goes by itself once it is old, or too much (settings retain_*; nothing unless
 * they are set): a survey an hour, and the first soon after the start. What is needed stays as
 * under prune (prune.h), and what goes is told in the same events and log, of "retention". */
#pragma once
#include "common/err.h"
#include "daemon/storage.h"

struct api;
struct retention;
struct settings;

int retention_new(struct api *api, struct retention **ret_retention, struct err *err);
void retention_free(struct retention *retention); /* NULL is fine; before storage and prune */

/* Whether any of the settings is set. */
bool retention_is_on(const struct settings *settings);
/* Marks what goes now (Unix). Pure. */
int retention_choose(const struct storage_survey *survey, const struct settings *settings,
                     int64_t now_ms, bool chosen[], struct err *err);

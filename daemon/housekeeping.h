/* housekeeping: what goes by itself, a little at a time so that nobody waits for it: files whose
 * time has come (expires_after) and that no unfinished job uses, uploads that were not completed,
 * metric points of deleted jobs, after retain_usage_days what those used, and what lies in the
 * trash (trash.h). */
#pragma once
#include "common/err.h"

enum { HOUSEKEEPING_MS = 5000 }; /* between rounds when there is nothing to do */

struct api;
struct housekeeping;

int housekeeping_new(struct api *api, struct housekeeping **ret, struct err *err);
void housekeeping_free(struct housekeeping *housekeeping); /* NULL is fine */
/* Something was put where a round finds it: begin one now. */
void housekeeping_wake(struct housekeeping *housekeeping);

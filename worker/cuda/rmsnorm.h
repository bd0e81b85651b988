/* rmsnorm: what the norm's two directions share. */
#pragma once
#include "common/err.h"

#include <stdint.h>

enum { RMSNORM_WIDTH_MAX = 16 * 1024 }; /* the widest row: the widest published hidden size */

/* ERR_UNSUPPORTED for a row wider than that. */
int rmsnorm_check(int64_t width, struct err *err);

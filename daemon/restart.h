/* restart: may a job that failed for a reason be run again from its last checkpoint by itself? Yes
 * where the fault may be the node's or the moment's; no where the same would happen again, or only
 * the user can help. How often: max_restarts of the job. */
#pragma once
#include "common/err.h"

#include <stdbool.h>

bool restart_may(enum err_code reason);

/* experiment_step: one experiment as it stands in the store, and what is to be done about it now.
 * Done twice it does nothing twice. */
#pragma once
#include "common/err.h"

#include <stdbool.h>

struct api;

/* *ret_again: there is more to do at once. */
int experiment_step(struct api *api, const char *id, bool *ret_again, struct err *err);

/* mem_card: how much memory a job may use of a card, by the name people give it.
 *
 * "80GB" names a card and stands for what a process can have of it, the driver's context included
 * (which plans count, as a buffer); a plain number, or one with GiB, is GiB. */
#pragma once
#include "common/err.h"

#include <stdint.h>

/* ERR_INVALID_VALUE, listing the cards. */
int mem_card_bytes(const char *text, int64_t *ret_bytes, struct err *err);

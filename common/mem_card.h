/* mem_card: how much memory a job may use, of a card and of the machine, as people say it.
 *
 * "80GB" names a card and stands for what a process can have of it, the driver's context included
 * (which plans count, as a buffer); a plain number, or one with GiB, is GiB. Of a machine GiB and
 * TiB are powers of two, GB and TB of ten. */
#pragma once
#include "common/err.h"

#include <stdint.h>

/* ERR_INVALID_VALUE, listing the cards. */
int mem_card_bytes(const char *text, int64_t *ret_bytes, struct err *err);

/* ERR_INVALID_VALUE. */
int mem_card_host_bytes(const char *text, int64_t *ret_bytes, struct err *err);

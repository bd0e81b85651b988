/* mem_advice: the shortest changes to a job that make it fit: one changed field where one is
 * enough, else two, else three, in the order of what they cost; and the longest sequence. */
#pragma once
#include "common/mem_estimate.h"

/* "recompute attention gives 61.4 GiB; ..." or "" when there is nothing to say. */
int mem_advice_write(const struct mem_ask *ask, struct buf *out, struct err *err);

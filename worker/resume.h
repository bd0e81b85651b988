/* resume: training goes on from a checkpoint, with any number of ranks.
 *
 * A checkpoint is checked before any of it is used: manifest, job, model, data order, and every
 * file's hash (each rank hashes its share). One that fails is told in an event, and the one before
 * it is tried; with none left training starts over, which is told too. Those that are later than
 * where training goes on from are removed: they are of a history that is given up. */
#pragma once
#include "common/err.h"

#include <stdbool.h>
#include <stdint.h>

struct rank;

/* From plan->resume_from, or what is left of it; sets weights, moments, optim.updates, progress and
 * saved_step. *ret_resumed false: no checkpoint, nothing is set. All ranks call it. */
int resume_start(struct rank *rank, bool *ret_resumed, struct err *err);
/* Weights and moments of an earlier step of this run, for export; progress stays. *ret_found false:
 * it is not there or not valid (told in an event), nothing has changed. */
int resume_return_to(struct rank *rank, int64_t step, bool *ret_found, struct err *err);

/* experiments: what moves experiments on. Their points become jobs here, as many at once as
 * max_gpus lets, and how these end is put into the points, where it outlives the jobs.
 *
 * All it goes by is in the store, and a round does what is to be done, whoever did the last one: a
 * daemon that starts anew goes on with every experiment. A round comes when some job has changed.
 */
#pragma once
#include "common/err.h"

struct api;
struct experiments;

/* Once the coordinator is there. */
int experiments_new(struct api *api, struct experiments **ret, struct err *err);
void experiments_free(struct experiments *experiments); /* NULL is fine */
void experiments_wake(struct experiments *experiments); /* one was made or cancelled */

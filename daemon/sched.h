/* sched: which waiting job starts next. Pure functions of queue and inventory.
 *
 * Strictly in the queue's order: a small job never overtakes a large one that waits for slots, so
 * none starves. Only a job that needs more slots than the machine has is passed over (submit
 * refuses such jobs; the machine may have been given fewer slots since). */
#pragma once
#include "daemon/inventory.h"
#include "daemon/queue.h"

#include <stddef.h>

/* Index of the job to start now; queue->count when none can. */
size_t sched_next(const struct queue *queue, const struct inventory *inventory);

/* Why the job at `index` has not started, for people. */
void sched_explain(const struct queue *queue, const struct inventory *inventory, size_t index,
                   char *ret_text, size_t ret_text_bytes);

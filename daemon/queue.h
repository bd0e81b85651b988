/* queue: the jobs that wait for slots, in the order in which they shall start: higher priority
 * first, then the one that was submitted first. */
#pragma once
#include "common/err.h"
#include "common/limits.h"

#include <stddef.h>
#include <stdint.h>

struct queue_entry {
    char job_id[LIMIT_ID_BYTES + 1];
    int64_t priority;   /* higher goes first */
    int64_t created_ms; /* then the older one */
    int64_t ranks;      /* slots it needs */
};

struct queue {
    struct queue_entry *entries; /* sorted; owned */
    size_t count;
    size_t capacity;
};

void queue_done(struct queue *queue); /* a zeroed queue is an empty one */
/* ERR_TOO_MANY beyond LIMIT_JOBS_UNFINISHED. */
int queue_add(struct queue *queue, const struct queue_entry *entry, struct err *err);
void queue_remove(struct queue *queue, size_t index);
/* Index of a job; queue->count when it does not wait. */
size_t queue_find(const struct queue *queue, const char *job_id);

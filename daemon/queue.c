/* queue: a sorted array; a few hundred jobs at most wait, so moving entries costs nothing that
 * counts. Equal entries keep the order in which they came. */
#include "daemon/queue.h"

#include "common/mem.h"
#include "common/must.h"

#include <stdbool.h>
#include <string.h>

void queue_done(struct queue *queue)
{
    mem_free(queue->entries);
    *queue = (struct queue){.count = 0};
}

static bool queue_goes_before(const struct queue_entry *a, const struct queue_entry *b)
{
    if (a->priority != b->priority)
        return a->priority > b->priority;
    return a->created_ms < b->created_ms;
}

int queue_add(struct queue *queue, const struct queue_entry *entry, struct err *err)
{
    must(entry->ranks > 0 && queue_find(queue, entry->job_id) == queue->count);
    if (queue->count == (size_t)LIMIT_JOBS_UNFINISHED)
        return err_set(err, ERR_TOO_MANY, "%d jobs are waiting already", LIMIT_JOBS_UNFINISHED);
    if (queue->count == queue->capacity) {
        size_t capacity = queue->capacity > 0 ? queue->capacity * 2 : 16;
        struct queue_entry *grown = mem_grow(queue->entries, capacity, sizeof *grown);
        if (grown == NULL)
            return mem_fail(err, capacity * sizeof *grown, "the queue");
        queue->entries = grown;
        queue->capacity = capacity;
    }
    size_t at = queue->count;
    while (at > 0 && queue_goes_before(entry, &queue->entries[at - 1])) {
        queue->entries[at] = queue->entries[at - 1];
        at--;
    }
    queue->entries[at] = *entry;
    queue->count++;
    return 0;
}

void queue_remove(struct queue *queue, size_t index)
{
    must(index < queue->count);
    queue->count--;
    memmove(&queue->entries[index], &queue->entries[index + 1],
            (queue->count - index) * sizeof queue->entries[0]);
}

size_t queue_find(const struct queue *queue, const char *job_id)
{
    size_t index = 0;
    while (index < queue->count && strcmp(queue->entries[index].job_id, job_id) != 0)
        index++;
    return index;
}

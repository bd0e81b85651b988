/* sched: the head of the queue is the first job that could ever run here; it starts when its slots
 * are free, and nothing starts before it. */
#include "daemon/sched.h"

#include "common/must.h"

#include <stdio.h>

static size_t sched_head(const struct queue *queue, const struct inventory *inventory)
{
    size_t head = 0;
    while (head < queue->count && queue->entries[head].ranks > inventory->slots)
        head++;
    return head;
}

size_t sched_next(const struct queue *queue, const struct inventory *inventory)
{
    size_t head = sched_head(queue, inventory);
    if (head < queue->count && queue->entries[head].ranks <= inventory_free_slots(inventory))
        return head;
    return queue->count;
}

void sched_explain(const struct queue *queue, const struct inventory *inventory, size_t index,
                   char *ret_text, size_t ret_text_bytes)
{
    must(index < queue->count);
    size_t head = sched_head(queue, inventory);
    long long ranks = (long long)queue->entries[index].ranks;
    if (queue->entries[index].ranks > inventory->slots)
        (void)snprintf(ret_text, ret_text_bytes, "needs %lld slots, this machine has %lld", ranks,
                       (long long)inventory->slots);
    else if (index == head)
        (void)snprintf(ret_text, ret_text_bytes, "needs %lld of %lld slots, %lld free", ranks,
                       (long long)inventory->slots, (long long)inventory_free_slots(inventory));
    else
        (void)snprintf(ret_text, ret_text_bytes, "waits behind %zu other job%s", index - head,
                       index - head == 1 ? "" : "s");
}

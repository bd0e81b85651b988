/* inventory_cpu: a count. CPU slots are alike, so which ones a job has does not matter. */
#include "daemon/inventory_cpu.h"

#include "common/limits.h"
#include "common/must.h"

#include <sched.h>

enum { INVENTORY_SLOTS_MIN = 2 };

void inventory_cpu_init(struct inventory *inventory, int64_t slots)
{
    must(slots >= 0);
    cpu_set_t allowed; /* containers and taskset lower it */
    int64_t cores = sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : 1;
    if (slots == 0 && cores > INVENTORY_SLOTS_MIN)
        slots = cores < LIMIT_RANKS ? cores : LIMIT_RANKS;
    else if (slots == 0)
        slots = INVENTORY_SLOTS_MIN;
    *inventory = (struct inventory){.cores = cores, .slots = slots};
}

int64_t inventory_free_slots(const struct inventory *inventory)
{
    return inventory->slots - inventory->taken;
}

void inventory_take(struct inventory *inventory, int64_t ranks)
{
    must(ranks > 0 && ranks <= inventory_free_slots(inventory));
    inventory->taken += ranks;
}

void inventory_give(struct inventory *inventory, int64_t ranks)
{
    must(ranks > 0 && ranks <= inventory->taken);
    inventory->taken -= ranks;
}

int64_t inventory_threads(const struct inventory *inventory, int64_t ranks)
{
    must(ranks > 0);
    return inventory->cores > ranks ? inventory->cores / ranks : 1;
}

/* inventory: CPU slots are alike, so they are a count; GPUs are taken by number. */
#include "daemon/inventory.h"

#include "common/cores.h"
#include "common/must.h"

#include <stddef.h>

enum { INVENTORY_SLOTS_MIN = 2 };

void inventory_cpu_init(struct inventory *inventory, int64_t slots)
{
    must(slots >= 0);
    int64_t cores = cores_allowed();
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

static struct inventory_gpu *inventory_gpu(struct inventory *inventory, uint32_t number)
{
    for (int64_t i = 0; i < inventory->gpu_count; i++)
        if (inventory->gpus[i].number == number)
            return &inventory->gpus[i];
    return NULL;
}

void inventory_take(struct inventory *inventory, int64_t ranks, uint32_t *ret_gpus)
{
    must(ranks > 0 && ranks <= inventory_free_slots(inventory));
    inventory->taken += ranks;
    for (int64_t i = 0, rank = 0; i < inventory->gpu_count && rank < ranks; i++)
        if (!inventory->gpus[i].taken) {
            inventory->gpus[i].taken = true;
            ret_gpus[rank++] = inventory->gpus[i].number;
        }
}

bool inventory_take_again(struct inventory *inventory, int64_t ranks, const uint32_t *gpus)
{
    if (ranks > inventory_free_slots(inventory))
        return false;
    for (int64_t rank = 0; inventory->gpu_count > 0 && rank < ranks; rank++) {
        const struct inventory_gpu *gpu = inventory_gpu(inventory, gpus[rank]);
        if (gpu == NULL || gpu->taken)
            return false;
    }
    for (int64_t rank = 0; inventory->gpu_count > 0 && rank < ranks; rank++)
        inventory_gpu(inventory, gpus[rank])->taken = true;
    inventory->taken += ranks;
    return true;
}

void inventory_give(struct inventory *inventory, int64_t ranks, const uint32_t *gpus)
{
    must(ranks > 0 && ranks <= inventory->taken);
    inventory->taken -= ranks;
    for (int64_t rank = 0; inventory->gpu_count > 0 && rank < ranks; rank++) {
        struct inventory_gpu *gpu = inventory_gpu(inventory, gpus[rank]);
        must(gpu != NULL && gpu->taken);
        gpu->taken = false;
    }
}

int64_t inventory_threads(const struct inventory *inventory, int64_t ranks)
{
    must(ranks > 0);
    return inventory->cores > ranks ? inventory->cores / ranks : 1;
}

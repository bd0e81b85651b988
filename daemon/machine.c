/* machine: see machine.h. */
#include "daemon/machine.h"

#include "common/host_memory.h"
#include "common/log.h"

int64_t machine_device_bytes(const struct inventory *inventory)
{
    int64_t least = 0;
    if (inventory_device(inventory) != LAUNCH_CUDA)
        return 0;
    for (int64_t i = 0; i < inventory->gpu_count; i++)
        if (least == 0 || inventory->gpus[i].bytes < least)
            least = inventory->gpus[i].bytes;
    return least;
}

struct mem_ask machine_ask(const struct inventory *inventory, const struct job_spec *spec,
                           const struct model_shape *shape)
{
    struct mem_ask ask = {.shape = shape,
                          .spec = spec,
                          .backend = MEM_BACKEND_CPU,
                          .ranks_max = inventory_total(inventory),
                          .host_bytes = host_memory_read().total};
    if (inventory_device(inventory) == LAUNCH_CUDA)
        ask.backend = MEM_BACKEND_CUDA;
    ask.device_bytes = machine_device_bytes(inventory);
    return ask;
}

void machine_rates(const struct inventory *inventory, const char *data_dir, struct mem_ask *ask,
                   struct time_rates *rates)
{
    const char *device = inventory_device(inventory) == LAUNCH_CUDA ? inventory->gpus[0].name : "";
    int64_t ranks = ask->spec->gpus;
    struct err why;
    ask->rates = rates;
    if (time_rates_find(data_dir, ask->backend, ranks, device, rates, &why) == 0)
        return;
    log_warn("machine", "%s", why.text);
    time_rates_table(ask->backend, device, ranks, rates);
}

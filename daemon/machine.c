/* machine: see machine.h. */
#include "daemon/machine.h"

#include "common/host_memory.h"
#include "common/log.h"

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
    for (int64_t i = 0; ask.backend == MEM_BACKEND_CUDA && i < inventory->gpu_count; i++) {
        int64_t bytes = inventory->gpus[i].bytes;
        ask.device_bytes =
            ask.device_bytes == 0 || bytes < ask.device_bytes ? bytes : ask.device_bytes;
    }
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

/* machine: what plans are made for: this machine's memory, and how fast it is. */
#pragma once
#include "common/mem_estimate.h"
#include "daemon/inventory.h"

/* Ranks on GPUs have the smallest one's memory each, ranks on the CPU share the host's, as far as
 * this process may use it. spec and shape are borrowed. */
struct mem_ask machine_ask(const struct inventory *inventory, const struct job_spec *spec,
                           const struct model_shape *shape);
/* The smallest GPU's memory; 0 where ranks share the host's. */
int64_t machine_device_bytes(const struct inventory *inventory);
/* Its calibration in the data folder, or the table's, into *rates, which the ask borrows. A
 * calibration that cannot be read is told in the log and keeps nobody from planning. */
void machine_rates(const struct inventory *inventory, const char *data_dir, struct mem_ask *ask,
                   struct time_rates *rates);

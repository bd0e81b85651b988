/* prometheus_gpus: what is known of each GPU, for Prometheus: by our names, with the UUID as the
 * label gpu, and by those of NVIDIA's dcgm-exporter, with its labels gpu and UUID and its units,
 * so that dashboards and alerts made for it work. What a GPU or its driver does not tell is left
 * out. */
#pragma once
#include "daemon/exposition.h"

struct inventory;

/* now_ms: monotonic. */
void prometheus_gpus(const struct exposition *out, const struct inventory *inventory,
                     int64_t now_ms);

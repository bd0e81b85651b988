/* prometheus_gpus: a table of families; a row's function takes its value out of a sample. */
#include "daemon/prometheus_gpus.h"

#include "daemon/inventory.h"

#include <stddef.h>
#include <stdio.h>

#define GPUS_UNKNOWN (-1) /* as in gpu_report.h */

struct gpus_family {
    const char *name;
    const char *type;
    const char *sample; /* NULL: the family's name */
    const char *help;
    int64_t (*of)(const struct gpu_sample *gpu); /* GPUS_UNKNOWN: it does not tell */
    double unit;                                 /* the value is so much of what is printed */
};

static int64_t gpus_bytes(const struct gpu_sample *gpu)
{
    return gpu->bytes;
}

static int64_t gpus_used(const struct gpu_sample *gpu)
{
    return gpu->used_bytes;
}

static int64_t gpus_free(const struct gpu_sample *gpu)
{
    bool told = gpu->bytes >= 0 && gpu->used_bytes >= 0;
    return told ? gpu->bytes - gpu->used_bytes : GPUS_UNKNOWN;
}

static int64_t gpus_temperature(const struct gpu_sample *gpu)
{
    return gpu->temperature_c;
}

static int64_t gpus_power(const struct gpu_sample *gpu)
{
    return gpu->power_mw;
}

static int64_t gpus_busy(const struct gpu_sample *gpu)
{
    return gpu->busy_percent;
}

static int64_t gpus_links(const struct gpu_sample *gpu)
{
    return gpu->links;
}

static int64_t gpus_ecc(const struct gpu_sample *gpu)
{
    return gpu->ecc_uncorrected;
}

static int64_t gpus_xids(const struct gpu_sample *gpu)
{
    return gpu->xid_count;
}

#define GAUGE(text) .name = text, .type = "gauge"
#define COUNTER(text) .name = text, .type = "counter", .sample = text "_total"
static const struct gpus_family gpus_ours[] = {
    {GAUGE("ithaca_gpu_memory_bytes"), .of = gpus_bytes, .unit = 1, .help = "Memory of a GPU."},
    {GAUGE("ithaca_gpu_memory_used_bytes"), .of = gpus_used, .unit = 1,
     .help = "Memory in use, of a GPU."},
    {GAUGE("ithaca_gpu_temperature_celsius"), .of = gpus_temperature, .unit = 1,
     .help = "Temperature of a GPU."},
    {GAUGE("ithaca_gpu_power_watts"), .of = gpus_power, .unit = 1e-3, .help = "Power of a GPU."},
    {GAUGE("ithaca_gpu_utilization_ratio"), .of = gpus_busy, .unit = 1e-2,
     .help = "Share of the time in which a kernel ran on a GPU."},
    {GAUGE("ithaca_gpu_nvlinks"), .of = gpus_links, .unit = 1, .help = "NVLinks that are up."},
    {COUNTER("ithaca_gpu_ecc_uncorrected"), .of = gpus_ecc, .unit = 1,
     .help = "Uncorrectable memory errors of a GPU since its driver was loaded."},
    {COUNTER("ithaca_gpu_xids"), .of = gpus_xids, .unit = 1,
     .help = "XID errors of a GPU since the start."},
};

#define MIB (1.0 / (1 << 20))
static const struct gpus_family gpus_dcgm[] = {
    {GAUGE("DCGM_FI_DEV_GPU_TEMP"), .of = gpus_temperature, .unit = 1, .help = "Celsius."},
    {GAUGE("DCGM_FI_DEV_POWER_USAGE"), .of = gpus_power, .unit = 1e-3, .help = "Watts."},
    {GAUGE("DCGM_FI_DEV_GPU_UTIL"), .of = gpus_busy, .unit = 1, .help = "Percent."},
    {GAUGE("DCGM_FI_DEV_FB_USED"), .of = gpus_used, .unit = MIB, .help = "MiB."},
    {GAUGE("DCGM_FI_DEV_FB_FREE"), .of = gpus_free, .unit = MIB, .help = "MiB."},
};

static void gpus_print(const struct exposition *out, const struct inventory *inventory,
                       const struct gpus_family *family, bool dcgm)
{
    const char *name = family->sample != NULL ? family->sample : family->name;
    exposition_family(out, family->name, family->type, family->help);
    for (int64_t i = 0; i < inventory->gpu_count; i++) {
        const struct gpu_sample *seen = &inventory->gpus[i].seen;
        char number[16];
        double value = (double)family->of(seen) * family->unit;
        (void)snprintf(number, sizeof number, "%u", seen->number);
        if (family->of(seen) == GPUS_UNKNOWN)
            continue;
        if (dcgm)
            exposition_sample(out, name, value, "gpu", number, "UUID", seen->uuid, NULL);
        else
            exposition_sample(out, name, value, "gpu", seen->uuid, NULL);
    }
}

static void gpus_states(const struct exposition *out, const struct inventory *inventory,
                        int64_t now_ms)
{
    exposition_family(out, "ithaca_gpu_state", "gauge", "1 for the state that a GPU is in.");
    for (int64_t i = 0; i < inventory->gpu_count; i++) {
        const struct inventory_gpu *gpu = &inventory->gpus[i];
        for (int state = 0; state < INVENTORY_STATE_COUNT; state++)
            exposition_sample(out, "ithaca_gpu_state", (int)inventory_state(gpu, now_ms) == state,
                              "gpu", gpu->uuid, "state",
                              inventory_state_name((enum inventory_state)state), NULL);
    }
}

void prometheus_gpus(const struct exposition *out, const struct inventory *inventory,
                     int64_t now_ms)
{
    if (inventory->gpu_count == 0)
        return;
    gpus_states(out, inventory, now_ms);
    for (size_t i = 0; i < sizeof gpus_ours / sizeof gpus_ours[0]; i++)
        gpus_print(out, inventory, &gpus_ours[i], false);
    for (size_t i = 0; i < sizeof gpus_dcgm / sizeof gpus_dcgm[0]; i++)
        gpus_print(out, inventory, &gpus_dcgm[i], true);
}

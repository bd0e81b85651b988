/* inventory_nvml: see inventory_nvml.h. The few entry points of NVML are declared here: its header
 * comes with the CUDA toolkit, which the daemon does not need. */
#include "daemon/inventory_nvml.h"

#include "common/must.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NVML_HOPPER = 9 }; /* major compute capability of the backend's kernels */

static const char nvml_library[] = "libnvidia-ml.so.1";

struct nvml_memory {
    unsigned long long total, free, used; /* bytes */
};

typedef struct nvml_device nvml_device;
struct nvml {
    int (*init)(void);
    int (*shutdown)(void);
    int (*count)(unsigned *ret);
    int (*by_index)(unsigned index, nvml_device **ret);
    int (*name)(nvml_device *device, char *ret, unsigned bytes);
    int (*uuid)(nvml_device *device, char *ret, unsigned bytes);
    int (*memory)(nvml_device *device, struct nvml_memory *ret);
    int (*capability)(nvml_device *device, int *ret_major, int *ret_minor);
};

static int nvml_load(void *library, struct nvml *nvml, struct err *err)
{
    const struct {
        const char *symbol;
        void *slot;
    } symbols[] = {
        {"nvmlInit_v2", &nvml->init},
        {"nvmlShutdown", &nvml->shutdown},
        {"nvmlDeviceGetCount_v2", &nvml->count},
        {"nvmlDeviceGetHandleByIndex_v2", &nvml->by_index},
        {"nvmlDeviceGetName", &nvml->name},
        {"nvmlDeviceGetUUID", &nvml->uuid},
        {"nvmlDeviceGetMemoryInfo", &nvml->memory},
        {"nvmlDeviceGetCudaComputeCapability", &nvml->capability},
    };
    for (size_t i = 0; i < sizeof symbols / sizeof symbols[0]; i++) {
        void *symbol = dlsym(library, symbols[i].symbol);
        if (symbol == NULL)
            return err_set(err, ERR_UNSUPPORTED, "%s has no %s: the driver is too old",
                           nvml_library, symbols[i].symbol);
        memcpy(symbols[i].slot, &symbol,
               sizeof symbol); /* data to function pointer, as POSIX has it */
    }
    return 0;
}

static bool nvml_describe(const struct nvml *nvml, unsigned index, struct inventory_gpu *ret)
{
    nvml_device *device = NULL;
    struct nvml_memory memory = {0};
    int major = 0, minor = 0;
    *ret = (struct inventory_gpu){.number = index};
    if (nvml->by_index(index, &device) != 0 ||
        nvml->name(device, ret->name, sizeof ret->name) != 0 ||
        nvml->uuid(device, ret->uuid, sizeof ret->uuid) != 0 ||
        nvml->memory(device, &memory) != 0 || nvml->capability(device, &major, &minor) != 0)
        return false; /* lost, or not for us */
    ret->bytes = (int64_t)memory.total;
    return major == NVML_HOPPER;
}

static int nvml_list(const struct nvml *nvml, struct inventory *inventory, struct err *err)
{
    unsigned count = 0;
    int status = nvml->init();
    if (status != 0)
        return err_set(err, ERR_UNSUPPORTED, "NVIDIA's driver does not answer (NVML error %d)",
                       status);
    status = nvml->count(&count);
    for (unsigned i = 0; status == 0 && i < count && inventory->gpu_count < LIMIT_RANKS; i++)
        if (nvml_describe(nvml, i, &inventory->gpus[inventory->gpu_count]))
            inventory->gpu_count++;
    (void)nvml->shutdown(); /* nothing is held */
    if (inventory->gpu_count == 0)
        return err_set(err, ERR_UNSUPPORTED, "none of %u GPUs is a Hopper (compute capability 9.0)",
                       count);
    return 0;
}

/* The GPU that an entry of the list names: its number, or the beginning of its UUID. */
static const struct inventory_gpu *select_named(const struct inventory *inventory,
                                                const char *entry, size_t length)
{
    char text[96], *end = text;
    if (length == 0 || length >= sizeof text)
        return NULL;
    memcpy(text, entry, length);
    text[length] = '\0';
    unsigned long number = strtoul(text, &end, 10);
    bool is_number = text[0] >= '0' && text[0] <= '9' && *end == '\0';
    for (int64_t i = 0; i < inventory->gpu_count; i++) {
        const struct inventory_gpu *gpu = &inventory->gpus[i];
        if (is_number ? gpu->number == number : strncmp(gpu->uuid, text, length) == 0)
            return gpu;
    }
    return NULL;
}

void inventory_nvml_select(struct inventory *inventory, const char *visible)
{
    struct inventory_gpu chosen[LIMIT_RANKS];
    int64_t count = 0;
    while (*visible != '\0' && count < LIMIT_RANKS) {
        size_t length = strcspn(visible, ",");
        const struct inventory_gpu *gpu = select_named(inventory, visible, length);
        if (gpu == NULL)
            break;
        for (int64_t i = 0; i < count; i++)
            if (chosen[i].number == gpu->number)
                gpu = NULL; /* twice */
        if (gpu == NULL)
            break;
        chosen[count++] = *gpu;
        visible += length + (visible[length] == ',');
    }
    memcpy(inventory->gpus, chosen, (size_t)count * sizeof *chosen);
    inventory->gpu_count = count;
}

int inventory_nvml_find(struct inventory *inventory, const char *visible, struct err *err)
{
    struct nvml nvml;
    must(inventory->gpu_count == 0);
    void *library = dlopen(nvml_library, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return err_set(err, ERR_UNSUPPORTED, "no NVIDIA driver on this machine (%s)", nvml_library);
    int rc = nvml_load(library, &nvml, err);
    if (rc == 0)
        rc = nvml_list(&nvml, inventory, err);
    (void)dlclose(library); /* read only */
    if (rc == 0 && visible != NULL)
        inventory_nvml_select(inventory, visible);
    if (rc == 0 && inventory->gpu_count == 0)
        rc = err_set(err, ERR_UNSUPPORTED, "CUDA_VISIBLE_DEVICES=%s names no GPU of this machine",
                     visible);
    if (rc != 0)
        inventory->gpu_count = 0;
    else
        inventory->slots = inventory->gpu_count;
    return rc;
}

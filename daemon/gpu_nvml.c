/* gpu_nvml: see gpu_nvml.h. The entry points of NVML that we use are declared here: its header
 * comes with the CUDA toolkit, which the daemon does not need. All of them are in every driver that
 * knows Hopper (510 and later). XIDs come as events that NVML queues from registration on; one is
 * counted here, so that none is lost between looks and one that comes again is seen. */
#include "daemon/gpu_nvml.h"

#include "common/clock.h"
#include "common/mem.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <string.h>

enum {
    NVML_HOPPER = 9, /* major compute capability of the backend's kernels */
    NVML_TIMEOUT = 10,
    NVML_LINKS_MAX = 18,
    NVML_PROCESSES_MAX = 64,
    NVML_UNCORRECTED = 1, /* nvmlMemoryErrorType_t; corrected: 0 */
    NVML_MIG_ON = 1,
};
#define NVML_EVENT_XID 8ULL
#define NVML_MEMORY_V2 ((unsigned)sizeof(struct nvml_memory) | 2u << 24)

static const char nvml_library[] = "libnvidia-ml.so.1";

typedef struct nvml_device nvml_device;
typedef struct nvml_events nvml_events;
struct nvml_memory { /* nvmlMemory_v2_t */
    unsigned version;
    unsigned long long total, reserved, free, used; /* bytes */
};
struct nvml_process { /* nvmlProcessInfo_v2_t */
    unsigned pid;
    unsigned long long bytes; /* all ones: not told */
    unsigned instance[2];     /* of MIG */
};
struct nvml_event { /* nvmlEventData_t */
    nvml_device *device;
    unsigned long long type, data; /* data: the XID */
    unsigned instance[2];          /* of MIG */
};
struct nvml_busy { /* nvmlUtilization_t */
    unsigned gpu, memory;
};

/* X(member, symbol, parameters) */
#define NVML_SYMBOLS(X)                                                                    \
    X(init, "nvmlInit_v2", (void))                                                         \
    X(shutdown, "nvmlShutdown", (void))                                                    \
    X(count, "nvmlDeviceGetCount_v2", (unsigned *))                                        \
    X(by_index, "nvmlDeviceGetHandleByIndex_v2", (unsigned, nvml_device **))               \
    X(name, "nvmlDeviceGetName", (nvml_device *, char *, unsigned))                        \
    X(uuid, "nvmlDeviceGetUUID", (nvml_device *, char *, unsigned))                        \
    X(memory, "nvmlDeviceGetMemoryInfo_v2", (nvml_device *, struct nvml_memory *))         \
    X(capability, "nvmlDeviceGetCudaComputeCapability", (nvml_device *, int *, int *))     \
    X(mig, "nvmlDeviceGetMigMode", (nvml_device *, unsigned *, unsigned *))                \
    X(processes, "nvmlDeviceGetComputeRunningProcesses_v3",                                \
      (nvml_device *, unsigned *, struct nvml_process *))                                  \
    X(temperature, "nvmlDeviceGetTemperature", (nvml_device *, int, unsigned *))           \
    X(power, "nvmlDeviceGetPowerUsage", (nvml_device *, unsigned *))                       \
    X(busy, "nvmlDeviceGetUtilizationRates", (nvml_device *, struct nvml_busy *))          \
    X(link, "nvmlDeviceGetNvLinkState", (nvml_device *, unsigned, int *))                  \
    X(ecc, "nvmlDeviceGetTotalEccErrors", (nvml_device *, int, int, unsigned long long *)) \
    X(events_new, "nvmlEventSetCreate", (nvml_events **))                                  \
    X(events_free, "nvmlEventSetFree", (nvml_events *))                                    \
    X(events_register, "nvmlDeviceRegisterEvents",                                         \
      (nvml_device *, unsigned long long, nvml_events *))                                  \
    X(events_wait, "nvmlEventSetWait_v2", (nvml_events *, struct nvml_event *, unsigned))

struct gpu_nvml {
    void *library;
#define X(member, symbol, parameters) int(*member) parameters;
    NVML_SYMBOLS(X)
#undef X
    nvml_events *events;                 /* NULL: none come */
    int64_t found;                       /* GPUs that can be used */
    nvml_device *devices[LIMIT_RANKS];   /* (found) */
    struct gpu_sample gpus[LIMIT_RANKS]; /* (found) what does not change of each, and its XIDs */
};

static int nvml_load(struct gpu_nvml *nvml, struct err *err)
{
    const struct {
        const char *symbol;
        void *slot;
    } symbols[] = {
#define X(member, name, parameters) {.symbol = name, .slot = &nvml->member},
        NVML_SYMBOLS(X)
#undef X
    };
    nvml->library = dlopen(nvml_library, RTLD_NOW | RTLD_LOCAL);
    if (nvml->library == NULL)
        return err_set(err, ERR_UNSUPPORTED, "no NVIDIA driver on this machine (%s)", nvml_library);
    for (size_t i = 0; i < sizeof symbols / sizeof symbols[0]; i++) {
        void *symbol = dlsym(nvml->library, symbols[i].symbol);
        if (symbol == NULL)
            return err_set(err, ERR_UNSUPPORTED, "%s has no %s: the driver is too old",
                           nvml_library, symbols[i].symbol);
        memcpy(symbols[i].slot, &symbol,
               sizeof symbol); /* data to function pointer, as POSIX has it */
    }
    return 0;
}

/* What does not change of a GPU; false when it is lost or not for us. */
static bool nvml_describe(const struct gpu_nvml *nvml, nvml_device *device, struct gpu_sample *gpu)
{
    int major = 0, minor = 0;
    unsigned mig = 0, pending = 0;
    if (nvml->name(device, gpu->name, sizeof gpu->name) != 0 ||
        nvml->uuid(device, gpu->uuid, sizeof gpu->uuid) != 0 ||
        nvml->capability(device, &major, &minor) != 0)
        return false;
    bool sliced = nvml->mig(device, &mig, &pending) == 0 && mig == NVML_MIG_ON;
    return major == NVML_HOPPER && !sliced;
}

static int nvml_find(struct gpu_nvml *nvml, struct err *err)
{
    unsigned count = 0;
    int status = nvml->init();
    if (status == 0)
        status = nvml->count(&count);
    if (status != 0)
        return err_set(err, ERR_UNSUPPORTED, "NVIDIA's driver does not answer (NVML error %d)",
                       status);
    if (nvml->events_new(&nvml->events) != 0)
        nvml->events = NULL;
    for (unsigned i = 0; i < count && nvml->found < LIMIT_RANKS; i++) {
        nvml_device *device = NULL;
        struct gpu_sample *gpu = &nvml->gpus[nvml->found];
        *gpu = (struct gpu_sample){.number = i};
        if (nvml->by_index(i, &device) != 0 || !nvml_describe(nvml, device, gpu))
            continue;
        if (nvml->events != NULL)
            (void)nvml->events_register(device, NVML_EVENT_XID, nvml->events); /* then none come */
        nvml->devices[nvml->found++] = device;
    }
    if (nvml->found == 0)
        return err_set(err, ERR_UNSUPPORTED,
                       "none of %u GPUs is a whole Hopper (compute capability 9.0, MIG off)",
                       count);
    return 0;
}

int gpu_nvml_open(struct gpu_nvml **ret, struct err *err)
{
    struct gpu_nvml *nvml = mem_new(1, sizeof *nvml);
    if (nvml == NULL)
        return mem_fail(err, sizeof *nvml, "the list of GPUs");
    int rc = nvml_load(nvml, err);
    if (rc == 0)
        rc = nvml_find(nvml, err);
    if (rc != 0) {
        gpu_nvml_close(nvml);
        return rc;
    }
    *ret = nvml;
    return 0;
}

void gpu_nvml_close(struct gpu_nvml *nvml)
{
    if (nvml == NULL)
        return;
    if (nvml->events != NULL)
        (void)nvml->events_free(nvml->events);
    if (nvml->shutdown != NULL)
        (void)nvml->shutdown(); /* nothing is held */
    if (nvml->library != NULL)
        (void)dlclose(nvml->library);
    mem_free(nvml);
}

static int64_t nvml_ecc(const struct gpu_nvml *nvml, nvml_device *device, int kind)
{
    unsigned long long errors = 0;
    return nvml->ecc(device, kind, 0, &errors) == 0 ? (int64_t)errors : -1;
}

static void nvml_processes(const struct gpu_nvml *nvml, nvml_device *device, struct gpu_sample *gpu)
{
    struct nvml_process list[NVML_PROCESSES_MAX];
    unsigned count = NVML_PROCESSES_MAX;
    gpu->process_count = 0;
    if (nvml->processes(device, &count, list) != 0) /* more than fit: none is told */
        return;
    for (unsigned i = 0; i < count && i < GPU_PROCESSES_MAX; i++)
        gpu->processes[gpu->process_count++] =
            (struct gpu_process){.pid = (int32_t)list[i].pid, .bytes = (int64_t)list[i].bytes};
}

/* What changes of a GPU; false: it does not answer. */
static bool nvml_sample(const struct gpu_nvml *nvml, nvml_device *device, struct gpu_sample *gpu)
{
    struct nvml_memory memory = {.version = NVML_MEMORY_V2};
    struct nvml_busy busy = {.gpu = 0};
    unsigned value = 0;
    if (nvml->memory(device, &memory) != 0)
        return false;
    gpu->bytes = (int64_t)memory.total;
    gpu->used_bytes = (int64_t)(memory.total - memory.reserved - memory.free);
    gpu->temperature_c = nvml->temperature(device, 0, &value) == 0 ? (int64_t)value : -1;
    gpu->power_mw = nvml->power(device, &value) == 0 ? (int64_t)value : -1;
    gpu->busy_percent = nvml->busy(device, &busy) == 0 ? (int64_t)busy.gpu : -1;
    gpu->ecc_corrected = nvml_ecc(nvml, device, 0);
    gpu->ecc_uncorrected = nvml_ecc(nvml, device, NVML_UNCORRECTED);
    gpu->links = 0;
    for (unsigned link = 0; link < NVML_LINKS_MAX; link++) {
        int up = 0;
        gpu->links += nvml->link(device, link, &up) == 0 && up != 0;
    }
    nvml_processes(nvml, device, gpu);
    return true;
}

/* Waits for an event and counts all that have come. */
static void nvml_wait(struct gpu_nvml *nvml, int64_t wait_ms)
{
    int status = NVML_TIMEOUT;
    struct nvml_event event = {.device = NULL};
    if (nvml->events != NULL)
        status = nvml->events_wait(nvml->events, &event, (unsigned)wait_ms);
    if (status != 0 && (nvml->events == NULL || status != NVML_TIMEOUT))
        clock_sleep_ms(wait_ms); /* it came back at once: a GPU is lost */
    while (status == 0) {
        for (int64_t i = 0; i < nvml->found; i++)
            if (nvml->devices[i] == event.device && event.type == NVML_EVENT_XID)
                gpu_sample_xid(&nvml->gpus[i], (uint32_t)event.data);
        status = nvml->events_wait(nvml->events, &event, 0);
    }
}

void gpu_nvml_look(struct gpu_nvml *nvml, int64_t wait_ms, struct gpu_report *ret)
{
    nvml_wait(nvml, wait_ms);
    ret->count = 0;
    for (int64_t i = 0; i < nvml->found; i++)
        if (nvml_sample(nvml, nvml->devices[i], &nvml->gpus[i]))
            ret->gpus[ret->count++] = nvml->gpus[i];
    ret->taken_ms = clock_monotonic_ms();
}

/* api_gpus: what jobs run on, how it is, and whether it is given out. */
#include "common/mem.h"
#include "daemon/access.h"
#include "daemon/api.h"
#include "daemon/coordinator.h"
#include "daemon/host.h"
#include "daemon/http.h"
#include "daemon/inventory.h"
#include "daemon/xid.h"

#include <stdio.h>

enum { GPUS_ID_BYTES = 24 };

static json_t *gpus_number(int64_t value)
{
    return value >= 0 ? json_integer(value) : json_null();
}

static json_t *gpus_processes(const struct gpu_sample *seen)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < seen->process_count; i++)
        (void)json_array_append_new(list,
                                    json_pack("{s:i, s:o}", "pid", seen->processes[i].pid, "bytes",
                                              gpus_number(seen->processes[i].bytes)));
    return list;
}

/* "79: the GPU has fallen off the bus", or null. */
static json_t *gpus_xid(const struct gpu_sample *seen)
{
    if (seen->xid_count == 0)
        return json_null();
    struct xid xid = xid_find(seen->xids[(seen->xid_count - 1) % GPU_XIDS_MAX]);
    return json_sprintf("%u: %s", xid.number, xid.meaning);
}

/* What NVML tells of a GPU, into its object. */
static int gpus_add_seen(json_t *json, const struct inventory_gpu *gpu)
{
    const struct gpu_sample *seen = &gpu->seen;
    CLEANUP(json_unref)
    json_t *more = json_pack(
        "{s:b, s:I, s:s, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:o, s:o}", "drained",
        gpu->drained, "number", (json_int_t)seen->number, "name", gpu->name, "total_bytes",
        (json_int_t)gpu->bytes, "used_bytes", (json_int_t)seen->used_bytes, "temperature_c",
        gpus_number(seen->temperature_c), "power_w",
        seen->power_mw >= 0 ? json_number((double)seen->power_mw / 1000) : json_null(),
        "utilization",
        seen->busy_percent >= 0 ? json_number((double)seen->busy_percent / 100) : json_null(),
        "nvlinks", gpus_number(seen->links), "ecc_corrected", gpus_number(seen->ecc_corrected),
        "ecc_uncorrected", gpus_number(seen->ecc_uncorrected), "xid_count",
        (json_int_t)seen->xid_count, "xid_last", gpus_xid(seen), "processes", gpus_processes(seen));
    return json_object_update(json, more);
}

/* New reference: the GPU at a place of the inventory, or a slot of the CPU. */
static json_t *gpus_json(struct api *api, const char *viewer, int64_t place)
{
    const struct inventory *inventory = coordinator_inventory(api->coordinator);
    const struct inventory_gpu *gpu = inventory->gpu_count > 0 ? &inventory->gpus[place] : NULL;
    const char *job = coordinator_gpu_job(api->coordinator, place);
    char owner[LIMIT_NAME_BYTES + 1] = "";
    struct err unread; /* then it is not told */
    char id[GPUS_ID_BYTES], reason[INVENTORY_REASON_BYTES] = "";
    enum inventory_state state = job != NULL ? INVENTORY_TAKEN : INVENTORY_FREE;
    (void)snprintf(id, sizeof id, "CPU-%lld", (long long)place);
    if (job != NULL)
        (void)store_job_owner(api->store, job, owner, &unread);
    if (gpu != NULL) {
        int64_t now_ms = api->host->ops->monotonic_ms(api->host);
        state = inventory_state(gpu, now_ms);
        inventory_reason(gpu, now_ms, reason);
    }
    json_t *json = json_pack(
        "{s:s, s:s, s:s, s:s, s:o, s:o, s:o}", "id", gpu != NULL ? gpu->uuid : id, "object", "gpu",
        "kind", gpu != NULL ? "gpu" : "cpu", "state", inventory_state_name(state), "reason",
        api_text(reason), "job_id", access_is_seen(viewer, owner) ? api_text(job) : json_null(),
        "owner", api_text(owner));
    if (json != NULL && (gpu == NULL || gpus_add_seen(json, gpu) == 0))
        return json;
    json_decref(json);
    return NULL;
}

int api_gpus_list(struct api *api, struct http_request *request, struct err *err)
{
    int64_t count = inventory_total(coordinator_inventory(api->coordinator));
    CLEANUP(json_unref) json_t *data = json_array();
    for (int64_t place = 0; place < count; place++)
        if (json_array_append_new(data, gpus_json(api, access_viewer(request), place)) != 0)
            return mem_fail(err, 0, "the list of GPUs");
    api_answer_list(request, data, false);
    return 0;
}

static int gpus_drain(struct api *api, struct http_request *request, bool drained, struct err *err)
{
    const char *uuid = http_request_route(request)->name;
    TRY(coordinator_drain(api->coordinator, uuid, drained, err));
    int64_t place = inventory_find(coordinator_inventory(api->coordinator), uuid);
    http_answer_json(request, 200, gpus_json(api, access_viewer(request), place));
    return 0;
}

int api_gpus_drain(struct api *api, struct http_request *request, struct err *err)
{
    return gpus_drain(api, request, true, err);
}

int api_gpus_undrain(struct api *api, struct http_request *request, struct err *err)
{
    return gpus_drain(api, request, false, err);
}

/* inventory: CPU slots are alike, so they are a count; GPUs are taken by place. `slots` is counted
 * anew after every change that may touch it. */
#include "daemon/inventory.h"

#include "common/cores.h"
#include "common/must.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum {
    INVENTORY_SLOTS_MIN = 2,
    INVENTORY_IDLE_BYTES = 256 << 20, /* of GPU memory: less is no program's */
};

const char *inventory_state_name(enum inventory_state state)
{
    static const char *const names[] = {
#define X(id, name) [INVENTORY_##id] = name,
        INVENTORY_STATES(X)
#undef X
    };
    must(state < INVENTORY_STATE_COUNT);
    return names[state];
}

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

static bool gpu_is_occupied(const struct inventory_gpu *gpu)
{
    return gpu->seen.process_count > 0 || gpu->seen.used_bytes > INVENTORY_IDLE_BYTES;
}

/* May be given out, once no job has it. */
static bool gpu_is_usable(const struct inventory_gpu *gpu)
{
    bool foreign = !gpu->taken && !gpu->given && gpu_is_occupied(gpu);
    return gpu->aside[0] == '\0' && !gpu->drained && gpu->missing == 0 && !foreign;
}

static bool gpu_is_free(const struct inventory_gpu *gpu)
{
    return gpu_is_usable(gpu) && !gpu->taken && !gpu->given;
}

static void inventory_count(struct inventory *inventory)
{
    if (inventory->gpu_count == 0)
        return;
    inventory->slots = inventory->taken = 0;
    for (int64_t i = 0; i < inventory->gpu_count; i++) {
        inventory->slots += gpu_is_usable(&inventory->gpus[i]);
        inventory->taken += inventory->gpus[i].taken;
    }
}

/* ---- which GPUs there are ------------------------------------------------------------------ */

/* The GPU that an entry of the list names: its number, or the beginning of its UUID and of no other
 * one's. */
static const struct gpu_sample *visible_find(const struct gpu_report *report, const char *entry,
                                             size_t length)
{
    const struct gpu_sample *found = NULL;
    uint64_t number = 0;
    bool is_number = length > 0 && length < 10;
    for (size_t i = 0; i < length && is_number; i++) {
        is_number = entry[i] >= '0' && entry[i] <= '9';
        number = number * 10 + (uint64_t)(entry[i] - '0');
    }
    for (int64_t i = 0; i < report->count && length > 0; i++) {
        const struct gpu_sample *gpu = &report->gpus[i];
        if (is_number ? gpu->number != number : strncmp(gpu->uuid, entry, length) != 0)
            continue;
        if (found != NULL)
            return NULL; /* which of the two? */
        found = gpu;
    }
    return found;
}

static void inventory_add(struct inventory *inventory, const struct gpu_sample *seen)
{
    struct inventory_gpu *gpu = &inventory->gpus[inventory->gpu_count++];
    *gpu = (struct inventory_gpu){.bytes = seen->bytes,
                                  .xids_told = seen->xid_count,
                                  .ecc_before = seen->ecc_uncorrected,
                                  .seen = *seen};
    memcpy(gpu->name, seen->name, sizeof gpu->name);
    memcpy(gpu->uuid, seen->uuid, sizeof gpu->uuid);
}

int inventory_gpu_init(struct inventory *inventory, const struct gpu_report *report,
                       const char *visible, struct err *err)
{
    const char *entry = visible;
    for (int64_t i = 0; visible == NULL && i < report->count; i++)
        inventory_add(inventory, &report->gpus[i]);
    while (entry != NULL && *entry != '\0' && inventory->gpu_count < LIMIT_RANKS) {
        size_t length = strcspn(entry, ",");
        if (strncmp(entry, "MIG", 3) == 0)
            return err_set(err, ERR_UNSUPPORTED,
                           "CUDA_VISIBLE_DEVICES=%s names a slice of a GPU (MIG): ranks need whole "
                           "GPUs, name those",
                           visible);
        const struct gpu_sample *gpu = visible_find(report, entry, length);
        if (gpu == NULL || inventory_find(inventory, gpu->uuid) >= 0) /* or it comes twice */
            break;
        inventory_add(inventory, gpu);
        entry += length + (entry[length] == ',');
    }
    if (inventory->gpu_count == 0)
        return visible == NULL
                   ? err_set(err, ERR_UNSUPPORTED, "there is no GPU")
                   : err_set(err, ERR_UNSUPPORTED,
                             "CUDA_VISIBLE_DEVICES=%s names no GPU that can be used", visible);
    inventory->looked_ms = report->taken_ms;
    inventory_count(inventory);
    return 0;
}

/* ---- giving and taking --------------------------------------------------------------------- */

int64_t inventory_total(const struct inventory *inventory)
{
    return inventory->gpu_count > 0 ? inventory->gpu_count : inventory->slots;
}

int64_t inventory_free_slots(const struct inventory *inventory)
{
    int64_t free_gpus = 0;
    if (inventory->gpu_count == 0)
        return inventory->slots - inventory->taken;
    for (int64_t i = 0; i < inventory->gpu_count && !inventory->blind; i++)
        free_gpus += gpu_is_free(&inventory->gpus[i]);
    return free_gpus;
}

int64_t inventory_lost(const struct inventory *inventory, int64_t ranks, const uint32_t *gpus)
{
    int64_t lost = 0;
    for (int64_t rank = 0; inventory->gpu_count > 0 && rank < ranks; rank++) {
        must(gpus[rank] < inventory->gpu_count);
        lost += !gpu_is_usable(&inventory->gpus[gpus[rank]]);
    }
    return lost;
}

/* Those that are avoided last. */
static void inventory_take_but(struct inventory *inventory, int64_t ranks,
                               const bool avoided[LIMIT_RANKS], uint32_t *ret_gpus)
{
    int64_t rank = 0;
    must(ranks > 0 && ranks <= inventory_free_slots(inventory));
    inventory->taken += ranks;
    for (int64_t i = 0; i < 2 * inventory->gpu_count && rank < ranks; i++) {
        struct inventory_gpu *gpu = &inventory->gpus[i % inventory->gpu_count];
        bool late = i >= inventory->gpu_count;
        if (!gpu_is_free(gpu) || avoided[i % inventory->gpu_count] != late)
            continue;
        gpu->taken = true;
        ret_gpus[rank++] = (uint32_t)(i % inventory->gpu_count);
    }
}

void inventory_take(struct inventory *inventory, int64_t ranks, uint32_t *ret_gpus)
{
    inventory_take_but(inventory, ranks, (const bool[LIMIT_RANKS]){false}, ret_gpus);
}

void inventory_take_elsewhere(struct inventory *inventory, int64_t ranks, uint32_t *gpus)
{
    bool avoided[LIMIT_RANKS] = {false};
    for (int64_t rank = 0; inventory->gpu_count > 0 && rank < ranks; rank++) {
        must(gpus[rank] < LIMIT_RANKS);
        avoided[gpus[rank]] = true;
    }
    inventory_take_but(inventory, ranks, avoided, gpus);
}

bool inventory_take_again(struct inventory *inventory, int64_t ranks, const uint32_t *gpus)
{
    bool on_gpus = inventory->gpu_count > 0;
    if (!on_gpus && ranks > inventory_free_slots(inventory))
        return false;
    for (int64_t rank = 0; on_gpus && rank < ranks; rank++)
        if (gpus[rank] >= inventory->gpu_count || inventory->gpus[gpus[rank]].taken)
            return false;
    for (int64_t rank = 0; on_gpus && rank < ranks; rank++)
        inventory->gpus[gpus[rank]].taken = true;
    inventory->taken += ranks;
    inventory_count(inventory);
    return true;
}

void inventory_give(struct inventory *inventory, int64_t ranks, const uint32_t *gpus)
{
    must(ranks > 0 && ranks <= inventory->taken);
    inventory->taken -= ranks;
    for (int64_t rank = 0; inventory->gpu_count > 0 && rank < ranks; rank++) {
        struct inventory_gpu *gpu = &inventory->gpus[gpus[rank]];
        must(gpus[rank] < inventory->gpu_count && gpu->taken);
        gpu->taken = false;
        gpu->given = true;
        gpu->given_ms = 0;
    }
    inventory_count(inventory);
}

enum launch_device inventory_device(const struct inventory *inventory)
{
    return inventory->gpu_count > 0 && !inventory->played ? LAUNCH_CUDA : LAUNCH_CPU;
}

void inventory_uuids(const struct inventory *inventory, int64_t ranks, const uint32_t *gpus,
                     char *ret_text, size_t bytes)
{
    size_t length = 0;
    ret_text[0] = '\0';
    for (int64_t rank = 0; inventory->gpu_count > 0 && rank < ranks; rank++) {
        must(length < bytes);
        length += (size_t)snprintf(ret_text + length, bytes - length, "%s%s", rank > 0 ? "," : "",
                                   inventory->gpus[gpus[rank]].uuid);
    }
    must(length < bytes);
}

bool inventory_places(const struct inventory *inventory, const char *uuids, int64_t ranks,
                      uint32_t *ret_gpus)
{
    for (int64_t rank = 0; inventory->gpu_count > 0 && rank < ranks; rank++) {
        char uuid[LIMIT_GPU_BYTES];
        size_t length = strcspn(uuids, ",");
        if (length >= sizeof uuid)
            return false;
        memcpy(uuid, uuids, length);
        uuid[length] = '\0';
        int64_t place = inventory_find(inventory, uuid);
        if (place < 0)
            return false;
        ret_gpus[rank] = (uint32_t)place;
        uuids += length + (uuids[length] == ',');
    }
    return true;
}

int64_t inventory_threads(const struct inventory *inventory, int64_t ranks)
{
    must(ranks > 0);
    return inventory->cores > ranks ? inventory->cores / ranks : 1;
}

/* ---- how GPUs are -------------------------------------------------------------------------- */

int64_t inventory_find(const struct inventory *inventory, const char *uuid)
{
    for (int64_t i = 0; i < inventory->gpu_count; i++)
        if (strcmp(inventory->gpus[i].uuid, uuid) == 0)
            return i;
    return -1;
}

static void gpu_update(struct inventory_gpu *gpu, const struct gpu_report *report, int64_t now_ms)
{
    int64_t i = 0;
    while (i < report->count && strcmp(report->gpus[i].uuid, gpu->uuid) != 0)
        i++;
    gpu->missing = i == report->count ? gpu->missing + 1 : 0;
    if (gpu->missing == 0)
        gpu->seen = report->gpus[i];
    if (!gpu->given || gpu->missing > 0)
        return;
    if (gpu->given_ms == 0)
        gpu->given_ms = now_ms;
    if (!gpu_is_occupied(gpu))
        gpu->given = false;
}

void inventory_update(struct inventory *inventory, const struct gpu_report *report, int64_t now_ms)
{
    for (int64_t i = 0; report != NULL && i < inventory->gpu_count; i++)
        gpu_update(&inventory->gpus[i], report, now_ms);
    if (report != NULL)
        inventory->looked_ms = report->taken_ms;
    inventory->blind = now_ms - inventory->looked_ms > INVENTORY_BLIND_MS;
    inventory_count(inventory);
}

bool inventory_next_xid(struct inventory_gpu *gpu, uint32_t *ret_xid)
{
    int64_t count = gpu->seen.xid_count;
    if (gpu->xids_told >= count)
        return false;
    if (gpu->xids_told < count - GPU_XIDS_MAX)
        gpu->xids_told = count - GPU_XIDS_MAX; /* the others are lost */
    *ret_xid = gpu->seen.xids[gpu->xids_told++ % GPU_XIDS_MAX];
    return true;
}

bool inventory_is_sick(const struct inventory_gpu *gpu, char ret_why[INVENTORY_WHY_BYTES])
{
    int64_t ecc = gpu->ecc_before >= 0 ? gpu->seen.ecc_uncorrected - gpu->ecc_before : 0;
    bool gone = gpu->missing > INVENTORY_MISSING_MAX;
    if (gone)
        (void)snprintf(ret_why, INVENTORY_WHY_BYTES,
                       "the driver does not find it any more: it has fallen off the bus");
    else if (ecc > 0)
        (void)snprintf(ret_why, INVENTORY_WHY_BYTES, "%lld uncorrectable ECC error%s",
                       (long long)ecc, ecc == 1 ? "" : "s");
    return gone || ecc > 0;
}

void inventory_set_aside(struct inventory *inventory, int64_t number, const char *why)
{
    must(number >= 0 && number < inventory->gpu_count);
    struct inventory_gpu *gpu = &inventory->gpus[number];
    (void)snprintf(gpu->aside, sizeof gpu->aside, "%s", why);
    if (why[0] == '\0')
        gpu->ecc_before = gpu->seen.ecc_uncorrected;
    inventory_count(inventory);
}

void inventory_set_drained(struct inventory *inventory, int64_t number, bool drained)
{
    must(number >= 0 && number < inventory->gpu_count);
    inventory->gpus[number].drained = drained;
    inventory_count(inventory);
}

enum inventory_state inventory_state(const struct inventory_gpu *gpu, int64_t now_ms)
{
    if (gpu->taken)
        return INVENTORY_TAKEN;
    if (gpu->aside[0] != '\0' || gpu->missing > 0)
        return INVENTORY_SET_ASIDE;
    if (gpu->drained)
        return INVENTORY_DRAINED;
    if (gpu->given)
        return gpu->given_ms > 0 && now_ms - gpu->given_ms > INVENTORY_CLEAN_MS
                   ? INVENTORY_UNCLEAN
                   : INVENTORY_CHECKING;
    return gpu_is_occupied(gpu) ? INVENTORY_FOREIGN : INVENTORY_FREE;
}

/* "12.1 GiB in use, process 4711" */
static void gpu_tell_occupied(const struct inventory_gpu *gpu, char *ret_text, size_t bytes)
{
    int length = snprintf(ret_text, bytes, "%.1f GiB of its memory are in use",
                          (double)gpu->seen.used_bytes / (1 << 30));
    for (int64_t i = 0; i < gpu->seen.process_count && length > 0 && (size_t)length < bytes; i++)
        length += snprintf(ret_text + length, bytes - (size_t)length, "%s %d",
                           i == 0 ? ", by process" : ",", gpu->seen.processes[i].pid);
}

void inventory_reason(const struct inventory_gpu *gpu, int64_t now_ms,
                      char ret_text[INVENTORY_REASON_BYTES])
{
    char occupied[128];
    const char *aside = gpu->aside[0] != '\0' ? gpu->aside : "it is missing";
    enum inventory_state state = inventory_state(gpu, now_ms);
    gpu_tell_occupied(gpu, occupied, sizeof occupied);
    ret_text[0] = '\0';
    if (gpu->aside[0] != '\0' || gpu->missing > 0)
        (void)snprintf(ret_text, INVENTORY_REASON_BYTES, "set aside: %s", aside);
    else if (gpu->drained)
        (void)snprintf(ret_text, INVENTORY_REASON_BYTES, "drained");
    else if (state == INVENTORY_UNCLEAN)
        (void)snprintf(ret_text, INVENTORY_REASON_BYTES, "not clean after a job: %s", occupied);
    else if (state == INVENTORY_CHECKING)
        (void)snprintf(ret_text, INVENTORY_REASON_BYTES, "is checked after a job");
    else if (state == INVENTORY_FOREIGN)
        (void)snprintf(ret_text, INVENTORY_REASON_BYTES, "used by others: %s", occupied);
}

void inventory_explain(const struct inventory *inventory, char *ret_text, size_t bytes)
{
    char reason[INVENTORY_REASON_BYTES];
    int64_t kept = 0;
    int length = 0;
    ret_text[0] = '\0';
    if (inventory->blind) {
        (void)snprintf(ret_text, bytes, "the GPUs' driver does not answer");
        return;
    }
    for (int64_t i = 0; i < inventory->gpu_count; i++)
        kept += !inventory->gpus[i].taken && !gpu_is_free(&inventory->gpus[i]);
    if (kept > 0)
        length = snprintf(ret_text, bytes, "%lld of %lld GPUs are not given out:", (long long)kept,
                          (long long)inventory->gpu_count);
    for (int64_t i = 0; i < inventory->gpu_count && (size_t)length < bytes; i++) {
        const struct inventory_gpu *gpu = &inventory->gpus[i];
        if (gpu->taken || gpu_is_free(gpu))
            continue;
        inventory_reason(gpu, inventory->looked_ms, reason);
        length += snprintf(ret_text + length, bytes - (size_t)length, " GPU %u %s%s",
                           gpu->seen.number, reason, --kept > 0 ? ";" : "");
    }
}

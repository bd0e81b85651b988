/* coordinator_gpus: what the watch over the GPUs tells goes into the inventory, and what follows
 * from it: a sick GPU is set aside, in the store too, so that the next daemon leaves it alone as
 * well; an XID becomes part of the reason of the job that had the GPU.
 *
 * A job that failed is not ended before a look has come that was taken after its processes were
 * gone: the XID that explains its failure may be told later than the failure itself. */
#include "common/io.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/must.h"
#include "daemon/coordinator_private.h"
#include "daemon/xid.h"

#include <stdio.h>
#include <string.h>

enum {
    GPUS_FIRST_LOOK_MS = 20000, /* a driver that loads its firmware takes some */
    GPUS_LATE_MS = 5000,        /* a job's end waits no longer for a look */
};

/* ---- the start ----------------------------------------------------------------------------- */

/* The CUDA backend lies beside the worker. */
static int gpus_find_plugin(const struct coordinator *coordinator, struct err *err)
{
    static const char name[] = "ithaca-cuda.so";
    const char *worker = coordinator->config.worker_program;
    const char *slash = strrchr(worker, '/');
    must(slash != NULL);
    CLEANUP(mem_free_ptr) char *path = mem_printf("%.*s/%s", (int)(slash - worker), worker, name);
    if (path == NULL)
        return mem_fail(err, strlen(worker), "a path");
    if (!io_exists(path))
        return err_set(err, ERR_UNSUPPORTED, "this build has no CUDA backend (%s)", name);
    return 0;
}

static int gpus_find(struct coordinator *coordinator, struct err *err)
{
    const struct coordinator_config *config = &coordinator->config;
    if (config->gpu_file == NULL)
        TRY(gpus_find_plugin(coordinator, err));
    TRY(gpu_watch_new(config->gpu_file, GPUS_FIRST_LOOK_MS, &coordinator->watch,
                      &coordinator->report, err));
    int rc = inventory_gpu_init(&coordinator->inventory, &coordinator->report, config->visible_gpus,
                                err);
    if (rc != 0) {
        gpu_watch_free(coordinator->watch);
        coordinator->watch = NULL;
        coordinator->inventory.gpu_count = 0;
    }
    return rc;
}

/* A mark that the store has of a GPU. */
static int gpus_restore(void *context, const struct store_gpu *mark, struct err *err)
{
    (void)err;
    struct inventory *inventory = context;
    int64_t gpu = inventory_find(inventory, mark->uuid);
    if (gpu >= 0) {
        inventory_set_drained(inventory, gpu, mark->drained);
        inventory_set_aside(inventory, gpu, mark->aside);
    }
    return 0;
}

int coordinator_gpus_open(struct coordinator *coordinator, struct err *err)
{
    struct inventory *inventory = &coordinator->inventory;
    if (coordinator->config.device == COORDINATOR_CPU)
        return 0;
    int rc = gpus_find(coordinator, err);
    if (rc == -ERR_UNSUPPORTED && coordinator->config.device == COORDINATOR_AUTO &&
        coordinator->config.gpu_file == NULL) {
        log_info("coordinator", "jobs run on the CPU: %s", err->text);
        return 0;
    }
    if (rc != 0)
        return err_wrap(err, rc, "GPUs: ");
    inventory->played = coordinator->config.gpu_file != NULL;
    TRY(store_gpus_list(coordinator->store, gpus_restore, inventory, err));
    for (int64_t i = 0; i < inventory->gpu_count; i++) {
        const struct inventory_gpu *gpu = &inventory->gpus[i];
        char reason[INVENTORY_REASON_BYTES];
        inventory_reason(gpu, inventory->looked_ms, reason);
        log_info("coordinator", "GPU %u: %s, %.1f GiB, %s%s%s", gpu->seen.number, gpu->name,
                 (double)gpu->bytes / (1 << 30), gpu->uuid, reason[0] != '\0' ? ", " : "", reason);
    }
    return 0;
}

/* ---- news ---------------------------------------------------------------------------------- */

static int gpus_put(struct coordinator *coordinator, int64_t number, bool drained,
                    const char *aside, struct err *err)
{
    const struct store_gpu mark = {
        .uuid = coordinator->inventory.gpus[number].uuid,
        .drained = drained,
        .aside = aside,
        .changed_ms = coordinator_wall(coordinator),
    };
    return store_gpu_put(coordinator->store, &mark, err);
}

static void gpus_set_aside(struct coordinator *coordinator, int64_t number, const char *why)
{
    struct err unwritten;
    struct inventory_gpu *gpu = &coordinator->inventory.gpus[number];
    if (gpu->aside[0] != '\0')
        return;
    inventory_set_aside(&coordinator->inventory, number, why);
    log_error("coordinator", "GPU %u (%s) is set aside: %s", gpu->seen.number, gpu->uuid, why);
    if (gpus_put(coordinator, number, gpu->drained, gpu->aside, &unwritten) != 0)
        log_warn("coordinator", "GPU %u: %s", gpu->seen.number, unwritten.text);
}

/* The job that has a GPU, or NULL. Slots of the CPU are alike: jobs have the first ones, in their
 * order. */
static struct coordinator_job *gpus_job(const struct coordinator *coordinator, int64_t number)
{
    bool on_gpus = coordinator->inventory.gpu_count > 0;
    int64_t slot = 0;
    for (struct coordinator_job *job = coordinator->jobs; job != NULL; job = job->next)
        for (int64_t rank = 0; job->has_slots && rank < job_spec_slots(&job->spec); rank++)
            if ((on_gpus ? job->gpus[rank] : slot++) == number)
                return job;
    return NULL;
}

static void gpus_take_xid(struct coordinator *coordinator, int64_t number, uint32_t value)
{
    const struct inventory_gpu *gpu = &coordinator->inventory.gpus[number];
    struct coordinator_job *job = gpus_job(coordinator, number);
    struct xid xid = xid_find(value);
    char why[INVENTORY_WHY_BYTES];
    (void)snprintf(why, sizeof why, "XID %u: %s", value, xid.meaning);
    log_warn("coordinator", "GPU %u (%s): %s%s%s", gpu->seen.number, gpu->uuid, why,
             job != NULL ? ", under " : "", job != NULL ? job->id : "");
    if (xid.kind == XID_GPU)
        gpus_set_aside(coordinator, number, why);
    bool worse = job != NULL && xid.kind != XID_NOTE &&
                 (job->gpu_fault.code == ERR_NONE ||
                  (xid.kind == XID_GPU && job->gpu_fault.code != ERR_GPU_FAULT));
    if (worse)
        (void)err_set(&job->gpu_fault, xid.kind == XID_GPU ? ERR_GPU_FAULT : ERR_DEVICE,
                      "GPU %u (%s) told XID %u: %s", gpu->seen.number, gpu->uuid, value,
                      xid.meaning);
}

static void gpus_take_sickness(struct coordinator *coordinator, int64_t number)
{
    const struct inventory_gpu *gpu = &coordinator->inventory.gpus[number];
    struct coordinator_job *job = gpus_job(coordinator, number);
    char why[INVENTORY_WHY_BYTES];
    if (gpu->aside[0] != '\0' || !inventory_is_sick(gpu, why))
        return;
    gpus_set_aside(coordinator, number, why);
    if (job != NULL && job->gpu_fault.code != ERR_GPU_FAULT)
        (void)err_set(&job->gpu_fault, ERR_GPU_FAULT, "GPU %u (%s): %s", gpu->seen.number,
                      gpu->uuid, why);
}

/* What a fresh look says of the GPUs of jobs that run, for their ranks. */
static void gpus_take_loads(const struct coordinator *coordinator)
{
    for (struct coordinator_job *job = coordinator->jobs; job != NULL; job = job->next) {
        struct supervisor *supervisor = job->has_slots ? job->supervisor : NULL;
        int64_t ranks = supervisor != NULL ? job_spec_slots(&job->spec) : 0;
        for (int64_t rank = 0; rank < ranks; rank++)
            gpu_load_add(&supervisor->ranks[rank].load,
                         &coordinator->inventory.gpus[job->gpus[rank]].seen);
    }
}

/* Tells once what others, or a job that has ended, keep of a GPU. */
static void gpus_tell(const struct coordinator *coordinator, struct inventory_gpu *gpu)
{
    char reason[INVENTORY_REASON_BYTES];
    int64_t now_ms = coordinator_now(coordinator);
    enum inventory_state state = inventory_state(gpu, now_ms);
    inventory_reason(gpu, now_ms, reason);
    if (state != gpu->told && (state == INVENTORY_UNCLEAN || state == INVENTORY_FOREIGN))
        log_warn("coordinator", "GPU %u (%s) is not given out: %s", gpu->seen.number, gpu->uuid,
                 reason);
    gpu->told = state;
}

void coordinator_gpus_look(struct coordinator *coordinator)
{
    struct inventory *inventory = &coordinator->inventory;
    if (coordinator->watch == NULL)
        return;
    bool fresh = gpu_watch_take(coordinator->watch, &coordinator->report);
    bool blind = inventory->blind;
    inventory_update(inventory, fresh ? &coordinator->report : NULL, coordinator_now(coordinator));
    if (inventory->blind != blind)
        log_warn("coordinator", "the GPUs' driver %s",
                 blind ? "answers again" : "does not answer: no GPU is given out until it does");
    if (fresh)
        gpus_take_loads(coordinator);
    for (int64_t i = 0; fresh && i < inventory->gpu_count; i++) {
        uint32_t xid = 0;
        while (inventory_next_xid(&inventory->gpus[i], &xid))
            gpus_take_xid(coordinator, i, xid);
        gpus_take_sickness(coordinator, i);
        gpus_tell(coordinator, &inventory->gpus[i]);
    }
}

void coordinator_gpus_explain(const struct coordinator *coordinator, char *text, size_t bytes)
{
    char gpus[512];
    size_t length = strlen(text);
    inventory_explain(&coordinator->inventory, gpus, sizeof gpus);
    if (gpus[0] != '\0')
        (void)snprintf(text + length, bytes - length, "; %s", gpus);
}

/* ---- a job's end --------------------------------------------------------------------------- */

bool coordinator_gpus_have_told(const struct coordinator_job *job)
{
    const struct coordinator *coordinator = job->coordinator;
    const struct supervisor *supervisor = job->supervisor;
    if (coordinator->watch == NULL || !job->has_slots || supervisor == NULL)
        return true;
    return coordinator->inventory.looked_ms > supervisor->ended_ms ||
           coordinator_now(coordinator) - supervisor->ended_ms > GPUS_LATE_MS;
}

void coordinator_gpus_blame(const struct coordinator_job *job, struct err *why)
{
    struct err told = *why;
    if (job->gpu_fault.code != ERR_NONE)
        (void)err_set(why, job->gpu_fault.code == ERR_GPU_FAULT ? ERR_GPU_FAULT : told.code,
                      "%s (%s)", job->gpu_fault.text, told.text);
}

/* ---- an operator's wish -------------------------------------------------------------------- */

int coordinator_drain(struct coordinator *coordinator, const char *uuid, bool drained,
                      struct err *err)
{
    struct inventory *inventory = &coordinator->inventory;
    int64_t number = inventory_find(inventory, uuid);
    if (number < 0)
        return err_set(err, ERR_NOT_FOUND, "there is no GPU \"%s\"%s", uuid,
                       inventory->gpu_count > 0 ? ": see GET /v1/gpus"
                                                : "; jobs run on slots of the CPU, which are not "
                                                  "drained one by one");
    const char *aside = drained ? inventory->gpus[number].aside : "";
    TRY(gpus_put(coordinator, number, drained, aside, err));
    inventory_set_drained(inventory, number, drained);
    if (!drained)
        inventory_set_aside(inventory, number, "");
    log_info("coordinator", "GPU %u (%s) is %s", inventory->gpus[number].seen.number, uuid,
             drained ? "drained" : "given out again");
    return 0;
}

const char *coordinator_gpu_job(const struct coordinator *coordinator, int64_t number)
{
    const struct coordinator_job *job = gpus_job(coordinator, number);
    return job != NULL ? job->id : NULL;
}

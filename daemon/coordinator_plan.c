/* coordinator_plan: the launch plan of a job's next attempt, of the job's values, the slots that it
 * has and the daemon's settings. */
#include "common/checkpoint_manifest.h"
#include "common/mem.h"
#include "common/time_rates.h"
#include "daemon/coordinator_private.h"

#include <stdio.h>
#include <string.h>

/* What the ranks must come to as well. A config.json that cannot be read any more is for them to
 * tell: the digest stays "". */
static int plan_memory(struct launch_plan *plan, int64_t *ret_host_bytes, struct err *err)
{
    CLEANUP(model_shape_done) struct model_shape shape = {.rows = NULL};
    CLEANUP(mem_plan_done) struct mem_plan memory = {.count = 0};
    struct model_config config;
    struct err unread = {.code = ERR_NONE};
    if (model_config_load(plan->model_dir, &config, &unread) != 0)
        return 0;
    TRY(model_shape_build(&config, &shape, err));
    TRY(launch_plan_memory(plan, &shape, &memory, err));
    memcpy(plan->memory_digest, memory.digest, sizeof plan->memory_digest);
    int64_t rank_bytes = memory.arena_bytes[MEM_ARENA_HOST];
    rank_bytes += plan->device == LAUNCH_CPU ? memory.arena_bytes[MEM_ARENA_DEVICE] : 0;
    if (__builtin_mul_overflow(rank_bytes, (int64_t)plan->world, ret_host_bytes))
        *ret_host_bytes = INT64_MAX;
    return 0;
}

int64_t coordinator_plan_host_bytes(const struct coordinator_job *job)
{
    struct launch_plan plan = {.world = (uint32_t)job_spec_slots(&job->spec),
                               .device = inventory_device(&job->coordinator->inventory),
                               .model_dir = job->model_dir,
                               .spec = job->spec}; /* all of it borrowed */
    int64_t bytes = -1;
    struct err unknown;
    return plan_memory(&plan, &bytes, &unknown) == 0 ? bytes : -1;
}

int coordinator_plan_make(const struct coordinator_job *job, int64_t from_step,
                          struct launch_plan *ret_plan, int64_t *ret_host_bytes, struct err *err)
{
    const struct coordinator *coordinator = job->coordinator;
    const struct coordinator_config *config = &coordinator->config;
    struct launch_plan plan = {
        .attempt = (uint32_t)job->attempt,
        .purpose = job_spec_measures(&job->spec) ? LAUNCH_MEASURE : LAUNCH_TRAIN,
        .world = (uint32_t)job_spec_slots(&job->spec),
        .heartbeat_limit_ms = config->heartbeat_limit_ms,
        .coll_timeout_ms = config->coll_timeout_ms,
        .orphan_limit_ms = config->orphan_limit_ms,
        .threads = (uint32_t)inventory_threads(&coordinator->inventory, job_spec_slots(&job->spec)),
        .device = inventory_device(&coordinator->inventory),
        .steps_done = job->steps_done,
    };
    bool cuda = plan.device == LAUNCH_CUDA;
    for (uint32_t rank = 0; cuda && rank < plan.world; rank++)
        (void)snprintf(plan.gpus[rank], sizeof plan.gpus[rank], "%s",
                       coordinator->inventory.gpus[job->gpus[rank]].uuid);
    plan.peak_flops =
        time_rates_peak(config->data_dir, cuda ? MEM_BACKEND_CUDA : MEM_BACKEND_CPU, job->spec.gpus,
                        cuda ? coordinator->inventory.gpus[0].name : "");
    (void)snprintf(plan.job_id, sizeof plan.job_id, "%s", job->id);
    (void)snprintf(plan.socket, sizeof plan.socket, "%s/job.sock", config->data_dir);
    (void)snprintf(plan.model_name, sizeof plan.model_name, "%s", job->spec.model);
    if (plan.world > 1)
        (void)snprintf(plan.shm_name, sizeof plan.shm_name, "/ithaca-%s-%u",
                       job->id + strlen("ftjob-"), plan.attempt);
    TRY(coordinator->host->ops->random(coordinator->host, plan.secret, sizeof plan.secret, err));
    CLEANUP(json_unref) json_t *spec = job_spec_json(&job->spec);
    plan.job_dir = mem_strdup(job->job_dir);
    plan.model_dir = mem_strdup(job->model_dir);
    plan.resume_from = from_step >= 0 ? checkpoint_dir(job->job_dir, from_step) : NULL;
    bool whole = spec != NULL && plan.job_dir != NULL && plan.model_dir != NULL &&
                 (from_step < 0 || plan.resume_from != NULL);
    int rc = whole ? job_spec_parse(spec, &plan.spec, err) : mem_fail(err, 0, "a launch plan");
    if (rc == 0)
        rc = plan_memory(&plan, ret_host_bytes, err);
    if (rc != 0) {
        launch_plan_done(&plan);
        return rc;
    }
    *ret_plan = plan;
    return 0;
}

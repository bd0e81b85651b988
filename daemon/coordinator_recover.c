/* coordinator_recover: the jobs that the last daemon left unfinished.
 *
 *   validating            checked again from the start
 *   queued                waits again
 *   starting              without a keeper: queued again
 *   starting, running     with one: the keeper is stopped, the job fails as coordinator_lost
 *   cancelling            the keeper is stopped, the job is cancelled
 *
 * NEEDSWORK: adoption of keepers that still run is to replace the fourth row. */
#include "common/io.h"
#include "common/json.h"
#include "common/log.h"
#include "common/mem.h"
#include "daemon/coordinator_private.h"

#include <stdio.h>
#include <string.h>

static int recover_load(void *context, const struct store_job *row, struct err *err)
{
    return coordinator_load(context, row, err);
}

static int recover_identity(void *context, const struct store_attempt *attempt, struct err *err)
{
    (void)err;
    struct host_identity *identity = context;
    identity->pid = (int32_t)attempt->keeper_pid;
    identity->start_time = (uint64_t)attempt->keeper_start_time;
    (void)snprintf(identity->boot_id, sizeof identity->boot_id, "%s", attempt->boot_id);
    return 0;
}

/* keeper.json, for a daemon that died between starting the keeper and writing who it is. */
static int recover_keeper_file(const struct coordinator_job *job, struct host_identity *ret,
                               struct err *err)
{
    CLEANUP(mem_free_ptr)
    char *path = mem_printf("%s/attempt-%lld/keeper.json", job->job_dir, (long long)job->attempt);
    if (path == NULL)
        return mem_fail(err, strlen(job->job_dir), "a path");
    CLEANUP(json_unref) json_t *root = NULL;
    TRY(json_parse_file(path, (size_t)LIMIT_JSON_BODY_BYTES, &root, err));
    int64_t pid = 0, start_time = 0;
    const char *boot_id = NULL;
    TRY(json_get_i64(root, "pid", ERR_CORRUPT, &pid, err));
    TRY(json_get_i64(root, "start_time", ERR_CORRUPT, &start_time, err));
    TRY(json_get_string(root, "boot_id", ERR_CORRUPT, &boot_id, err));
    ret->pid = (int32_t)pid;
    ret->start_time = (uint64_t)start_time;
    (void)snprintf(ret->boot_id, sizeof ret->boot_id, "%s", boot_id);
    return 0;
}

static int recover_attempt(struct coordinator_job *job, struct err *err)
{
    struct coordinator *coordinator = job->coordinator;
    struct host_identity identity = {.pid = 0};
    struct err unused;
    int rc = store_attempt_get(coordinator->store, job->id, job->attempt, recover_identity,
                               &identity, err);
    if (rc != 0 && rc != -ERR_NOT_FOUND)
        return rc;
    if (identity.pid == 0 && recover_keeper_file(job, &identity, &unused) != 0 &&
        job->state == JOB_STATE_STARTING)
        return coordinator_job_enqueue(job,
                                       "The daemon ended before the job had started; it is "
                                       "queued again.",
                                       err);
    (void)err_set(&job->failure, ERR_COORDINATOR_LOST,
                  "the daemon ended while the job ran; the next one stopped what was left of it");
    const struct supervisor_owner owner = coordinator_ranks_owner(job);
    rc = supervisor_adopt_to_stop(coordinator->host, &coordinator->config, &owner, &identity,
                                  &job->failure, &job->supervisor, err);
    if (rc == -ERR_NOT_FOUND)
        return 0; /* without a supervisor its next step ends it */
    if (rc == 0 && inventory_free_slots(&coordinator->inventory) >= job->spec.gpus) {
        inventory_take(&coordinator->inventory, job->spec.gpus);
        job->has_slots = true;
    }
    return rc;
}

static int recover_job(struct coordinator_job *job, struct err *err)
{
    switch (job->state) {
    case JOB_STATE_QUEUED:
        return coordinator_job_queue(job, err);
    case JOB_STATE_STARTING:
    case JOB_STATE_RUNNING:
        return recover_attempt(job, err);
    case JOB_STATE_CANCELLING:
        return job->attempt > 0 ? recover_attempt(job, err) : 0;
    default:
        return 0;
    }
}

int coordinator_recover(struct coordinator *coordinator, struct err *err)
{
    static const enum job_state states[] = {JOB_STATE_VALIDATING, JOB_STATE_QUEUED,
                                            JOB_STATE_STARTING, JOB_STATE_RUNNING,
                                            JOB_STATE_CANCELLING};
    for (size_t i = 0; i < sizeof states / sizeof states[0]; i++)
        TRY(store_jobs_in_state(coordinator->store, states[i], recover_load, coordinator, err));
    for (struct coordinator_job *job = coordinator->jobs; job != NULL; job = job->next)
        TRY(recover_job(job, err));
    if (coordinator->job_count > 0)
        log_info("coordinator", "%lld unfinished jobs taken up", (long long)coordinator->job_count);
    return 0;
}

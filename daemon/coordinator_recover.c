/* coordinator_recover: the jobs that the last daemon left unfinished.
 *
 *   validating     checked again from the start
 *   queued         waits again
 *   paused         waits for the user
 *   starting, running, pausing, preempting, cancelling, with an attempt:
 *     the keeper lives         taken over: its ranks come back by themselves and go on
 *     it has ended             judged by its exit.json, as if it had ended just now
 *     it was never started     starting: queued again; else the end that was asked for
 *
 * Who the keeper is says the attempt's row; keeper.json does for a daemon that was killed before
 * it wrote that. A keeper that was started in that very moment may not have written keeper.json
 * yet: the job waits COORDINATOR_KEEPER_MS for it, so that no second attempt runs beside it. */
#include "common/io.h"
#include "common/json.h"
#include "common/log.h"
#include "common/mem.h"
#include "daemon/coordinator_private.h"
#include "daemon/store_attempts.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static int recover_load(void *context, const struct store_job *row, struct err *err)
{
    return coordinator_load(context, row, err);
}

struct recover {
    struct supervisor_adoption adoption;
    bool ended;                  /* the attempt is over: the job's next one was never begun */
    int64_t started_ms;          /* Unix time; 0: its row was never written */
    int64_t from_step;           /* it went on from there */
    char gpus[STORE_GPUS_BYTES]; /* UUIDs of those that it has */
};

static int recover_row(void *context, const struct store_attempt *attempt, struct err *err)
{
    (void)err;
    struct recover *recover = context;
    struct supervisor_adoption *adoption = &recover->adoption;
    struct host_identity *identity = &adoption->identity;
    recover->ended = attempt->ended_ms > 0;
    recover->started_ms = attempt->started_ms;
    recover->from_step = attempt->from_step;
    (void)snprintf(recover->gpus, sizeof recover->gpus, "%s", attempt->gpus);
    identity->pid = (int32_t)attempt->keeper_pid;
    identity->start_time = (uint64_t)attempt->keeper_start_time;
    (void)snprintf(identity->boot_id, sizeof identity->boot_id, "%s", attempt->boot_id);
    enum err_code told = err_code_parse(attempt->outcome);
    if (told != ERR_NONE)
        (void)err_set(&adoption->told, told, "%s", attempt->outcome_text);
    return 0;
}

/* keeper.json. */
static int recover_keeper_file(const char *attempt_dir, struct host_identity *ret, struct err *err)
{
    CLEANUP(mem_free_ptr) char *path = io_join(attempt_dir, "keeper.json");
    if (path == NULL)
        return mem_fail(err, strlen(attempt_dir), "a path");
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

/* No keeper is known. plan.json is written just before one is started. */
static int recover_unknown(struct coordinator_job *job, const char *attempt_dir, struct err *err)
{
    int64_t now_ms = coordinator_now(job->coordinator);
    CLEANUP(mem_free_ptr) char *plan = io_join(attempt_dir, "plan.json");
    if (plan == NULL)
        return mem_fail(err, strlen(attempt_dir), "a path");
    if (job->recover_until_ms == 0 && io_exists(plan))
        job->recover_until_ms = now_ms + COORDINATOR_KEEPER_MS;
    if (now_ms < job->recover_until_ms)
        return 0;
    (void)err_set(&job->failure, ERR_COORDINATOR_LOST,
                  "the daemon ended before the job had started");
    if (job->state == JOB_STATE_STARTING) {
        struct job_move move = {.event_text = "The daemon ended before the job had started; it is "
                                              "queued again."};
        TRY(coordinator_job_enqueue(job, &move, err));
    }
    job->recover_until_ms = 0;
    return 0;
}

/* What the attempt did so far, by its points. When it ended, if no daemon saw that: as its keeper
 * wrote its last file, else at its newest step; the machine may have been off since. */
static int recover_steps(struct coordinator_job *job, const struct recover *recover,
                         struct err *err)
{
    struct store_points_sum sum;
    struct stat info;
    CLEANUP(mem_free_ptr) char *report = io_join(recover->adoption.attempt_dir, "exit.json");
    if (report == NULL)
        return mem_fail(err, LIMIT_PATH_BYTES, "a path");
    TRY(store_points_sum(job->coordinator->store, job->id, job->attempt, &sum, err));
    int64_t ended_ms = sum.last_ms;
    if (stat(report, &info) == 0)
        ended_ms = info.st_mtim.tv_sec * 1000 + info.st_mtim.tv_nsec / 1000000;
    const int64_t now_ms = coordinator_wall(job->coordinator);
    ended_ms = ended_ms < now_ms ? ended_ms : now_ms;
    job->attempt_started_ms = recover->started_ms > 0 ? recover->started_ms : now_ms;
    job->attempt_epoch_ms = coordinator_epoch(job->coordinator);
    job->attempt_ended_ms = ended_ms > job->attempt_started_ms ? ended_ms : job->attempt_started_ms;
    job->attempt_from_step = recover->from_step;
    if (sum.first_step > 0 && sum.first_step <= recover->from_step)
        job->attempt_from_step = sum.first_step - 1;
    job->attempt_step =
        sum.last_step > job->attempt_from_step ? sum.last_step : job->attempt_from_step;
    job->attempt_tokens = sum.tokens;
    return 0;
}

static int recover_adopt(struct coordinator_job *job, const struct recover *recover,
                         struct err *err)
{
    const struct supervisor_adoption *adoption = &recover->adoption;
    struct coordinator *coordinator = job->coordinator;
    const struct supervisor_owner owner = coordinator_ranks_owner(job);
    TRY(recover_steps(job, recover, err));
    TRY(supervisor_adopt(coordinator->host, &coordinator->config, &owner, adoption,
                         &job->supervisor, err));
    job->recover_until_ms = 0;
    job->has_attempt = true;
    if (job->supervisor->keeper != NULL)
        job->attempt_ended_ms = 0;
    if (adoption->ready)
        job->running_ms = coordinator_now(coordinator);
    struct inventory *inventory = &coordinator->inventory;
    int64_t slots = job_spec_slots(&job->spec);
    bool alike = (recover->gpus[0] != '\0') == (inventory->gpu_count > 0);
    job->has_slots = alike && inventory_places(inventory, recover->gpus, slots, job->gpus) &&
                     inventory_take_again(inventory, slots, job->gpus);
    if (job->state == JOB_STATE_CANCELLING)
        supervisor_stop(job->supervisor, NULL);
    log_info("coordinator", "%s, attempt %lld: %s", job->id, (long long)job->attempt,
             job->supervisor->keeper != NULL ? "taken over" : "has ended meanwhile");
    return 0;
}

int coordinator_recover_attempt(struct coordinator_job *job, struct err *err)
{
    struct recover recover = {.adoption = {.ready = job->state != JOB_STATE_STARTING}};
    struct supervisor_adoption *adoption = &recover.adoption;
    struct err unread;
    CLEANUP(mem_free_ptr)
    char *attempt_dir = mem_printf("%s/attempt-%lld", job->job_dir, (long long)job->attempt);
    if (attempt_dir == NULL)
        return mem_fail(err, strlen(job->job_dir), "a path");
    adoption->attempt_dir = attempt_dir;
    int rc = store_attempt_get(job->coordinator->store, job->id, job->attempt, recover_row,
                               &recover, err);
    if (rc != 0 && rc != -ERR_NOT_FOUND)
        return rc;
    if (recover.ended)
        return 0;
    if (adoption->identity.pid == 0 &&
        recover_keeper_file(attempt_dir, &adoption->identity, &unread) != 0)
        return recover_unknown(job, attempt_dir, err);
    return recover_adopt(job, &recover, err);
}

static int recover_job(struct coordinator_job *job, struct err *err)
{
    switch (job->state) {
    case JOB_STATE_STARTING:
    case JOB_STATE_RUNNING:
    case JOB_STATE_PREEMPTING:
        return coordinator_recover_attempt(job, err);
    case JOB_STATE_PAUSING:
    case JOB_STATE_CANCELLING: /* of a job that had no attempt: its next step ends it */
        return job->attempt > 0 ? coordinator_recover_attempt(job, err) : 0;
    default:
        return 0;
    }
}

int coordinator_recover(struct coordinator *coordinator, struct err *err)
{
    static const enum job_state states[] = {
        JOB_STATE_VALIDATING, JOB_STATE_QUEUED, JOB_STATE_STARTING,   JOB_STATE_RUNNING,
        JOB_STATE_PAUSING,    JOB_STATE_PAUSED, JOB_STATE_PREEMPTING, JOB_STATE_CANCELLING};
    for (size_t i = 0; i < sizeof states / sizeof states[0]; i++)
        TRY(store_jobs_in_state(coordinator->store, states[i], recover_load, coordinator, err));
    for (struct coordinator_job *job = coordinator->jobs; job != NULL; job = job->next)
        TRY(recover_job(job, err));
    coordinator_cgroup_end_leftovers(coordinator); /* all that go on are known by now */
    coordinator->queue_changes++;
    if (coordinator->job_count > 0)
        log_info("coordinator", "%lld unfinished jobs taken up", (long long)coordinator->job_count);
    return 0;
}

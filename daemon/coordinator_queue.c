/* coordinator_queue: what sched.h decides on is gathered here, and done. A pass is due when a job
 * has changed its state or its values, and each second, since shares, ends and the time that a job
 * has run change by themselves. What a pass finds out stays with the jobs, for whoever asks why one
 * waits.
 *
 * How long a job will last is its time limit, or its steps at the pace that it has had, or was
 * planned to have before it ran: a prediction with a quarter more. Both with QUEUE_MARGIN_MS for
 * start and end.
 *
 * Use is counted while a job has slots, training or not, and written each QUEUE_SAVE_MS and at the
 * end of an attempt: a daemon that is killed forgets no more than that. */
#include "common/io.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/must.h"
#include "daemon/coordinator_private.h"

#include <stdio.h>

enum {
    QUEUE_PASS_MS = 1000,
    QUEUE_MARGIN_MS = 60000,
    QUEUE_SAVE_MS = 30000,
    QUEUE_LIMIT_S = 60 /* no job does much in less */
};
#define QUEUE_FAR_MS 1e14 /* three thousand years: as good as not known */

/* ---- use ----------------------------------------------------------------------------------- */

static int queue_load_usage(void *context, const struct store_usage *row, struct err *err)
{
    struct coordinator *coordinator = context;
    int64_t now_ms = coordinator_wall(coordinator);
    size_t index = 0;
    TRY(usage_find(&coordinator->usage, row->owner, &index, err));
    struct usage_user *user = &coordinator->usage.users[index];
    user->used_s = row->used_s;
    user->total_s = row->total_s;
    user->at_ms = row->at_ms < now_ms ? row->at_ms : now_ms; /* the clock was wrong, then or now */
    return 0;
}

/* Time that use fades by: the wall's at the start, and steady from there, so that nobody's use
 * fades or stops fading because somebody sets the clock. */
static int64_t queue_usage_ms(const struct coordinator *coordinator)
{
    return coordinator->usage_epoch_ms + coordinator_now(coordinator);
}

int coordinator_queue_init(struct coordinator *coordinator, struct err *err)
{
    coordinator->usage.half_life_ms = coordinator->config.fair_share_half_life_ms;
    coordinator->charged_ms = coordinator->usage_put_ms = coordinator_now(coordinator);
    coordinator->usage_epoch_ms = coordinator_epoch(coordinator);
    TRY(store_drained_get(coordinator->store, &coordinator->drained, err));
    return store_usage_list(coordinator->store, queue_load_usage, coordinator, err);
}

static void queue_save_usage(struct coordinator *coordinator)
{
    for (size_t i = 0; i < coordinator->usage.count; i++) {
        struct usage_user *user = &coordinator->usage.users[i];
        const struct store_usage row = {.owner = user->name,
                                        .used_s = user->used_s,
                                        .total_s = user->total_s,
                                        .at_ms = user->at_ms};
        struct err err;
        if (!user->changed)
            continue;
        if (store_usage_put(coordinator->store, &row, &err) != 0) {
            log_warn("coordinator", "use of %s: %s", user->name, err.text); /* later, then */
            return;
        }
        user->changed = false;
    }
}

void coordinator_queue_charge(struct coordinator *coordinator, bool save)
{
    int64_t now_ms = coordinator_now(coordinator);
    double passed_s = (double)(now_ms - coordinator->charged_ms) / 1000;
    for (struct coordinator_job *job = coordinator->jobs; job != NULL; job = job->next)
        if (job->has_slots)
            usage_charge(&coordinator->usage, job->user,
                         passed_s * (double)job_spec_slots(&job->spec), 0,
                         queue_usage_ms(coordinator));
    coordinator->charged_ms = now_ms;
    if (!save && now_ms - coordinator->usage_put_ms < QUEUE_SAVE_MS)
        return;
    coordinator->usage_put_ms = now_ms;
    queue_save_usage(coordinator);
}

void coordinator_queue_entered(struct coordinator_job *job)
{
    struct coordinator *coordinator = job->coordinator;
    usage_charge(&coordinator->usage, job->user, 0,
                 (double)coordinator->config.policy.entry_penalty_s *
                     (double)job_spec_slots(&job->spec),
                 queue_usage_ms(coordinator));
}

/* ---- a pass -------------------------------------------------------------------------------- */

/* How much longer the job will have its slots, once it has them; 0: not known. */
static int64_t queue_lasts(const struct coordinator_job *job)
{
    int64_t ran_ms = coordinator_progress_ran_ms(job);
    int64_t limit_ms = job->spec.time_limit_s * 1000;
    int64_t left = job->steps_total - job->steps_done;
    double step_ms = job->steps_done > 0 && ran_ms > 0 ? (double)ran_ms / (double)job->steps_done
                                                       : job->predicted_step_s * 1000;
    int64_t lasts_ms = 0;
    if (limit_ms > 0)
        lasts_ms = (limit_ms > ran_ms ? limit_ms - ran_ms : 0) + QUEUE_MARGIN_MS;
    double planned_ms = (double)left * step_ms * 1.25 + QUEUE_MARGIN_MS;
    bool planned = job->steps_total > 0 && left >= 0 && step_ms > 0 && planned_ms < QUEUE_FAR_MS;
    if (planned && (lasts_ms == 0 || planned_ms < (double)lasts_ms))
        lasts_ms = (int64_t)planned_ms;
    return lasts_ms;
}

static void queue_add_waiting(struct sched_pass *pass, struct coordinator_job *job)
{
    pass->jobs[pass->job_count++] = (struct sched_job){
        .object = job,
        .user = job->user,
        .priority = job->spec.priority,
        .number = job->row,
        .slots = job_spec_slots(&job->spec),
        .lasts_ms = queue_lasts(job),
        .held = job->spec.hold,
        .depends = job->depends || !job->depends_known,
        .claims = job->claims,
    };
}

static void queue_add_running(struct sched_pass *pass, struct coordinator_job *job)
{
    const struct inventory *inventory = &job->coordinator->inventory;
    int64_t lasts_ms = queue_lasts(job);
    must(pass->running_count < LIMIT_RANKS);
    pass->running[pass->running_count++] = (struct sched_running){
        .object = job,
        .user = job->user,
        .priority = job->spec.priority,
        .slots = job_spec_slots(&job->spec),
        .lost = inventory_lost(inventory, job_spec_slots(&job->spec), job->gpus),
        .since_ms = job->running_ms,
        .ends_ms = lasts_ms > 0 ? pass->now_ms + lasts_ms : 0,
        .preemptible = job->spec.preemptible && job->state == JOB_STATE_RUNNING,
        .ending = job->state != JOB_STATE_STARTING && job->state != JOB_STATE_RUNNING,
        .preempted = job->state == JOB_STATE_PREEMPTING,
    };
}

static void queue_keep(struct sched_pass *pass)
{
    for (size_t i = 0; i < pass->job_count; i++) {
        struct coordinator_job *job = pass->jobs[i].object;
        job->verdict = pass->jobs[i].verdict;
        job->position = pass->jobs[i].position;
        job->start_ms = pass->jobs[i].start_ms;
        if (job->verdict != SCHED_START)
            job->memory_lack = 0;
    }
}

/* What a pass works on; freed by queue_pass_done(). */
struct queue_pass {
    struct sched_pass sched;
    struct sched_running running[LIMIT_RANKS];
};

static void queue_pass_done(struct queue_pass *pass)
{
    mem_free(pass->sched.jobs);
    mem_free(pass->sched.users);
}

static int queue_pass(struct coordinator *coordinator, struct queue_pass *pass, struct err *err)
{
    struct sched_pass *sched = &pass->sched;
    const size_t jobs_max = (size_t)coordinator->job_count;
    sched->now_ms = coordinator_now(coordinator);
    sched->slots = coordinator->inventory.slots;
    sched->free = inventory_free_slots(&coordinator->inventory);
    sched->policy = coordinator->config.policy;
    sched->policy.draining = coordinator->drained || coordinator->stopping;
    sched->running = pass->running;
    sched->user_count = coordinator->usage.count;
    sched->users = mem_new(sched->user_count, sizeof sched->users[0]);
    sched->jobs = mem_new(jobs_max, sizeof sched->jobs[0]);
    if (sched->users == NULL || sched->jobs == NULL)
        return mem_fail(err, jobs_max * sizeof sched->jobs[0], "a look at the queue");
    coordinator_queue_charge(coordinator, false);
    for (size_t i = 0; i < sched->user_count; i++)
        sched->users[i].used_s = usage_now(&coordinator->usage, i, queue_usage_ms(coordinator));
    for (struct coordinator_job *job = coordinator->jobs; job != NULL; job = job->next) {
        if (job->state == JOB_STATE_QUEUED)
            queue_add_waiting(sched, job);
        else if (job->has_slots)
            queue_add_running(sched, job);
    }
    sched_pass(sched);
    queue_keep(sched);
    coordinator->queue_shown = coordinator->queue_changes;
    coordinator->pass_ms = sched->now_ms;
    coordinator->head_ms = sched->head_ms;
    return 0;
}

/* ---- what it decides ----------------------------------------------------------------------- */

static void queue_preempt(struct coordinator_job *job, const struct coordinator_job *head)
{
    char text[192];
    struct err err;
    (void)snprintf(text, sizeof text,
                   "Job makes room for %s, which has priority %lld: it ends with a checkpoint and "
                   "waits again.",
                   head->id, (long long)head->spec.priority);
    if (coordinator_job_move_to(job, JOB_STATE_PREEMPTING, NULL, text, &err) != 0)
        log_error("coordinator", "%s cannot be preempted: %s", job->id, err.text);
}

static void queue_start(struct coordinator_job *job)
{
    struct coordinator *coordinator = job->coordinator;
    struct err err;
    must(job->state == JOB_STATE_QUEUED);
    if (job->retry_ms > coordinator_now(coordinator) || coordinator_memory_waits(job))
        return;
    if (io_check_spare(&err) == 0 && coordinator_attempt_start(job, &err) == 0)
        return;
    log_error("coordinator", "%s cannot be started: %s", job->id, err.text);
    job->retry_ms = coordinator_now(coordinator) + COORDINATOR_RETRY_MS;
}

static void queue_act(const struct sched_pass *pass)
{
    const struct coordinator_job *head = NULL;
    for (size_t i = 0; i < pass->job_count; i++) {
        struct coordinator_job *job = pass->jobs[i].object;
        job->claims = pass->jobs[i].claims;
        if (pass->jobs[i].verdict == SCHED_START)
            queue_start(job);
        if (pass->jobs[i].verdict == SCHED_ROOM)
            head = job;
    }
    for (size_t i = 0; head != NULL && i < pass->running_count; i++)
        if (pass->running[i].preempt)
            queue_preempt(pass->running[i].object, head);
}

void coordinator_queue_tick(struct coordinator *coordinator)
{
    struct queue_pass pass = {.sched = {.now_ms = 0}};
    struct err err;
    if (coordinator->queue_decided == coordinator->queue_changes &&
        coordinator_now(coordinator) - coordinator->pass_ms < QUEUE_PASS_MS)
        return;
    int rc = queue_pass(coordinator, &pass, &err);
    if (rc != 0)
        log_error("coordinator", "%s", err.text); /* the next tick looks again */
    else
        coordinator->queue_decided = coordinator->queue_shown;
    if (rc == 0 && !coordinator->stopping)
        queue_act(&pass.sched);
    queue_pass_done(&pass);
}

/* ---- what is shown ------------------------------------------------------------------------- */

/* A pass that decides nothing, where jobs have changed since the last. */
static void queue_refresh(struct coordinator *coordinator)
{
    struct queue_pass pass = {.sched = {.now_ms = 0}};
    struct err err;
    if (coordinator->queue_shown == coordinator->queue_changes)
        return;
    if (queue_pass(coordinator, &pass, &err) != 0)
        log_warn("coordinator", "%s", err.text); /* the last pass is shown */
    queue_pass_done(&pass);
}

static void queue_tell_dependency(const struct coordinator_job *job, char *ret, size_t bytes)
{
    const struct job_list *list = &job->spec.depends_on;
    for (int64_t i = 0; i < list->count; i++) {
        const struct coordinator_job *other = coordinator_find(job->coordinator, list->items[i]);
        if (other == NULL)
            continue;
        (void)snprintf(ret, bytes, "waits for %s to succeed, which is %s", other->id,
                       job_state_name(other->state));
        return;
    }
    (void)snprintf(ret, bytes, "waits for the jobs it depends on");
}

/* And with which time limit it would pass the others now, where there is one worth the name. */
static void queue_tell_behind(const struct coordinator_job *job, char *ret, size_t bytes)
{
    const struct coordinator *coordinator = job->coordinator;
    int64_t limit_s =
        (coordinator->head_ms - coordinator_now(coordinator) - QUEUE_MARGIN_MS) / 1000;
    int length = snprintf(ret, bytes, "waits behind %lld other job%s", (long long)job->position - 1,
                          job->position == 2 ? "" : "s");
    if (limit_s >= QUEUE_LIMIT_S &&
        job_spec_slots(&job->spec) <= inventory_free_slots(&coordinator->inventory))
        (void)snprintf(ret + length, bytes - (size_t)length,
                       "; with a time_limit_s of %lld or less it could start now",
                       (long long)limit_s);
}

static void queue_tell(const struct coordinator_job *job, char *ret, size_t bytes)
{
    const struct coordinator *coordinator = job->coordinator;
    const struct sched_policy *policy = &coordinator->config.policy;
    const long long slots = (long long)job_spec_slots(&job->spec);
    const long long all = (long long)coordinator->inventory.slots;
    const long long free_slots = (long long)inventory_free_slots(&coordinator->inventory);
    const char *user = coordinator->usage.users[job->user].name;
    switch (job->verdict) {
    case SCHED_START:
        if (job->memory_lack > 0)
            coordinator_memory_tell(job, ret, bytes);
        else
            (void)snprintf(ret, bytes, "starts next");
        return;
    case SCHED_HELD:
        (void)snprintf(ret, bytes, "held until it is released (hold: false)");
        return;
    case SCHED_DEPENDS:
        queue_tell_dependency(job, ret, bytes);
        return;
    case SCHED_DRAINING:
        (void)snprintf(ret, bytes, "nothing starts: %s",
                       coordinator->drained ? "the queue is drained" : "the daemon is stopping");
        return;
    case SCHED_TOO_LARGE:
        (void)snprintf(ret, bytes, "needs %lld slots, this machine has %lld", slots, all);
        coordinator_gpus_explain(coordinator, ret, bytes);
        return;
    case SCHED_USER_SLOTS:
        (void)snprintf(ret, bytes, "needs %lld slot%s; all jobs of %s may have %lld at once", slots,
                       slots == 1 ? "" : "s", user, (long long)policy->user_slots_max);
        return;
    case SCHED_USER_JOBS:
        (void)snprintf(ret, bytes, "%s runs as many jobs as one user may: %lld", user,
                       (long long)policy->user_jobs_max);
        return;
    case SCHED_SLOTS:
    case SCHED_ROOM:
        (void)snprintf(ret, bytes, "needs %lld of %lld slots, %lld free%s", slots, all, free_slots,
                       job->verdict == SCHED_ROOM ? "; preempted jobs are making room" : "");
        coordinator_gpus_explain(coordinator, ret, bytes);
        return;
    case SCHED_BEHIND:
        queue_tell_behind(job, ret, bytes);
        return;
    }
    must(false);
}

static void queue_view(const struct coordinator_job *job, struct coordinator_view *ret_view)
{
    const struct coordinator *coordinator = job->coordinator;
    *ret_view = (struct coordinator_view){.queue_position = 0};
    char *reason = ret_view->pending_reason;
    const size_t bytes = sizeof ret_view->pending_reason;
    if (job->state == JOB_STATE_QUEUED) {
        ret_view->queue_position = job->position > 0 ? job->position : 1; /* it starts now */
        queue_tell(job, reason, bytes);
        if (job->start_ms > 0 && job->memory_lack == 0)
            ret_view->estimated_start_ms =
                coordinator_wall(coordinator) + job->start_ms - coordinator_now(coordinator);
    } else if (job->state == JOB_STATE_VALIDATING) {
        (void)snprintf(reason, bytes, "%s",
                       job->preparation != NULL ? "its files are being checked"
                                                : "waits for the check of other jobs' files");
    } else if (job->state == JOB_STATE_PAUSED) {
        (void)snprintf(reason, bytes, "it is paused until it is resumed");
    }
}

void coordinator_view(struct coordinator *coordinator, const char *job_id,
                      struct coordinator_view *ret_view)
{
    const struct coordinator_job *job = coordinator_find(coordinator, job_id);
    *ret_view = (struct coordinator_view){.queue_position = 0};
    if (job == NULL)
        return;
    queue_refresh(coordinator);
    queue_view(job, ret_view);
}

static int queue_show(const struct coordinator_job *job, coordinator_entry_fn *entry, void *context,
                      struct err *err)
{
    const struct coordinator *coordinator = job->coordinator;
    const int64_t lasts_ms = queue_lasts(job);
    struct coordinator_entry row = {
        .id = job->id,
        .owner = coordinator->usage.users[job->user].name,
        .spec = &job->spec,
        .state = job->state,
        .created_ms = job->created_ms,
    };
    if (job->has_slots) {
        row.started_ms = job->attempt_started_ms;
        row.estimated_end_ms = lasts_ms > 0 ? coordinator_wall(coordinator) + lasts_ms : 0;
    }
    queue_view(job, &row.view);
    return entry(context, &row, err);
}

int coordinator_queue_list(struct coordinator *coordinator, int64_t after, int64_t limit,
                           coordinator_entry_fn *entry, void *context, int64_t *ret_waiting,
                           struct err *err)
{
    must(after >= 0 && limit > 0 && limit <= LIMIT_PAGE_ROWS);
    CLEANUP(mem_free_ptr)
    const struct coordinator_job **shown = mem_new((size_t)limit, sizeof(void *));
    int64_t waiting = 0;
    if (shown == NULL)
        return mem_fail(err, (size_t)limit * sizeof(void *), "the queue");
    queue_refresh(coordinator);
    for (const struct coordinator_job *job = coordinator->jobs; job != NULL; job = job->next) {
        bool waits = job->state == JOB_STATE_QUEUED;
        bool starts = waits && job->position == 0;
        int64_t place = job->position - after - 1;
        if (job->has_slots || (starts && after == 0))
            TRY(queue_show(job, entry, context, err));
        waiting += waits;
        if (waits && place >= 0 && place < limit)
            shown[place] = job;
    }
    for (int64_t i = 0; i < limit; i++)
        if (shown[i] != NULL)
            TRY(queue_show(shown[i], entry, context, err));
    *ret_waiting = waiting;
    return 0;
}

int coordinator_users_list(struct coordinator *coordinator, coordinator_user_fn *user,
                           void *context, struct err *err)
{
    const struct usage *usage = &coordinator->usage;
    CLEANUP(mem_free_ptr) int64_t *slots = mem_new(usage->count, sizeof *slots);
    if (slots == NULL)
        return mem_fail(err, usage->count * sizeof *slots, "the list of users");
    coordinator_queue_charge(coordinator, false);
    for (const struct coordinator_job *job = coordinator->jobs; job != NULL; job = job->next)
        if (job->has_slots)
            slots[job->user] += job_spec_slots(&job->spec);
    for (size_t i = 0; i < usage->count; i++) {
        const struct coordinator_user row = {
            .name = usage->users[i].name,
            .used_s = usage_now(usage, i, queue_usage_ms(coordinator)),
            .total_s = usage->users[i].total_s,
            .counted_s = usage->users[i].counted_s,
            .slots = slots[i],
        };
        TRY(user(context, &row, err));
    }
    return 0;
}

/* ---- drain --------------------------------------------------------------------------------- */

int coordinator_queue_drain(struct coordinator *coordinator, bool drained, struct err *err)
{
    TRY(store_drained_put(coordinator->store, drained, err));
    log_info("coordinator", "the queue is %s", drained ? "drained" : "no longer drained");
    coordinator->drained = drained;
    coordinator->queue_changes++;
    return 0;
}

bool coordinator_queue_is_drained(const struct coordinator *coordinator)
{
    return coordinator->drained;
}

/* supervisor: state in, state out; every decision is in supervisor_tick(). supervisor_end.c kills
 * and counts what is left, supervisor_outcome.c says how it went. */
#include "daemon/supervisor.h"

#include "common/io.h"
#include "common/json.h"
#include "common/mem.h"
#include "common/must.h"
#include "daemon/coordinator.h"
#include "daemon/launch_local.h"

#include <signal.h>
#include <string.h>

enum { SUPERVISOR_LATE_MS = 1000 }; /* ten times COORDINATOR_TICK_MS */

static int64_t supervisor_now(const struct supervisor *supervisor)
{
    return supervisor->host->ops->monotonic_ms(supervisor->host);
}

static void supervisor_keeper_exit(void *context, const struct host_exit *ended)
{
    struct supervisor *supervisor = context;
    supervisor->keeper_ended = true;
    supervisor->keeper_exit = *ended;
    supervisor->ended_ms = supervisor_now(supervisor);
}

static int supervisor_new(struct host *host, const struct coordinator_config *config,
                          const struct supervisor_owner *owner, struct supervisor **ret_supervisor,
                          struct err *err)
{
    struct supervisor *supervisor = mem_new(1, sizeof *supervisor);
    if (supervisor == NULL)
        return mem_fail(err, sizeof *supervisor, "an attempt");
    supervisor->host = host;
    supervisor->config = config;
    supervisor->owner = *owner;
    supervisor->started_ms = supervisor_now(supervisor);
    buf_init(&supervisor->plan_text, LIMIT_FRAME_BYTES);
    *ret_supervisor = supervisor;
    return 0;
}

static int supervisor_launch(struct supervisor *supervisor, struct err *err)
{
    CLEANUP(json_unref) json_t *plan = launch_plan_json(&supervisor->plan);
    supervisor->attempt_dir = launch_plan_attempt_dir(&supervisor->plan);
    if (plan == NULL || supervisor->attempt_dir == NULL)
        return mem_fail(err, 0, "a launch plan");
    TRY(json_print(plan, &supervisor->plan_text, err));
    const struct launch_local launch = {
        .worker_program = supervisor->config->worker_program,
        .attempt_dir = supervisor->attempt_dir,
        .plan_text = buf_str(&supervisor->plan_text),
        .plan_length = supervisor->plan_text.length,
        .on_exit = supervisor_keeper_exit,
        .context = supervisor,
    };
    return launch_local_start(supervisor->host, &launch, &supervisor->keeper, &supervisor->identity,
                              err);
}

int supervisor_start(struct host *host, const struct coordinator_config *config,
                     const struct supervisor_owner *owner, struct launch_plan *plan,
                     struct supervisor **ret_supervisor, struct err *err)
{
    must(plan->world >= 1 && plan->world <= LIMIT_RANKS);
    struct supervisor *supervisor = NULL;
    int rc = supervisor_new(host, config, owner, &supervisor, err);
    if (rc == 0) {
        supervisor->plan = *plan;
        *plan = (struct launch_plan){.world = 0};
        rc = supervisor_launch(supervisor, err);
        if (rc != 0)
            supervisor_drop_group(supervisor);
    }
    if (rc != 0) {
        supervisor_free(supervisor);
        launch_plan_done(plan);
        return rc;
    }
    *ret_supervisor = supervisor;
    return 0;
}

/* plan.json: the very bytes that the ranks have got. */
static int supervisor_read_plan(struct supervisor *supervisor, struct err *err)
{
    CLEANUP(mem_free_ptr) char *path = io_join(supervisor->attempt_dir, "plan.json");
    CLEANUP(json_unref) json_t *plan = NULL;
    if (path == NULL)
        return mem_fail(err, strlen(supervisor->attempt_dir), "a path");
    TRY(io_read_file(path, LIMIT_FRAME_BYTES, &supervisor->plan_text, err));
    TRY(json_parse(buf_str(&supervisor->plan_text), supervisor->plan_text.length, path, &plan,
                   err));
    return launch_plan_parse(plan, &supervisor->plan, err);
}

static int supervisor_take_over(struct supervisor *supervisor,
                                const struct supervisor_adoption *adoption, struct err *err)
{
    struct host *host = supervisor->host;
    struct err why, unread;
    supervisor->adopted = true;
    supervisor->identity = adoption->identity;
    supervisor->told = adoption->told;
    supervisor->attempt_dir = mem_strdup(adoption->attempt_dir);
    if (supervisor->attempt_dir == NULL)
        return mem_fail(err, strlen(adoption->attempt_dir), "a path");
    int unreadable = supervisor_read_plan(supervisor, &unread);
    if (unreadable == -ERR_NOMEM) { /* says nothing about the plan */
        *err = unread;
        return unreadable;
    }
    for (uint32_t i = 0; i < supervisor->plan.world; i++) {
        supervisor->ranks[i].ready = adoption->ready;
        supervisor->ranks[i].moved_ms = supervisor->started_ms;
    }
    int rc = host->ops->adopt(host, &adoption->identity, supervisor_keeper_exit, supervisor,
                              &supervisor->keeper, err);
    supervisor->session_gone = rc == -ERR_NOT_FOUND; /* its number may be another's by now */
    if (rc == -ERR_NOT_FOUND)
        supervisor_keeper_exit(supervisor, &(struct host_exit){.status = -1});
    else if (rc != 0)
        return rc;
    if (unreadable != 0) {
        (void)err_set(&why, ERR_COORDINATOR_LOST, "the attempt cannot be taken over: %s",
                      unread.text);
        supervisor_stop(supervisor, &why);
    }
    return 0;
}

int supervisor_adopt(struct host *host, const struct coordinator_config *config,
                     const struct supervisor_owner *owner,
                     const struct supervisor_adoption *adoption, struct supervisor **ret_supervisor,
                     struct err *err)
{
    struct supervisor *supervisor = NULL;
    TRY(supervisor_new(host, config, owner, &supervisor, err));
    int rc = supervisor_take_over(supervisor, adoption, err);
    if (rc != 0) {
        supervisor_free(supervisor);
        return rc;
    }
    *ret_supervisor = supervisor;
    return 0;
}

void supervisor_free(struct supervisor *supervisor)
{
    if (supervisor == NULL)
        return;
    supervisor->host->ops->forget(supervisor->host, supervisor->keeper);
    launch_plan_done(&supervisor->plan);
    buf_done(&supervisor->plan_text);
    mem_free(supervisor->attempt_dir);
    mem_free(supervisor);
}

static bool supervisor_same_secret(const uint8_t *a, const uint8_t *b)
{
    unsigned differ = 0;
    for (size_t i = 0; i < WIRE_SECRET_BYTES; i++)
        differ |= (unsigned)(a[i] ^ b[i]);
    return differ == 0;
}

int supervisor_hello(struct supervisor *supervisor, const struct wire_hello *hello, struct err *err)
{
    if (hello->attempt != supervisor->plan.attempt || hello->rank >= supervisor->plan.world ||
        !supervisor_same_secret(hello->secret, supervisor->plan.secret))
        return err_set(err, ERR_PROTOCOL, "HELLO of %s, attempt %u, rank %u proves nothing",
                       hello->job_id, hello->attempt, hello->rank);
    struct supervisor_rank *rank = &supervisor->ranks[hello->rank];
    int64_t now_ms = supervisor_now(supervisor);
    if (!rank->connected)
        rank->moved_ms = now_ms;
    rank->connected = true;
    rank->pid = (int32_t)hello->pid;
    rank->pause_sent = false;
    rank->heard_ms = now_ms;
    return 0;
}

static void supervisor_heartbeat(struct supervisor_rank *rank,
                                 const struct wire_heartbeat *heartbeat, int64_t now_ms)
{
    if (heartbeat->step != rank->step || heartbeat->phase != rank->phase ||
        heartbeat->coll_seq != rank->coll_seq)
        rank->moved_ms = now_ms;
    rank->step = heartbeat->step;
    rank->phase = heartbeat->phase;
    rank->coll_seq = heartbeat->coll_seq;
    rank->ready |= heartbeat->step > 0; /* READY may have gone to an earlier daemon */
}

int supervisor_frame(struct supervisor *supervisor, uint32_t number, const struct wire_frame *frame,
                     struct err *err)
{
    must(number < supervisor->plan.world);
    struct supervisor_rank *rank = &supervisor->ranks[number];
    int64_t now_ms = supervisor_now(supervisor);
    switch (frame->type) {
    case WIRE_HEARTBEAT:
        supervisor_heartbeat(rank, &frame->heartbeat, now_ms);
        break;
    case WIRE_READY:
        rank->ready = true;
        if (frame->ready.steps_total > supervisor->steps_total)
            supervisor->steps_total = frame->ready.steps_total;
        break;
    case WIRE_DONE:
        rank->done = true;
        if (number == 0)
            supervisor->done = frame->done;
        break;
    case WIRE_PAUSED:
        rank->done = true;
        rank->paused = true;
        if (number == 0)
            supervisor->paused = frame->paused;
        break;
    case WIRE_FAILED:
        supervisor_take_failed(supervisor, number, &frame->failed);
        break;
    case WIRE_CHECKPOINTED:
    case WIRE_METRICS:
    case WIRE_EVENT:
    case WIRE_ACK:
        break;
    default:
        return err_set(err, ERR_PROTOCOL, "a frame of type %u from a rank", (unsigned)frame->type);
    }
    rank->heard_ms = now_ms;
    if (frame->seq != 0)
        rank->received_seq = frame->seq;
    return 0;
}

bool supervisor_is_ready(const struct supervisor *supervisor)
{
    uint32_t ready = 0;
    while (ready < supervisor->plan.world && supervisor->ranks[ready].ready)
        ready++;
    return supervisor->plan.world > 0 && ready == supervisor->plan.world;
}

bool supervisor_is_over(const struct supervisor *supervisor)
{
    return supervisor->over;
}

static void supervisor_climb(struct supervisor *supervisor, enum supervisor_rung rung)
{
    struct host *host = supervisor->host;
    supervisor->rung = rung;
    supervisor->rung_ms = supervisor_now(supervisor) + supervisor->config->stop_grace_ms;
    if (rung == RUNG_ASKED) {
        const struct wire_frame cancel = {.type = WIRE_CANCEL};
        for (uint32_t i = 0; i < supervisor->plan.world; i++)
            supervisor->owner.send(supervisor->owner.context, i, &cancel);
    } else if (rung == RUNG_TERM) {
        host->ops->signal(host, supervisor->keeper, SIGTERM);
    } else {
        supervisor_kill(supervisor);
    }
}

/* To each rank that has not been asked since it connected. */
static void supervisor_send_pause(struct supervisor *supervisor)
{
    const struct wire_frame pause = {.type = WIRE_PAUSE};
    for (uint32_t i = 0; i < supervisor->plan.world; i++) {
        struct supervisor_rank *rank = &supervisor->ranks[i];
        if (rank->connected && !rank->pause_sent)
            supervisor->owner.send(supervisor->owner.context, i, &pause);
        rank->pause_sent = rank->connected;
    }
}

void supervisor_pause(struct supervisor *supervisor)
{
    supervisor->pausing = true;
}

int supervisor_profile(struct supervisor *supervisor, int64_t steps, struct err *err)
{
    const struct wire_frame profile = {.type = WIRE_PROFILE, .number = (uint32_t)steps};
    must(steps >= 1 && steps <= LIMIT_PROFILE_STEPS);
    int connections = supervisor->owner.connections(supervisor->owner.context);
    if (supervisor->plan.world == 0 || connections < (int)supervisor->plan.world)
        return err_set(err, ERR_UNAVAILABLE, "a rank of the job is not connected; ask again soon");
    supervisor->owner.send(supervisor->owner.context, 0, &profile);
    return 0;
}

void supervisor_stop(struct supervisor *supervisor, const struct err *failure)
{
    if (failure != NULL && supervisor->failure.code == ERR_NONE)
        supervisor->failure = *failure;
    if (supervisor->rung != RUNG_NONE || supervisor->keeper_ended)
        return;
    bool listening = failure == NULL && supervisor->plan.world > 0;
    for (uint32_t i = 0; i < supervisor->plan.world; i++)
        listening &= supervisor->ranks[i].connected;
    supervisor_climb(supervisor, listening ? RUNG_ASKED : RUNG_TERM);
}

/* The first rank that breaks a limit of its own; false when none does. */
static bool supervisor_check_rank(const struct supervisor *supervisor, uint32_t number,
                                  int64_t now_ms, struct err *ret_failure)
{
    const struct coordinator_config *config = supervisor->config;
    const struct supervisor_rank *rank = &supervisor->ranks[number];
    int64_t age_ms = now_ms - supervisor->started_ms;
    if (rank->done || rank->failed)
        return false;
    if (!rank->connected && age_ms > config->connect_limit_ms)
        (void)err_set(ret_failure, ERR_RANK_START, "rank %u did not connect within %lld s", number,
                      (long long)(config->connect_limit_ms / 1000));
    else if (rank->connected && !rank->ready && age_ms > config->start_limit_ms)
        (void)err_set(ret_failure, ERR_RANK_START, "rank %u was not ready within %lld s, phase %s",
                      number, (long long)(config->start_limit_ms / 1000),
                      wire_phase_name((enum wire_phase)rank->phase));
    else if (rank->connected && now_ms - rank->heard_ms > config->heartbeat_limit_ms)
        (void)err_set(ret_failure, ERR_RANK_HUNG,
                      "rank %u gave no sign of life for %lld s; last heard in step %llu, %s",
                      number, (long long)((now_ms - rank->heard_ms) / 1000),
                      (unsigned long long)rank->step,
                      wire_phase_name((enum wire_phase)rank->phase));
    else
        return false;
    return true;
}

/* All ranks are ready and talk, but none moves. */
static bool supervisor_check_stall(const struct supervisor *supervisor, int64_t now_ms,
                                   struct err *ret_failure)
{
    const struct supervisor_rank *behind = NULL;
    uint64_t coll_seq_max = 0;
    for (uint32_t i = 0; i < supervisor->plan.world; i++) {
        const struct supervisor_rank *rank = &supervisor->ranks[i];
        if (rank->done || rank->failed)
            continue;
        if (!rank->ready || now_ms - rank->moved_ms <= supervisor->config->stall_limit_ms)
            return false;
        if (behind == NULL || rank->coll_seq < behind->coll_seq)
            behind = rank;
        if (rank->coll_seq > coll_seq_max)
            coll_seq_max = rank->coll_seq;
    }
    if (behind == NULL)
        return false;
    (void)err_set(ret_failure, ERR_RANK_HUNG,
                  "no rank has moved for %lld s; rank %d is behind: step %llu, %s, collective %llu "
                  "(the others: up to %llu)",
                  (long long)(supervisor->config->stall_limit_ms / 1000),
                  (int)(behind - supervisor->ranks), (unsigned long long)behind->step,
                  wire_phase_name((enum wire_phase)behind->phase),
                  (unsigned long long)behind->coll_seq, (unsigned long long)coll_seq_max);
    return true;
}

/* The keeper ends by itself when its ranks have; it gets the heartbeat limit for that. */
static bool supervisor_check_ending(struct supervisor *supervisor, int64_t now_ms)
{
    uint32_t finished = 0;
    for (uint32_t i = 0; i < supervisor->plan.world; i++)
        finished += supervisor->ranks[i].done || supervisor->ranks[i].failed;
    bool ending = supervisor->failures > 0 || finished == supervisor->plan.world;
    if (ending && supervisor->ending_ms == 0)
        supervisor->ending_ms = now_ms;
    return ending && now_ms - supervisor->ending_ms > supervisor->config->heartbeat_limit_ms;
}

static void supervisor_check(struct supervisor *supervisor, int64_t now_ms)
{
    struct err failure;
    bool bad = false;
    for (uint32_t i = 0; i < supervisor->plan.world && !bad; i++)
        bad = supervisor_check_rank(supervisor, i, now_ms, &failure);
    if (bad || supervisor_check_stall(supervisor, now_ms, &failure))
        supervisor_stop(supervisor, &failure);
    else if (supervisor_check_ending(supervisor, now_ms))
        supervisor_climb(supervisor, RUNG_TERM); /* how it went is known: no failure of this */
}

void supervisor_tick(struct supervisor *supervisor)
{
    int64_t now_ms = supervisor_now(supervisor), before_ms = supervisor->ticked_ms;
    supervisor->ticked_ms = now_ms;
    if (supervisor->over || (before_ms != 0 && now_ms - before_ms > SUPERVISOR_LATE_MS))
        return;
    if (supervisor->keeper_ended) {
        bool left = supervisor_sweep(supervisor);
        bool read = supervisor->owner.connections(supervisor->owner.context) == 0 ||
                    now_ms - supervisor->ended_ms > supervisor->config->stop_grace_ms;
        supervisor->over = !left && read;
    } else if (supervisor->rung == RUNG_NONE) {
        if (supervisor->pausing)
            supervisor_send_pause(supervisor);
        supervisor_check(supervisor, now_ms);
    } else if (now_ms >= supervisor->rung_ms) {
        supervisor_climb(supervisor, supervisor->rung == RUNG_ASKED ? RUNG_TERM : RUNG_KILL);
    }
}

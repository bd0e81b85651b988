/* sched: one walk over the waiting jobs in order. What runs, and what the walk starts, is kept as a
 * list of (end, slots), of which the head's reservation and the estimates are made: it has at most
 * LIMIT_RANKS members, so it is searched linearly. */
#include "daemon/sched.h"

#include "common/must.h"

#include <stdlib.h>

#define SCHED_NEVER INT64_MAX

/* Slots that come free at a time. */
struct sched_end {
    int64_t ends_ms; /* SCHED_NEVER: not known */
    int64_t slots;
};

/* What the walk has come to. */
struct sched_walk {
    struct sched_pass *pass;
    int64_t free;                           /* not given to jobs that start in this pass */
    struct sched_end ends[LIMIT_RANKS + 1]; /* one for slots in between */
    size_t end_count;
    struct sched_job *head; /* NULL until a job waits for slots */
    int64_t reserved_ms;    /* when the head has its slots at the latest; SCHED_NEVER: not known */
    int64_t spare;          /* slots that it will not need then */
};

/* ---- order --------------------------------------------------------------------------------- */

static int sched_compare_i64(int64_t a, int64_t b)
{
    return (a > b) - (a < b);
}

static bool sched_is_ready(const struct sched_job *job)
{
    return !job->held && !job->depends;
}

static int sched_compare_class(const struct sched_job *a, const struct sched_job *b)
{
    if (sched_is_ready(a) != sched_is_ready(b))
        return sched_is_ready(a) ? -1 : 1;
    if (a->claims != b->claims)
        return a->claims ? -1 : 1;
    return sched_compare_i64(b->priority, a->priority);
}

static int sched_compare_by_user(const void *left, const void *right)
{
    const struct sched_job *a = left, *b = right;
    int order = sched_compare_class(a, b);
    if (order == 0)
        order = (a->user > b->user) - (a->user < b->user);
    return order != 0 ? order : sched_compare_i64(a->number, b->number);
}

static int sched_compare_by_share(const void *left, const void *right)
{
    const struct sched_job *a = left, *b = right;
    int order = sched_compare_class(a, b);
    if (order == 0)
        order = (a->share > b->share) - (a->share < b->share);
    return order != 0 ? order : sched_compare_i64(a->number, b->number);
}

/* A user's jobs in their own order each stand behind the penalties of those before: sorting by that
 * is what taking the next job of the least user, again and again, comes to. */
static void sched_order(struct sched_pass *pass)
{
    size_t count = pass->job_count;
    if (count == 0)
        return;
    qsort(pass->jobs, count, sizeof pass->jobs[0], sched_compare_by_user);
    double penalty_s = (double)pass->policy.entry_penalty_s;
    for (size_t i = 0; i < count;) {
        size_t user = pass->jobs[i].user;
        must(user < pass->user_count);
        double share = pass->users[user].used_s;
        for (size_t first = i; i < count && pass->jobs[i].user == user &&
                               sched_compare_class(&pass->jobs[first], &pass->jobs[i]) == 0;
             i++) {
            pass->jobs[i].share = share;
            share += penalty_s * (double)pass->jobs[i].slots;
        }
    }
    qsort(pass->jobs, count, sizeof pass->jobs[0], sched_compare_by_share);
}

/* ---- what runs ----------------------------------------------------------------------------- */

static void sched_add_end(struct sched_walk *walk, int64_t ends_ms, int64_t slots)
{
    must(walk->end_count <= LIMIT_RANKS && slots >= 0);
    walk->ends[walk->end_count++] = (struct sched_end){.ends_ms = ends_ms, .slots = slots};
}

/* The next end, taken out of the list. */
static struct sched_end sched_take_end(struct sched_walk *walk)
{
    size_t first = 0;
    must(walk->end_count > 0);
    for (size_t i = 1; i < walk->end_count; i++)
        if (walk->ends[i].ends_ms < walk->ends[first].ends_ms)
            first = i;
    struct sched_end end = walk->ends[first];
    walk->ends[first] = walk->ends[--walk->end_count];
    return end;
}

static int64_t sched_end_of(int64_t now_ms, int64_t lasts_ms)
{
    return lasts_ms > 0 ? now_ms + lasts_ms : SCHED_NEVER;
}

static void sched_count(struct sched_pass *pass, size_t user, int64_t slots)
{
    must(user < pass->user_count);
    pass->users[user].slots += slots;
    pass->users[user].jobs++;
}

/* Slots that come free at a job's end. */
static int64_t sched_gives(const struct sched_running *running)
{
    must(running->lost >= 0 && running->lost <= running->slots);
    return running->slots - running->lost;
}

/* Slots that no job has and that are not free yet: those of a GPU that is looked at first. */
static int64_t sched_in_between(const struct sched_pass *pass)
{
    int64_t slots = pass->slots - pass->free;
    for (size_t i = 0; i < pass->running_count; i++)
        slots -= sched_gives(&pass->running[i]);
    return slots > 0 ? slots : 0;
}

static void sched_count_running(struct sched_walk *walk)
{
    struct sched_pass *pass = walk->pass;
    for (size_t i = 0; i < pass->user_count; i++)
        pass->users[i].slots = pass->users[i].jobs = 0;
    for (size_t i = 0; i < pass->running_count; i++) {
        struct sched_running *running = &pass->running[i];
        running->preempt = false;
        sched_count(pass, running->user, running->slots);
        int64_t ends_ms = running->ends_ms > 0 ? running->ends_ms : SCHED_NEVER;
        sched_add_end(walk, running->ending ? pass->now_ms : ends_ms, sched_gives(running));
    }
    sched_add_end(walk, pass->now_ms, sched_in_between(pass));
}

/* ---- the head ------------------------------------------------------------------------------ */

/* Slots that the head can do without when the running jobs may end in any order: the least that is
 * left over by any of them together with which it could start. */
static int64_t sched_spare_always(const struct sched_walk *walk)
{
    int64_t wanted = walk->head->slots - walk->free;
    bool sums[LIMIT_RANKS + 1] = {true};
    for (size_t i = 0; i < walk->end_count; i++)
        for (int64_t sum = LIMIT_RANKS; sum >= walk->ends[i].slots; sum--)
            sums[sum] |= sums[sum - walk->ends[i].slots];
    for (int64_t sum = wanted; sum <= LIMIT_RANKS; sum++)
        if (sums[sum])
            return sum - wanted;
    return 0;
}

static void sched_reserve(struct sched_walk *walk, struct sched_job *head)
{
    struct sched_walk later = *walk;
    walk->head = head;
    while (later.free < head->slots && later.end_count > 0) {
        struct sched_end end = sched_take_end(&later);
        later.free += end.slots;
        walk->reserved_ms = end.ends_ms;
    }
    must(later.free >= head->slots); /* it is not too large for the machine */
    walk->spare =
        walk->reserved_ms == SCHED_NEVER ? sched_spare_always(walk) : later.free - head->slots;
}

/* Whether a is to be preempted rather than b, which may be NULL. */
static bool sched_is_better_victim(const struct sched_running *a, const struct sched_running *b)
{
    if (b == NULL || a->priority != b->priority)
        return b == NULL || a->priority < b->priority;
    return a->since_ms > b->since_ms;
}

static struct sched_running *sched_victim(const struct sched_pass *pass, int64_t priority)
{
    struct sched_running *best = NULL;
    for (size_t i = 0; i < pass->running_count; i++) {
        struct sched_running *running = &pass->running[i];
        bool ran = running->since_ms > 0 &&
                   pass->now_ms - running->since_ms >= pass->policy.preempt_after_ms;
        if (running->preemptible && !running->ending && !running->preempt && ran &&
            running->priority < priority && sched_is_better_victim(running, best))
            best = running;
    }
    return best;
}

/* One that need not be preempted, where `spare` slots more come than it takes; NULL: there is none.
 */
static struct sched_running *sched_spared(const struct sched_pass *pass, int64_t spare)
{
    struct sched_running *worst = NULL;
    for (size_t i = 0; i < pass->running_count; i++) {
        struct sched_running *running = &pass->running[i];
        if (running->preempt && sched_gives(running) <= spare &&
            (worst == NULL || sched_is_better_victim(worst, running)))
            worst = running;
    }
    return worst;
}

/* Whether running jobs make room for the head, those chosen here among them. */
static bool sched_make_room(const struct sched_walk *walk)
{
    struct sched_pass *pass = walk->pass;
    int64_t coming = walk->free + sched_in_between(pass) - walk->head->slots;
    bool room = walk->head->claims;
    for (size_t i = 0; i < pass->running_count; i++) {
        coming += pass->running[i].ending ? sched_gives(&pass->running[i]) : 0;
        room |= pass->running[i].preempted;
    }
    if (coming >= 0)
        return room;
    struct sched_running *victim = NULL;
    while (coming < 0 && (victim = sched_victim(pass, walk->head->priority)) != NULL) {
        victim->preempt = true;
        coming += sched_gives(victim);
    }
    const bool enough = coming >= 0;
    while ((victim = sched_spared(pass, enough ? coming : LIMIT_RANKS)) != NULL) {
        victim->preempt = false;
        coming -= sched_gives(victim);
    }
    return enough;
}

/* ---- the walk ------------------------------------------------------------------------------ */

static void sched_start(struct sched_walk *walk, struct sched_job *job)
{
    job->start_ms = walk->pass->now_ms;
    sched_count(walk->pass, job->user, job->slots);
    walk->free -= job->slots;
    sched_add_end(walk, sched_end_of(walk->pass->now_ms, job->lasts_ms), job->slots);
}

/* What keeps a job from its place in the walk, whatever slots there are; SCHED_START: nothing. */
static enum sched_verdict sched_obstacle(const struct sched_pass *pass, const struct sched_job *job)
{
    const struct sched_policy *policy = &pass->policy;
    const struct sched_user *user = &pass->users[job->user];
    if (job->held)
        return SCHED_HELD;
    if (job->depends)
        return SCHED_DEPENDS;
    if (job->slots > pass->slots)
        return SCHED_TOO_LARGE;
    if (policy->draining)
        return SCHED_DRAINING;
    if (policy->user_slots_max > 0 && user->slots + job->slots > policy->user_slots_max)
        return SCHED_USER_SLOTS;
    if (policy->user_jobs_max > 0 && user->jobs >= policy->user_jobs_max)
        return SCHED_USER_JOBS;
    return SCHED_START;
}

/* Whether a job behind the head may start: it ends in time, or takes what is to spare. */
static bool sched_backfills(struct sched_walk *walk, const struct sched_job *job)
{
    if (job->slots > walk->free)
        return false;
    bool in_time = walk->reserved_ms != SCHED_NEVER &&
                   sched_end_of(walk->pass->now_ms, job->lasts_ms) <= walk->reserved_ms;
    if (!in_time && job->slots > walk->spare)
        return false;
    walk->spare -= in_time ? 0 : job->slots;
    return true;
}

static void sched_judge(struct sched_walk *walk, struct sched_job *job)
{
    bool room = false;
    job->verdict = sched_obstacle(walk->pass, job);
    if (job->verdict == SCHED_START && walk->head == NULL && job->slots > walk->free) {
        sched_reserve(walk, job);
        sched_count(walk->pass, job->user, job->slots); /* nor may its user's cap delay it */
        room = sched_make_room(walk);
        job->verdict = room ? SCHED_ROOM : SCHED_SLOTS;
    } else if (job->verdict == SCHED_START && walk->head != NULL && !sched_backfills(walk, job)) {
        job->verdict = SCHED_BEHIND;
    }
    job->claims = room;
    if (job->verdict == SCHED_START)
        sched_start(walk, job);
}

/* When those that wait for slots would start if none overtook another. */
static void sched_estimate(struct sched_walk *walk)
{
    int64_t at_ms = walk->pass->now_ms;
    for (size_t i = 0; i < walk->pass->job_count; i++) {
        struct sched_job *job = &walk->pass->jobs[i];
        if (job->verdict != SCHED_SLOTS && job->verdict != SCHED_ROOM &&
            job->verdict != SCHED_BEHIND)
            continue;
        while (walk->free < job->slots && walk->end_count > 0) {
            struct sched_end end = sched_take_end(walk);
            at_ms = end.ends_ms > at_ms ? end.ends_ms : at_ms;
            walk->free += end.slots;
        }
        if (walk->free < job->slots || at_ms == SCHED_NEVER)
            return;
        job->start_ms = at_ms;
        walk->free -= job->slots;
        sched_add_end(walk, sched_end_of(at_ms, job->lasts_ms), job->slots);
    }
}

void sched_pass(struct sched_pass *pass)
{
    struct sched_walk walk = {.pass = pass, .free = pass->free};
    must(pass->free >= 0 && pass->running_count <= LIMIT_RANKS);
    sched_count_running(&walk);
    sched_order(pass);
    int64_t position = 0;
    for (size_t i = 0; i < pass->job_count; i++) {
        struct sched_job *job = &pass->jobs[i];
        must(job->slots > 0);
        job->start_ms = 0;
        sched_judge(&walk, job);
        job->position = job->verdict == SCHED_START ? 0 : ++position;
    }
    bool known = walk.head != NULL && walk.reserved_ms != SCHED_NEVER;
    pass->head_ms = known ? walk.reserved_ms : 0;
    sched_estimate(&walk);
}

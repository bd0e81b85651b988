/* sched_rules: what holds after every pass of daemon/sched.h, whatever was before: the order, a
 * true reason for each job that waits, and who is preempted. Each rule is found out anew and the
 * slow way; a pass that breaks one ends the test.
 *
 *     sched_pass(&pass);
 *     rules_check(&pass, claimed);    claimed: what pass.jobs[].claims were before, in today's
 * order
 *
 * Included by a test after cmocka.h. */
#pragma once
#include "daemon/sched.h"

#include <stdint.h>

enum { RULES_USERS = 4 };

static bool rules_ready(const struct sched_job *job)
{
    return !job->held && !job->depends;
}

/* ---- the order ----------------------------------------------------------------------------- */

/* Below zero: a's class goes before b's. Jobs by their places in the pass. */
static int rules_class(const struct sched_pass *pass, const bool *claimed, size_t a, size_t b)
{
    const struct sched_job *left = &pass->jobs[a], *right = &pass->jobs[b];
    if (rules_ready(left) != rules_ready(right))
        return rules_ready(left) ? -1 : 1;
    if (claimed[a] != claimed[b])
        return claimed[a] ? -1 : 1;
    return (left->priority < right->priority) - (left->priority > right->priority);
}

/* Of the jobs from `from` on: each user's first one of the first class; then the user who has used
 * least, by what its jobs before it in the class add. */
static const struct sched_job *rules_next(const struct sched_pass *pass, const bool *claimed,
                                          size_t from, const double share[RULES_USERS])
{
    const struct sched_job *first[RULES_USERS] = {NULL}, *best = NULL;
    size_t class = from;
    for (size_t i = from; i < pass->job_count; i++)
        if (rules_class(pass, claimed, i, class) < 0)
            class = i;
    for (size_t i = from; i < pass->job_count; i++) {
        const struct sched_job *job = &pass->jobs[i];
        const struct sched_job **mine = &first[job->user];
        if (rules_class(pass, claimed, i, class) == 0 &&
            (*mine == NULL || job->number < (*mine)->number))
            *mine = job;
    }
    for (size_t user = 0; user < RULES_USERS; user++) {
        const struct sched_job *job = first[user];
        if (job != NULL && (best == NULL || share[user] < share[best->user] ||
                            (share[user] <= share[best->user] && job->number < best->number)))
            best = job;
    }
    return best;
}

static void rules_order(const struct sched_pass *pass, const bool *claimed)
{
    double share[RULES_USERS] = {0};
    assert_true(pass->user_count <= RULES_USERS);
    for (size_t i = 0; i < pass->job_count; i++) {
        const struct sched_job *job = &pass->jobs[i];
        if (i == 0 || rules_class(pass, claimed, i, i - 1) != 0)
            for (size_t user = 0; user < pass->user_count; user++)
                share[user] = pass->users[user].used_s;
        assert_ptr_equal(rules_next(pass, claimed, i, share), job);
        share[job->user] += (double)pass->policy.entry_penalty_s * (double)job->slots;
    }
}

/* ---- the head ------------------------------------------------------------------------------ */

static int64_t rules_gives(const struct sched_running *running)
{
    return running->slots - running->lost;
}

static bool rules_may_be_preempted(const struct sched_pass *pass, const struct sched_running *one,
                                   const struct sched_job *head)
{
    return one->preemptible && !one->ending && one->since_ms > 0 &&
           one->priority < head->priority &&
           pass->now_ms - one->since_ms >= pass->policy.preempt_after_ms;
}

/* As few as it takes, the lowest priority and the latest start first. coming: slots that come to
 * the head beyond its need, those of the chosen among them. */
static void rules_fewest(const struct sched_pass *pass, const struct sched_job *head,
                         int64_t coming)
{
    for (size_t i = 0; i < pass->running_count; i++) {
        const struct sched_running *chosen = &pass->running[i];
        if (!chosen->preempt)
            continue;
        assert_true(rules_gives(chosen) > coming);
        for (size_t k = 0; k < pass->running_count; k++) {
            const struct sched_running *spared = &pass->running[k];
            bool better = spared->priority != chosen->priority
                              ? spared->priority < chosen->priority
                              : spared->since_ms > chosen->since_ms;
            assert_false(!spared->preempt && rules_may_be_preempted(pass, spared, head) && better &&
                         rules_gives(spared) >= rules_gives(chosen));
        }
    }
}

/* Who makes room for the head. free: slots when its turn came; claimed: before the pass. */
static void rules_room(const struct sched_pass *pass, const struct sched_job *head, int64_t free,
                       bool claimed)
{
    int64_t between = pass->slots - pass->free, coming = free - head->slots, more = 0, chosen = 0;
    for (size_t i = 0; i < pass->running_count; i++) {
        const struct sched_running *one = &pass->running[i];
        bool allowed = rules_may_be_preempted(pass, one, head);
        between -= rules_gives(one);
        coming += one->ending ? rules_gives(one) : 0;
        more += allowed ? rules_gives(one) : 0;
        chosen += one->preempt ? rules_gives(one) : 0;
        claimed |= one->preempted;
        assert_true(!one->preempt || allowed);
    }
    coming += between > 0 ? between : 0;
    bool needed = coming < 0; /* else enough comes by itself */
    assert_int_equal(head->verdict == SCHED_ROOM, needed ? coming + more >= 0 : claimed);
    if (needed && head->verdict == SCHED_ROOM)
        assert_true(coming + chosen >= 0);
    else
        assert_int_equal(chosen, 0);
    rules_fewest(pass, head, coming + chosen);
}

/* ---- reasons ------------------------------------------------------------------------------- */

struct rules_walk {
    const struct sched_job *head;
    int64_t free;
    int64_t slots[RULES_USERS], jobs[RULES_USERS]; /* of users: what runs, starts, or is the head */
};

static void rules_count(struct rules_walk *walk, size_t user, int64_t slots)
{
    walk->slots[user] += slots;
    walk->jobs[user]++;
}

/* A job waits for exactly the reason that it is told. */
static void rules_reason(const struct sched_pass *pass, const struct sched_job *job, bool claimed,
                         struct rules_walk *walk)
{
    const struct sched_policy *policy = &pass->policy;
    bool over_slots =
        policy->user_slots_max > 0 && walk->slots[job->user] + job->slots > policy->user_slots_max;
    bool over_jobs = policy->user_jobs_max > 0 && walk->jobs[job->user] >= policy->user_jobs_max;
    bool fits = job->slots <= walk->free;
    bool in_time = walk->head != NULL && walk->head->start_ms > 0 && job->lasts_ms > 0 &&
                   pass->now_ms + job->lasts_ms <= walk->head->start_ms;
    const struct {
        bool holds;
        enum sched_verdict verdict;
    } reasons[] = {{job->held, SCHED_HELD},
                   {job->depends, SCHED_DEPENDS},
                   {job->slots > pass->slots, SCHED_TOO_LARGE},
                   {policy->draining, SCHED_DRAINING},
                   {over_slots, SCHED_USER_SLOTS},
                   {over_jobs, SCHED_USER_JOBS}};
    for (size_t i = 0; i < sizeof reasons / sizeof reasons[0]; i++)
        if (reasons[i].holds) {
            assert_int_equal(job->verdict, reasons[i].verdict);
            return;
        }
    if (walk->head == NULL && fits) {
        assert_int_equal(job->verdict, SCHED_START);
    } else if (walk->head == NULL) {
        assert_true(job->verdict == SCHED_SLOTS || job->verdict == SCHED_ROOM);
        rules_room(pass, job, walk->free, claimed);
        walk->head = job;
        rules_count(walk, job->user, job->slots);
    } else {
        assert_true(job->verdict == SCHED_BEHIND || (job->verdict == SCHED_START && fits));
        assert_true(job->verdict == SCHED_START || !fits || !in_time);
    }
}

static void rules_check(const struct sched_pass *pass, const bool *claimed)
{
    struct rules_walk walk = {.free = pass->free};
    int64_t position = 0;
    rules_order(pass, claimed);
    for (size_t i = 0; i < pass->running_count; i++)
        rules_count(&walk, pass->running[i].user, pass->running[i].slots);
    for (size_t i = 0; i < pass->job_count; i++) {
        const struct sched_job *job = &pass->jobs[i];
        rules_reason(pass, job, claimed[i], &walk);
        assert_true(job->claims == (job->verdict == SCHED_ROOM));
        assert_int_equal(job->position, job->verdict == SCHED_START ? 0 : ++position);
        if (job->verdict != SCHED_START)
            continue;
        assert_int_equal(job->start_ms, pass->now_ms);
        rules_count(&walk, job->user, job->slots);
        walk.free -= job->slots;
    }
    for (size_t i = 0; i < pass->running_count && walk.head == NULL; i++)
        assert_false(pass->running[i].preempt);
}

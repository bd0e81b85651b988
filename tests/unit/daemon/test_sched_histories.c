/* sched: thousands of histories of a machine, each drawn from a seed and played to its end, with
 * what must hold at every pass:
 *
 *   - no slot is given twice, and none beyond a user's cap;
 *   - nothing starts that is held or waits for another job;
 *   - a job behind the head starts only if, by the ends that come to pass, the head starts no later
 *     than it was promised, or where nothing was promised, than without that job;
 *   - what was promised to the head is kept while nobody goes before it;
 *   - only jobs that allow it and ran long enough are preempted, for one of higher priority, and
 *     the next to get slots is then the one that they made room for;
 *   - every job has its end: none is lost, none starves (field case R50);
 *   - the same history again, its jobs given in another order, has the same ends. */
#include "common/rng.h"
#include "daemon/sched.h"
#include "daemon/usage.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

enum {
    HISTORIES = 3000,
    JOBS_MAX = 24,
    USERS = 3,
    STEP_MS = 1000,
    STEPS_MAX = 4000, /* all jobs in turn take under 1000 */
};
static const uint64_t seed = 20261130;

enum play_state { PLAY_WAITS, PLAY_RUNS, PLAY_ENDING, PLAY_CHECKED, PLAY_ENDED };

struct play_job {
    size_t user;
    int64_t priority, slots;
    int64_t arrives_ms, released_ms; /* held until then */
    int depends;                     /* on this job; -1: none */
    int64_t left_ms;                 /* of its work */
    bool told;                       /* its length is known */
    bool preemptible;
    enum play_state state;
    int64_t since_ms; /* it runs; or when its slots come free */
    bool preempted, claims;
    int64_t ended_ms;
};

struct play {
    uint64_t number, draws; /* of the history; taken of its random numbers */
    uint64_t shuffles;      /* 0: jobs in their order */
    int64_t now_ms, slots;
    struct sched_policy policy;
    struct usage usage;
    struct play_job jobs[JOBS_MAX];
    int count;
    const struct play_job *head;    /* of the last pass */
    int64_t promised_ms;            /* to it; 0: nothing */
    const struct play_job *claimer; /* that jobs make room for; NULL: none */
    int64_t preemptions, backfills;
};

static int64_t draw(struct play *play, int64_t low, int64_t high)
{
    uint64_t at = play->number << 16 | play->draws++;
    return low + (int64_t)rng_below(seed, RNG_STREAM_TEST, at, (uint64_t)(high - low + 1));
}

static void play_draw(struct play *play, uint64_t number)
{
    *play = (struct play){.number = number, .now_ms = STEP_MS};
    play->slots = draw(play, 1, 8);
    play->policy = (struct sched_policy){
        .user_slots_max = draw(play, 0, 2) == 0 ? play->slots : 0,
        .user_jobs_max = draw(play, 0, 3) == 0 ? draw(play, 1, 3) : 0,
        .entry_penalty_s = draw(play, 0, 3) * 10,
        .preempt_after_ms = draw(play, 0, 5) * STEP_MS,
    };
    play->usage.half_life_ms = draw(play, 0, 2) * 50 * STEP_MS;
    play->count = (int)draw(play, 4, JOBS_MAX);
    for (int i = 0; i < play->count; i++) {
        struct play_job *job = &play->jobs[i];
        job->user = (size_t)draw(play, 0, USERS - 1);
        job->priority = draw(play, 0, 3) == 0 ? draw(play, -1, 2) : 0;
        job->slots = draw(play, 1, play->slots);
        job->arrives_ms = draw(play, 1, 60) * STEP_MS;
        job->released_ms = draw(play, 0, 5) == 0 ? draw(play, 1, 120) * STEP_MS : 0;
        job->depends = i > 0 && draw(play, 0, 5) == 0 ? (int)draw(play, 0, i - 1) : -1;
        job->left_ms = draw(play, 1, 20) * STEP_MS;
        job->told = draw(play, 0, 2) > 0;
        job->preemptible = draw(play, 0, 1) == 0;
    }
    struct err err;
    for (size_t i = 0, index = 0; i < USERS; i++)
        assert_int_equal(usage_find(&play->usage, (char[]){(char)('a' + i), '\0'}, &index, &err),
                         0);
}

static int64_t play_end_of(const struct play *play, const struct play_job *job)
{
    return job->state == PLAY_RUNS ? play->now_ms + job->left_ms : job->since_ms;
}

/* When a job has its slots by the ends that come to pass, those of `without` not started; they are
 * the ones marked in the bits. */
static int64_t play_start_of(const struct play *play, const struct play_job *head, uint32_t without)
{
    for (int64_t at_ms = play->now_ms;; at_ms += STEP_MS) {
        int64_t free_slots = play->slots;
        assert_true(at_ms < play->now_ms + STEPS_MAX * STEP_MS);
        for (int i = 0; i < play->count; i++) {
            const struct play_job *job = &play->jobs[i];
            bool has = job->state != PLAY_WAITS && job->state != PLAY_ENDED;
            if (has && (without >> i & 1) == 0 && play_end_of(play, job) > at_ms)
                free_slots -= job->slots;
        }
        if (free_slots >= head->slots)
            return at_ms;
    }
}

/* ---- a pass -------------------------------------------------------------------------------- */

struct play_pass {
    struct sched_pass sched;
    struct sched_user users[USERS];
    struct sched_job jobs[JOBS_MAX];
    struct sched_running running[JOBS_MAX];
};

static void play_add(const struct play *play, struct play_pass *pass, struct play_job *job)
{
    struct sched_pass *sched = &pass->sched;
    bool waits = job->depends >= 0 && play->jobs[job->depends].state != PLAY_ENDED;
    if (job->state == PLAY_WAITS && job->arrives_ms <= play->now_ms)
        pass->jobs[sched->job_count++] = (struct sched_job){
            .object = job,
            .user = job->user,
            .priority = job->priority,
            .number = job->arrives_ms * JOBS_MAX + (job - play->jobs),
            .slots = job->slots,
            .lasts_ms = job->told ? job->left_ms : 0,
            .held = job->released_ms > play->now_ms,
            .depends = waits,
            .claims = job->claims,
        };
    if (job->state == PLAY_RUNS || job->state == PLAY_ENDING)
        pass->running[sched->running_count++] = (struct sched_running){
            .object = job,
            .user = job->user,
            .priority = job->priority,
            .slots = job->slots,
            .since_ms = job->state == PLAY_RUNS ? job->since_ms : 0,
            .ends_ms = job->told ? play->now_ms + job->left_ms : 0,
            .preemptible = job->preemptible,
            .ending = job->state == PLAY_ENDING,
            .preempted = job->preempted,
        };
    if (job->state == PLAY_RUNS || job->state == PLAY_ENDING || job->state == PLAY_CHECKED)
        sched->free -= job->slots; /* CHECKED: a GPU that is looked at after it */
}

static void play_fill(struct play *play, struct play_pass *pass)
{
    uint64_t order[JOBS_MAX];
    *pass = (struct play_pass){.sched = {.now_ms = play->now_ms,
                                         .slots = play->slots,
                                         .free = play->slots,
                                         .policy = play->policy,
                                         .user_count = USERS}};
    pass->sched.users = pass->users;
    pass->sched.jobs = pass->jobs;
    pass->sched.running = pass->running;
    for (size_t i = 0; i < USERS; i++)
        pass->users[i].used_s = usage_now(&play->usage, i, play->now_ms);
    for (int i = 0; i < play->count; i++)
        order[i] = (uint64_t)i;
    if (play->shuffles > 0)
        rng_permutation(seed, RNG_STREAM_TEST + play->shuffles++, (uint64_t)play->count, order);
    for (int i = 0; i < play->count; i++)
        play_add(play, pass, &play->jobs[order[i]]);
    assert_true(pass->sched.free >= 0);
}

static void play_start(struct play *play, struct play_job *job)
{
    int64_t slots = 0, jobs = 0;
    assert_true(job->state == PLAY_WAITS && job->released_ms <= play->now_ms);
    assert_true(job->depends < 0 || play->jobs[job->depends].state == PLAY_ENDED);
    job->state = PLAY_RUNS;
    job->since_ms = play->now_ms;
    for (int i = 0; i < play->count; i++) {
        const struct play_job *other = &play->jobs[i];
        bool counts =
            other->user == job->user && (other->state == PLAY_RUNS || other->state == PLAY_ENDING);
        slots += counts ? other->slots : 0;
        jobs += counts;
    }
    assert_true(play->policy.user_slots_max == 0 || slots <= play->policy.user_slots_max);
    assert_true(play->policy.user_jobs_max == 0 || jobs <= play->policy.user_jobs_max);
    usage_charge(&play->usage, job->user, 0, (double)(play->policy.entry_penalty_s * job->slots),
                 play->now_ms);
}

static void play_preempt(struct play *play, const struct play_job *head,
                         const struct sched_running *running)
{
    struct play_job *job = running->object;
    assert_true(job->preemptible && job->state == PLAY_RUNS && job->priority < head->priority);
    assert_true(play->now_ms - job->since_ms >= play->policy.preempt_after_ms);
    job->state = PLAY_ENDING;
    job->preempted = true;
    job->since_ms = play->now_ms + draw(play, 1, 3) * STEP_MS;
    play->preemptions++;
}

/* The slots of the machine, and what the head was told. passed: others started before it. */
static void play_check(struct play *play, const struct sched_job *head, uint32_t behind,
                       bool passed)
{
    int64_t slots = 0;
    bool moving = passed;
    for (int i = 0; i < play->count; i++) {
        const struct play_job *job = &play->jobs[i];
        slots += job->state == PLAY_WAITS || job->state == PLAY_ENDED ? 0 : job->slots;
        moving |= job->state == PLAY_ENDING || job->state == PLAY_CHECKED;
    }
    assert_true(slots <= play->slots);
    const struct play_job *job = head != NULL ? head->object : NULL;
    if (job != NULL && behind != 0) {
        int64_t alone_ms = play_start_of(play, job, behind);
        int64_t limit_ms = head->start_ms > alone_ms ? head->start_ms : alone_ms;
        assert_true(play_start_of(play, job, 0) <= limit_ms);
    }
    if (job != NULL && job == play->head && play->promised_ms > 0 && !moving)
        assert_true(head->start_ms > 0 && head->start_ms <= play->promised_ms);
    if (job != play->head || moving)
        play->promised_ms = 0;
    play->head = job;
    if (job != NULL && !moving && head->start_ms > 0)
        play->promised_ms = head->start_ms;
}

static void play_pass(struct play *play)
{
    struct play_pass pass;
    const struct sched_job *head = NULL;
    uint32_t behind = 0; /* jobs that started behind the head */
    bool passed = false;
    play_fill(play, &pass);
    sched_pass(&pass.sched);
    for (size_t i = 0; i < pass.sched.job_count; i++) {
        const struct sched_job *job = &pass.jobs[i];
        struct play_job *played = job->object;
        assert_true(job->verdict != SCHED_BEHIND || head != NULL);
        played->claims = job->claims;
        if (job->verdict == SCHED_SLOTS || job->verdict == SCHED_ROOM) {
            assert_null(head);
            head = job;
        }
        if (job->verdict != SCHED_START)
            continue;
        assert_true(play->claimer == NULL || played == play->claimer ||
                    play->claimer->state == PLAY_RUNS ||
                    (head != NULL && head->object == play->claimer));
        play_start(play, played);
        passed |= head == NULL;
        behind |= head != NULL ? 1u << (played - play->jobs) : 0;
        play->backfills += head != NULL;
    }
    for (size_t i = 0; i < pass.sched.running_count; i++)
        if (pass.running[i].preempt) {
            assert_true(head != NULL && head->verdict == SCHED_ROOM && head->claims);
            play_preempt(play, head->object, &pass.running[i]);
        }
    play->claimer = head != NULL && head->claims ? head->object : NULL;
    play_check(play, head, behind, passed);
}

/* ---- time ---------------------------------------------------------------------------------- */

static void play_step(struct play *play)
{
    play->now_ms += STEP_MS;
    for (int i = 0; i < play->count; i++) {
        struct play_job *job = &play->jobs[i];
        if (job->state == PLAY_RUNS || job->state == PLAY_ENDING)
            usage_charge(&play->usage, job->user, (double)job->slots * STEP_MS / 1000, 0,
                         play->now_ms);
        if (job->state == PLAY_RUNS)
            job->left_ms -= STEP_MS;
        if (job->state == PLAY_RUNS && job->left_ms == 0) {
            job->ended_ms = play->now_ms;
            job->state = draw(play, 0, 3) == 0 ? PLAY_CHECKED : PLAY_ENDED;
            job->since_ms = play->now_ms + STEP_MS;
        } else if (job->state == PLAY_ENDING && job->since_ms <= play->now_ms) {
            job->state = PLAY_WAITS;
            job->preempted = false;
        } else if (job->state == PLAY_CHECKED && job->since_ms <= play->now_ms) {
            job->state = PLAY_ENDED;
        }
    }
}

static bool play_is_over(const struct play *play)
{
    for (int i = 0; i < play->count; i++)
        if (play->jobs[i].state != PLAY_ENDED)
            return false;
    return true;
}

static void play_through(struct play *play)
{
    for (int step = 0; !play_is_over(play); step++) {
        if (step == STEPS_MAX)
            fail_msg("history %llu has no end", (unsigned long long)play->number);
        play_pass(play);
        play_step(play);
    }
}

static void test_histories(void **state)
{
    (void)state;
    static struct play play, again;
    int64_t preemptions = 0, backfills = 0;
    print_message("seed %llu\n", (unsigned long long)seed);
    for (uint64_t number = 0; number < HISTORIES; number++) {
        play_draw(&play, number);
        play_through(&play);
        preemptions += play.preemptions;
        backfills += play.backfills;
        if (number % 10 == 0) {
            play_draw(&again, number);
            again.shuffles = 1 + number * STEPS_MAX;
            play_through(&again);
            for (int i = 0; i < play.count; i++)
                assert_int_equal(again.jobs[i].ended_ms, play.jobs[i].ended_ms);
            usage_done(&again.usage);
        }
        usage_done(&play.usage);
    }
    print_message("%lld preemptions, %lld jobs passed others\n", (long long)preemptions,
                  (long long)backfills);
    assert_true(preemptions > HISTORIES / 4 &&
                backfills > HISTORIES / 2); /* so that they are tested */
}

/* A job that needs the whole machine, with small ones coming for ever. */
static void test_a_wide_job_does_not_starve(void **state)
{
    (void)state;
    struct play play;
    play_draw(&play, 1);
    play.slots = 4;
    play.policy = (struct sched_policy){.entry_penalty_s = 1};
    play.count = 9;
    for (int i = 0; i < play.count; i++) {
        play.jobs[i] = (struct play_job){.user = i == 0,
                                         .slots = i == 0 ? 4 : 1,
                                         .depends = -1,
                                         .left_ms = (1 + i) * STEP_MS,
                                         .told = i % 2 == 0};
    }
    play.jobs[0].arrives_ms = 5 * STEP_MS;
    int step = 0;
    for (; play.jobs[0].state != PLAY_ENDED; step++) {
        assert_true(step < 200);
        play_pass(&play);
        play_step(&play);
        for (int i = 1; i < play.count; i++) /* as soon as one ends the next is there */
            if (play.jobs[i].state == PLAY_ENDED || play.jobs[i].state == PLAY_CHECKED) {
                play.jobs[i].state = PLAY_WAITS;
                play.jobs[i].left_ms = (1 + i) * STEP_MS;
                play.jobs[i].arrives_ms = play.now_ms;
            }
    }
    assert_true(step < 40);
    usage_done(&play.usage);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_histories),
                                       cmocka_unit_test(test_a_wide_job_does_not_starve)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
